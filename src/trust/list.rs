//! Lists of digests: read once, kept only for the files and tensors of one model.

use super::line::{self, Line};
use super::small::{self, SmallError};
use super::{Anchor, Claim, Kind, Range, Sum, bundle, report};
use crate::model::Model;
use crate::naming::{StemIndex, file_stem};
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// Longest list: three lines for each of 200,000 tensors.
const MAX_LEN: u64 = 128 << 20;
/// Longest JSON document, which has to be in memory as a whole. A report of 100,000 tensors.
const MAX_JSON: u64 = 64 << 20;
/// Longest suffix of a file in a mount (`.json`), which decides how its name is cut.
const LONGEST_SUFFIX: usize = 5;
/// Colons in the path of a line of gguf-hash, behind each of which the tensor may begin.
const MAX_COLONS: usize = 16;
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
        let file = path.display().to_string();
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
}

impl List {
    /// Reads a list that the user named.
    pub fn read(path: &Path, model: &Model) -> Result<List, ListError> {
        let file = small::open(path, MAX_LEN).map_err(|e| ListError::new(path, e))?;
        match read(path, file, model, Manner::Given)? {
            Some(list) => Ok(list),
            None => Err(ListError::Unfit {
                file: path.display().to_string(),
                what: "no list of digests: sha256sum's lines, also in BSD form, SFV, gguf-hash, \
                       a provenance report or a model signature"
                    .to_owned(),
            }),
        }
    }

    /// Reads a list that was found beside the model. `None`: there is none, or it is about
    /// something else.
    pub(super) fn beside(path: &Path, model: &Model) -> Result<Option<List>, ListError> {
        let file = match small::open_beside(path, MAX_LEN) {
            Err(SmallError::Absent) => return Ok(None),
            file => file.map_err(|e| ListError::new(path, e))?,
        };
        let list = read(path, file, model, Manner::Beside)?;
        Ok(list.filter(|list| list.claims.iter().any(|claim| !claim.is_empty())))
    }

