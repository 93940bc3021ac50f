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
    OtherHash { subject: &'a [u8], algorithm: &'static str },
    /// A file's CRC32, in simple file verification.
    Crc32 { name: &'a [u8], crc32: u32 },
    /// Another digest of a file than we compute.
    OtherSum { name: Vec<u8>, algorithm: String },
    /// A blank line, a comment or a heading.
    Nothing,
    /// No such line.
    Unknown,
}

/// Reads a line without its end.
pub(super) fn parse(line: &[u8]) -> Line<'_> {
    // sha256sum passes over blanks in front as well; a name of SFV may begin with one.
    let text = line.trim_ascii_start();
    if text.is_empty() || text[0] == b';' || text[0] == b'#' {
        return Line::Nothing;
    }
    tag(text)
        .or_else(|| coreutils(text))
        .or_else(|| gguf_hash(line))
        .or_else(|| table(text))
        .or_else(|| other(text))
        .or_else(|| sfv(line))
        .unwrap_or(Line::Unknown)
}

/// Whether a line with a digest says of what kind that is: those that do not begin with it.
pub(super) fn says_its_kind(line: &[u8]) -> bool {
    let text = line.trim_ascii_start();
    !text.strip_prefix(b"\\").unwrap_or(text).first().is_some_and(u8::is_ascii_hexdigit)
}

/// `sha256:` in front of a digest, as registries write it.
fn bare_digits(line: &[u8]) -> &[u8] {
    match line.split_at_checked(7) {
        Some((b"sha256:", digits)) => digits,
        _ => line,
    }
}

/// `DIGEST  NAME` or `DIGEST *NAME`; with a backslash in front, `\\`, `\n` and `\r` in the name
/// stand for a backslash, a line feed and a carriage return.
fn coreutils(line: &[u8]) -> Option<Line<'_>> {
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (digits, rest) = bare_digits(line).split_at_checked(64)?;
    let sha256 = digest(digits)?;
    if rest.trim_ascii().is_empty() {
        return (!escaped).then_some(Line::Bare(sha256));
    }
    let name = name_behind(rest, escaped)?;
    Some(Line::Sha256 { name, sha256 })
}

/// The name that stands behind a digest.
fn name_behind(rest: &[u8], escaped: bool) -> Option<Vec<u8>> {
    // With one blank or a tab only, the reversed form of BSD's tools, which coreutils take too.
    let name = [&b"  "[..], b" *", b" ", b"\t"].iter().find_map(|mark| rest.strip_prefix(*mark))?;
    let name = if escaped { unescape(name) } else { name.to_vec() };
    (!name.is_empty()).then_some(name)
}

/// A row of what PowerShell's Get-FileHash prints, `SHA256  DIGEST  PATH` in columns, and the
/// heading above.
fn table(line: &[u8]) -> Option<Line<'static>> {
    let (kind, rest) = word(line)?;
    let (digits, name) = word(rest)?;
    match (kind, digits) {
        (b"Algorithm", b"Hash") => return Some(Line::Nothing),
        (b"---------", digits) if digits.iter().all(|&b| b == b'-') => return Some(Line::Nothing),
        _ => {}
    }
    let name = name.trim_ascii_end().to_vec();
    let hexadecimal = digits.len() >= 32 && digits.iter().all(u8::is_ascii_hexdigit);
    let known = [&b"SHA1"[..], b"SHA256", b"SHA384", b"SHA512", b"MD5"].contains(&kind);
    match digest(digits) {
        _ if name.is_empty() || !known || !hexadecimal => None,
        Some(sha256) if kind == b"SHA256" => Some(Line::Sha256 { name, sha256 }),
        _ => Some(Line::OtherSum { name, algorithm: String::from_utf8_lossy(kind).into_owned() }),
    }
}

