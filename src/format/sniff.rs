//! Recognising a file by its first bytes: the two formats, and what people have instead.

use super::{Detected, EMPTY, LFS_POINTER, UNKNOWN};
use crate::format::safetensors::MAX_HEADER;

/// How many bytes of a file are looked at: enough for a page of white space in front of a
/// safetensors header, as writers that align their data put there.
pub(crate) const HEAD: usize = 4096 + 16;

/// Magic bytes at the start of files that are offered in place of models.
const MAGICS: &[(&[u8], &str)] = &[
    (b"version https://git-lfs", LFS_POINTER),
    (b"PK\x03\x04", "a zip archive (a PyTorch .bin or .pt file is one)"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x80\x02", PICKLE),
    (b"\x80\x03", PICKLE),
    (b"\x80\x04", PICKLE),
    (b"\x80\x05", PICKLE),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x93NUMPY", "a NumPy .npy array"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras weights are such files)"),
    (b"GGML", OLD_GGML),
    (b"ggml", OLD_GGML),
    (b"lmgg", OLD_GGML),
    (b"GGMF", OLD_GGML),
    (b"ggmf", OLD_GGML),
    (b"fmgg", OLD_GGML),
    (b"GGJT", OLD_GGML),
    (b"ggjt", OLD_GGML),
    (b"tjgg", OLD_GGML),
    (b"GGLA", OLD_GGML),
    (b"ggla", OLD_GGML),
    (b"algg", OLD_GGML),
    (b"FUGG", "a GGUF file with its bytes in swapped order"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF document"),
];

const PICKLE: &str = "a Python pickle (a PyTorch .bin or .pt file is one)";
const OLD_GGML: &str = "a GGML file, older than GGUF";
const MARKUP: &str = "an HTML or XML page (a server's message in place of the model?)";

/// Says what a file of `len` bytes that begins with `head` looks like.
pub(crate) fn sniff(head: &[u8], len: u64) -> Detected {
    if len == 0 {
        return Detected::Other(EMPTY);
    }
    if head.starts_with(b"GGUF") {
        return Detected::Gguf;
    }
    // Before the magics: a small length can look like a short one, 1152 like a pickle's.
    if head.split_first_chunk().is_some_and(|(length, rest)| {
        u64::from_le_bytes(*length) <= MAX_HEADER && starts_an_object(rest)
    }) {
        return Detected::Safetensors;
    }
    if let Some((_, what)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Detected::Other(what);
    }
    if looks_like_safetensors(head, len) {
        return Detected::Safetensors;
    }
    if head.get(257..262) == Some(b"ustar") {
        return Detected::Other("a tar archive");
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    match text.first() {
        Some(b'{' | b'[') => Detected::Json,
        Some(b'<') => Detected::Other(MARKUP),
        None => Detected::Other("nothing but white space"),
        Some(_) if head.len() >= 16 && head.iter().all(|&b| b == 0) => {
            Detected::Other("zeros at its start (a download that did not finish?)")
        }
        Some(_) if head.iter().all(|&b| is_text(b)) => Detected::Other("plain text"),
        Some(_) => Detected::Other(UNKNOWN),
    }
}

fn is_text(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace()
}

fn starts_an_object(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'{')
}

/// There is no magic: a length that can be one, then an object. A length that cannot be one
/// counts when the object is where it should be, so that the reader can say what is wrong.
fn looks_like_safetensors(head: &[u8], len: u64) -> bool {
    let Some((length, rest)) = head.split_first_chunk::<8>() else {
        return false;
    };
    let header = u64::from_le_bytes(*length);
    match rest.trim_ascii_start().first() {
        // Not JSON text that happens to have a brace in its ninth byte.
        Some(b'{') => header <= MAX_HEADER || !length.iter().all(|&b| is_text(b)),
        Some(_) => false,
        // White space as far as one can see.
        None => !rest.is_empty() && header <= MAX_HEADER && header <= len.saturating_sub(8),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::format::detect;

    fn of(bytes: &[u8]) -> Detected {
        detect(&bytes.to_vec()).unwrap()
    }

    fn safetensors(length: u64, header: &[u8]) -> Vec<u8> {
        [&length.to_le_bytes(), header].concat()
    }

    #[test]
    fn both_formats_are_known_by_content() {
        assert_eq!(of(b"GGUF"), Detected::Gguf);
        assert_eq!(of(b"GGUF\x03\0\0\0rest"), Detected::Gguf);
        assert_eq!(of(&safetensors(2, b"{}")), Detected::Safetensors);
        assert_eq!(of(&safetensors(5, b" \t\r\n{}")), Detected::Safetensors);
        let mut page = vec![b' '; 5000];
        page.extend(b"{}");
        assert_eq!(of(&safetensors(5002, &page)), Detected::Safetensors);
    }

    #[test]
    fn a_length_that_begins_like_a_magic_is_a_length() {
        // The pickles, gzip, and a zip's four bytes, which are a length under the limit too.
        for length in [0x280, 0x380, 0x480, 0x580, 0x50480, 0x8b1f, 0x0008_8b1f, 0x0403_4b50] {
            let file = safetensors(length, b"{\"a\":1}");
            assert_eq!(of(&file), Detected::Safetensors, "{length:#x}");
            let padded = safetensors(length, b"  {\"a\":1}");
            assert_eq!(of(&padded), Detected::Safetensors, "{length:#x}");
        }
    }

    #[test]
    fn a_wrong_length_before_an_object_is_left_to_the_reader() {
        for length in [0, 3, 100_000_000, 100_000_001, 1 << 63, u64::MAX] {
            assert_eq!(of(&safetensors(length, b"{\"a\":1}")), Detected::Safetensors, "{length}");
        }
    }

    #[test]
    fn what_people_have_instead_is_named() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "an empty file"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a Git LFS pointer"),
            (b"PK\x03\x04\x14\0", "a zip archive"),
            (b"\x80\x02}q\0(X", "a Python pickle"),
            (b"\x1f\x8b\x08\0", "gzip"),
            (b"<!DOCTYPE html><html>", "an HTML"),
            (b"\n <html>", "an HTML"),
            (b"tjgg\x03\0\0\0", "a GGML file"),
            (b"GGJT\x03\0\0\0", "a GGML file"),
            (b"lmgg\x01\0\0\0", "a GGML file"),
            (b"GGML\x01\0\0\0", "a GGML file"),
            (b"FUGG\0\0\0\x03", "swapped"),
            (b"\x93NUMPY\x01\0", "a NumPy"),
            (b"   \n\n", "white space"),
            (b"Entry not found, sorry about that", "plain text"),
            (&[0; 64], "zeros"),
            (&[1, 2, 3, 255, 0, 9, 9, 9, 9, 9], "of no known format"),
        ];
        for (bytes, want) in cases {
            match of(bytes) {
                Detected::Other(what) => assert!(what.contains(want), "{what:?}, wanted {want:?}"),
                other => panic!("{other:?}, wanted {want:?}"),
            }
        }
    }

    #[test]
    fn json_text_is_not_safetensors() {
        assert_eq!(of(br#"{"weight_map": {"a": "b"}}"#), Detected::Json);
        assert_eq!(of(b"{      {"), Detected::Json);
        assert_eq!(of(b"  [1, 2]"), Detected::Json);
        assert_eq!(of(br#"{"error":{"code":404}}"#), Detected::Json);
    }
}