    /// What it says, file by file; files that it does not mention have none.
    pub fn into_anchors(self) -> Vec<Anchor> {
        let List { path, kind, claims, .. } = self;
        let said = claims.into_iter().enumerate().filter(|(_, claim)| !claim.is_empty());
        said.map(|(shard, claim)| Anchor {
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

/// `None` when it is no list.
fn read(
    path: &Path,
    mut file: std::fs::File,
    model: &Model,
    manner: Manner,
) -> Result<Option<List>, ListError> {
    let failed = |source| ListError::Io { file: path.display().to_string(), source };
    let unfit = |what| ListError::Unfit { file: path.display().to_string(), what };
    let mut begin = Vec::new();
    file.by_ref().take(SNIFF as u64).read_to_end(&mut begin).map_err(failed)?;
    file.rewind().map_err(failed)?;
    let mut claims = Collector::new(path, model, manner);
    let begin = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&begin).trim_ascii_start();
    let kind = if begin.starts_with(b"{") {
        if file.metadata().map_err(failed)?.len() > MAX_JSON {
            return Err(unfit(format!(
                "a JSON document of more than {MAX_JSON} bytes is not read"
            )));
        }
        let text = small::read(file, MAX_JSON).map_err(failed)?;
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        match report::read_json(text, &mut claims).map_err(unfit)? {
            true => Kind::Provenance,
            false => match bundle::read(text, &mut claims).map_err(unfit)? {
                true => Kind::ModelSigning,
                false => return Ok(None),
            },
        }
    } else if begin.starts_with(report::FIRST_KEY) {
        report::read_yaml(file, MAX_LEN, &mut claims).map_err(failed)?.map_err(unfit)?;
        Kind::Provenance
    } else {
        match claims.lines(file).map_err(failed)? {
            Some(kind) => kind,
            None => return Ok(None),
        }
    };
    claims.finish(kind).map(Some)
}

/// Puts together what a list says about the files and tensors of a model.
pub(super) struct Collector<'a> {
    pub(super) path: &'a Path,
    pub(super) model: &'a Model,
    manner: Manner,
    /// By name.
    shards: HashMap<&'a [u8], usize>,
    claims: Vec<Claim>,
    sums: HashMap<u32, Sum>,
    names: Option<StemIndex>,
    stems: Option<StemIndex>,
    strangers: (u64, Option<String>),
    /// What two lines disagree about.
    twice: Option<String>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(path: &'a Path, model: &'a Model, manner: Manner) -> Collector<'a> {
        let claims = model.shards.iter().map(|_| Claim::default()).collect();
        Collector {
            path,
            model,
            manner,
            shards: model.shards.iter().enumerate().map(|(i, shard)| (&*shard.file, i)).collect(),
            claims,
            sums: HashMap::new(),
            names: None,
            stems: None,
            strangers: (0, None),
            twice: None,
        }
    }

    /// Reads lines; what kind they are, `None` where there is not one that counts.
    fn lines(&mut self, file: std::fs::File) -> io::Result<Option<Kind>> {
        let mut counted = [(Kind::Sha256Sums, 0u64), (Kind::GgufHash, 0), (Kind::Sfv, 0)];
        small::lines(file, MAX_LEN, |text| match line::parse(text) {
            Line::Sha256 { name, sha256 } => {
                counted[0].1 += 1;
                self.named(&name, Sum::Sha256(sha256));
            }
            Line::Bare(sha256) => {
                counted[0].1 += 1;
                self.bare(sha256);
            }
            Line::GgufHash { subject, sum } => {
                counted[1].1 += 1;
                self.gguf_hash(subject, sum);
            }
            Line::OtherHash => counted[1].1 += 1,
            Line::Crc32 { name, crc32 } => {
                counted[2].1 += 1;
                self.named(name, Sum::Crc32(crc32));
            }
            Line::Other => {}
        })?;
        let most = counted.into_iter().rev().max_by_key(|(_, count)| *count);
        // A text that happens to end in eight hexadecimal digits is no SFV by itself.
        Ok(most.filter(|(_, count)| *count > 0).map(|(kind, _)| kind))
    }

    /// A name and the checksum of what has it: a file of the model, or a tensor as a mount
    /// shows it, `tensors/NAME.bin`.
    pub(super) fn named(&mut self, name: &[u8], sum: Sum) {
        let name = name.strip_prefix(b"./").unwrap_or(name);
        let (dir, file) = match name.iter().rposition(|&b| b == b'/') {
            Some(slash) => (Some(&name[..slash]), &name[slash + 1..]),
            None => (None, name),
        };
        if let Some(dir) = dir
            && dir.rsplit(|&b| b == b'/').next() == Some(b"tensors")
        {
            let found = file.strip_suffix(b".bin").and_then(|stem| self.tensor_of_stem(stem));
            return match found {
                Some(index) => self.tensor(index, sum),
                None => self.stranger(name),
            };
        }
        let near = dir.is_none_or(|dir| self.is_own_directory(dir));
        if self.manner == Manner::Beside && !near {
            return self.stranger(name);
        }
        let of_mount = dir.is_some_and(|dir| dir == b"source" || dir.ends_with(b"/source"));
        match self.shard(file).or_else(|| self.shard_of_stem(file).filter(|_| of_mount)) {
            Some(shard) => self.file(shard, sum),
            None => self.stranger(name),
        }
    }

    /// Whether a list's absolute directory is the one it lies in.
    fn is_own_directory(&self, dir: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        let dir = Path::new(std::ffi::OsStr::from_bytes(dir));
        dir.is_absolute() && self.path.parent() == Some(dir)
    }

    /// A digest without a name, in a list that is named after its file.
    fn bare(&mut self, sha256: [u8; 32]) {
        use std::os::unix::ffi::OsStrExt;
        let list = self.path.file_name().unwrap_or_default().as_bytes();
        let named = list.iter().rposition(|&b| b == b'.').map(|dot| &list[..dot]);
        match (named.and_then(|name| self.shard(name)), self.model.shards.len(), self.manner) {
            (Some(shard), ..) => self.file(shard, Sum::Sha256(sha256)),
            (None, 1, Manner::Given) => self.file(0, Sum::Sha256(sha256)),
            _ => self.stranger(b"a digest without a name"),
        }
    }

    /// `FILE:TENSOR` or `FILE`. The file is whatever path was typed, so only its last part
    /// counts; colons may be in that path and in a tensor's name.
    fn gguf_hash(&mut self, subject: &[u8], sum: Sum) {
        let colons = subject.iter().enumerate().filter(|&(_, &b)| b == b':').map(|(at, _)| at);
        for end in colons.take(MAX_COLONS).chain([subject.len()]) {
            let from = subject[..end].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
            let Some(shard) = self.shard(&subject[from..end]) else {
                continue;
            };
            let Some(name) = subject.get(end + 1..) else {
                // Other sums of all tensors say no more than those of each.
                if let Sum::Sha256(sha256) = sum {
                    self.payload(shard, sha256);
                }
                return;
            };
            let found = self.tensor_of_name(name).filter(|&index| self.shard_of(index) == shard);
            return match found {
                Some(index) => self.tensor(index, sum),
                None => self.stranger(subject),
            };
        }
        self.stranger(subject);
    }

    /// The number of the file with this name.
    pub(super) fn shard(&self, file: &[u8]) -> Option<usize> {
        self.shards.get(file).copied()
    }

    /// As [`Collector::shard`] for a path relative to where the list lies, or to where the
    /// user says that it belongs.
    pub(super) fn shard_beside(&self, path: &[u8]) -> Option<usize> {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        let file = path.rsplit(|&b| b == b'/').next().filter(|file| !file.is_empty())?;
        let near = file.len() == path.len() || self.is_given();
        self.shard(file).filter(|_| near)
    }

    /// Whether the user named the list.
    pub(super) fn is_given(&self) -> bool {
        self.manner == Manner::Given
    }

    /// The file that a mount shows under this name in `source/`.
    fn shard_of_stem(&self, stem: &[u8]) -> Option<usize> {
        self.model.shards.iter().position(|shard| *file_stem(&shard.file, 0) == *stem)
    }

    fn shard_of(&self, index: u32) -> usize {
        self.model.tensors.get(index as usize).map_or(usize::MAX, |t| t.extent.shard as usize)
    }

    /// The tensor with this stored name.
    pub(super) fn tensor_of_name(&mut self, name: &[u8]) -> Option<u32> {
        let model = self.model;
        let name_at = |i: u32| Cow::Borrowed(&*model.tensors[i as usize].name);
        let count = u32::try_from(model.tensors.len()).unwrap_or(u32::MAX);
        let names =
            self.names.get_or_insert_with(|| StemIndex::build_all(count, name_at, |_| true));
        names.find(name, name_at)
    }

    /// The tensor whose file in a mount, under its stored name, has this stem.
    fn tensor_of_stem(&mut self, stem: &[u8]) -> Option<u32> {
        let model = self.model;
        let stem_at = |i: u32| file_stem(&model.tensors[i as usize].name, LONGEST_SUFFIX);
        let count = u32::try_from(model.tensors.len()).unwrap_or(u32::MAX);
        let stems =
            self.stems.get_or_insert_with(|| StemIndex::build_all(count, stem_at, |_| true));
        stems.find(stem, stem_at)
    }

    /// The checksum of a whole file.
    pub(super) fn file(&mut self, shard: usize, sum: Sum) {
        let claim = &mut self.claims[shard];
        let differs = match sum {
            Sum::Sha256(sha256) => *claim.sha256.get_or_insert(sha256) != sha256,
            Sum::Crc32(crc32) => *claim.crc32.get_or_insert(crc32) != crc32,
            Sum::Xxh64(_) => false,
        };
        if differs {
            self.disagree(String::from_utf8_lossy(&self.model.shards[shard].file).into_owned());
        }
    }

    fn payload(&mut self, shard: usize, sha256: [u8; 32]) {
        let held = &mut self.claims[shard].payload;
        if held.is_some_and(|held| held != sha256) {
            self.disagree(String::from_utf8_lossy(&self.model.shards[shard].file).into_owned());
        } else {
            *held = Some(sha256);
        }
    }

    /// Of a part of a file; one that is all of it is the file's.
    pub(super) fn range(&mut self, shard: usize, range: Range) {
        if (range.from, range.to) == (0, self.model.shards[shard].len) {
            self.file(shard, Sum::Sha256(range.sha256));
        } else {
            self.claims[shard].ranges.push(range);
        }
    }

    /// Of a tensor: the one that says most is kept.
    pub(super) fn tensor(&mut self, index: u32, sum: Sum) {
        let differs = match self.sums.entry(index) {
            Entry::Vacant(free) => {
                free.insert(sum);
                false
            }
            Entry::Occupied(mut held) => {
                let (new, old) = (sum.rank(), held.get().rank());
                if new < old {
                    held.insert(sum);
                }
                new == old && *held.get() != sum
            }
        };
        if differs {
            let name = String::from_utf8_lossy(&self.model.tensors[index as usize].name);
            self.disagree(format!("tensor {name:?}"));
        }
    }

    /// A name that is of nothing in this model.
    pub(super) fn stranger(&mut self, name: &[u8]) {
        self.strangers.0 += 1;
        if self.strangers.1.is_none() {
            self.strangers.1 = Some(String::from_utf8_lossy(name).into_owned());
        }
    }

    fn disagree(&mut self, subject: String) {
        self.twice.get_or_insert(subject);
    }

    /// The list.
    pub(super) fn finish(mut self, kind: Kind) -> Result<List, ListError> {
        if let Some(subject) = self.twice {
            return Err(ListError::Twice { file: self.path.display().to_string(), subject });
        }
        let mut sums: Vec<_> = self.sums.into_iter().collect();
        sums.sort_unstable_by_key(|(index, _)| *index);
        for (index, sum) in sums {
            let shard = self.model.tensors[index as usize].extent.shard as usize;
            self.claims[shard].tensors.push((index, sum));
        }
        for claim in &mut self.claims {
            claim.ranges.sort_unstable_by_key(|range| (range.from, range.to));
        }
        Ok(List {
            path: self.path.to_owned(),
            kind,
            claims: self.claims,
            strangers: self.strangers,
        })
    }
}
