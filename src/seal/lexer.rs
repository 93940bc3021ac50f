//! JSON read in one pass and flat memory, with positions.
//!
//! A seal of a large model holds tens of megabytes of base64 that must stay in the
//! file; serde_json would copy it and does not say where it stood. This reads what a
//! seal needs: objects, arrays, strings, unsigned integers, and skips the rest. It
//! takes a subset of what serde_json takes (a test compares them), never panics, and
//! holds one buffer. Hashes a range as it passes, so that the bytes that were hashed
//! are the bytes that were read.

use super::hashing::Hashing;
use crate::bytes::ReadAt;
use std::io;

/// Bytes read at a time.
const BUFFER: usize = 256 << 10;
/// Nesting that is followed when skipping.
const DEPTH: u32 = 32;

/// Why reading stopped.
#[derive(Debug)]
pub(super) enum LexError {
    /// The bytes could not be had.
    Io(io::Error),
    /// They are not what was expected at this offset.
    Syntax {
        /// From the start of the file.
        offset: u64,
        /// What was expected instead.
        expected: &'static str,
    },
}

type Result<T> = std::result::Result<T, LexError>;

/// Where a plain string's characters stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// First character, without the quote.
    pub(super) offset: u64,
    /// Number of characters.
    pub(super) len: u64,
}

