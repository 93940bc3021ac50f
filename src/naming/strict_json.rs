//! JSON with places: every value and key knows where it stands in the text, so that several
//! errors can be reported together, each with line and column. serde_json parses; values
//! are borrowed slices of the text until somebody asks what is in them.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The text and where its pieces stand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'t>(&'t str);

/// One value, not yet looked into.
pub(super) type Raw<'t> = &'t RawValue;

/// A member of an object: its key's place, the key, the value.
pub(super) type Member<'t> = (usize, Cow<'t, str>, Raw<'t>);

impl<'t> Text<'t> {
    /// Checks that `text` is one JSON value; the error has serde_json's words and its place.
    pub(super) fn parse(text: &'t [u8]) -> Result<(Text<'t>, Raw<'t>), ((usize, usize), String)> {
        let text = std::str::from_utf8(text).map_err(|e| {
            let good = std::str::from_utf8(&text[..e.valid_up_to()]).unwrap_or_default();
            (Text(good).place(good.len()), "not UTF-8".to_owned())
        })?;
        match serde_json::from_str::<Raw<'t>>(text) {
            Ok(raw) => Ok((Text(text), raw)),
            Err(e) => {
                let message = e.to_string();
                let words = message.rsplit_once(" at line ").map_or(&*message, |(words, _)| words);
                Err(((e.line(), e.column()), words.to_owned()))
            }
        }
    }

    /// Byte position of a value.
    pub(super) fn at(self, raw: Raw<'t>) -> usize {
        self.offset(raw.get())
    }

    /// Line and column (in bytes) of a position, both from 1.
    pub(super) fn place(self, at: usize) -> (usize, usize) {
        let before = &self.0.as_bytes()[..at.min(self.0.len())];
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        let start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        (line, before.len() - start + 1)
    }

    /// Hands each member of an object to `each` until that says false; `None` when the
    /// value is no object.
    pub(super) fn members(self, raw: Raw<'t>, each: impl FnMut(Member<'t>) -> bool) -> Option<()> {
        let visitor = Members { text: self, each };
        serde_json::Deserializer::from_str(raw.get()).deserialize_map(visitor).ok()
    }

    /// Hands each item of an array to `each` until that says false; `None` when the value
    /// is no array.
    pub(super) fn items(self, raw: Raw<'t>, each: impl FnMut(Raw<'t>) -> bool) -> Option<()> {
        serde_json::Deserializer::from_str(raw.get()).deserialize_seq(Items { each }).ok()
    }

    /// Where a slice of the text begins in it.
    fn offset(self, slice: &str) -> usize {
        (slice.as_ptr() as usize).saturating_sub(self.0.as_ptr() as usize)
    }
}

/// A string value, borrowed where it has no escapes; `None` when the value is no string (or
/// has half of a surrogate pair).
pub(super) fn string<'t>(raw: Raw<'t>) -> Option<Cow<'t, str>> {
    serde_json::from_str::<Str<'t>>(raw.get()).ok().map(|s| s.0)
}

struct Str<'t>(Cow<'t, str>);

impl<'de> Deserialize<'de> for Str<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Str<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, s: &'de str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Borrowed(s)))
            }
            fn visit_str<E: Error>(self, s: &str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(s.to_owned())))
            }
        }
        deserializer.deserialize_str(V)
    }
}

struct Members<'t, F> {
    text: Text<'t>,
    each: F,
}

impl<'t, F: FnMut(Member<'t>) -> bool> Visitor<'t> for Members<'t, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'t>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut wanted = true;
        while let Some((key, value)) = map.next_entry::<Raw<'t>, Raw<'t>>()? {
            let name = string(key).ok_or_else(|| A::Error::custom("bad key"))?;
            wanted = wanted && (self.each)((self.text.at(key), name, value));
        }
        Ok(())
    }
}

struct Items<F> {
    each: F,
}

impl<'t, F: FnMut(Raw<'t>) -> bool> Visitor<'t> for Items<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'t>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let mut wanted = true;
        while let Some(item) = seq.next_element::<Raw<'t>>()? {
            wanted = wanted && (self.each)(item);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn members_and_items_know_their_places() {
        let text = "{\n  \"a\": [1,\n \"x\\ny\"],\n\"b\\u0041\":null }";
        let (text, root) = Text::parse(text.as_bytes()).unwrap();
        let mut seen = Vec::new();
        text.members(root, |(at, key, value)| {
            seen.push((key.into_owned(), text.place(at), text.place(text.at(value))));
            if value.get().starts_with('[') {
                text.items(value, |item| {
                    seen.push((item.get().into(), text.place(text.at(item)), (0, 0)));
                    true
                })
                .unwrap();
            }
            true
        })
        .unwrap();
        assert_eq!(
            seen,
            [
                ("a".into(), (2, 3), (2, 8)),
                ("1".into(), (2, 9), (0, 0)),
                ("\"x\\ny\"".into(), (3, 2), (0, 0)),
                ("bA".into(), (4, 1), (4, 11)),
            ]
        );
    }

    #[test]
    fn syntax_errors_have_a_place() {
        let (place, words) = Text::parse(b"{\n \"a\" 1}").unwrap_err();
        assert_eq!(place, (2, 6));
        assert_eq!(words, "expected `:`");
        assert_eq!(Text::parse(b"[1]\n\xff").unwrap_err().0, (2, 1));
        assert!(Text::parse(b"{} {}").is_err(), "trailing text");
        assert!(Text::parse(b"").is_err());
    }

    #[test]
    fn deep_nesting_does_not_recurse() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        let (text, root) = Text::parse(deep.as_bytes()).unwrap();
        let mut count = 0;
        text.members(root, |_| {
            count += 1;
            true
        })
        .unwrap();
        assert_eq!(count, 1);
    }

    #[test]
    fn strings_are_decoded() {
        let (_, raw) = Text::parse(br#""a\u00e9b""#).unwrap();
        assert_eq!(string(raw).unwrap(), "a\u{e9}b");
        let (_, raw) = Text::parse(br#""\ud800""#).unwrap();
        assert_eq!(string(raw), None);
        let (_, raw) = Text::parse(b"1").unwrap();
        assert_eq!(string(raw), None);
    }
}
