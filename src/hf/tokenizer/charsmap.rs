//! SentencePiece's table of normalisations, checked before the library relies on it.
//!
//! A length, a double-array trie of 32-bit units, and the replacements, each ended by a zero
//! byte. The library follows the units without looking: a place outside of the array is a
//! panic in the middle of a text.

use crate::format::gguf::array::Item;
use crate::hf::meta::Meta;
use crate::model::{Array, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;

/// The table in base64; `None`, with a word in the log, where it is none.
pub(super) fn read(meta: Meta<'_>, array: &Array) -> io::Result<Option<String>> {
    let mut bytes = Vec::with_capacity(usize::try_from(array.len()).unwrap_or(0));
    meta.each(array, &mut |_, item| {
        bytes.push(match item {
            Item::Value(Value::U8(byte)) => byte,
            Item::Value(Value::I8(byte)) => byte as u8,
            _ => 0,
        });
        Ok(())
    })?;
    if !is_sound(&bytes) {
        log::warn!(
            "hf/tokenizer.json has no table of normalisations: tokenizer.ggml.precompiled_charsmap \
             is damaged"
        );
        return Ok(None);
    }
    Ok(Some(STANDARD.encode(bytes)))
}

/// Whether every walk through the trie stays inside, and every replacement is text.
fn is_sound(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return false };
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 || !length.is_multiple_of(4) {
        return false;
    }
    let Some((units, texts)) = rest.split_at_checked(length) else { return false };
    let Ok(texts) = std::str::from_utf8(texts) else { return false };
    let units: Vec<u32> = units.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    // A unit names the place from which its children are found: the place itself with the
    // child's byte in the lowest bits, so that a node has all of them inside or may not be used.
    let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
    let mut seen = vec![false; units.len()];
    let mut open = vec![0usize];
    let mut root = true;
    while let Some(at) = open.pop() {
        let unit = units[at];
        let base = at ^ offset(unit);
        if base | 0xff >= units.len() {
            return false;
        }
        if !root && unit >> 8 & 1 == 1 {
            let text = units[base] & !(1 << 31);
            if !texts.is_char_boundary(text as usize) {
                return false;
            }
        }
        root = false;
        for byte in 1..=0xffusize {
            let child = base ^ byte;
            // A child carries its byte; anything else in its place ends the walk.
            if units[child] & (1 << 31 | 0xff) == byte as u32 && !seen[child] {
                seen[child] = true;
                open.push(child);
            }
        }
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A map of one letter, `a`, to the text at `value`: a root whose children are in the
    /// second block of 256 units, and the leaf of `a` in the third.
    fn map(length: u32, value: u32, texts: &[u8]) -> Vec<u8> {
        let mut units = vec![0u32; 768];
        units[0] = 256 << 10;
        units[256 + 0x61] = (256 ^ 512 | 0x61) << 10 | 1 << 8 | 0x61;
        units[512] = 1 << 31 | value;
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(texts);
        bytes
    }

    #[test]
    fn a_sound_map_is_sound() {
        assert!(is_sound(&map(3072, 0, b"A\0")));
        assert!(is_sound(&map(3072, 2, b"A\0")));
    }

    #[test]
    fn a_map_that_leads_out_of_itself_is_not() {
        assert!(!is_sound(&map(3072, 3, b"A\0")), "past the texts");
        assert!(!is_sound(&map(3072, 1, "\u{e9}\0".as_bytes())), "inside a character");
        assert!(!is_sound(&map(3072, 0, b"\xff\0")), "not UTF-8");
        assert!(!is_sound(&map(2048, 0, b"A\0")), "the leaf is cut off");
        assert!(!is_sound(&map(3073, 0, b"A\0")), "not whole units");
        assert!(!is_sound(&map(u32::MAX, 0, b"A\0")), "longer than the file");
        assert!(!is_sound(&[0, 0, 0, 0, b'A', 0]), "no root");
        assert!(!is_sound(&[1, 0, 0]), "no length");
    }
}
