//! Why a model could not be opened: at most four lines, the file always named.

use crate::bytes::line::InLine;
use crate::depot::DepotError;
use crate::format::Quoted;
use crate::format::gguf::GgufError;
use crate::format::safetensors::SafetensorsError;
use crate::format::safetensors::index::IndexError;
use crate::source::SourceError;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};

/// Why a model could not be opened. The message names file, tensor or key, offset, expected, found.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message beside each variant says what its fields are")]
pub enum LoadError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{}: cannot {op}: {source}", file.in_line())]
    Io { file: PathBuf, op: &'static str, source: io::Error },

    #[error(transparent)]
    Depot(#[from] DepotError),
    #[error(
        "{source}
{hint}"
    )]
    InDepot { source: Box<LoadError>, hint: String },
    #[error("{}: is {what}, not a regular file", file.in_line())]
    NotAFile { file: PathBuf, what: &'static str },
    #[error("{}: is {what}, not the model{hint}", file.in_line())]
    NotAModel { file: PathBuf, what: String, hint: &'static str },
    #[error("{}: is a download that did not finish; it is not opened", file.in_line())]
    Unfinished { file: PathBuf },
    #[error(
        "{}: is a piece of a file that was cut up: join all pieces, in order, with `cat`\n{source}",
        file.in_line()
    )]
    Piece { file: PathBuf, source: Box<LoadError> },

    #[error("{}: {source}", file.in_line())]
    Gguf { file: PathBuf, source: Box<GgufError> },
    #[error("{}: {source}", file.in_line())]
    Safetensors { file: PathBuf, source: Box<SafetensorsError> },
    #[error("{}: {source}", file.in_line())]
    Index { file: PathBuf, source: IndexError },

    #[error("{}: holds {} models; name one of them: {}", directory.in_line(), models.len(), List(models))]
    SeveralModels { directory: PathBuf, models: Vec<String> },
    #[error("{}: holds no model{}", directory.in_line(), AndBut(instead))]
    NoModel { directory: PathBuf, instead: Vec<String> },
    #[error("{}: {what}; missing beside it: {}", file.in_line(), List(missing))]
    Missing { file: PathBuf, what: String, missing: Vec<String> },
    #[error("{}: {problem}", file.in_line())]
    Set { file: PathBuf, problem: String },
    #[error("{}: tensor {} is also in {}{why}", second.in_line(), Quoted(name), first.in_line())]
    DuplicateTensor { name: Box<[u8]>, first: PathBuf, second: PathBuf, why: &'static str },
}

/// A path in a message.
pub(super) struct Shown<'a>(pub(super) &'a Path);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.in_line().fmt(f)
    }
}

/// A name in a message, as text.
pub(super) fn shown_name(name: &[u8]) -> String {
    name.in_line().to_string()
}

/// Names with commas; after eight the rest is counted.
pub(super) struct List<'a>(pub(super) &'a [String]);

impl Display for List<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        f.write_str(&self.0[..self.0.len().min(SHOWN)].join(", "))?;
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

struct AndBut<'a>(&'a [String]);

impl Display for AndBut<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", but {}", List(self.0)) }
    }
}

impl LoadError {
    /// Whether what was named holds several models.
    pub fn is_of_several(&self) -> bool {
        match self {
            LoadError::InDepot { source, .. } => source.is_of_several(),
            other => matches!(other, LoadError::SeveralModels { .. }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_and_paths_are_harmless() {
        let names: Vec<String> = (0..10).map(|i| format!("m{i}")).collect();
        let e = LoadError::SeveralModels { directory: "d\n\u{1b}[0m".into(), models: names };
        let want = "d\\n\\x1b[0m: holds 10 models; name one of them: \
                    m0, m1, m2, m3, m4, m5, m6, m7 and 2 more";
        assert_eq!(e.to_string(), want);
        let e = LoadError::NoModel { directory: "d".into(), instead: vec![] };
        assert_eq!(e.to_string(), "d: holds no model");
    }
}
