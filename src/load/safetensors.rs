//! safetensors models: one file, or the shards that an index names.

use super::assemble::{Parsed, Set};
use super::error::{List, shown_name};
use super::file::{self, name_of};
use super::names::{Part, is_index};
use super::{LoadError, Loaded, Member};
use crate::bytes::read_vec;
use crate::format::safetensors::index::{self, Index, IndexError, MAX_INDEX};
use crate::format::safetensors::{SafetensorsFile, parse};
use crate::format::{Detected, Limits, Quoted, UNKNOWN};
use crate::model::{ByteOrder, Format, Tensor};
use crate::source::{IoMode, Source};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Opens the model that the safetensors file at `path` is, or is a shard of.
pub(super) fn open(path: &Path, source: Source, io: IoMode) -> Result<Loaded, LoadError> {
    let beside = indexes_beside(path)?;
    let (mut naming, mut unreadable) = indexes_of(path, &beside);
    let looks_like_shard = Part::parse(name_of(path)).is_some_and(|part| part.is_shard());
    match (naming.len(), unreadable.pop()) {
        (0, Some(e)) if looks_like_shard => Err(e),
        (0, _) if looks_like_shard && beside.is_empty() => Err(no_index(path)),
        (0, _) => single(path, source),
        (1, _) => {
            let (entry, index) = naming.remove(0);
            open_set(&entry, index, io)
        }
        _ => {
            let names: Vec<String> =
                naming.iter().map(|(path, _)| shown_name(name_of(path))).collect();
            let problem =
                format!("is a shard of several models; name one of them: {}", List(&names));
            Err(LoadError::Set { file: path.into(), problem })
        }
    }
}

/// The file at `path` as a model of its own, also when it is a shard of a set. Tensors that
/// the index beside it finds in another shard are left out, as they are in the set.
pub(super) fn alone(path: &Path, source: Source) -> Result<Loaded, LoadError> {
    let mut file = parse_shard(path, &source, &mut Limits::default())?;
    let (naming, _) = indexes_of(path, &indexes_beside(path)?);
    if let [(_, index)] = &*naming {
        let own: Vec<bool> = index.shards.iter().map(|shard| is_named(shard, path)).collect();
        let elsewhere: HashSet<&[u8]> = index
            .weight_map
            .iter()
            .filter(|(_, shard)| !own[*shard as usize])
            .map(|(name, _)| &**name)
            .collect();
        file.tensors.retain(|tensor| !elsewhere.contains(&*tensor.name));
    }
    let files = vec![parsed(path, name_of(path), source, file)];
    set(path.into(), Vec::new(), files).into_model()
}

/// The files of the set whose index `path` is, or which has it as a shard. `None`: it is neither;
/// nothing within: some of them cannot be found.
pub(super) fn members(path: &Path) -> Option<Option<Vec<Member>>> {
    let (entry, index) = match is_index(name_of(path)) {
        true => {
            let opened = file::open(path, IoMode::Pread).ok();
            let index = opened.and_then(|opened| read_index(path, &opened.source).ok());
            (path.to_owned(), index)
        }
        false => {
            let (mut naming, _) = indexes_of(path, &indexes_beside(path).ok()?);
            match naming.len() {
                0 => return None,
                1 => naming.pop().map(|(entry, index)| (entry, Some(index)))?,
                _ => return Some(None),
            }
        }
    };
    let shards = index.and_then(|index| Shards::locate(&entry, &index).ok());
    Some(shards.map(|shards| {
        let member = |name: &PathBuf| (name.as_os_str().as_bytes().into(), shards.path(name));
        shards.names.iter().map(member).collect()
    }))
}

/// Of the indexes `beside` the file at `path` those that name it, and why others are of no use.
fn indexes_of(
    path: &Path,
    beside: &[std::ffi::OsString],
) -> (Vec<(PathBuf, Index)>, Vec<LoadError>) {
    let (mut naming, mut unreadable) = (Vec::new(), Vec::new());
    for candidate in beside.iter().map(|name| path.with_file_name(name)) {
        let read = file::open(&candidate, IoMode::Pread)
            .and_then(|opened| read_index(&candidate, &opened.source));
        match read {
            Ok(index) if names(&index, path) => naming.push((candidate, index)),
            Ok(_) => {}
            Err(e) => unreadable.push(e),
        }
    }
    (naming, unreadable)
}

/// Names of the index files in the directory of `path`.
fn indexes_beside(path: &Path) -> Result<Vec<std::ffi::OsString>, LoadError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    // A directory that one may enter but not list: then there is nothing to be found in it.
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Ok(Vec::new());
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|e| e.file_name()))
        .filter(|name| is_index(name.as_bytes()))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// Whether an index names the file at `path`, which lies beside it.
fn names(index: &Index, path: &Path) -> bool {
    index.shards.iter().any(|shard| is_named(shard, path))
}