pub(super) struct Lexer<'a> {
    from: &'a dyn ReadAt,
    buffer: Vec<u8>,
    /// Offset in the file of `buffer[0]`.
    base: u64,
    at: usize,
    hash: Option<Hashing>,
    /// In the buffer, where the bytes to be hashed begin.
    hashed: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(from: &'a dyn ReadAt) -> Lexer<'a> {
        Lexer { from, buffer: Vec::new(), base: 0, at: 0, hash: None, hashed: 0 }
    }

    /// Offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    pub(super) fn unexpected<T>(&self, expected: &'static str) -> Result<T> {
        Err(LexError::Syntax { offset: self.offset(), expected })
    }

    /// Starts hashing with the next byte.
    pub(super) fn hash_from_here(&mut self) -> Result<()> {
        let all_here = self.base + self.buffer.len() as u64 >= self.from.len();
        self.hash = Some(match all_here {
            true => Hashing::here(),
            false => Hashing::beside().map_err(LexError::Io)?,
        });
        self.hashed = self.at;
        Ok(())
    }

    /// SHA-256 of everything since [`Lexer::hash_from_here`].
    pub(super) fn hash_to_here(&mut self) -> Result<[u8; 32]> {
        let rest = &self.buffer[self.hashed..self.at];
        let hash = self.hash.take().ok_or_else(|| io::Error::other("nothing was hashed"));
        hash.and_then(|hash| hash.finish(rest)).map_err(LexError::Io)
    }

    /// Replaces the used-up buffer. False at the end.
    #[cold]
    fn refill(&mut self) -> Result<bool> {
        self.base += self.at as u64;
        if let Some(hash) = &mut self.hash {
            hash.pass(&mut self.buffer, self.hashed).map_err(LexError::Io)?;
        }
        (self.at, self.hashed) = (0, 0);
        let left = self.from.len().saturating_sub(self.base);
        self.buffer.resize(left.min(BUFFER as u64) as usize, 0);
        self.from.read_at(self.base, &mut self.buffer).map_err(LexError::Io)?;
        Ok(!self.buffer.is_empty())
    }

    /// The next byte, not taken.
    fn peek(&mut self) -> Result<Option<u8>> {
        if self.at == self.buffer.len() && !self.refill()? {
            return Ok(None);
        }
        Ok(self.buffer.get(self.at).copied())
    }

    fn take(&mut self, expected: &'static str) -> Result<u8> {
        match self.peek()? {
            Some(byte) => {
                self.at += 1;
                Ok(byte)
            }
            None => self.unexpected(expected),
        }
    }

    /// The next byte that is no white space, not taken.
    pub(super) fn token(&mut self, expected: &'static str) -> Result<u8> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(byte),
                None => return self.unexpected(expected),
            }
        }
    }

    fn punctuation(&mut self, byte: u8, expected: &'static str) -> Result<()> {
        if self.token(expected)? != byte {
            return self.unexpected(expected);
        }
        self.at += 1;
        Ok(())
    }

    /// Whether the next token is `byte`; takes it if so.
    fn taken(&mut self, byte: u8, expected: &'static str) -> Result<bool> {
        let there = self.token(expected)? == byte;
        self.at += usize::from(there);
        Ok(there)
    }

    /// The end of the file, after white space.
    pub(super) fn end(&mut self) -> Result<()> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek()? {
            self.at += 1;
        }
        match self.peek()? {
            None => Ok(()),
            Some(_) => self.unexpected("the end of the file"),
        }
    }

    /// An object: `field` is called with each key and must read the value.
    pub(super) fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.punctuation(b'{', "'{'")?;
        if self.taken(b'}', "a key or '}'")? {
            return Ok(());
        }
        let mut key = Vec::new();
        loop {
            self.string(&mut key, 4096)?;
            self.punctuation(b':', "':'")?;
            self.token("a value")?;
            field(self, &key)?;
            if self.taken(b'}', "',' or '}'")? {
                return Ok(());
            }
            self.punctuation(b',', "',' or '}'")?;
        }
    }

    /// The next `len` bytes, not taken, where they are at hand without reading.
    pub(super) fn at_hand(&self, len: usize) -> Option<&[u8]> {
        self.buffer.get(self.at..)?.get(..len)
    }

    /// Takes bytes that were [at hand](Lexer::at_hand).
    pub(super) fn take_at_hand(&mut self, len: usize) {
        self.at = (self.at + len).min(self.buffer.len());
    }

    /// An array: `element` must read one element each time.
    pub(super) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.punctuation(b'[', "'['")?;
        if self.taken(b']', "a value or ']'")? {
            return Ok(());
        }
        loop {
            self.token("a value")?;
            element(self)?;
            if self.taken(b']', "',' or ']'")? {
                return Ok(());
            }
            self.punctuation(b',', "',' or ']'")?;
        }
    }

    /// An integer from 0 to 2^64 - 1, without fraction or exponent.
    pub(super) fn unsigned(&mut self) -> Result<u64> {
        const WHAT: &str = "an unsigned integer";
        let first = self.token(WHAT)?;
        if !first.is_ascii_digit() {
            return self.unexpected(WHAT);
        }
        let mut value = 0u64;
        let start = self.offset();
        while let Some(digit @ b'0'..=b'9') = self.peek()? {
            let next = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')));
            let leading_zero = first == b'0' && self.offset() > start;
            match next {
                Some(next) if !leading_zero => value = next,
                _ => return self.unexpected(WHAT),
            }
            self.at += 1;
        }
        match self.peek()? {
            Some(b'.' | b'e' | b'E') => self.unexpected(WHAT),
            _ => Ok(value),
        }
    }

    /// Takes `null` where it stands; whether it does.
    pub(super) fn null(&mut self) -> Result<bool> {
        let there = self.token("a value")? == b'n';
        if there {
            self.word(b"null")?;
        }
        Ok(there)
    }

    /// A string, unescaped into `out`; its UTF-8 is checked.
    pub(super) fn string(&mut self, out: &mut Vec<u8>, limit: usize) -> Result<()> {
        out.clear();
        self.punctuation(b'"', "a string")?;
        loop {
            // Everything up to the next special character at once.
            if self.at == self.buffer.len() && !self.refill()? {
                return self.unexpected("the end of a string");
            }
            let rest = &self.buffer[self.at..];
            let plain = plain_prefix(rest);
            if out.len() + plain > limit {
                return self.unexpected("a shorter string");
            }
            out.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match self.buffer.get(self.at) {
                None => {}
                Some(b'"') => {
                    if std::str::from_utf8(out).is_err() {
                        return self.unexpected("UTF-8 in the string that ends here");
                    }
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    let c = self.escape()?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(_) => return self.unexpected("no control character in a string"),
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<char> {
        const WHAT: &str = "an escape sequence";
        Ok(match self.take(WHAT)? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.four_digits()?;
                let code = if (0xD800..0xDC00).contains(&first) {
                    if self.take(WHAT)? != b'\\' || self.take(WHAT)? != b'u' {
                        return self.unexpected("the second half of a surrogate pair");
                    }
                    let second = self.four_digits()?;
                    if !(0xDC00..0xE000).contains(&second) {
                        return self.unexpected("the second half of a surrogate pair");
                    }
                    0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
                } else {
                    first
                };
                match char::from_u32(code) {
                    Some(c) => c,
                    None => return self.unexpected("a character"),
                }
            }
            _ => return self.unexpected(WHAT),
        })
    }

    fn four_digits(&mut self) -> Result<u32> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = char::from(self.take("a hexadecimal digit")?).to_digit(16);
            match digit {
                Some(digit) => value = value * 16 + digit,
                None => return self.unexpected("a hexadecimal digit"),
            }
        }
        Ok(value)
    }

    /// A string of base64 characters, which stays where it is; they are shown to `pass` in
    /// parts.
    pub(super) fn base64(&mut self, mut pass: impl FnMut(&[u8])) -> Result<Place> {
        const WHAT: &str = "a base64 string";
        self.punctuation(b'"', WHAT)?;
        let offset = self.offset();
        loop {
            if self.at == self.buffer.len() && !self.refill()? {
                return self.unexpected(WHAT);
            }
            let rest = &self.buffer[self.at..];
            let plain = rest.iter().position(|&b| !IS_BASE64[usize::from(b)]).unwrap_or(rest.len());
            pass(&rest[..plain]);
            self.at += plain;
            match self.buffer.get(self.at) {
                None => {}
                Some(b'"') => {
                    let len = self.offset() - offset;
                    self.at += 1;
                    return Ok(Place { offset, len });
                }
                Some(_) => return self.unexpected(WHAT),
            }
        }
    }

    /// Any value, unread.
    pub(super) fn skip(&mut self) -> Result<()> {
        self.skip_nested(DEPTH)
    }

    fn skip_nested(&mut self, depth: u32) -> Result<()> {
        let Some(deeper) = depth.checked_sub(1) else {
            return self.unexpected("less nesting");
        };
        match self.token("a value")? {
            b'{' => self.object(|lexer, _| lexer.skip_nested(deeper)),
            b'[' => self.array(|lexer| lexer.skip_nested(deeper)),
            b'"' => self.skip_string(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.skip_number(),
        }
    }

    fn skip_string(&mut self) -> Result<()> {
        self.punctuation(b'"', "a string")?;
        loop {
            match self.take("the end of a string")? {
                b'"' => return Ok(()),
                b'\\' => {
                    self.escape()?;
                }
                0..0x20 => return self.unexpected("no control character in a string"),
                _ => {}
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<()> {
        for &byte in word {
            if self.take("a value")? != byte {
                return self.unexpected("true, false or null");
            }
        }
        Ok(())
    }

    fn skip_number(&mut self) -> Result<()> {
        let mut text = Vec::new();
        while let Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') = self.peek()? {
            text.push(self.take("a number")?);
            if text.len() > 64 {
                return self.unexpected("a shorter number");
            }
        }
        match serde_json::from_slice::<serde_json::Number>(&text) {
            Ok(_) => Ok(()),
            Err(_) => self.unexpected("a value"),
        }
    }
}

/// Bytes before the first that is special in a string.
fn plain_prefix(bytes: &[u8]) -> usize {
    // Eight at a time: a byte's top bit is set where it underflows, which is exact up to
    // and including the first that does ("Bit Twiddling Hacks", haszero and hasless).
    const ONES: u64 = u64::MAX / 255;
    const TOPS: u64 = ONES << 7;
    let zeros = |x: u64| x.wrapping_sub(ONES) & !x;
    let (blocks, rest) = bytes.as_chunks::<8>();
    for (number, block) in blocks.iter().enumerate() {
        let x = u64::from_le_bytes(*block);
        let low = x.wrapping_sub(ONES * 0x20) & !x;
        let special =
            (low | zeros(x ^ (ONES * u64::from(b'"'))) | zeros(x ^ (ONES * u64::from(b'\\'))))
                & TOPS;
        if special != 0 {
            return number * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let there = rest.iter().position(|&b| is_special(b)).unwrap_or(rest.len());
    bytes.len() - rest.len() + there
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

static IS_BASE64: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128u8 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        byte += 1;
    }
    table
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    fn skipped(text: &[u8]) -> bool {
        let text = text.to_vec();
        let mut lexer = Lexer::new(&text);
        lexer.skip().and_then(|()| lexer.end()).is_ok()
    }

    fn unescaped(text: &str) -> Option<Vec<u8>> {
        let text = text.as_bytes().to_vec();
        let mut lexer = Lexer::new(&text);
        let mut out = Vec::new();
        lexer.string(&mut out, 1000).and_then(|()| lexer.end()).ok().map(|()| out)
    }

    fn number(text: &str) -> Option<u64> {
        let text = text.as_bytes().to_vec();
        let mut lexer = Lexer::new(&text);
        lexer.unsigned().and_then(|n| lexer.end().map(|()| n)).ok()
    }

    #[test]
    fn numbers() {
        for (text, value) in [("0", 0), ("7", 7), (" 10", 10), ("18446744073709551615", u64::MAX)] {
            assert_eq!(number(text), Some(value), "{text}");
        }
        for text in ["", "-1", "01", "00", "1.0", "1e3", "0e1", "18446744073709551616", "x"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn strings() {
        let good = [r#""""#, r#""a b""#, r#""\"\\\/\b\f\n\r\t""#, r#""\u00e4\ud83d\ude00\u0000""#];
        for text in good {
            let expected: String = serde_json::from_str(text).unwrap();
            assert_eq!(unescaped(text), Some(expected.into_bytes()), "{text}");
        }
        for text in [
            "\"",
            "\"a",
            "\"\n\"",
            r#""\x""#,
            r#""\ud83d""#,
            r#""\ud83d\u0041""#,
            r#""\udc00""#,
            r#""\u12g4""#,
        ] {
            assert_eq!(unescaped(text), None, "{text}");
        }
    }

    #[test]
    fn special_characters_are_found_wherever_they_are() {
        for byte in 0..=255u8 {
            for at in 0..20 {
                let mut text = [b'a'; 20];
                text[at] = byte;
                let expected = text.iter().position(|&b| is_special(b)).unwrap_or(20);
                assert_eq!(plain_prefix(&text), expected, "{byte} at {at}");
                text[at / 2] = 0xFF;
                let expected = text.iter().position(|&b| is_special(b)).unwrap_or(20);
                assert_eq!(plain_prefix(&text), expected, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn nesting_has_an_end() {
        assert!(skipped(format!("{}{}", "[".repeat(31), "]".repeat(31)).as_bytes()));
        assert!(!skipped("[".repeat(1_000_000).as_bytes()));
    }

    #[test]
    fn base64_is_found_across_buffers_and_the_hash_is_of_what_was_read() {
        let pad = " ".repeat(BUFFER - 3);
        let text = format!("{pad}\"{}\" ,", "Ab+/".repeat(100_000)).into_bytes();
        let mut lexer = Lexer::new(&text);
        lexer.token("").unwrap();
        lexer.hash_from_here().unwrap();
        let mut seen = Vec::new();
        let place = lexer.base64(|part| seen.extend_from_slice(part)).unwrap();
        assert_eq!(seen, text[BUFFER - 2..][..400_000]);
        assert_eq!((place.offset as usize, place.len), (BUFFER - 2, 400_000));
        let hash: [u8; 32] = Sha256::digest(&text[BUFFER - 3..text.len() - 2]).into();
        assert_eq!(lexer.hash_to_here().unwrap(), hash);
        assert!(Lexer::new(&b"\"ab-c\"".to_vec()).base64(|_| {}).is_err());
        assert!(Lexer::new(&b"\"abcd".to_vec()).base64(|_| {}).is_err());
    }

    proptest! {
        /// Nothing is taken that serde_json does not take.
        #[test]
        fn a_subset_of_serde_json(text in r#"[\[\]{}:,"\\a0-2.eE+\-u \ntrues]{0,14}"#) {
            if skipped(text.as_bytes()) {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            skipped(&bytes);
        }

        #[test]
        fn what_serde_json_writes_is_read(strings in proptest::collection::vec(".{0,20}", 0..5)) {
            let text = serde_json::to_vec(&strings).unwrap();
            let mut lexer = Lexer::new(&text);
            let mut seen = Vec::new();
            let mut scratch = Vec::new();
            lexer.array(|l| {
                l.string(&mut scratch, 1000)?;
                seen.push(String::from_utf8(scratch.clone()).unwrap());
                Ok(())
            }).unwrap();
            prop_assert_eq!(seen, strings);
        }
    }
}
