//! Bytes as lower-case hexadecimal digits of fixed width, and back.

/// `[0x0a, 0xff]` as `"0aff"`.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// A CRC32 as its eight digits.
pub fn crc_hex(crc: u32) -> String {
    format!("{crc:08x}")
}

/// Exactly `2 * N` digits; upper-case ones are refused, so that a text has one form.
pub fn from_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    let mut bad = 0;
    // Without branches and tables, so that many are done at once.
    for (byte, [high, low]) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
        let (high, low) = (worth(*high), worth(*low));
        bad |= high | low;
        *byte = high << 4 | low & 15;
    }
    if bad > 15 {
        return None;
    }
    Some(bytes)
}

/// What a character is worth; more than 15 for what is no digit.
const fn worth(character: u8) -> u8 {
    let (number, letter) = (character.wrapping_sub(b'0'), character.wrapping_sub(b'a'));
    if number < 10 {
        number
    } else if letter < 6 {
        letter.wrapping_add(10)
    } else {
        0xFF
    }
}

/// Any bytes as hexadecimal digits, of any even number.
pub fn bytes_from_hex(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2).map(|pair| from_hex::<1>(pair).map(|[byte]| byte)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        assert_eq!(hex(&[0x0a, 0xff, 0]), "0aff00");
        assert_eq!(from_hex(b"0aff00"), Some([0x0a, 0xff, 0]));
        assert_eq!(bytes_from_hex(b"0aff"), Some(vec![0x0a, 0xff]));
        assert_eq!(crc_hex(0xab), "000000ab");
    }

    #[test]
    fn every_character_is_a_digit_or_none() {
        for character in 0..=255u8 {
            let digit = b"0123456789abcdef".iter().position(|&digit| digit == character);
            assert_eq!(from_hex([b'0', character].as_slice()), digit.map(|d| [d as u8]));
            assert_eq!(from_hex([character, b'0'].as_slice()), digit.map(|d| [16 * d as u8]));
        }
    }

    #[test]
    fn one_form_only() {
        assert_eq!(from_hex::<1>(b"0A"), None);
        assert_eq!(from_hex::<1>(b"0"), None);
        assert_eq!(from_hex::<1>(b"0ab"), None);
        assert_eq!(from_hex::<1>(b"g0"), None);
        assert_eq!(bytes_from_hex(b"abc"), None);
    }
}
