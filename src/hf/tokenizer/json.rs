//! Compact JSON, written as it is made.

use crate::view::json;
use std::io;

/// Longest file that is made. A vocabulary within the limits of the recipe stays far below it
/// unless it was built to grow: one token of a thousand letters has a million letters of merges.
const MAX_FILE: usize = if cfg!(test) { 8 << 20 } else { 128 << 20 };

/// Appends `text` as a JSON string.
pub(super) fn quote(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        json::escape_into(text, out);
    }
    out.push(b'"');
}

/// Appends a ready value.
pub(super) fn value(value: &serde_json::Value, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("a value has string keys and memory takes all");
}

/// Appends a comma, unless `first`; clears it.
pub(super) fn comma(first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(first) {
        out.push(b',');
    }
}

/// Fails once a file is longer than any real one.
pub(super) fn within(out: &[u8]) -> io::Result<()> {
    if out.len() > MAX_FILE {
        let text = format!("hf/tokenizer.json would pass its limit of {MAX_FILE} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_escaped_only_where_it_must_be() {
        let mut out = Vec::new();
        quote("\u{2581}a'", &mut out);
        quote("\"\\\u{1f}\u{7f}\n", &mut out);
        quote("", &mut out);
        assert_eq!(out, "\"\u{2581}a'\"\"\\\"\\\\\\u001f\u{7f}\\n\"\"\"".as_bytes());
    }
}
