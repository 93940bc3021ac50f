//! GGUF models: one file, or the parts of a split set.

use super::assemble::{Parsed, Set};
use super::file::{self, name_of};
use super::members::{Member, one};
use super::names::Part;
use super::{LoadError, Loaded, Recall};
use crate::format::gguf::{GgufFile, Known, parse_known};
use crate::format::{Detected, Limits};
use crate::model::{Format, Value};
use crate::source::{IoMode, Source};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Opens the model that the GGUF file at `path` is, or is a part of.
pub(super) fn open(
    path: &Path,
    source: Source,
    io: IoMode,
    recall: &Recall<'_>,
) -> Result<Loaded, LoadError> {
    let mut limits = Limits::default();
    // Only its content tells whether it is a part; by its name it is well guessed, and a wrong
    // guess costs time alone.
    let part = Part::parse(name_of(path)).filter(Part::is_shard);
    let first = part.map(|part| path.with_file_name(OsStr::from_bytes(&part.sibling(1))));
    let memory = Memory(recall(first.as_deref().unwrap_or(path)));
    let gguf = parse_part(path, &source, &memory, &mut limits)?;
    let Some(split) = Split::of(path, &gguf)? else {
        return single(path, source, gguf);
    };
    Parts::locate(path, split)?.open(source, gguf, io, &memory, limits)
}

/// What is known of files from before, by name.
struct Memory(Vec<(Box<[u8]>, Known)>);

impl Memory {
    fn of(&self, path: &Path) -> Known {
        match &*self.0 {
            // A file that was renamed together with what is known of it.
            [(_, known)] => known.clone(),
            all => {
                let known = all.iter().find(|(name, _)| **name == *name_of(path));
                known.map(|(_, known)| known.clone()).unwrap_or_default()
            }
        }
    }
}

/// The file at `path` as a model of its own, also when it is a part of a set.
pub(super) fn alone(path: &Path, source: Source) -> Result<Loaded, LoadError> {
    let gguf = parse_part(path, &source, &Memory(Vec::new()), &mut Limits::default())?;
    single(path, source, gguf)
}

/// The files of the set that has the file at `path` as this part, if all are there.
pub(super) fn members(path: &Path, part: &Part<'_>) -> Option<Vec<Member>> {
    if part.count > u16::MAX.into() {
        return None;
    }
    let paths = (1..=part.count).map(|n| path.with_file_name(OsStr::from_bytes(&part.sibling(n))));
    paths.map(|path| path.is_file().then(|| one(path))).collect()
}

fn single(path: &Path, source: Source, gguf: GgufFile) -> Result<Loaded, LoadError> {
    let (version, byte_order) = (gguf.version, gguf.encoding.order);
    let files = vec![parsed(path, source, gguf)];
    set(path.into(), version, byte_order, Vec::new(), files).into_model()
}

fn set(
    entry: PathBuf,
    version: u32,
    byte_order: crate::model::ByteOrder,
    warnings: Vec<String>,
    files: Vec<Parsed>,
) -> Set {
    let format = Format::Gguf;
    Set { format, version, byte_order, entry, warnings, files, why_not_twice: "" }
}

/// Parses one file and takes what it cost off the limits, so that a set costs no more than a file.
fn parse_part(
    path: &Path,
    source: &Source,
    memory: &Memory,
    limits: &mut Limits,
) -> Result<GgufFile, LoadError> {
    let gguf = parse_known(source, limits, &memory.of(path))
        .map_err(|source| LoadError::Gguf { file: path.into(), source: Box::new(source) })?;
    limits.reserved_bytes = limits.reserved_bytes.saturating_sub(gguf.reserved_bytes);
    Ok(gguf)
}

fn parsed(path: &Path, source: Source, gguf: GgufFile) -> Parsed {
    Parsed {
        path: path.into(),
        name: name_of(path).into(),
        source,
        metadata: gguf.metadata,
        tensors: gguf.tensors,
        data_start: gguf.data_start,
        tensor_infos: gguf.tensor_infos,
        warnings: gguf.warnings,
    }
}

/// What a part says about its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    /// Counted from 0.
    number: u64,
    count: u64,
    /// Tensors of all parts.
    tensors: Option<u64>,
}

impl Split {
    /// The `split.*` keys; `None` for a whole model. Merging leaves a count of 0 behind.
    fn of(path: &Path, gguf: &GgufFile) -> Result<Option<Split>, LoadError> {
        let integer = |key: &str| match gguf.meta(key) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| {
                let found = match value {
                    Value::I8(_) | Value::I16(_) | Value::I32(_) | Value::I64(_) => "negative",
                    other => other.value_type().name(),
                };
                let problem = format!("metadata key \"{key}\" must be a count, found {found}");
                LoadError::Set { file: path.into(), problem }
            }),
        };
        let count = integer("split.count")?.unwrap_or(0);
        if count < 2 {
            return Ok(None);
        }
        let number = integer("split.no")?.unwrap_or(0);
        Ok(Some(Split { number, count, tensors: integer("split.tensors.count")? }))
    }
}