/// The forms of [`tag`] and [`coreutils`] with a digest of another kind, which its tag or its
/// number of digits tells.
fn other(line: &[u8]) -> Option<Line<'static>> {
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let hexadecimal = |text: &[u8]| text.len() >= 32 && text.iter().all(u8::is_ascii_hexdigit);
    if let Some((open, close)) = line
        .iter()
        .position(|&b| b == b'(')
        .zip(line.windows(2).rposition(|two| two == b")=" || two == b") "))
        && open + 1 < close
        && let Some(digits) = line[close + 1..].trim_ascii().strip_prefix(b"=")
        && hexadecimal(digits.trim_ascii())
    {
        let word = line[..open].trim_ascii_end();
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'/');
        let algorithm = std::str::from_utf8(word).ok().filter(|_| word.iter().all(is_word))?;
        let name = &line[open + 1..close];
        let name = if escaped { unescape(name) } else { name.to_vec() };
        // One of our own kind is not written so.
        let ours = algorithm.eq_ignore_ascii_case("sha256") || algorithm == "SHA2-256";
        let known = !ours && !word.is_empty() && word.len() <= 16;
        return known.then(|| Line::OtherSum { name, algorithm: algorithm.to_owned() });
    }
    let end = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
    let algorithm = match end {
        32 => "MD5",
        40 => "SHA-1",
        56 => "SHA-224",
        96 => "SHA-384",
        128 => "SHA-512",
        _ => return None,
    };
    let name = name_behind(&line[end..], escaped)?;
    Some(Line::OtherSum { name, algorithm: algorithm.to_owned() })
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
        b"sha1" if digits_of(40) => Some(Line::OtherHash { subject: rest, algorithm: "SHA-1" }),
        b"xxh3" if digits_of(16) || digits_of(32) => {
            Some(Line::OtherHash { subject: rest, algorithm: "XXH3" })
        }
        b"uuid" => Some(Line::OtherHash { subject: rest, algorithm: "UUID" }),
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
    fn a_digest_with_its_kind_in_front() {
        named(&format!("sha256:{DIGEST}  x"), b"x");
        named(&format!("  {DIGEST}  x"), b"x");
        assert_eq!(parse(format!("sha256:{DIGEST}").as_bytes()), Line::Bare(sha()));
        assert_eq!(parse(format!("sha256:{}", &DIGEST[1..]).as_bytes()), Line::Unknown);
    }

    #[test]
    fn the_rows_of_powershell() {
        let upper = DIGEST.to_uppercase();
        named(&format!("SHA256          {upper}       C:\\m d\\x.gguf   "), b"C:\\m d\\x.gguf");
        for line in ["Algorithm       Hash        Path", "---------       ----     ----", "   "] {
            assert_eq!(parse(line.as_bytes()), Line::Nothing, "{line}");
        }
        let other = Line::OtherSum { name: b"x".to_vec(), algorithm: "SHA1".to_owned() };
        assert_eq!(parse(format!("SHA1   {}   x", &upper[..40]).as_bytes()), other);
        for line in [format!("SHA256 {upper}"), format!("SHA256 {} x", &upper[..20])] {
            assert_eq!(parse(line.as_bytes()), Line::Unknown, "{line}");
        }
    }

    #[test]
    fn digests_of_other_kinds_are_told_by_what_they_are() {
        let of = |line: String, kind: &str| {
            let want = Line::OtherSum { name: b"a b".to_vec(), algorithm: kind.to_owned() };
            assert_eq!(parse(line.as_bytes()), want, "{line}");
        };
        of(format!("{}  a b", &DIGEST[..32]), "MD5");
        of(format!("{} *a b", &DIGEST[..40]), "SHA-1");
        of(format!("{DIGEST}{DIGEST}  a b"), "SHA-512");
        of(format!("SHA512 (a b) = {DIGEST}{DIGEST}"), "SHA512");
        of(format!("BLAKE3 (a b) = {DIGEST}"), "BLAKE3");
        of(format!("MD5 (a b) = {}", &DIGEST[..32]), "MD5");
    }

    #[test]
    fn the_lines_of_bsd() {
        named(&format!("SHA256 (a b.gguf) = {DIGEST}"), b"a b.gguf");
        named(&format!("SHA256(x)= {DIGEST}"), b"x");
        named(&format!("SHA2-256(x)= {DIGEST}"), b"x");
        named(&format!("SHA256 (a) = b) = {DIGEST}"), b"a) = b");
        named(&format!("\\SHA256 (a\\nb) = {DIGEST}"), b"a\nb");
        for line in [
            format!("SHA256 (x) = {}", &DIGEST[1..]),
            format!("SHA256 () = {DIGEST}"),
            "SHA256 (".to_owned(),
            "SHA256 (x)".to_owned(),
        ] {
            assert_eq!(parse(line.as_bytes()), Line::Unknown, "{line}");
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
            assert!(matches!(parse(line.as_bytes()), Line::OtherHash { .. }), "{line}");
        }
        assert_eq!(parse(b"sha256 abc x"), Line::Unknown);
        assert_eq!(parse(b"sha256"), Line::Unknown);
    }

    #[test]
    fn the_lines_of_sfv() {
        let want = Line::Crc32 { name: b"tensors/a b.bin", crc32: 0xCBF4_3926 };
        assert_eq!(parse(b"tensors/a b.bin CBF43926"), want);
        assert_eq!(parse(b"tensors/a b.bin   cbf43926  "), want);
        for line in [&b"cbf43926"[..], b" cbf43926", b"x cbf4392", b"xcbf43926"] {
            assert_eq!(parse(line), Line::Unknown);
        }
    }

    #[test]
    fn what_is_no_such_line() {
        for line in ["", "#", "# comment", "; a comment cbf43926"] {
            assert_eq!(parse(line.as_bytes()), Line::Nothing, "{line}");
        }
        for line in ["hello", &DIGEST[..63], &format!("{DIGEST}x"), "\\"] {
            assert_eq!(parse(line.as_bytes()), Line::Unknown, "{line}");
        }
        let utf8 = "\u{e9}".repeat(40);
        assert_eq!(parse(utf8.as_bytes()), Line::Unknown);
    }
}