/// Whether an index that lies beside the file at `path` means it by `shard`.
fn is_named(shard: &[u8], path: &Path) -> bool {
    shard_path(shard).is_ok_and(|p| p.as_os_str().as_bytes() == name_of(path))
}

fn no_index(path: &Path) -> LoadError {
    let part = Part::parse(name_of(path)).expect("looks like a shard");
    let index = [part.prefix, part.suffix, b".index.json"].concat();
    let what = format!("is shard {} of {} of a model", part.number, part.count);
    LoadError::Missing { file: path.into(), what, missing: vec![shown_name(&index)] }
}

fn single(path: &Path, source: Source) -> Result<Loaded, LoadError> {
    let file = parse_shard(path, &source, &mut Limits::default())?;
    let files = vec![parsed(path, name_of(path), source, file)];
    set(path.into(), Vec::new(), files).into_model()
}

fn set(entry: PathBuf, warnings: Vec<String>, files: Vec<Parsed>) -> Set {
    Set {
        format: Format::Safetensors,
        version: 0,
        byte_order: ByteOrder::Little,
        entry,
        warnings,
        files,
        why_not_twice: ", and the index does not name it",
    }
}

/// Parses one file and takes what it cost off the limits, so that a set costs no more than a file.
fn parse_shard(
    path: &Path,
    source: &Source,
    limits: &mut Limits,
) -> Result<SafetensorsFile, LoadError> {
    let file = parse(source, limits)
        .map_err(|source| LoadError::Safetensors { file: path.into(), source: Box::new(source) })?;
    limits.reserved_bytes = limits.reserved_bytes.saturating_sub(file.reserved_bytes);
    Ok(file)
}

fn parsed(path: &Path, name: &[u8], source: Source, file: SafetensorsFile) -> Parsed {
    Parsed {
        path: path.into(),
        name: name.into(),
        source,
        metadata: file.metadata,
        tensors: file.tensors,
        data_start: file.data_start,
        tensor_infos: 0,
        warnings: file.warnings,
    }
}

/// Opens the set whose index is the JSON file at `path`.
pub(super) fn open_index(path: &Path, source: &Source, io: IoMode) -> Result<Loaded, LoadError> {
    match read_index(path, source) {
        Err(LoadError::Index { source: IndexError::NoWeightMap | IndexError::Json(_), .. })
            if !is_index(name_of(path)) =>
        {
            Err(file::not_a_model(path, "JSON text without the weight_map of an index"))
        }
        index => open_set(path, index?, io),
    }
}

fn read_index(path: &Path, source: &Source) -> Result<Index, LoadError> {
    // One byte more than allowed is enough to be refused.
    let len = source.len().min(MAX_INDEX + 1);
    let bytes = read_vec(source, 0, len as usize).map_err(|e| file::unreadable(path, e))?;
    index::parse(&bytes, &Limits::default())
        .map_err(|source| LoadError::Index { file: path.into(), source })
}

/// Opens the shards of `index`, which was read from `entry`, and joins them.
fn open_set(entry: &Path, index: Index, io: IoMode) -> Result<Loaded, LoadError> {
    let shards = Shards::locate(entry, &index)?;
    let mut limits = Limits::default();
    limits.reserved_bytes = limits.reserved_bytes.saturating_sub(index.reserved_bytes);
    let mut files = Vec::with_capacity(shards.names.len());
    for (at, name) in shards.names.iter().enumerate() {
        let path = shards.path(name);
        let opened = file::open(&path, io)?;
        match opened.detected {
            Detected::Safetensors | Detected::Other(UNKNOWN) => {}
            Detected::Gguf => return Err(file::not_a_model(&path, "a GGUF file")),
            Detected::Json => return Err(file::not_a_model(&path, "JSON text")),
            Detected::Other(what) => return Err(file::not_a_model(&path, what)),
        }
        let mut file = parse_shard(&path, &opened.source, &mut limits)?;
        file.set_shard(at as u32);
        files.push(parsed(&path, name.as_os_str().as_bytes(), opened.source, file));
    }
    let warnings = reconcile(entry, &index, &shards, &mut files)?;
    set(entry.into(), warnings, files).into_model()
}

/// Where the shards of an index are.
struct Shards {
    directory: PathBuf,
    /// Relative to the directory, sorted: the order of the set.
    names: Vec<PathBuf>,
    /// For each shard of the index its place in `names`.
    order: Vec<u32>,
}

