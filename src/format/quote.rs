//! Showing names from strangers' files in messages: no control character reaches a
//! terminal, nothing is lost, nothing fills the screen.

use std::fmt::{self, Display, Formatter, Write};

/// How many bytes of a name a message shows.
const SHOWN: usize = 120;

/// Bytes in double quotes: printable characters as they are, everything else escaped
/// (`\n`, `\xff`, `\u{202e}`); after 120 bytes the rest is counted instead.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let shown = self.0.get(..SHOWN).unwrap_or(self.0);
        for chunk in shown.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\'' => f.write_char(c)?,
                    _ => write!(f, "{}", c.escape_debug())?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_char('"')?;
        match self.0.len().saturating_sub(shown.len()) {
            0 => Ok(()),
            more => write!(f, "... ({more} bytes more)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_whole_but_harmless() {
        let show = |bytes: &[u8]| Quoted(bytes).to_string();
        assert_eq!(show(b"blk.0.attn_q.weight"), r#""blk.0.attn_q.weight""#);
        assert_eq!(show(b""), r#""""#);
        assert_eq!(show(b"a\0b\n\x1b[31m"), r#""a\0b\n\u{1b}[31m""#);
        assert_eq!(show(b"it's \"x\\"), r#""it's \"x\\""#);
        assert_eq!(show(b"\xff\xfea"), r#""\xff\xfea""#);
        assert_eq!(show("\u{1f600}\u{202e}".as_bytes()), "\"\u{1f600}\\u{202e}\"");
        assert_eq!(show(&[b'x'; 125]), format!("\"{}\"... (5 bytes more)", "x".repeat(120)));
    }
}
