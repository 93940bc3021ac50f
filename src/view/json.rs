//! JSON text as this project writes it: UTF-8, two spaces, a newline at the end.
//!
//! Knows how bytes that are not UTF-8, and numbers that are not JSON, are shown.

use crate::model::Value;
use serde::Serialize;
use std::borrow::Cow;

/// `bytes` as text, with each byte that is not part of valid UTF-8 as U+FFFD.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let mut text = String::with_capacity(bytes.len() + 2);
            for chunk in bytes.utf8_chunks() {
                text.push_str(chunk.valid());
                text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
            }
            text.into()
        }
    }
}

/// A whole document.
pub fn document(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .expect("maps have string keys and writing to memory succeeds");
    bytes.push(b'\n');
    bytes
}

/// Appends what stands between the quotes of a JSON string.
pub fn escape_into(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    serde_json::to_writer(&mut *out, text).expect("writing to memory succeeds");
    out.pop();
    out.remove(start);
}

/// Bytes that [`escape_into`] appends.
pub fn escaped_len(text: &str) -> u64 {
    let more = |byte: &u8| match byte {
        b'"' | b'\\' | 8 | b'\t' | b'\n' | 12 | b'\r' => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() as u64 + text.as_bytes().iter().map(more).sum::<u64>()
}

/// A scalar as JSON text: integers exact, floats the shortest that reads back, NaN and
/// infinities as strings. `None` for strings and arrays.
pub fn scalar(value: &Value) -> Option<String> {
    Some(match *value {
        Value::U8(n) => n.to_string(),
        Value::I8(n) => n.to_string(),
        Value::U16(n) => n.to_string(),
        Value::I16(n) => n.to_string(),
        Value::U32(n) => n.to_string(),
        Value::I32(n) => n.to_string(),
        Value::U64(n) => n.to_string(),
        Value::I64(n) => n.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::F32(x) => float(x.into(), || serde_json::to_string(&x)),
        Value::F64(x) => float(x, || serde_json::to_string(&x)),
        Value::Str(_) | Value::Array(_) => return None,
    })
}

fn float(x: f64, finite: impl FnOnce() -> serde_json::Result<String>) -> String {
    if x.is_nan() {
        "\"NaN\"".into()
    } else if x.is_infinite() {
        if x > 0.0 { "\"Infinity\"".into() } else { "\"-Infinity\"".into() }
    } else {
        finite().expect("a finite number is JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_byte_becomes_one_replacement() {
        assert_eq!(lossy(b"a\xf0\x9f\x98z"), "a\u{fffd}\u{fffd}\u{fffd}z");
        assert_eq!(lossy("\u{1f600}".as_bytes()), "\u{1f600}");
    }

    #[test]
    fn numbers_are_exact_and_never_bare_nan() {
        assert_eq!(scalar(&Value::U64(u64::MAX)).as_deref(), Some("18446744073709551615"));
        assert_eq!(scalar(&Value::F32(1e-7)).and_then(|t| t.parse().ok()), Some(1e-7f32));
        assert_eq!(scalar(&Value::F32(0.1)).as_deref(), Some("0.1"));
        assert_eq!(scalar(&Value::F32(f32::NAN)).as_deref(), Some("\"NaN\""));
        assert_eq!(scalar(&Value::F64(f64::NEG_INFINITY)).as_deref(), Some("\"-Infinity\""));
        assert_eq!(scalar(&Value::Bool(true)).as_deref(), Some("true"));
    }

    #[test]
    fn escapes_are_those_of_a_json_string() {
        let mut out = b"<".to_vec();
        escape_into("a\"\\\n\u{1}/\u{e9}", &mut out);
        assert_eq!(out, "<a\\\"\\\\\\n\\u0001/\u{e9}".as_bytes());
    }
}
