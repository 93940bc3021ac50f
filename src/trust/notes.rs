//! What a list says and nobody can use: never passed over in silence, never more than a few words.

use crate::bytes::line::InLine;
use std::path::Path;

/// Characters of a line that are shown.
const SHOWN: usize = 60;
/// Kinds of digests that are told apart.
const MAX_ALGORITHMS: usize = 8;

/// How often something was met, and the first of it.
#[derive(Debug, Default)]
struct Met {
    count: u64,
    line: u64,
    first: String,
}

impl Met {
    fn add(&mut self, line: u64, text: &[u8]) {
        if self.count == 0 {
            (self.line, self.first) = (line, shown(text));
        }
        self.count += 1;
    }

    /// ` (and 3 more)`.
    fn more(&self, what: &str) -> String {
        match self.count.saturating_sub(1) {
            0 => String::new(),
            1 => format!(", nor is one more {what}"),
            n => format!(", nor are {n} more {what}s"),
        }
    }
}

/// What was met in one list.
#[derive(Debug, Default)]
pub(super) struct Notes {
    unread: Met,
    elsewhere: Met,
    other_file: Met,
    /// Line on which a signature begins that does not end.
    endless: Option<u64>,
    nameless: Met,
    no_tensor: Met,
    /// By algorithm.
    unsupported: Vec<(String, Met)>,
}

impl Notes {
    /// A line that is none of those that are known.
    pub(super) fn unread(&mut self, line: u64, text: &[u8]) {
        self.unread.add(line, text);
    }

    /// A file of the model's name, but in another place.
    pub(super) fn elsewhere(&mut self, line: u64, name: &[u8]) {
        self.elsewhere.add(line, name);
    }

    /// A name that is not that of a file of the model, and may be meant for it.
    pub(super) fn other_file(&mut self, line: u64, name: &[u8]) {
        self.other_file.add(line, name);
    }

    /// A PGP signature that begins and does not end.
    pub(super) fn endless(&mut self, line: u64) {
        self.endless = Some(line);
    }

    /// A digest of nobody knows what.
    pub(super) fn nameless(&mut self, line: u64) {
        self.nameless.add(line, b"");
    }

    /// A line for a tensor that the model does not have.
    pub(super) fn no_tensor(&mut self, line: u64, name: &[u8]) {
        self.no_tensor.add(line, name);
    }

    /// A digest of a file of the model that is not computed here.
    pub(super) fn unsupported(&mut self, algorithm: &str, file: &[u8]) {
        let known = self.unsupported.iter().position(|(name, _)| name == algorithm);
        let at = known.unwrap_or_else(|| {
            if self.unsupported.len() < MAX_ALGORITHMS {
                self.unsupported.push((algorithm.to_owned(), Met::default()));
            }
            self.unsupported.len() - 1
        });
        self.unsupported[at].1.add(0, file);
    }

    /// Of a file that need not be a list of lines at all.
    pub(super) fn forget_lines(&mut self) {
        self.unread = Met::default();
        self.endless = None;
    }

    /// All of it, in words.
    pub(super) fn warnings(self, list: &Path) -> Vec<String> {
        let list = list.in_line();
        let mut warnings = Vec::new();
        let Notes { unread, elsewhere, other_file, endless, nameless, no_tensor, unsupported } =
            self;
        if unread.count > 0 {
            let (line, text, more) = (unread.line, &unread.first, unread.more("line"));
            warnings.push(format!("{list}: line {line} is not understood: {text}{more}"));
        }
        if elsewhere.count > 0 {
            let (line, name, more) = (elsewhere.line, &elsewhere.first, elsewhere.more("line"));
            warnings.push(format!(
                "{list}: line {line} is about another directory, {name}, and is not used{more}"
            ));
        }
        if other_file.count > 0 {
            let (line, name, more) = (other_file.line, &other_file.first, other_file.more("line"));
            warnings.push(format!(
                "{list}: line {line} is about another file, {name}, and is not used{more}"
            ));
        }
        if let Some(line) = endless {
            warnings.push(format!(
                "{list}: line {line} begins a PGP signature without end: nothing behind it is used"
            ));
        }
        if nameless.count > 0 {
            let (line, more) = (nameless.line, nameless.more("line"));
            warnings.push(format!(
                "{list}: line {line} is a digest without a name, and is not used{more}"
            ));
        }
        if no_tensor.count > 0 {
            let (name, more) = (&no_tensor.first, no_tensor.more("line"));
            let at = match no_tensor.line {
                0 => String::new(),
                line => format!("line {line} is about "),
            };
            warnings.push(format!(
                "{list}: {at}{name}, a tensor that the model does not have, and is not used{more}"
            ));
        }
        for (algorithm, met) in unsupported {
            let algorithm = shown(algorithm.as_bytes());
            let (file, more) = (&met.first, met.more("digest"));
            warnings.push(format!(
                "{list}: digest algorithm {algorithm} is not supported: that of {file} is not compared{more}"
            ));
        }
        warnings
    }
}

/// Text of strangers, in quotes, cut and harmless.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN)]);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_named_and_the_others_counted() {
        let mut notes = Notes::default();
        notes.unread(3, b"what\n\x1b[2J");
        notes.unread(4, b"else");
        notes.nameless(5);
        for (algorithm, file) in [("blake3", "m0"), ("blake3", "m1"), ("blake3", "m2")] {
            notes.unsupported(algorithm, file.as_bytes());
        }
        let want = [
            "/l: line 3 is not understood: \"what\\n\\u{1b}[2J\", nor is one more line",
            "/l: line 5 is a digest without a name, and is not used",
            "/l: digest algorithm \"blake3\" is not supported: that of \"m0\" is not compared, nor are 2 more digests",
        ];
        assert_eq!(notes.warnings(Path::new("/l")), want);
        let mut many = Notes::default();
        for number in 0..100 {
            many.unsupported(&format!("a{number}"), &[b'x'; 1000]);
        }
        let warnings = many.warnings(Path::new("/l"));
        assert_eq!(warnings.len(), MAX_ALGORITHMS);
        assert!(warnings.iter().all(|text| text.len() < 200));
    }
}
