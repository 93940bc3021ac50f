//! One line of a list of digests, in each form that is about.

use super::Sum;
use crate::bytes::hex::from_hex;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A file's SHA-256: sha256sum's form or the BSD one.
    Sha256 { name: Vec<u8>, sha256: [u8; 32] },
    /// A digest alone, as in a `FILE.sha256`.
    Bare([u8; 32]),
    /// A line of gguf-hash: `FILE:TENSOR`, or `FILE` for all tensors together.
    GgufHash { subject: &'a [u8], sum: Sum },
    /// A line of gguf-hash with a digest that is not looked at.
    OtherHash,
    /// A file's CRC32, in simple file verification.
    Crc32 { name: &'a [u8], crc32: u32 },
    /// A comment, another digest, or no such line.
    Other,
}

/// Reads a line without its end.
pub(super) fn parse(line: &[u8]) -> Line<'_> {
    if line.is_empty() || line[0] == b';' || line[0] == b'#' {
        return Line::Other;
    }
    tag(line)
        .or_else(|| coreutils(line))
        .or_else(|| gguf_hash(line))
        .or_else(|| sfv(line))
        .unwrap_or(Line::Other)
}

/// `DIGEST  NAME` or `DIGEST *NAME`; with a backslash in front, `\\`, `\n` and `\r` in the name
/// stand for a backslash, a line feed and a carriage return.
fn coreutils(line: &[u8]) -> Option<Line<'_>> {
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (digits, rest) = line.split_at_checked(64)?;
    let sha256 = digest(digits)?;
    if rest.trim_ascii().is_empty() {
        return (!escaped).then_some(Line::Bare(sha256));
    }
    // With one blank or a tab only, the reversed form of BSD's tools, which coreutils take too.
    let name = [&b"  "[..], b" *", b" ", b"\t"].iter().find_map(|mark| rest.strip_prefix(*mark))?;
    let name = if escaped { unescape(name) } else { name.to_vec() };
    (!name.is_empty()).then_some(Line::Sha256 { name, sha256 })
}

/// `SHA256 (NAME) = DIGEST`, with the same escapes.
fn tag(line: &[u8]) -> Option<Line<'_>> {
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    // OpenSSL writes no blank, and since version 3 another name.
    let tags = [&b"SHA256 ("[..], b"SHA256(", b"SHA2-256("];
    let rest = tags.iter().find_map(|tag| line.strip_prefix(*tag))?;
    let end = rest.windows(2).rposition(|two| two == b")=" || two == b") ")?;
    let (name, rest) = rest.split_at(end);
    let digits = rest[1..].trim_ascii().strip_prefix(b"=")?.trim_ascii();
    let name = if escaped { unescape(name) } else { name.to_vec() };
    let sha256 = digest(digits)?;
    (!name.is_empty()).then_some(Line::Sha256 { name, sha256 })
}

/// `TYPE  DIGEST  SUBJECT` with the type padded to eight columns. The tool splits at blanks
/// when it reads such lines back, and so cannot check names with blanks; here the rest of
/// the line is the name.
fn gguf_hash(line: &[u8]) -> Option<Line<'_>> {
    let (kind, rest) = word(line)?;
    let (digits, rest) = word(rest)?;
    if rest.is_empty() {
        return None;
    }
    let digits_of = |n: usize| digits.len() == n && digits.iter().all(u8::is_ascii_hexdigit);
    match kind {
        b"sha256" => Some(Line::GgufHash { subject: rest, sum: Sum::Sha256(digest(digits)?) }),
        b"xxh64" if digits.len() == 16 => {
            let sum = from_hex::<8>(&digits.to_ascii_lowercase()).map(u64::from_be_bytes)?;
            Some(Line::GgufHash { subject: rest, sum: Sum::Xxh64(sum) })
        }
        b"sha1" if digits_of(40) => Some(Line::OtherHash),
        b"xxh3" if digits_of(16) || digits_of(32) => Some(Line::OtherHash),
        b"uuid" => Some(Line::OtherHash),
        _ => None,
    }
}

/// `NAME CRC32`.
fn sfv(line: &[u8]) -> Option<Line<'_>> {
    let line = line.trim_ascii_end();
    let (name, digits) = line.split_at_checked(line.len().checked_sub(8)?)?;
    let crc32 = from_hex::<4>(&digits.to_ascii_lowercase()).map(u32::from_be_bytes)?;
    let trimmed = name.trim_ascii_end();
    (trimmed.len() < name.len() && !trimmed.is_empty())
        .then_some(Line::Crc32 { name: trimmed, crc32 })
}

/// The first word and what follows it and its blanks.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&b| b == b' ' || b == b'\t')?;
    let (word, rest) = text.split_at(end);
    let blanks = rest.iter().take_while(|&&b| b == b' ' || b == b'\t').count();
    (!word.is_empty()).then_some((word, &rest[blanks..]))
}