/// A set whose parts are known by name.
struct Parts {
    /// The part that was found first.
    given: usize,
    split: Split,
    /// In order.
    paths: Vec<PathBuf>,
}

impl Parts {
    /// Finds all parts beside the one at `path`.
    fn locate(path: &Path, split: Split) -> Result<Parts, LoadError> {
        let set = |problem| LoadError::Set { file: path.into(), problem };
        // As many as the key's own type, u16, can count.
        if split.count > u16::MAX.into() || split.number >= split.count {
            return Err(set(format!(
                "split.no is {} and split.count {}; no such part can be",
                split.number, split.count
            )));
        }
        let number = split.number + 1;
        let Some(name) = Part::parse(name_of(path)) else {
            return Err(set(format!(
                "is part {number} of {} of a split model, but is not named so \
                 (PREFIX-{number:05}-of-{:05}.gguf), and the other parts cannot be found",
                split.count, split.count
            )));
        };
        if (name.number, name.count) != (number, split.count) {
            return Err(set(format!(
                "is named part {} of {}, but its split.no and split.count make it part {number} of {}",
                name.number, name.count, split.count
            )));
        }
        let paths: Vec<PathBuf> = (1..=split.count)
            .map(|n| path.with_file_name(OsStr::from_bytes(&name.sibling(n))))
            .collect();
        let missing: Vec<String> = paths
            .iter()
            .filter(|p| std::fs::metadata(p).is_err())
            .map(|p| super::error::shown_name(name_of(p)))
            .collect();
        if !missing.is_empty() {
            let what = format!("is part {number} of {} of a split model", split.count);
            return Err(LoadError::Missing { file: path.into(), what, missing });
        }
        Ok(Parts { given: split.number as usize, split, paths })
    }

    /// Opens all parts but the given one, which is open already, and joins them.
    fn open(
        self,
        source: Source,
        gguf: GgufFile,
        io: IoMode,
        memory: &Memory,
        mut limits: Limits,
    ) -> Result<Loaded, LoadError> {
        let (version, order) = (gguf.version, gguf.encoding.order);
        let mut given = Some((source, gguf));
        let mut files = Vec::with_capacity(self.paths.len());
        let mut warnings = Vec::new();
        for (at, path) in self.paths.iter().enumerate() {
            let (source, mut gguf) = match given.take_if(|_| at == self.given) {
                Some(given) => given,
                None => self.open_other(at, path, io, memory, &mut limits)?,
            };
            if gguf.encoding.order != order {
                return Err(LoadError::Set {
                    file: path.clone(),
                    problem: format!(
                        "is {}-endian, but another part of its set is {}-endian",
                        gguf.encoding.order.name(),
                        order.name()
                    ),
                });
            }
            if gguf.version != version {
                warnings.push(format!(
                    "{}: GGUF version {}, but another part has version {version}",
                    super::error::shown_name(name_of(path)),
                    gguf.version
                ));
            }
            gguf.set_shard(at as u32);
            files.push(parsed(path, source, gguf));
        }
        let found: u64 = files.iter().map(|f| f.tensors.len() as u64).sum();
        if let Some(expected) = self.split.tensors.filter(|&n| n != found) {
            let problem = format!(
                "split.tensors.count is {expected}, but the {} parts hold {found} tensors",
                self.split.count
            );
            return Err(LoadError::Set { file: self.paths[self.given].clone(), problem });
        }
        let entry = self.paths[0].clone();
        set(entry, version, order, warnings, files).into_model()
    }

    fn open_other(
        &self,
        at: usize,
        path: &Path,
        io: IoMode,
        memory: &Memory,
        limits: &mut Limits,
    ) -> Result<(Source, GgufFile), LoadError> {
        let opened = file::open(path, io)?;
        match opened.detected {
            Detected::Gguf => {}
            Detected::Safetensors => return Err(file::not_a_model(path, "a safetensors file")),
            Detected::Json => return Err(file::not_a_model(path, "JSON text")),
            Detected::Other(what) => return Err(file::not_a_model(path, what)),
        }
        let gguf = parse_part(path, &opened.source, memory, limits)?;
        let expected = Split { number: at as u64, ..self.split };
        let found = Split::of(path, &gguf)?;
        let same = |f: Split| (f.number, f.count) == (expected.number, expected.count);
        if !found.is_some_and(same) {
            let found = match found {
                Some(f) => format!("split.no {} and split.count {}", f.number, f.count),
                None => "no split.count".into(),
            };
            let problem = format!(
                "part {} of {} should have split.no {at} and split.count {}, but has {found}",
                at + 1,
                self.split.count,
                self.split.count
            );
            return Err(LoadError::Set { file: path.into(), problem });
        }
        Ok((opened.source, gguf))
    }
}
