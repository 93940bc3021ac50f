//! File names: any bytes become one directory entry, and no two become the same.
//!
//! Contract section 2, "File names". Must not know which directory the entry is for.

use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt::Write;

/// The longest file name that Linux takes (`NAME_MAX`), in bytes.
pub const NAME_MAX: usize = 255;

/// What a shortened stem keeps of the encoded name at most, in bytes.
const SHORT_PREFIX: usize = 233;

/// `~` and 16 hex digits.
const SHORT_TAIL: usize = 17;

/// Turns a tensor name, metadata key or source name into a file-name stem.
///
/// Bytes that are `/`, `%`, 0x00-0x1f, 0x7f or part of invalid UTF-8 become `%XX`; the
/// empty name becomes `%`. When the result and `longest_suffix` (the byte length of the
/// longest suffix that is ever put behind this stem) exceed 255 bytes, the stem is cut and
/// ends in `~` and 16 digits of the name's SHA-256. With `longest_suffix` 0 the stem is the
/// whole file name, so `.` and `..` are encoded too. One-to-one but for shortened stems,
/// which only the hash keeps apart: [`super::StemIndex`] finds what meets.
///
/// Allocates only when something changes.
pub fn file_stem(name: &[u8], longest_suffix: usize) -> Cow<'_, [u8]> {
    if stays(name) && name.len() + longest_suffix <= NAME_MAX {
        return match name {
            b"." if longest_suffix == 0 => Cow::Borrowed(b"%2E"),
            b".." if longest_suffix == 0 => Cow::Borrowed(b"%2E%2E"),
            _ => Cow::Borrowed(name),
        };
    }
    if name.is_empty() {
        return Cow::Borrowed(b"%");
    }
    let room = NAME_MAX.saturating_sub(longest_suffix);
    let keep = SHORT_PREFIX.min(room.saturating_sub(SHORT_TAIL));
    let mut stem = Vec::with_capacity(NAME_MAX);
    // The end of the last unit (character or escape) that a shortened stem would keep.
    let mut cut = 0;
    for unit in units(name) {
        match unit {
            Unit::Plain(text) => stem.extend_from_slice(text),
            Unit::Escape(byte) => stem.extend_from_slice(&escape(byte)),
        }
        if stem.len() <= keep {
            cut = stem.len();
        }
        if stem.len() > room {
            stem.truncate(cut);
            stem.extend_from_slice(hash_tail(name).as_bytes());
            return Cow::Owned(stem);
        }
    }
    Cow::Owned(stem)
}

/// The whole file name: the stem for `longest_suffix`, then `suffix`.
///
/// Differs from joining [`file_stem`] and `suffix` only where that gives `.` or `..`
/// (a metadata key `.` whose own file has no suffix, though others have `.json`).
pub fn file_name<'a>(name: &'a [u8], suffix: &str, longest_suffix: usize) -> Cow<'a, [u8]> {
    let stem = file_stem(name, longest_suffix.max(suffix.len()));
    if suffix.is_empty() {
        return match &*stem {
            b"." => Cow::Borrowed(b"%2E"),
            b".." => Cow::Borrowed(b"%2E%2E"),
            _ => stem,
        };
    }
    let mut whole = stem.into_owned();
    whole.extend_from_slice(suffix.as_bytes());
    Cow::Owned(whole)
}

/// Length in bytes of the encoded name before any shortening.
pub(super) fn encoded_len(name: &[u8]) -> usize {
    if name.is_empty() {
        return 1;
    }
    units(name)
        .map(|unit| match unit {
            Unit::Plain(text) => text.len(),
            Unit::Escape(_) => 3,
        })
        .sum()
}

/// Whether a byte is written as an escape even in valid UTF-8.
const fn is_special(byte: u8) -> bool {
    matches!(byte, b'/' | b'%' | 0x00..=0x1f | 0x7f)
}

/// Whether the encoding changes nothing (a length over 255 apart).
fn stays(name: &[u8]) -> bool {
    // Without an early exit the scan becomes vector instructions; names rarely have specials.
    let special = name.iter().fold(false, |found, &byte| found | is_special(byte));
    !name.is_empty() && !special && (name.is_ascii() || std::str::from_utf8(name).is_ok())
}

/// One character as it is, or one byte that is escaped.
enum Unit<'a> {
    Plain(&'a [u8]),
    Escape(u8),
}

/// The units that make up the encoded name, in order.
fn units(name: &[u8]) -> impl Iterator<Item = Unit<'_>> {
    name.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid();
        let plain = valid.char_indices().map(move |(at, c)| {
            let bytes = &valid.as_bytes()[at..at + c.len_utf8()];
            match bytes {
                [byte] if is_special(*byte) => Unit::Escape(*byte),
                _ => Unit::Plain(bytes),
            }
        });
        plain.chain(chunk.invalid().iter().map(|&byte| Unit::Escape(byte)))
    })
}

