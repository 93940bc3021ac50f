//! Lists of digests: read once, kept only for the files and tensors of one model.

use super::collector::Collector;
use super::find::is_named_as_sums;
use super::small::{self, SmallError};
use super::{Anchor, Claim, Kind, bundle, report};
use crate::bytes::line::InLine;
use crate::model::Model;
use crate::source::Source;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// Longest list: three lines for each of 200,000 tensors.
pub(super) const MAX_LEN: u64 = 128 << 20;
/// Longest JSON document, which has to be in memory as a whole. A report of 100,000 tensors.
const MAX_JSON: u64 = 64 << 20;
/// The same for one that nobody named: whoever mounts a model does not ask for it, and keeps
/// what its parts took. The signature of 30,000 files.
const MAX_JSON_BESIDE: u64 = 8 << 20;
/// Spaces that may stand in front of a JSON document.
const SNIFF: usize = 512;

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// There is no such file.
    #[error("{file}: there is no such file")]
    Absent {
        /// The list.
        file: String,
    },
    /// It is no list, or not one that can be used.
    #[error("{file}: {what}")]
    Unfit {
        /// The list.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// Two lines contradict each other.
    #[error("{file}: two different digests for {subject}")]
    Twice {
        /// The list.
        file: String,
        /// What they are about.
        subject: String,
    },
    /// The system could not read it.
    #[error("{file}: {source}")]
    Io {
        /// The list.
        file: String,
        /// The system's error.
        source: io::Error,
    },
}

impl ListError {
    fn new(path: &Path, error: SmallError) -> ListError {
        let file = path.in_line().to_string();
        match error {
            SmallError::Absent => ListError::Absent { file },
            SmallError::Unfit(what) => ListError::Unfit { file, what },
            SmallError::Io(source) => ListError::Io { file, source },
        }
    }
}

/// What a list says about one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Where it was read from.
    pub path: PathBuf,
    /// What kind of list it is.
    pub kind: Kind,
    /// By file of the model.
    pub claims: Vec<Claim>,
    /// Names on it that mean nothing in this model, and one of them.
    pub strangers: (u64, Option<String>),
    /// What it says and is not used, in words that name it.
    pub warnings: Vec<String>,
    /// Found beside the model: what contradicts a claim, and of which file.
    pub(super) rival: Option<(usize, Claim)>,
}

impl List {
    /// Reads a list that the user named.
    pub fn read(path: &Path, model: &Model) -> Result<List, ListError> {
        List::read_for(path, model, &[])
    }

    /// As [`List::read`]; `sources`, the files of the model, tell which line of a repository's
    /// list is meant where several end in the same name.
    pub fn read_for(path: &Path, model: &Model, sources: &[Source]) -> Result<List, ListError> {
        let file = small::open(path, MAX_LEN).map_err(|e| ListError::new(path, e))?;
        match read(path, file, Collector::new(path, model, Manner::Given).at(sources))? {
            Some(list) => Ok(list),
            None => Err(ListError::Unfit {
                file: path.in_line().to_string(),
                what: "no list of digests: sha256sum's lines, also in BSD form, SFV, gguf-hash, \
                       a provenance report or a model signature"
                    .to_owned(),
            }),
        }
    }

    /// Reads a list that was found beside the model. `None`: there is none, or it is about
    /// something else and nothing has to be said about it.
    pub(super) fn beside(path: &Path, model: &Model) -> Result<Option<List>, ListError> {
        let file = match small::open_beside(path, MAX_LEN) {
            Err(SmallError::Absent) => return Ok(None),
            file => file.map_err(|e| ListError::new(path, e))?,
        };
        let list = read(path, file, Collector::new(path, model, Manner::Beside))?;
        let counts = |list: &List| {
            !list.warnings.is_empty() || list.claims.iter().any(|claim| !claim.is_empty())
        };
        Ok(list.filter(counts))
    }

    /// What it says, file by file; files that it does not mention have none.
    pub fn into_anchors(self) -> Vec<Anchor> {
        let List { path, kind, claims, rival, .. } = self;
        let said = claims.into_iter().enumerate().filter(|(_, claim)| !claim.is_empty());
        // What a list says twice and differently are two sources that disagree.
        said.chain(rival)
            .map(|(shard, claim)| Anchor {
                kind,
                shard,
                origin: path.clone(),
                repo: None,
                commit: None,
                claim,
            })
            .collect()
    }
}

/// How a list was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It lies beside the model: its names are relative to where it lies.
    Beside,
    /// The user says that it is of this model: its names may have other directories in front.
    Given,
}

/// The mark that some editors put in front of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// `None` when it is no list.
fn read(
    path: &Path,
    mut file: std::fs::File,
    mut claims: Collector<'_>,
) -> Result<Option<List>, ListError> {
    let failed = |source| ListError::Io { file: path.in_line().to_string(), source };
    let unfit = |what| ListError::Unfit { file: path.in_line().to_string(), what };
    let beside = !claims.is_given();
    let most_json = if beside { MAX_JSON_BESIDE } else { MAX_JSON };
    let mut begin = Vec::new();
    file.by_ref().take(SNIFF as u64).read_to_end(&mut begin).map_err(failed)?;
    file.rewind().map_err(failed)?;
    let mut len = file.metadata().map_err(failed)?.len();
    let mut text: Box<dyn Read> = Box::new(file);
    if let Some(wide) = small::Wide::of(&begin) {
        if len > most_json {
            return Err(unfit(format!(
                "a text in UTF-16 of more than {most_json} bytes is not read"
            )));
        }
        let narrow = wide.to_utf8(&small::read(text, most_json).map_err(failed)?);
        begin = narrow[..narrow.len().min(SNIFF)].to_vec();
        len = narrow.len() as u64;
        text = Box::new(io::Cursor::new(narrow));
    }
    let marked = begin.starts_with(MARK);
    let begin = begin.strip_prefix(MARK).unwrap_or(&begin).trim_ascii_start();
    if marked {
        // What follows begins where the text does.
        text.read_exact(&mut [0; MARK.len()]).map_err(failed)?;
    }
    let kind = if begin.starts_with(b"{") {
        if len > most_json {
            return Err(unfit(format!(
                "a JSON document of more than {most_json} bytes is not read"
            )));
        }
        let text = small::read(text, most_json).map_err(failed)?;
        match report::read_json(&text, &mut claims).map_err(unfit)? {
            true => Kind::Provenance,
            false => match bundle::read(&text, &mut claims).map_err(unfit)? {
                true => Kind::ModelSigning,
                false if beside && is_named_as_sums(path) => {
                    claims.not_understood(begin);
                    Kind::Sha256Sums
                }
                false => return Ok(None),
            },
        }
    } else if begin.starts_with(report::FIRST_KEY) {
        report::read_yaml(text, MAX_LEN, &mut claims).map_err(failed)?.map_err(unfit)?;
        Kind::Provenance
    } else {
        match claims.lines(text).map_err(failed)? {
            Some(kind) => kind,
            // By its name it is a list, and what it says is not.
            None if beside && is_named_as_sums(path) => Kind::Sha256Sums,
            None => return Ok(None),
        }
    };
    claims.finish(kind).map(Some)
}
