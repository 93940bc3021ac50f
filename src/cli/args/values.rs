//! Values that clap cannot read by itself.

use crate::cli::text::plural;

/// `64KiB`, `64K`, `65536`: a power of two from 4 KiB to 16 MiB.
pub(super) fn chunk_size(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let typed = &text[digits.len()..];
    let unit: u64 = match typed.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        _ => return Err(format!("unknown unit {typed:?}, use KiB or MiB")),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).unwrap_or(0);
    match u32::try_from(bytes) {
        Ok(n) if n.is_power_of_two() && (4 << 10..=16 << 20).contains(&n) => Ok(n),
        _ => Err("it must be a power of two from 4KiB to 16MiB".into()),
    }
}

/// A file descriptor that is free for whoever started us: 0 to 2 are not.
pub(super) fn descriptor(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(n) if n >= 3 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(n),
        _ => Err("it must be the number of an open file descriptor, 3 or more".into()),
    }
}

/// 64 hex digits of either case, with or without `sha256:` in front.
pub(super) fn sha256(text: &str) -> Result<[u8; 32], String> {
    let text = text.strip_prefix("sha256:").unwrap_or(text);
    let digits = text.as_bytes();
    let mut out = [0; 32];
    if digits.len() != 64 {
        return Err(format!(
            "a SHA-256 has 64 hex digits, this has {}",
            plural(text.chars().count(), "character")
        ));
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks(2)) {
        let nibble = |c: u8| char::from(c).to_digit(16);
        match (nibble(pair[0]), nibble(pair[1])) {
            (Some(high), Some(low)) => *byte = (high << 4 | low) as u8,
            _ => return Err("a SHA-256 has hex digits only".into()),
        }
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes_and_digests() {
        for (text, want) in
            [("64KiB", 65536), ("4K", 4096), ("16MiB", 16 << 20), ("65536", 65536), ("1m", 1 << 20)]
        {
            assert_eq!(chunk_size(text), Ok(want));
        }
        for text in ["", "KiB", "64GB", "3KiB", "99999999999999999999MiB", "-1"] {
            assert!(chunk_size(text).is_err(), "{text}");
        }
        assert!(chunk_size("64GB").is_err_and(|text| text.contains("\"GB\"")));
        assert_eq!(descriptor("7"), Ok(7));
        for text in ["abc", "", "2", "-1", "+5", "99999999999"] {
            assert!(descriptor(text).is_err_and(|text| text.contains("file descriptor")), "{text}");
        }
        let hex = "00ff".repeat(16);
        assert_eq!(sha256(&hex).unwrap()[..4], [0, 255, 0, 255]);
        assert_eq!(sha256(&format!("sha256:{hex}")), sha256(&hex));
        assert!(sha256(&format!("sha512:{hex}")).is_err() && sha256("sha256:").is_err());
        assert!(sha256(&"g".repeat(64)).is_err());
        assert!(sha256(&"\u{e9}".repeat(32)).is_err());
    }
}