fn escape(byte: u8) -> [u8; 3] {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

/// `~` and the first 16 hex digits of the SHA-256 of the full name.
fn hash_tail(name: &[u8]) -> String {
    let mut tail = String::with_capacity(SHORT_TAIL);
    tail.push('~');
    for byte in &Sha256::digest(name)[..8] {
        write!(tail, "{byte:02x}").expect("writing to a String cannot fail");
    }
    tail
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stem(name: &[u8], suffix: usize) -> String {
        String::from_utf8(file_stem(name, suffix).into_owned()).unwrap()
    }

    /// The inverse, for stems that were not shortened.
    fn decode(stem: &[u8]) -> Vec<u8> {
        if stem == b"%" {
            return Vec::new();
        }
        let mut out = Vec::new();
        let mut at = 0;
        while at < stem.len() {
            if stem[at] == b'%' {
                let hex = std::str::from_utf8(&stem[at + 1..at + 3]).unwrap();
                assert_eq!(hex, hex.to_uppercase());
                out.push(u8::from_str_radix(hex, 16).unwrap());
                at += 3;
            } else {
                out.push(stem[at]);
                at += 1;
            }
        }
        out
    }

    #[test]
    fn ordinary_names_are_borrowed() {
        for name in
            ["blk.0.attn_q.weight", "with space", "...", "a\\b", "\u{1f600}.\u{e9}", "-", "~"]
        {
            assert!(
                matches!(file_stem(name.as_bytes(), 5), Cow::Borrowed(b) if b == name.as_bytes())
            );
        }
    }

    #[test]
    fn specials_are_upper_case_escapes() {
        assert_eq!(stem(b"a/b", 5), "a%2Fb");
        assert_eq!(stem(b"100%", 5), "100%25");
        assert_eq!(stem(b"a\0b\x1f\x7f\n", 5), "a%00b%1F%7F%0A");
        assert_eq!(stem(b"../../etc/passwd", 5), "..%2F..%2Fetc%2Fpasswd");
        assert_eq!(stem(b"", 5), "%");
        assert_eq!(stem(b"", 0), "%");
    }

    #[test]
    fn only_the_bytes_of_invalid_utf8_are_escaped() {
        assert_eq!(stem(b"a\xffb", 5), "a%FFb");
        assert_eq!(stem(b"\xe2\x82A", 5), "%E2%82A");
        assert_eq!(stem(b"\xc3\xa9\xc3", 5), "\u{e9}%C3");
        assert_eq!(stem(b"\xed\xa0\x80", 5), "%ED%A0%80");
        // A C1 control character is two bytes of valid UTF-8: not in the list, kept.
        assert_eq!(stem("\u{85}".as_bytes(), 5), "\u{85}");
    }

    #[test]
    fn dots_matter_only_as_whole_file_names() {
        assert_eq!(stem(b".", 0), "%2E");
        assert_eq!(stem(b"..", 0), "%2E%2E");
        assert_eq!(stem(b"...", 0), "...");
        assert_eq!(stem(b".", 4), ".");
        assert_eq!(&*file_name(b".", "", 5), b"%2E");
        assert_eq!(&*file_name(b"..", "", 5), b"%2E%2E");
        assert_eq!(&*file_name(b".", ".json", 5), b"..json");
        assert_eq!(&*file_name(b"a/b", ".bin", 5), b"a%2Fb.bin");
    }

    #[test]
    fn names_are_cut_only_past_the_limit() {
        let name = [b'x'; 250];
        assert_eq!(&*file_stem(&name, 5), &name);
        let name = [b'x'; 251];
        // printf 'x%.0s' $(seq 251) | sha256sum
        let sha = Sha256::digest(name);
        let tail: String = sha[..8].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(stem(&name, 5), format!("{}~{tail}", "x".repeat(233)));
        assert_eq!(&*file_stem(&name, 4), &name, "251 + 4 fits");
        assert_eq!(&*file_stem(&[b'x'; 255], 0), &[b'x'; 255]);
        assert_eq!(file_stem(&[b'x'; 256], 0).len(), 250);
    }

    #[test]
    fn the_cut_keeps_characters_and_escapes_whole() {
        // 232 bytes, then a two-byte character that would end at 234.
        let mut name = "x".repeat(232);
        name.push_str(&"\u{e9}".repeat(40));
        assert!(stem(name.as_bytes(), 5).starts_with(&format!("{}~", "x".repeat(232))));
        // An escape that would end at 234; one that ends at 233 exactly stays.
        let name = format!("{}{}", "x".repeat(231), "/".repeat(40));
        assert!(stem(name.as_bytes(), 5).starts_with(&format!("{}~", "x".repeat(231))));
        let name = format!("{}{}", "x".repeat(230), "/".repeat(40));
        assert!(stem(name.as_bytes(), 5).starts_with(&format!("{}%2F~", "x".repeat(230))));
    }

    #[test]
    fn the_hash_covers_the_whole_raw_name() {
        let a = stem(&[b"x".repeat(300), b"a".to_vec()].concat(), 5);
        let b = stem(&[b"x".repeat(300), b"b".to_vec()].concat(), 5);
        assert_ne!(a, b);
        assert_eq!(a[..233], b[..233]);
        assert_eq!(a.len(), 250);
    }

    fn nasty() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            "\\PC{0,40}".prop_map(String::into_bytes),
            "[./%~a]{0,90}".prop_map(String::into_bytes),
            Just(b"%2F".to_vec()),
        ];
        proptest::collection::vec(piece, 0..6).prop_map(|p| p.concat())
    }

    proptest! {
        #[test]
        fn stems_are_safe_entries(name in nasty(), suffix in 0usize..13) {
            let stem = file_stem(&name, suffix);
            prop_assert!(!stem.is_empty());
            prop_assert!(!stem.contains(&b'/') && !stem.contains(&0));
            prop_assert!(stem.len() + suffix <= NAME_MAX);
            prop_assert!(std::str::from_utf8(&stem).is_ok());
            if suffix == 0 {
                prop_assert!(&*stem != b"." && &*stem != b"..");
            }
        }

        #[test]
        fn stems_decode_to_their_name(name in nasty()) {
            if encoded_len(&name) <= 250 {
                prop_assert_eq!(decode(&file_stem(&name, 5)), name);
            } else {
                prop_assert!(file_stem(&name, 5).len() <= 250);
            }
        }
    }
}
