//! How a command ends: the exit codes, and the message of a failure.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use weightfs::bytes::line::InLine;

/// The exit codes, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It was done.
    Done = 0,
    /// It failed: I/O, a bad model or map file, damage met by `cat`, `stats` or `diff`, no mount.
    Failed = 1,
    /// The command line is wrong, words and values of `-o` included.
    Usage = 2,
    /// `verify` found damage, `stats --check` NaN or infinities.
    Damage = 3,
    /// There is nothing to verify against.
    Unsealed = 4,
    /// The seal is invalid or not of this file, or two trusted sources disagree.
    Seal = 5,
}

impl Exit {
    /// Every code with its meaning, for the man page and its test.
    pub(crate) const TABLE: [(Exit, &'static str); 6] = [
        (Exit::Done, "Done."),
        (
            Exit::Failed,
            "Failed: I/O, a bad model or map file, damage met by cat, stats or diff, a mount that did not come about.",
        ),
        (Exit::Usage, "Usage: a wrong command line, or an unknown word or a bad value in -o."),
        (Exit::Damage, "verify found damage; stats --check found NaN or an infinity."),
        (
            Exit::Unsealed,
            "Nothing to verify against: the model is not sealed and no digest was given; mount with seal=require.",
        ),
        (
            Exit::Seal,
            "The seal is invalid or not of this file, or two trusted sources disagree (verify, seal, mount).",
        ),
    ];

    /// The code that the operating system sees.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// Of several models, the end that the whole command has: the first of 1, 5, 3, 4 that
    /// occurred, else 0.
    pub(crate) fn of_several(all: &[Exit]) -> Exit {
        [Exit::Usage, Exit::Failed, Exit::Seal, Exit::Damage, Exit::Unsealed]
            .into_iter()
            .find(|code| all.contains(code))
            .unwrap_or(Exit::Done)
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// A failure whose exit code is not the usual 1, or that wants its own wording.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    text: String,
}

impl Failure {
    /// A failure that ends the process with `exit`.
    pub(crate) fn with(exit: Exit, text: impl Into<String>) -> anyhow::Error {
        Failure { exit, text: text.into() }.into()
    }

    /// A wrong command line.
    pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
        Failure::with(Exit::Usage, text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// The exit code that an error asks for.
pub(crate) fn code_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<Failure>().map_or(Exit::Failed, |failure| failure.exit)
}

/// Whether the reader of our output went away: then all is well and nothing is said.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Says what went wrong, if anything, and gives the exit code.
pub(crate) fn finish(result: anyhow::Result<Exit>) -> Exit {
    match result {
        Ok(exit) => exit,
        Err(error) if is_broken_pipe(&error) => Exit::Done,
        Err(error) => {
            complain(&error);
            code_of(&error)
        }
    }
}

/// Prints an error as `weightfs: ...`.
pub(crate) fn complain(error: &anyhow::Error) {
    say(&message(error));
}

/// Prints `weightfs: text` on stderr, in at most four lines. Nobody can be told when that fails.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "weightfs: {}", four_lines(&without_numbers(text)));
}

/// Prints `weightfs: text` on stderr as one line, whatever is in it.
pub(crate) fn warn(text: &str) {
    let text = printable(&without_numbers(text), MAX_LINE);
    let _ = writeln!(io::stderr().lock(), "weightfs: {text}");
}

/// A message as one line of a log, which may be longer than one of a terminal.
pub(crate) fn log_line(text: &str) -> String {
    printable(&without_numbers(text), 8 * MAX_LINE)
}

/// The error and its causes on one line, unless a message brings its own lines. What one of
/// two neighbours says anyway is not said by the other as well.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let words = cause.to_string();
        if text.contains(&words) {
            continue;
        }
        if words.contains(&text) {
            text.clear();
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&words);
    }
    without_numbers(&text)
}

/// Without the `(os error 2)` that the standard library adds to the system's words.
pub(crate) fn without_numbers(text: &str) -> String {
    const MARK: &str = " (os error ";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let digits = rest[at + MARK.len()..].find(|c: char| !c.is_ascii_digit());
        let end = digits.filter(|&n| n > 0).map(|n| at + MARK.len() + n);
        match end.filter(|&end| rest[end..].starts_with(')')) {
            Some(end) => {
                out.push_str(&rest[..at]);
                rest = &rest[end + 1..];
            }
            None => {
                out.push_str(&rest[..at + MARK.len()]);
                rest = &rest[at + MARK.len()..];
            }
        }
    }
    out + rest
}

