//! What a list says about the files and tensors of one model, put together.

use super::find::{file_of_list, is_named_as_blake3, is_named_as_sums, list_of_stem};
use super::line::{self, Line};
use super::list::{List, ListError, MAX_LEN, Manner};
use super::notes::Notes;
use super::small;
use super::{Claim, Kind, Range, Sum, name_of};
use crate::bytes::line::InLine;
use crate::model::{Format, Model};
use crate::naming::{StemIndex, file_stem};
use crate::source::Source;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Longest suffix of a file in a mount (`.json`), which decides how its name is cut.
const LONGEST_SUFFIX: usize = 5;
/// What is told by the name of the list alone.
const BLAKE3: &str = "BLAKE3";
/// Colons in the path of a line of gguf-hash, behind each of which the tensor may begin.
const MAX_COLONS: usize = 16;

/// Digests of one file that are kept until it is known which are meant: enough to see that they
/// differ.
const MAX_LOOSE: usize = 4;

/// A name without `./` in front.
fn here(mut name: &[u8]) -> &[u8] {
    while let Some(mut rest) = name.strip_prefix(b"./") {
        while let Some(more) = rest.strip_prefix(b"/") {
            rest = more;
        }
        name = rest;
    }
    name
}

/// Where a line of a list leads that the user named.
enum Place {
    /// To the file of the model.
    There,
    /// To another one.
    Elsewhere,
    /// Nobody knows: the list may lie anywhere.
    Unknown,
}

/// The lines of a text that was signed with PGP and are none of the text.
#[derive(Default)]
struct Armour {
    signature: bool,
    /// Where a signature begins that did not end yet, and holds lines.
    swallowed: Option<u64>,
}

impl Armour {
    fn holds(&mut self, number: u64, line: &[u8]) -> bool {
        let line = line.trim_ascii_end();
        let within = std::mem::take(&mut self.signature);
        match line {
            b"-----BEGIN PGP SIGNATURE-----" => {
                self.signature = true;
                self.swallowed.get_or_insert(number);
            }
            b"-----END PGP SIGNATURE-----" => self.swallowed = None,
            b"-----BEGIN PGP SIGNED MESSAGE-----" => {}
            _ if within => self.signature = true,
            _ => return line.starts_with(b"Hash: SHA"),
        }
        true
    }
}

