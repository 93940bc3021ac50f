//! Standard output: buffered, in colour on a terminal, as wide as it is.
//!
//! What is written for people goes through [`Piece`]: whatever a name from a model holds, it is
//! one piece of one line, and only colours are ours. Documents and bytes go through
//! [`Out::exact`].

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use weightfs::bytes::line::InLine;

/// Columns that are used where nobody says how many there are.
const DEFAULT_COLUMNS: usize = 100;

/// How a piece of text is set off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Headings.
    Bold,
    /// What matters least.
    Dim,
    /// All is well.
    Good,
    /// Mind this.
    Warn,
    /// Something is wrong.
    Bad,
    /// Types and bars.
    Accent,
}

/// A piece of a line: text that only prints, and its colour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    text: String,
    ink: Option<Ink>,
}

impl Piece {
    /// Text in colour, where colours are wanted.
    pub(crate) fn inked(ink: Ink, text: impl Into<String>) -> Piece {
        Piece { ink: Some(ink), ..text.into().into() }
    }

    /// What is printed, without the colour.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Piece {
        let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let text = if plain { text } else { text.in_line().to_string() };
        Piece { text, ink: None }
    }
}

impl From<&str> for Piece {
    fn from(text: &str) -> Piece {
        text.to_owned().into()
    }
}

/// Where results go.
pub(crate) struct Out {
    to: BufWriter<StdoutLock<'static>>,
    terminal: bool,
    colour: bool,
    columns: usize,
    blocks: bool,
}

impl Out {
    /// Standard output as it is.
    pub(crate) fn new() -> Out {
        let stdout = io::stdout().lock();
        let terminal = stdout.is_terminal();
        let terminal_columns = terminal_size::terminal_size_of(&stdout).map(|(w, _)| w.0.into());
        let said = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|&columns| columns > 0);
        let columns = terminal_columns.or_else(said).unwrap_or(DEFAULT_COLUMNS);
        Out {
            terminal,
            colour: terminal
                && !is_set("NO_COLOR")
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            columns,
            blocks: is_utf8_locale(),
            to: BufWriter::with_capacity(64 * 1024, stdout),
        }
    }

    /// Width of the terminal, or a usual one.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// `piece` with its colour, where colours are wanted.
    pub(crate) fn ink<'p>(&self, piece: &'p Piece) -> Cow<'p, str> {
        let text = piece.text();
        let Some(ink) = piece.ink.filter(|_| self.colour && !text.is_empty()) else {
            return text.into();
        };
        let code = match ink {
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Good => "32",
            Ink::Warn => "33",
            Ink::Bad => "31",
            Ink::Accent => "36",
        };
        format!("\x1b[{code}m{text}\x1b[0m").into()
    }

    /// One line, whatever the text holds.
    pub(crate) fn line(&mut self, text: impl Display) -> io::Result<()> {
        self.pieces([text.to_string().into()])
    }

    /// One line of several pieces.
    pub(crate) fn pieces<const N: usize>(&mut self, pieces: [Piece; N]) -> io::Result<()> {
        let mut line: String = pieces.iter().map(|piece| self.ink(piece)).collect();
        line.push('\n');
        self.exact().write_all(line.as_bytes())
    }

    /// Where bytes go as they are: JSON and other documents, lines that are put together.
    pub(crate) fn exact(&mut self) -> Exact<'_> {
        Exact(self)
    }

    /// Hands on what is kept.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(of_stdout)
    }

    /// A bar for a share between 0 and 1; a share shows unless it is 0.0 %.
    pub(crate) fn bar(&self, share: f64, columns: usize) -> String {
        bar(share, columns, if self.blocks { ("\u{2588}", "\u{2591}") } else { ("#", ".") })
    }

    /// A bar of so many columns, without the rest.
    pub(crate) fn full(&self, columns: usize) -> String {
        (if self.blocks { "\u{2588}" } else { "#" }).repeat(columns)
    }

    /// Whether somebody looks at it as it is written.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A JSON document: 2 spaces of indentation, a newline at its end.
    pub(crate) fn json(&mut self, document: &serde_json::Value) -> io::Result<()> {
        self.exact().write_all(&weightfs::view::json::document(document))
    }
}

/// [`Out`] for bytes.
pub(crate) struct Exact<'o>(&'o mut Out);

impl Write for Exact<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.to.write(bytes).map_err(of_stdout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The same error, which says where it happened.
pub(crate) fn of_stdout(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("writing to stdout: {error}"))
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn is_utf8_locale() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| is_set(name));
    locale.and_then(|name| std::env::var(name).ok()).is_some_and(|value| {
        let value = value.to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

fn bar(share: f64, columns: usize, (full, empty): (&str, &str)) -> String {
    let filled = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    let filled = if share >= 0.0005 { filled.max(1).min(columns) } else { filled };
    full.repeat(filled) + &empty.repeat(columns.saturating_sub(filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_piece_ends_its_line_or_brings_a_colour() {
        for piece in ["a\n\x1b[2Jb".into(), Piece::inked(Ink::Bad, "a\n\x1b[2Jb")] {
            assert_eq!(piece.text(), "a\\n\\x1b[2Jb");
        }
    }

    #[test]
    fn a_small_share_still_shows_and_a_bar_never_overflows() {
        for (share, want) in [
            (0.0, "...."),
            (0.0004, "...."),
            (0.0005, "#..."),
            (0.5, "##.."),
            (1.5, "####"),
            (f64::NAN, "...."),
        ] {
            assert_eq!(bar(share, 4, ("#", ".")), want);
        }
    }
}
