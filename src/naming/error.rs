//! What is wrong with a map, all of it at once.

use crate::bytes::line::InLine;
use std::fmt;

/// Problems that are kept; the rest is counted.
const MAX_PROBLEMS: usize = 100;

/// Problems after which looking for more is no help to anybody.
const MAX_COUNTED: usize = 10_000;

/// Lines of a message on a terminal.
const MAX_LINES: usize = 4;

/// Problems named on the last line when there are more than lines.
const MAX_ON_LAST_LINE: usize = 20;

/// What kind of problem; the text begins each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named by their codes")]
pub enum Code {
    Read,
    Json,
    Version,
    Member,
    Rule,
    Target,
    Placeholder,
    Regex,
    Split,
    Unmapped,
    Collision,
    Limit,
    Values,
    Unmatched,
    Shape,
}

impl Code {
    /// The code as shown: `E_COLLISION`.
    pub const fn name(self) -> &'static str {
        match self {
            Code::Read => "E_READ",
            Code::Json => "E_JSON",
            Code::Version => "E_VERSION",
            Code::Member => "E_MEMBER",
            Code::Rule => "E_RULE",
            Code::Target => "E_TARGET",
            Code::Placeholder => "E_PLACEHOLDER",
            Code::Regex => "E_REGEX",
            Code::Split => "E_SPLIT",
            Code::Unmapped => "E_UNMAPPED",
            Code::Collision => "E_COLLISION",
            Code::Limit => "E_LIMIT",
            Code::Values => "E_VALUES",
            Code::Unmatched => "E_UNMATCHED",
            Code::Shape => "E_SHAPE",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind.
    pub code: Code,
    /// Line and column in the map file, from 1, where there is a place.
    pub place: Option<(usize, usize)>,
    /// The rest: what, where, expected and found.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.name())?;
        if let Some((line, column)) = self.place {
            write!(f, " at line {line} column {column}:")?;
        }
        write!(f, " {}", self.text)
    }
}

/// A map that cannot be used: everything that is wrong with one stage.
///
/// Displayed in at most four lines, the first of which names the map.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MapError {
    map: String,
    problems: Vec<Problem>,
    more: usize,
}

impl std::error::Error for MapError {}

impl MapError {
    /// No problems yet with the stage `map` (`hf` or a file name).
    pub(super) fn new(map: impl Into<String>) -> MapError {
        MapError { map: map.into(), problems: Vec::new(), more: 0 }
    }

    pub(super) fn push(&mut self, code: Code, text: String) {
        self.push_at(code, || None, text);
    }

    /// With its line and column; looking for them is work, done only for what is kept.
    pub(super) fn push_at(
        &mut self,
        code: Code,
        place: impl FnOnce() -> Option<(usize, usize)>,
        text: String,
    ) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { code, place: place(), text });
        } else {
            self.more += 1;
        }
    }

    /// Itself as an error, when there was a problem.
    pub(super) fn into_result(self) -> Result<(), MapError> {
        if self.problems.is_empty() { Ok(()) } else { Err(self) }
    }

    /// The stage: `hf`, `gguf` or the file as given.
    pub fn map(&self) -> &str {
        &self.map
    }

    /// Number of problems, kept or not.
    pub(super) fn count(&self) -> usize {
        self.problems.len() + self.more
    }

    /// Whether there are so many that the search may end.
    pub(super) fn is_hopeless(&self) -> bool {
        self.count() >= MAX_COUNTED
    }

    /// What is wrong, in the order found (the first hundred).
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Number of further problems that were not kept.
    pub fn more(&self) -> usize {
        self.more
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map {}: ", self.map.in_line())?;
        let total = self.count();
        let lines = if total <= MAX_LINES { total } else { MAX_LINES - 1 };
        for (i, problem) in self.problems.iter().take(lines).enumerate() {
            if i > 0 {
                f.write_str("\n  ")?;
            }
            write!(f, "{problem}")?;
        }
        for (i, problem) in self.problems.iter().enumerate().skip(lines).take(MAX_ON_LAST_LINE) {
            f.write_str(if i == lines { "\n  " } else { "; " })?;
            write!(f, "{problem}")?;
        }
        match total.saturating_sub(lines + MAX_ON_LAST_LINE) {
            0 => Ok(()),
            rest => write!(f, "; and {rest} more"),
        }
    }
}

/// A name for a message: control characters and bad bytes escaped, very long ones cut.
pub(super) fn show(name: &[u8]) -> String {
    const MAX: usize = 300;
    if name.is_empty() {
        return "\"\"".into();
    }
    // What follows would be cut from the text all the same.
    let mut out = name[..name.len().min(4 * MAX)].in_line().to_string();
    if out.len() > MAX {
        let cut = (0..=MAX).rev().find(|&i| out.is_char_boundary(i)).unwrap_or(0);
        out.truncate(cut);
        out.push_str("...");
    }
    out
}

/// Names for a message, at most `max` of them.
pub(super) fn show_list<'a>(
    names: impl Iterator<Item = &'a [u8]>,
    total: usize,
    max: usize,
) -> String {
    let shown: Vec<String> = names.take(max).map(show).collect();
    match total.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        rest => format!("{} and {rest} more", shown.join(", ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn error(count: usize) -> MapError {
        let mut error = MapError::new("m.json");
        for i in 0..count {
            error.push_at(Code::Target, || (i == 0).then_some((2, 7)), format!("problem{i}."));
        }
        error
    }

    #[test]
    fn messages_have_at_most_four_lines_and_lose_nothing_silently() {
        assert!(error(0).into_result().is_ok());
        assert_eq!(
            error(2).to_string(),
            "map m.json: E_TARGET at line 2 column 7: problem0.\n  E_TARGET problem1."
        );
        for count in [1, 4, 5, 23, 24, 99, 250] {
            let error = error(count);
            let text = error.to_string();
            assert!(text.lines().count() <= 4, "{text}");
            let shown = text.matches("problem").count();
            let more: usize = match text.split_once("; and ") {
                Some((_, rest)) => rest.split(' ').next().unwrap().parse().unwrap(),
                None => 0,
            };
            assert_eq!(shown + more, count, "{text}");
            assert_eq!(error.problems().len() + error.more(), count);
        }
    }

    #[test]
    fn names_in_messages_are_printable() {
        assert_eq!(show(b"a\nb\x1b[2J\xff"), "a\\nb\\x1b[2J\\xff");
        assert_eq!(show(b""), "\"\"");
        assert!(show("\u{e9}".repeat(400).as_bytes()).len() < 310);
    }
}