/// 64 digits of either case.
pub(super) fn digest(digits: &[u8]) -> Option<[u8; 32]> {
    (digits.len() == 64).then(|| from_hex::<32>(&digits.to_ascii_lowercase())).flatten()
}

fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => out.push(b'\n'),
                Some(b'r') => out.push(b'\r'),
                Some(other) => out.push(other),
                None => out.push(b'\\'),
            },
            (other, false) => out.push(other),
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn sha() -> [u8; 32] {
        from_hex(DIGEST.as_bytes()).unwrap()
    }

    fn named(line: &str, name: &[u8]) {
        let want = Line::Sha256 { name: name.to_vec(), sha256: sha() };
        assert_eq!(parse(line.as_bytes()), want, "{line}");
    }

    #[test]
    fn the_lines_of_sha256sum() {
        named(&format!("{DIGEST}  a b.gguf"), b"a b.gguf");
        named(&format!("{DIGEST} *x"), b"x");
        named(&format!("{DIGEST}   x"), b" x");
        named(&format!("{DIGEST} x"), b"x");
        named(&format!("{DIGEST}\tx"), b"x");
        named(&format!("{}  x", DIGEST.to_uppercase()), b"x");
        named(&format!("\\{DIGEST}  a\\\\b\\nc\\r"), b"a\\b\nc\r");
        named(&format!("{DIGEST}  a\\nb"), b"a\\nb");
        assert_eq!(parse(DIGEST.as_bytes()), Line::Bare(sha()));
        assert_eq!(parse(format!("{DIGEST}  ").as_bytes()), Line::Bare(sha()));
    }

    #[test]
    fn the_lines_of_bsd() {
        named(&format!("SHA256 (a b.gguf) = {DIGEST}"), b"a b.gguf");
        named(&format!("SHA256(x)= {DIGEST}"), b"x");
        named(&format!("SHA2-256(x)= {DIGEST}"), b"x");
        named(&format!("SHA256 (a) = b) = {DIGEST}"), b"a) = b");
        named(&format!("\\SHA256 (a\\nb) = {DIGEST}"), b"a\nb");
        for line in [
            format!("SHA512 (x) = {DIGEST}"),
            format!("SHA256 (x) = {}", &DIGEST[1..]),
            format!("SHA256 () = {DIGEST}"),
            "SHA256 (".to_owned(),
            "SHA256 (x)".to_owned(),
        ] {
            assert_eq!(parse(line.as_bytes()), Line::Other, "{line}");
        }
    }

    #[test]
    fn the_lines_of_gguf_hash() {
        let line = format!("sha256    {DIGEST}  dir/m.gguf:blk.0 x:y");
        let want = Line::GgufHash { subject: b"dir/m.gguf:blk.0 x:y", sum: Sum::Sha256(sha()) };
        assert_eq!(parse(line.as_bytes()), want);
        let line = b"xxh64     f66e9cd66a4396a0  test.gguf:tensor_0";
        let want = Line::GgufHash {
            subject: b"test.gguf:tensor_0",
            sum: Sum::Xxh64(0xf66e_9cd6_6a43_96a0),
        };
        assert_eq!(parse(line), want);
        for line in [
            "sha1      59f79ecefd8125a996fdf419239051a7e99e5f20  test.gguf:tensor_0",
            "uuid      7b9a9b5e-5cfc-5a5a-8a5a-5a5a5a5a5a5a  test.gguf",
        ] {
            assert_eq!(parse(line.as_bytes()), Line::OtherHash, "{line}");
        }
        assert_eq!(parse(b"sha256 abc x"), Line::Other);
        assert_eq!(parse(b"sha256"), Line::Other);
    }

    #[test]
    fn the_lines_of_sfv() {
        let want = Line::Crc32 { name: b"tensors/a b.bin", crc32: 0xCBF4_3926 };
        assert_eq!(parse(b"tensors/a b.bin CBF43926"), want);
        assert_eq!(parse(b"tensors/a b.bin   cbf43926  "), want);
        for line in
            [&b"; a comment cbf43926"[..], b"cbf43926", b" cbf43926", b"x cbf4392", b"xcbf43926"]
        {
            assert_eq!(parse(line), Line::Other);
        }
    }

    #[test]
    fn what_is_no_such_line() {
        for line in ["", "#", "# comment", "hello", &DIGEST[..63], &format!("{DIGEST}x"), "\\"] {
            assert_eq!(parse(line.as_bytes()), Line::Other, "{line}");
        }
        let utf8 = "\u{e9}".repeat(40);
        assert_eq!(parse(utf8.as_bytes()), Line::Other);
    }
}
