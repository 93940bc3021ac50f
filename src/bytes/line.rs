//! Words of strangers as a piece of a line of ours: names of tensors, keys, values and files in
//! messages, logs and tables. Nothing in them ends the line or commands a terminal.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes shown so that a terminal only prints them: control characters, line separators,
/// characters that turn the direction of text or show nothing, and invalid UTF-8 appear as escapes
/// (`\n`, `\x1b`, `\u{202e}`). Everything else stays, a backslash too: what is safe already is
/// not changed again.
#[derive(Clone, Copy, Debug)]
pub struct Safe<'a>(pub &'a [u8]);

impl Display for Safe<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            let mut rest = chunk.valid();
            while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
                f.write_str(&rest[..at])?;
                match c {
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    c if c.is_ascii() => write!(f, "\\x{:02x}", u32::from(c))?,
                    c => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                }
                rest = &rest[at + c.len_utf8()..];
            }
            f.write_str(rest)?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Whether a character ends a line, commands a terminal, or shows nothing and changes how the
/// rest reads.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
        || matches!(c, '\u{180e}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}')
}

/// What may come from strangers and be part of a message. In place of `Path::display`, which
/// lets everything through.
pub trait InLine {
    /// The same as a piece of a line.
    fn in_line(&self) -> Safe<'_>;
}

impl InLine for [u8] {
    fn in_line(&self) -> Safe<'_> {
        Safe(self)
    }
}

impl InLine for str {
    fn in_line(&self) -> Safe<'_> {
        Safe(self.as_bytes())
    }
}

impl InLine for OsStr {
    fn in_line(&self) -> Safe<'_> {
        Safe(self.as_bytes())
    }
}

impl InLine for Path {
    fn in_line(&self) -> Safe<'_> {
        Safe(self.as_os_str().as_bytes())
    }
}

/// Characters of a name that a message shows.
const SHOWN: usize = 200;

/// A name in double quotes; of one of more than 200 characters the rest is missing, and a `~` says
/// so.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a>(pub &'a [u8]);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A character has at most four bytes: what is behind need not be looked at.
        let text = Safe(&self.0[..self.0.len().min(4 * SHOWN + 4)]).to_string();
        let whole = self.0.len() <= 4 * SHOWN + 4;
        let end = text.char_indices().nth(SHOWN).map(|(end, _)| end);
        f.write_char('"')?;
        f.write_str(&text[..end.unwrap_or(text.len())])?;
        f.write_str(if whole && end.is_none() { "\"" } else { "~\"" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_line_or_commands_a_terminal() {
        for (bytes, want) in [
            (&b"blk.0.attn_q.weight"[..], "blk.0.attn_q.weight"),
            (b"\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
            (b"a\nb\tc\r\x7f\0", "a\\nb\\tc\\r\\x7f\\x00"),
            (b"\xff\xfe.w", "\\xff\\xfe.w"),
            ("caf\u{e9} \u{1f980}".as_bytes(), "caf\u{e9} \u{1f980}"),
            ("\u{202e}gpj\u{85}".as_bytes(), "\\u{202e}gpj\\u{85}"),
            ("\u{2028}\u{2066}\u{e0041}".as_bytes(), "\\u{2028}\\u{2066}\\u{e0041}"),
            ("\u{180e}\u{fffa}\u{1d173}".as_bytes(), "\\u{180e}\\u{fffa}\\u{1d173}"),
        ] {
            assert_eq!(Safe(bytes).to_string(), want);
            assert_eq!(want.in_line().to_string(), want, "twice is once");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(Name(b"a\n").to_string(), "\"a\\n\"");
        let fits = "\u{e9}".repeat(SHOWN);
        assert_eq!(Name(fits.as_bytes()).to_string(), format!("\"{fits}\""));
        for name in [format!("{fits}x"), "\u{1f980}".repeat(SHOWN), fits.repeat(1000)] {
            let shown = Name(name.as_bytes()).to_string();
            let cut: String = name.chars().take(SHOWN).collect();
            let whole = name.chars().count() == SHOWN;
            assert_eq!(shown, format!("\"{cut}{}\"", if whole { "" } else { "~" }));
        }
    }
}
