//! JSON from strangers: what `serde_json` needs around it so that no text makes it deep,
//! large in memory or wordy.

use crate::format::Quoted;
use crate::format::limits::{OverLimit, within};
use serde::de::{self, DeserializeSeed, Deserializer, Visitor};
use std::fmt::{self, Display, Formatter, Write};

/// How deep values may nest: `serde_json`'s own limit, kept where it would not look.
const MOST_DEPTH: u32 = 128;

/// The longest message of the parser that is passed on, in bytes.
const LONGEST_MESSAGE: usize = 300;

/// The text is not JSON, or not of the form that is wanted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message} (byte {offset} of the file)", Within(subject))]
pub struct JsonError {
    /// The name of the entry in which it happened, when it happened in one.
    pub subject: Option<Box<[u8]>>,
    /// What was found and what was expected.
    pub message: String,
    /// Where, from the start of the file.
    pub offset: u64,
}

struct Within<'a>(&'a Option<Box<[u8]>>);

impl Display for Within<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "at {}: ", Quoted(name)),
            None => Ok(()),
        }
    }
}

impl JsonError {
    /// From the parser's error on `text`, which begins `base` bytes into the file.
    pub(super) fn new(
        error: &serde_json::Error,
        text: &str,
        base: u64,
        subject: Option<Box<[u8]>>,
    ) -> JsonError {
        let mut message = Bounded { text: String::new() };
        // An error only says that the message was cut.
        let _cut = write!(message, "{error}");
        let place = format!(" at line {} column {}", error.line(), error.column());
        let message = message.text.strip_suffix(&place).unwrap_or(&message.text).to_owned();
        let lines_before = error.line().saturating_sub(1);
        let line_start: usize = text
            .split_inclusive('\n')
            .take(lines_before)
            .map(str::len)
            .fold(0, usize::saturating_add);
        let within = line_start.saturating_add(error.column().saturating_sub(1));
        let within = within.min(text.len().saturating_sub(1));
        JsonError { subject, message, offset: base.saturating_add(within as u64) }
    }
}

/// Text that stops growing; the parser quotes what it finds, which can be megabytes.
struct Bounded {
    text: String,
}

impl Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            if self.text.len() > LONGEST_MESSAGE {
                self.text.push_str("...");
                return Err(fmt::Error);
            }
            self.text.push(c);
        }
        Ok(())
    }
}

/// Looks over `text` before it is parsed: no string in it is longer than `longest` bytes as
/// written, nothing nests deeper than the limit. Text that is not JSON may pass.
pub(super) fn survey(text: &str, longest: u64) -> Result<(), OverLimit> {
    let (mut depth, mut deepest) = (0u32, 0u32);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                let mut len = 0u64;
                while let Some(byte) = bytes.next().filter(|&b| b != b'"') {
                    len = len.saturating_add(1);
                    if byte == b'\\' && bytes.next().is_some() {
                        len = len.saturating_add(1);
                    }
                }
                within("length of a string in the JSON, in bytes", len, longest)?;
            }
            b'[' | b'{' => {
                depth = depth.saturating_add(1);
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    within("nesting of the JSON", deepest.into(), MOST_DEPTH.into())
}

/// Reads a string and hands it to a function, which may keep a part of it or nothing.
pub(super) struct Str<F>(pub(super) F);

impl<'de, T, F: FnOnce(&str) -> Result<T, Stop>> DeserializeSeed<'de> for Str<F> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<T, D::Error> {
        d.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, Stop>> Visitor<'_> for Str<F> {
    type Value = T;
    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: de::Error>(self, s: &str) -> Result<T, E> {
        (self.0)(s).map_err(Stop::into_error)
    }
}

/// Ends the parse; the reason was left where the caller finds it.
pub(super) struct Stop;

impl Stop {
    pub(super) fn into_error<E: de::Error>(self) -> E {
        E::custom("refused")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn long_strings_and_deep_nesting_are_seen_before_parsing() {
        survey(r#"{"a\"[[[": [1, "b"], "c": {}}"#, 7).unwrap();
        assert!(survey(r#"{"abc": 1}"#, 2).is_err());
        assert!(survey(r#"["\"\"\""]"#, 5).is_err());
        survey(&("[".repeat(128) + &"]".repeat(128)), 9).unwrap();
        let e = survey(&"[".repeat(1_000_000), 9).unwrap_err();
        assert_eq!(e.to_string(), "nesting of the JSON: 1000000 is over the limit of 128");
        assert!(survey(&format!("\"{}", "x".repeat(100)), 99).is_err());
    }

    #[test]
    fn messages_give_the_byte_and_stay_short() {
        let text = "{\"a\":\n 1,\n x}";
        let e = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
        let e = JsonError::new(&e, text, 8, None);
        assert_eq!(e.to_string(), "key must be a string (byte 19 of the file)");
        let text = format!("\"{}\"", "y".repeat(1000));
        let e = serde_json::from_str::<u64>(&text).unwrap_err();
        let e = JsonError::new(&e, &text, 0, Some((*b"n").into()));
        assert!(e.message.len() < 310 && e.message.ends_with("..."), "{}", e.message);
        assert!(e.to_string().starts_with("at \"n\": invalid type: string \"yyy"));
    }
}