impl Shards {
    fn locate(entry: &Path, index: &Index) -> Result<Shards, LoadError> {
        let refused = |problem| LoadError::Set { file: entry.into(), problem };
        let mut named = Vec::with_capacity(index.shards.len());
        for shard in &index.shards {
            let path = shard_path(shard)
                .map_err(|why| refused(format!("names the shard {}, {why}", Quoted(shard))))?;
            named.push(path);
        }
        let mut names = named.clone();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Err(refused("names no tensors".into()));
        }
        let order = named.iter().map(|p| names.partition_point(|n| n < p) as u32).collect();
        let directory: PathBuf = entry.parent().unwrap_or(Path::new("/")).into();
        let shards = Shards { directory, names, order };
        shards.exist(entry)?;
        Ok(shards)
    }

    fn path(&self, name: &Path) -> PathBuf {
        self.directory.join(name)
    }

    /// All shards are there, and none lies in a directory that leads outside. A shard itself
    /// may be a symlink: that is how the hub's cache is made.
    fn exist(&self, entry: &Path) -> Result<(), LoadError> {
        let mut missing = Vec::new();
        for name in &self.names {
            let path = self.path(name);
            if std::fs::metadata(&path).is_err() {
                missing.push(shown_name(name.as_os_str().as_bytes()));
                continue;
            }
            let inside = || {
                let home = self.directory.canonicalize().ok()?;
                Some(path.parent()?.canonicalize().ok()?.starts_with(home))
            };
            if name.components().count() > 1 && inside() != Some(true) {
                let shown = shown_name(name.as_os_str().as_bytes());
                let problem = format!("names the shard {shown}, which lies outside its directory");
                return Err(LoadError::Set { file: entry.into(), problem });
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let what = format!("{} of its {} shards {verb} not there", missing.len(), self.names.len());
        Err(LoadError::Missing { file: entry.into(), what, missing })
    }
}

/// The path an index means, when it is one that stays below the index.
fn shard_path(name: &[u8]) -> Result<PathBuf, &'static str> {
    let mut path = PathBuf::new();
    for component in Path::new(std::ffi::OsStr::from_bytes(name)).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => return Err("which leads out of its directory"),
            Component::RootDir | Component::Prefix(_) => return Err("which is an absolute path"),
        }
    }
    match () {
        () if name.contains(&0) => Err("which is not a file name"),
        () if path.as_os_str().is_empty() => Err("which is not a file name"),
        () => Ok(path),
    }
}

/// Brings what the index says and what the shards hold together: drops tensors that the index
/// finds elsewhere, and returns warnings. The shards' headers are the truth.
fn reconcile(
    entry: &Path,
    index: &Index,
    shards: &Shards,
    files: &mut [Parsed],
) -> Result<Vec<String>, LoadError> {
    let mut places: HashMap<&[u8], Place> = HashMap::with_capacity(index.weight_map.len());
    for (name, shard) in &index.weight_map {
        let shard = shards.order[*shard as usize];
        places.insert(name, Place { shard, found: false, elsewhere: None });
    }
    let (mut unnamed, mut doubled) = (Noted::default(), Noted::default());
    for (at, file) in files.iter_mut().enumerate() {
        let at = at as u32;
        file.tensors.retain(|t| match places.get_mut(&*t.name) {
            Some(place) if place.shard == at => {
                place.found = true;
                true
            }
            Some(place) => {
                place.elsewhere = Some(at);
                doubled.note(t, &file.name);
                false
            }
            None => {
                unnamed.note(t, &file.name);
                true
            }
        });
    }
    let mut lacking = index.weight_map.iter().filter(|(name, _)| !places[&**name].found);
    if let Some((name, _)) = lacking.next() {
        let place = places[&**name];
        let shown = |at: u32| shown_name(&files[at as usize].name);
        let others = match lacking.count() {
            0 => String::new(),
            n => format!(", nor {n} more tensors in their shards"),
        };
        let elsewhere = match place.elsewhere {
            Some(at) => format!(" (it is in {})", shown(at)),
            None => String::new(),
        };
        let problem = format!(
            "incomplete: tensor {} is not in {}, where the index says it is{elsewhere}{others}",
            Quoted(name),
            shown(place.shard)
        );
        return Err(LoadError::Set { file: entry.into(), problem });
    }
    Ok([
        unnamed.warning("tensors that the index does not name"),
        doubled.warning("tensors in a second shard, which the index names in another, not shown"),
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// Where the index says a tensor is, and where it was seen.
#[derive(Clone, Copy)]
struct Place {
    shard: u32,
    found: bool,
    elsewhere: Option<u32>,
}

/// How many tensors, and one of them.
#[derive(Default)]
struct Noted {
    count: u64,
    first: String,
}

impl Noted {
    fn note(&mut self, tensor: &Tensor, file: &[u8]) {
        if self.count == 0 {
            self.first = format!("{} in {}", Quoted(&tensor.name), shown_name(file));
        }
        self.count += 1;
    }

    fn warning(self, what: &str) -> Option<String> {
        (self.count > 0).then(|| format!("{what}: {}, the first is {}", self.count, self.first))
    }
}