/// Puts together what a list says about the files and tensors of a model.
pub(super) struct Collector<'a> {
    pub(super) path: &'a Path,
    pub(super) model: &'a Model,
    manner: Manner,
    /// Where we are.
    line: u64,
    notes: Notes,
    /// By name.
    shards: HashMap<&'a [u8], usize>,
    claims: Vec<Claim>,
    /// By tensor and kind.
    sums: HashMap<(u32, u8), Sum>,
    names: Option<StemIndex>,
    stems: Option<StemIndex>,
    strangers: (u64, Option<String>),
    /// What two lines disagree about.
    twice: Option<String>,
    /// Names of the files in small letters.
    folded: HashSet<Vec<u8>>,
    /// Where the files are, by number, with links resolved; empty where that is not known.
    paths: Vec<PathBuf>,
    /// Of a list that the user named: files to which a line leads, and what other lines say
    /// about a file of that name.
    there: HashSet<usize>,
    loose: BTreeMap<usize, Vec<Sum>>,
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
            line: 0,
            notes: Notes::default(),
            shards: model.shards.iter().enumerate().map(|(i, shard)| (&*shard.file, i)).collect(),
            claims,
            sums: HashMap::new(),
            names: None,
            stems: None,
            strangers: (0, None),
            twice: None,
            folded: model.shards.iter().map(|shard| shard.file.to_ascii_lowercase()).collect(),
            paths: Vec::new(),
            there: HashSet::new(),
            loose: BTreeMap::new(),
            rival: None,
        }
    }

    /// Says where the files of the model are.
    pub(super) fn at(mut self, sources: &[Source]) -> Collector<'a> {
        let path = |source: &Source| source.path().canonicalize();
        // All or none: they are found by number.
        self.paths = sources.iter().map(path).collect::<Result<_, _>>().unwrap_or_default();
        self
    }

    /// A document that is none of those that are known, in a place where lists are.
    pub(super) fn not_understood(&mut self, begin: &[u8]) {
        self.notes.unread(1, begin);
    }

    /// Reads lines; what kind they are, `None` where there is not one that counts.
    pub(super) fn lines(&mut self, text: impl Read) -> io::Result<Option<Kind>> {
        let mut counted = [(Kind::Sha256Sums, 0u64), (Kind::GgufHash, 0), (Kind::Sfv, 0)];
        // Digests of all tensors of a file together that are not computed here.
        let (mut others, mut other) = (BTreeSet::new(), 0);
        let mut armour = Armour::default();
        let blake3 = is_named_as_blake3(self.path);
        small::lines(text, MAX_LEN, |number, text| {
            self.line = number;
            let Some(text) = text else { return self.notes.unread(number, b"a line without end") };
            if armour.holds(number, text) {
                return;
            }
            match line::parse(text) {
                Line::Sha256 { name, .. } if blake3 && !line::says_its_kind(text) => {
                    counted[0].1 += 1;
                    self.unsupported(&name, BLAKE3);
                }
                Line::Bare(_) if blake3 && !line::says_its_kind(text) => {
                    counted[0].1 += 1;
                    match self.bare_of() {
                        Some(shard) => {
                            self.notes.unsupported(BLAKE3, &self.model.shards[shard].file)
                        }
                        None => self.stranger(b"a digest without a name"),
                    }
                }
                Line::Sha256 { name, sha256 } => {
                    counted[0].1 += 1;
                    self.named(&name, Sum::Sha256(sha256));
                }
                Line::Bare(sha256) => {
                    counted[0].1 += 1;
                    self.bare(sha256);
                }
                Line::OtherSum { name, algorithm } => {
                    counted[0].1 += 1;
                    self.unsupported(&name, &algorithm);
                }
                // gguf-hash reads nothing but GGUF: of another file it is the digest.
                Line::GgufHash { subject, sum: Sum::Sha256(sha256) } if !self.is_gguf() => {
                    counted[0].1 += 1;
                    self.named(subject, Sum::Sha256(sha256));
                }
                Line::GgufHash { subject, sum } => {
                    counted[1].1 += 1;
                    self.gguf_hash(subject, sum);
                }
                Line::OtherHash { subject, algorithm } => {
                    counted[1].1 += 1;
                    other += 1;
                    if let Some(shard) = self.shard(name_of(Path::new(OsStr::from_bytes(subject))))
                    {
                        others.insert((shard, algorithm));
                    }
                }
                Line::Crc32 { name, crc32 } => {
                    counted[2].1 += 1;
                    self.named(name, Sum::Crc32(crc32));
                }
                Line::Nothing => {}
                Line::Unknown => self.notes.unread(number, text),
            }
        })?;
        if let Some(begun) = armour.swallowed {
            self.notes.endless(begun);
        }
        if counted.iter().map(|(_, count)| count).sum::<u64>() == other {
            // Worth a word where there is nothing else.
            for (shard, algorithm) in others {
                self.notes.unsupported(algorithm, &self.model.shards[shard].file);
            }
        }
        let most = counted.into_iter().rev().max_by_key(|(_, count)| *count);
        // A text that happens to end in eight hexadecimal digits is no SFV by itself.
        Ok(most.filter(|(_, count)| *count > 0).map(|(kind, _)| kind))
    }

    /// A name and the checksum of what has it: a file of the model, or a tensor as a mount
    /// shows it, `tensors/NAME.bin`.
    pub(super) fn named(&mut self, name: &[u8], sum: Sum) {
        let unix = self.as_here(name);
        let name = self.trimmed(here(&unix));
        // What was summed as it came in has no name.
        if let Sum::Sha256(sha256) = sum
            && [&b"-"[..], b"stdin"].contains(&name)
            && self.shard(name).is_none()
        {
            return self.bare(sha256);
        }
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
                None => self.no_tensor(name),
            };
        }
        let near = dir.is_none_or(|dir| self.is_own_directory(dir, file));
        // A list of one file is about that file, wherever it was when the list was made.
        let its_own = self.shard(file).is_some() && file_of_list(self.path) == Some(file);
        if beside && !near && !its_own {
            self.passed_over(name, file);
            return self.stranger(name);
        }
        let of_mount = dir.is_some_and(|dir| dir == b"source" || dir.ends_with(b"/source"));
        match self.shard(file).or_else(|| self.shard_of_stem(file).filter(|_| of_mount)) {
            Some(shard) if beside || of_mount => self.file(shard, sum),
            Some(shard) => match self.place(shard, name) {
                Place::There => {
                    self.there.insert(shard);
                    self.file(shard, sum);
                }
                Place::Elsewhere => self.stranger(name),
                Place::Unknown => {
                    let sums = self.loose.entry(shard).or_default();
                    if sums.len() < MAX_LOOSE && !sums.contains(&sum) {
                        sums.push(sum);
                    }
                }
            },
            None => {
                self.passed_over(name, file);
                self.stranger(name);
            }
        }
    }

    /// A name without blanks around it, which some editors and tools leave, unless it is that of
    /// a file.
    fn trimmed<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        let file = name.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if self.shard(file).is_some() { name } else { name.trim_ascii() }
    }

    /// A line that is not used: worth a word where it may be meant for a file of the model.
    fn passed_over(&mut self, name: &[u8], file: &[u8]) {
        let alike = self.folded.contains(&file.to_ascii_lowercase());
        let of_one = file_of_list(self.path).is_some_and(|file| self.shard(file).is_some());
        if alike && file.len() < name.len() {
            self.notes.elsewhere(self.line, name);
        } else if alike || of_one && is_named_as_sums(self.path) {
            self.notes.other_file(self.line, name);
        }
    }

    /// Where the name of a line leads, seen from the list that the user named: the lists of a
    /// repository have a file of the same name in each directory.
    fn place(&self, shard: usize, name: &[u8]) -> Place {
        let list = std::path::absolute(self.path).unwrap_or_default();
        let own = list.parent().and_then(|own| own.canonicalize().ok());
        let (Some(file), Some(own)) = (self.paths.get(shard), own.as_deref()) else {
            return Place::Unknown;
        };
        let name = Path::new(OsStr::from_bytes(name));
        let leads = |from: &Path| from.join(name).canonicalize().is_ok_and(|path| path == *file);
        if leads(own) || own.parent().is_some_and(leads) {
            return Place::There;
        }
        let below = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        let is_below = name.components().count() > 1 && name.components().all(below);
        // A list that lies above the model knows its directories; so does one beside a file of
        // that name.
        let knows = file.parent().is_some_and(|dir| {
            dir.starts_with(own) && (dir != own || own.join(name).symlink_metadata().is_ok())
        });
        if is_below && knows { Place::Elsewhere } else { Place::Unknown }
    }

    /// A name with the slashes of this system: those of Windows are part of a name here, if
    /// there is such a file.
    fn as_here<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        if !name.contains(&b'\\') || name.contains(&b'/') || self.shard(name).is_some() {
            return Cow::Borrowed(name);
        }
        name.iter().map(|&b| if b == b'\\' { b'/' } else { b }).collect::<Vec<_>>().into()
    }

    /// Whether a list's directory is the one it lies in, by its whole path or as seen from the
    /// directory above.
    fn is_own_directory(&self, dir: &[u8], file: &[u8]) -> bool {
        let dir = Path::new(OsStr::from_bytes(dir));
        let Some(own) = self.path.parent() else { return false };
        let further = || own.join(dir).join(OsStr::from_bytes(file)).symlink_metadata().is_ok();
        let is = |own: &Path| match dir.is_absolute() {
            true => own == dir,
            false => own.file_name() == Some(dir.as_os_str()) && !further(),
        };
        is(own) || own.canonicalize().is_ok_and(|own| is(&own))
    }

    /// A digest without a name, in a list that is named after its file.
    fn bare(&mut self, sha256: [u8; 32]) {
        match self.bare_of() {
            Some(shard) => self.file(shard, Sum::Sha256(sha256)),
            None => {
                self.notes.nameless(self.line);
                self.stranger(b"a digest without a name");
            }
        }
    }

    /// The file that a digest without a name is of.
    fn bare_of(&self) -> Option<usize> {
        let list = name_of(self.path);
        let stem = || list.iter().rposition(|&b| b == b'.').map(|dot| &list[..dot]);
        let named = file_of_list(self.path).or_else(stem);
        let only = self.model.shards.len() == 1 && self.is_given();
        named.and_then(|name| self.shard(name)).or_else(|| self.of_stem()).or(only.then_some(0))
    }

    /// The one file of a model `m.gguf`, in a list `m.sha256`.
    fn of_stem(&self) -> Option<usize> {
        let [shard] = &*self.model.shards else { return None };
        let file = Path::new(OsStr::from_bytes(&shard.file));
        (list_of_stem(file).file_name() == self.path.file_name()).then_some(0)
    }

    /// A digest that is not computed here: worth a word where it is of a file of the model.
    pub(super) fn unsupported(&mut self, name: &[u8], algorithm: &str) {
        let unix = self.as_here(name);
        let file = here(&unix).rsplit(|&b| b == b'/').next().unwrap_or_default();
        match self.shard(file) {
            Some(_) => self.notes.unsupported(algorithm, file),
            None => self.stranger(name),
        }
    }

    /// Whether the files are of the one format that gguf-hash knows. One that could not be
    /// opened is told by its name.
    fn is_gguf(&self) -> bool {
        let named = |ending: &[u8]| self.model.shards.iter().any(|s| s.file.ends_with(ending));
        self.model.format == Format::Gguf && !named(b".safetensors")
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
                return self.payload(shard, sum);
            };
            let found = self.tensor_of_name(name).filter(|&index| self.shard_of(index) == shard);
            return match found {
                Some(index) => self.tensor(index, sum),
                None => self.no_tensor(subject),
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
                Sum::Crc32(crc32) => Claim { crc32: Some(crc32), ..Claim::default() },
                // Of a file nobody writes one that is compared.
                Sum::Xxh64(_) => Claim::default(),
            };
            self.disagree(shard, None, rival);
        }
    }

    /// The checksum of all tensors of a file together.
    fn payload(&mut self, shard: usize, sum: Sum) {
        let claim = &mut self.claims[shard];
        let differs = match sum {
            Sum::Sha256(sha256) => *claim.payload.get_or_insert(sha256) != sha256,
            Sum::Xxh64(xxh64) => *claim.payload_xxh64.get_or_insert(xxh64) != xxh64,
            Sum::Crc32(_) => false,
        };
        if differs {
            let rival = match sum {
                Sum::Sha256(sha256) => Claim { payload: Some(sha256), ..Claim::default() },
                Sum::Xxh64(xxh64) => Claim { payload_xxh64: Some(xxh64), ..Claim::default() },
                // Nobody writes one.
                Sum::Crc32(_) => Claim::default(),
            };
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

    /// Of a tensor: one of each kind is kept.
    pub(super) fn tensor(&mut self, index: u32, sum: Sum) {
        if *self.sums.entry((index, sum.rank())).or_insert(sum) != sum {
            let rival = Claim { tensors: vec![(index, sum)], ..Claim::default() };
            self.disagree(self.shard_of(index), Some(index), rival);
        }
    }

    /// A line for a tensor that this model does not have.
    pub(super) fn no_tensor(&mut self, name: &[u8]) {
        // One that could not be opened shows none of its tensors.
        if !self.model.tensors.is_empty() {
            self.notes.no_tensor(self.line, name);
        }
        self.stranger(name);
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
            None => self.model.shards[shard].file.in_line().to_string(),
        });
        self.rival = Some((shard, rival)).filter(|(_, rival)| !rival.is_empty());
    }

    /// The list.
    pub(super) fn finish(mut self, kind: Kind) -> Result<List, ListError> {
        for (shard, sums) in std::mem::take(&mut self.loose) {
            if !self.there.contains(&shard) {
                sums.into_iter().for_each(|sum| self.file(shard, sum));
            }
        }
        if !self.is_given() && !is_named_as_sums(self.path) {
            // A file of this name may be anything: it is heard where it is understood.
            self.notes.forget_lines();
        }
        for shard in 0..self.claims.len() {
            if let Err(what) = self.order_ranges(shard) {
                return Err(ListError::Unfit { file: self.path.in_line().to_string(), what });
            }
        }
        let fatal = self.is_given() || self.rival.is_none();
        if let Some(subject) = self.twice.filter(|_| fatal) {
            return Err(ListError::Twice { file: self.path.in_line().to_string(), subject });
        }
        let mut sums: Vec<_> = self.sums.into_iter().collect();
        sums.sort_unstable_by_key(|(key, _)| *key);
        for ((index, _), sum) in sums {
            let shard = self.model.tensors[index as usize].extent.shard as usize;
            self.claims[shard].tensors.push((index, sum));
        }
        Ok(List {
            path: self.path.to_owned(),
            kind,
            claims: self.claims,
            strangers: self.strangers,
            warnings: self.notes.warnings(self.path),
            rival: self.rival,
        })
    }
}
