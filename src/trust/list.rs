//! Lists of digests: read once, kept only for the files and tensors of one model.

use super::find::file_of_list;
use super::line::{self, Line};
use super::small::{self, SmallError};
use super::{Anchor, Claim, Kind, Range, Sum, bundle, name_of, report};
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
/// The same for one that nobody named: whoever mounts a model does not ask for it, and keeps
/// what its parts took. The signature of 30,000 files.
const MAX_JSON_BESIDE: u64 = 8 << 20;
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
    /// Found beside the model: what contradicts a claim, and of which file.
    rival: Option<(usize, Claim)>,
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

/// The first line without the mark, others as they are.
fn without_mark<'a>(line: &'a [u8], first: &mut bool) -> &'a [u8] {
    match std::mem::take(first) {
        true => line.strip_prefix(MARK).unwrap_or(line),
        false => line,
    }
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
    let begin = begin.strip_prefix(MARK).unwrap_or(&begin).trim_ascii_start();
    let kind = if begin.starts_with(b"{") {
        let most = if manner == Manner::Beside { MAX_JSON_BESIDE } else { MAX_JSON };
        if file.metadata().map_err(failed)?.len() > most {
            return Err(unfit(format!("a JSON document of more than {most} bytes is not read")));
        }
        let text = small::read(file, most).map_err(failed)?;
        let text = text.strip_prefix(MARK).unwrap_or(&text);
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

/// A name without `./` in front.
fn here(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    name
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
    /// What the second of them says.
    rival: Option<(usize, Claim)>,
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
            rival: None,
        }
    }

    /// Reads lines; what kind they are, `None` where there is not one that counts.
    fn lines(&mut self, file: std::fs::File) -> io::Result<Option<Kind>> {
        let mut counted = [(Kind::Sha256Sums, 0u64), (Kind::GgufHash, 0), (Kind::Sfv, 0)];
        let mut first = true;
        small::lines(file, MAX_LEN, |text| match line::parse(without_mark(text, &mut first)) {
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
        let name = here(name);
        let (dir, file) = match name.iter().rposition(|&b| b == b'/') {
            Some(slash) => (Some(&name[..slash]), &name[slash + 1..]),
            None => (None, name),
        };
        // Further down lies what is of other models.
        let beside = self.manner == Manner::Beside;
        if let Some(dir) = dir
            && (dir == b"tensors" || (!beside && dir.ends_with(b"/tensors")))
        {
            let found = file.strip_suffix(b".bin").and_then(|stem| self.tensor_of_stem(stem));
            return match found {
                Some(index) => self.tensor(index, sum),
                None => self.stranger(name),
            };
        }
        let near = dir.is_none_or(|dir| self.is_own_directory(dir));
        if beside && !near {
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
        let list = name_of(self.path);
        let stem = || list.iter().rposition(|&b| b == b'.').map(|dot| &list[..dot]);
        let named = file_of_list(self.path).or_else(stem);
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
        let path = here(path);
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
            let rival = match sum {
                Sum::Sha256(sha256) => Claim { sha256: Some(sha256), ..Claim::default() },
                Sum::Crc32(_) | Sum::Xxh64(_) => Claim::default(),
            };
            self.disagree(shard, None, rival);
        }
    }

    fn payload(&mut self, shard: usize, sha256: [u8; 32]) {
        let held = *self.claims[shard].payload.get_or_insert(sha256);
        if held != sha256 {
            let rival = Claim { payload: Some(sha256), ..Claim::default() };
            self.disagree(shard, None, rival);
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

    /// Puts the parts of a file in order; why not, in words. Parts that overlap are nobody's,
    /// and would have the same bytes read any number of times.
    fn order_ranges(&mut self, shard: usize) -> Result<(), String> {
        let ranges = &mut self.claims[shard].ranges;
        ranges.sort_by_key(|range| (range.from, range.to));
        let mut rival = None;
        ranges.dedup_by(|next, held| {
            let same = (next.from, next.to) == (held.from, held.to);
            if same && next.sha256 != held.sha256 {
                rival.get_or_insert(*next);
            }
            same
        });
        let overlap = ranges.windows(2).find(|two| two[1].from < two[0].to);
        if let Some([a, b]) = overlap {
            let file = String::from_utf8_lossy(&self.model.shards[shard].file);
            let (a, b) = (format!("{}:{}", a.from, a.to), format!("{}:{}", b.from, b.to));
            return Err(format!("its parts {a} and {b} of {file:?} overlap"));
        }
        if let Some(range) = rival {
            self.disagree(shard, None, Claim { ranges: vec![range], ..Claim::default() });
        }
        Ok(())
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
            let rival = Claim { tensors: vec![(index, sum)], ..Claim::default() };
            self.disagree(self.shard_of(index), Some(index), rival);
        }
    }

    /// A name that is of nothing in this model.
    pub(super) fn stranger(&mut self, name: &[u8]) {
        self.strangers.0 += 1;
        if self.strangers.1.is_none() {
            self.strangers.1 = Some(String::from_utf8_lossy(name).into_owned());
        }
    }

    /// Two lines differ about a file, or about its tensor: `rival` is what the second says.
    fn disagree(&mut self, shard: usize, tensor: Option<u32>, rival: Claim) {
        if self.twice.is_some() {
            return;
        }
        self.twice = Some(match tensor.and_then(|index| self.model.tensors.get(index as usize)) {
            Some(tensor) => format!("tensor {:?}", String::from_utf8_lossy(&tensor.name)),
            None => String::from_utf8_lossy(&self.model.shards[shard].file).into_owned(),
        });
        self.rival = Some((shard, rival)).filter(|(_, rival)| !rival.is_empty());
    }

    /// The list.
    pub(super) fn finish(mut self, kind: Kind) -> Result<List, ListError> {
        for shard in 0..self.claims.len() {
            if let Err(what) = self.order_ranges(shard) {
                return Err(ListError::Unfit { file: self.path.display().to_string(), what });
            }
        }
        let fatal = self.is_given() || self.rival.is_none();
        if let Some(subject) = self.twice.filter(|_| fatal) {
            return Err(ListError::Twice { file: self.path.display().to_string(), subject });
        }
        let mut sums: Vec<_> = self.sums.into_iter().collect();
        sums.sort_unstable_by_key(|(index, _)| *index);
        for (index, sum) in sums {
            let shard = self.model.tensors[index as usize].extent.shard as usize;
            self.claims[shard].tensors.push((index, sum));
        }
        Ok(List {
            path: self.path.to_owned(),
            kind,
            claims: self.claims,
            strangers: self.strangers,
            rival: self.rival,
        })
    }
}