/// At most four lines, and nothing that a terminal would obey. Only the first begins where lines
/// begin: should a name that nobody escaped bring a line of its own, it cannot pass for ours.
fn four_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = if lines.len() > 4 { 3 } else { lines.len() };
    let mut out = Vec::with_capacity(4);
    for line in &lines[..shown] {
        let before = if out.is_empty() || line.starts_with("  ") { "" } else { "  " };
        out.push(format!("{before}{}", printable(line, MAX_LINE)));
    }
    if lines.len() > shown {
        out.push(format!("  ... and {} lines more", lines.len() - shown));
    }
    out.join("\n")
}

/// Longest line of a message in bytes: room for a path and what is wrong with it.
const MAX_LINE: usize = 1000;

/// A line for a terminal. Of one that is too long the middle is missing: the beginning says what
/// it is about, the end what is wrong.
fn printable(line: &str, most: usize) -> String {
    let escaped = shorten(line, most).in_line().to_string();
    shorten(&escaped, most).into_owned()
}

fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    const GAP: &str = " ... ";
    const TAIL: usize = 300;
    if text.len() <= most {
        return text.into();
    }
    let boundary =
        |range: std::ops::RangeInclusive<usize>| range.rev().find(|&i| text.is_char_boundary(i));
    let head = boundary(0..=most - GAP.len() - TAIL).unwrap_or(0);
    let tail = boundary(head..=text.len() - TAIL + 3).unwrap_or(text.len());
    format!("{}{GAP}{}", &text[..head], &text[tail..]).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_line_has_an_end_and_what_is_wrong_stands_there() {
        for word in ["x", "\u{e9}", "\u{1f600}", "\x1b"] {
            let line = format!("m.gguf: {}: no such tensor", word.repeat(100_000));
            let text = four_lines(&line);
            assert!(text.len() <= MAX_LINE && text.len() > MAX_LINE - 20, "{}", text.len());
            assert!(text.starts_with("m.gguf: ") && text.ends_with(": no such tensor"), "{text}");
            assert!(text.contains(" ... "), "{text}");
        }
        let fits = "x".repeat(MAX_LINE);
        assert_eq!(four_lines(&fits), fits);
    }

    #[test]
    fn of_several_models_the_gravest_end_wins_in_their_order() {
        use Exit::*;
        for (all, want) in [
            (vec![], Done),
            (vec![Done, Unsealed, Done], Unsealed),
            (vec![Unsealed, Damage], Damage),
            (vec![Damage, Seal, Unsealed], Seal),
            (vec![Seal, Damage, Failed], Failed),
        ] {
            assert_eq!(Exit::of_several(&all), want, "{all:?}");
        }
    }

    #[test]
    fn a_failure_keeps_its_code_under_context() {
        let error = Failure::with(Exit::Seal, "the seal is of another file").context("m.gguf");
        assert_eq!(code_of(&error), Exit::Seal);
        assert_eq!(message(&error), "m.gguf: the seal is of another file");
    }

    #[test]
    fn a_broken_pipe_below_any_context_is_a_good_end() {
        let error =
            Err::<(), _>(io::Error::from(io::ErrorKind::BrokenPipe)).context("x").unwrap_err();
        assert_eq!(finish(Err(error)), Exit::Done);
    }

    #[test]
    fn a_cause_is_not_said_twice() {
        let inner = io::Error::other("no space");
        let error = anyhow::Error::new(inner).context("writing x: no space");
        assert_eq!(message(&error), "writing x: no space");
    }

    #[test]
    fn a_subject_that_the_cause_names_is_not_said_twice() {
        let inner = io::Error::other("m.gguf: tensor \"t\" chunk 1");
        let error = anyhow::Error::new(inner).context("tensor \"t\"");
        assert_eq!(message(&error), "m.gguf: tensor \"t\" chunk 1");
    }

    #[test]
    fn numbers_of_errors_are_left_out_and_nothing_else() {
        let error = anyhow::Error::new(io::Error::from_raw_os_error(2)).context("x");
        assert_eq!(message(&error), "x: No such file or directory");
        for text in ["a (os error ) b", "a (os error x)", "a (os error 12", "(os error 1)"] {
            assert_eq!(without_numbers(text), text);
        }
        assert_eq!(without_numbers("a (os error 1); b (os error 22)"), "a; b");
    }

    #[test]
    fn an_error_is_at_most_four_lines_and_tells_the_terminal_nothing() {
        let text = four_lines("a\x1b[2J\n\nb\nc\nd\ne");
        assert_eq!(text, "a\\x1b[2J\n  b\n  c\n  ... and 2 lines more");
        assert_eq!(four_lines("a\n  b\n c\nd"), "a\n  b\n   c\n  d");
        assert_eq!(log_line("a\r\nweightfs: b (os error 1)"), "a\\r\\nweightfs: b");
    }
}
