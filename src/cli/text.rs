//! Words and numbers for people: names, human sizes, what fits into a column.

use unicode_width::UnicodeWidthStr;
use weightfs::bytes::line::Safe;
/// Columns that `text` takes in a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// `text` cut to `columns`, with `...` where something is missing.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let room = columns.saturating_sub(3);
    let mut used = 0;
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > room {
            break;
        }
        out.push(c);
    }
    out + "..."
}

/// Bytes for people, in powers of two: `0 B`, `512 B`, `1.5 KiB`, `170.0 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A count for people, in powers of ten: `999`, `268.1 M`, `1.2 T`.
pub(crate) fn count(n: u64) -> String {
    scaled(n, 1000.0, &["", "k", "M", "B", "T", "P", "E"]).trim_end().to_owned()
}

fn scaled(n: u64, step: f64, units: &[&str]) -> String {
    let mut value = n as f64;
    let mut unit = 0;
    // One decimal is shown: 1023.96 KiB would read "1024.0 KiB".
    while value >= step - 0.05 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 { format!("{n} {}", units[0]) } else { format!("{value:.1} {}", units[unit]) }
}

/// A number of any size in four digits: `0.01234`, `-1234`, `1.234e9`.
pub(crate) fn number(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 {
        return "0".into();
    }
    if !x.is_finite() || !(1e-4..1e6).contains(&size) {
        return format!("{x:.3e}");
    }
    let before = size.log10().floor() as i32;
    let decimals = usize::try_from(3 - before).unwrap_or(0);
    format!("{x:.decimals$}")
}

/// Bytes of a chunk, a power of two, without decimals: `512 B`, `64 KiB`, `16 MiB`.
pub(crate) fn chunk_size(bytes: u64) -> String {
    match bytes {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// `n noun` or `n nouns`.
pub(crate) fn plural(n: usize, noun: &str) -> String {
    format!("{n} {}", plural_noun(n as u64, noun))
}

/// As [`plural`], with large numbers rounded as [`count`] does.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    format!("{} {}", count(n), plural_noun(n, noun))
}

/// The noun alone, in the number that `n` asks for.
fn plural_noun(n: u64, noun: &str) -> String {
    match noun {
        _ if n == 1 => noun.to_owned(),
        _ if noun.ends_with("ch") => format!("{noun}es"),
        _ if noun.ends_with("ry") => format!("{}ies", &noun[..noun.len() - 1]),
        _ => format!("{noun}s"),
    }
}

/// A tensor's name for a table: the empty one must be seen as well.
pub(crate) fn name(bytes: &[u8]) -> String {
    if bytes.is_empty() { "\"\"".into() } else { Safe(bytes).to_string() }
}

/// A metadata string on one line: what an escape stands for and a backslash that was there
/// before can be told apart.
pub(crate) fn one_line(bytes: &[u8]) -> String {
    let mut doubled = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        doubled.push(byte);
        if byte == b'\\' {
            doubled.push(byte);
        }
    }
    Safe(&doubled).to_string()
}

/// A shape as numpy prints it, `[3, 5]`; `[]` is a scalar.
pub(crate) fn shape(dims: &[u64]) -> String {
    let words: Vec<_> = dims.iter().map(u64::to_string).collect();
    format!("[{}]", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_read_well_at_the_edges() {
        for (n, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (178_257_920, "170.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(n), want);
        }
        for (n, want) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.0 k"),
            (268_098_176, "268.1 M"),
            (999_999_999, "1.0 B"),
        ] {
            assert_eq!(count(n), want);
        }
    }

    #[test]
    fn numbers_of_any_size_have_four_digits() {
        for (x, want) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.012345, "0.01235"),
            (-1.0, "-1.000"),
            (123_456.0, "123456"),
            (1e6, "1.000e6"),
            (1e-45, "1.000e-45"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(x), want);
        }
    }

    #[test]
    fn cutting_counts_columns_not_bytes() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
        assert_eq!(cut("\u{4f60}\u{597d}\u{4f60}\u{597d}", 7), "\u{4f60}\u{597d}...");
    }

    #[test]
    fn shapes_and_plurals() {
        assert_eq!(shape(&[3, 5]), "[3, 5]");
        assert_eq!(shape(&[]), "[]");
        assert_eq!(plural(1, "tensor"), "1 tensor");
        assert_eq!(plural(0, "tensor"), "0 tensors");
        assert_eq!(counted(1, "mismatch"), "1 mismatch");
        assert_eq!(counted(2, "mismatch"), "2 mismatches");
        assert_eq!(counted(12_345, "retry"), "12.3 k retries");
        assert_eq!(plural(3, "key"), "3 keys");
    }

    #[test]
    fn chunk_sizes_have_no_decimals() {
        for (bytes, want) in [
            (512, "512 B"),
            (4096, "4 KiB"),
            (65536, "64 KiB"),
            (1 << 20, "1 MiB"),
            (16 << 20, "16 MiB"),
        ] {
            assert_eq!(chunk_size(bytes), want);
        }
    }

    #[test]
    fn nothing_in_a_name_or_value_is_lost_from_sight() {
        assert_eq!(name(b""), "\"\"");
        assert_eq!(name(b"a\nb"), "a\\nb");
        assert_eq!(one_line(b"a\nb\\nc"), "a\\nb\\\\nc");
    }
}
