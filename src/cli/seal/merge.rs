//! `weightfs seal --merge`: the parts that workers made become the seal of the model.

use super::super::args::SealArgs;
use super::super::engine::{self, Cure};
use super::super::exit::{Exit, Failure};
use super::super::text::plural;
use anyhow::{Result, anyhow};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weightfs::bytes::line::{InLine, Name};
use weightfs::load::{self, Loaded};
use weightfs::model::Shard;
use weightfs::seal::{self, Seal, SealOptions, SealReport};
use weightfs::source::IoMode;
use weightfs::trust::Anchor;

/// Missing files that are named.
const NAMED: usize = 8;

/// What was given: parts, and at most one model.
struct Given<'a> {
    parts: Vec<(&'a Path, Box<[u8]>)>,
    model: Option<&'a Path>,
}

/// Merges the parts; the model as it was named or found, and what came of it.
pub(super) fn run(args: &SealArgs) -> Result<(PathBuf, Loaded, SealReport, Vec<Anchor>)> {
    let given = sort_out(&args.models)?;
    let model = match (given.model, given.parts.first()) {
        (Some(model), _) => model.to_path_buf(),
        // A part lies beside its file, which leads to the model. The name is a stranger's: no
        // directory in it counts.
        (None, Some((path, name))) => match Path::new(OsStr::from_bytes(name)).file_name() {
            Some(file) => path.with_file_name(file),
            None => {
                let (path, name) = (path.in_line(), Name(name));
                return Err(anyhow!("{path}: is the part of {name}, which is no file's name"));
            }
        },
        (None, None) => {
            return Err(Failure::usage("--merge needs the parts that seal --part has written"));
        }
    };
    let loaded = engine::load(&model, IoMode::Auto).map_err(|error| match given.model {
        Some(_) => error,
        None => anyhow!(
            "{error:#}\nthe model is looked for beside its parts; name it if it lies elsewhere: \
             weightfs seal --merge PART... MODEL"
        ),
    })?;
    let parts = in_order(&given.parts, &loaded)?;
    let options = SealOptions {
        force: args.force,
        output: args.output.clone(),
        anchors: super::anchors(&loaded)?,
        ..SealOptions::default()
    };
    let report = seal::merge(&parts, &loaded.model, &loaded.sources, &loaded.entry, &options)
        .map_err(|error| engine::seal_error(error, Cure::Force))?;
    // Found by a part, it is called by what leads to all of its files.
    let model = match given.model {
        Some(_) => model,
        None => engine::as_typed(&loaded.entry, &model),
    };
    Ok((model, loaded, report, options.anchors))
}

/// Tells parts from the model by what they are: a part reads as a seal of one file.
fn sort_out(paths: &[PathBuf]) -> Result<Given<'_>> {
    let mut given = Given { parts: Vec::new(), model: None };
    for path in paths {
        if given.model.is_none() && !begins_as_json(path) {
            given.model = Some(path);
            continue;
        }
        let files = match seal::peek(path) {
            Ok(files) => files,
            // An index is JSON as well.
            Err(_) if given.model.is_none() && !is_manifest(path) => {
                given.model = Some(path);
                continue;
            }
            Err(_) if !is_manifest(path) => {
                let first = given.model.unwrap_or(path).in_line();
                let text = format!(
                    "--merge takes parts and one model: {first} is no part, and neither is {}",
                    path.in_line()
                );
                return Err(Failure::usage(text));
            }
            Err(error) => return Err(engine::seal_error(error, Cure::Part)),
        };
        match <[_; 1]>::try_from(files) {
            Ok([file]) => given.parts.push((path, file.name)),
            Err(files) => {
                let (path, files) = (path.in_line(), plural(files.len(), "file"));
                return Err(anyhow!("{path}: is a seal of {files}, not a part, which is of one"));
            }
        }
    }
    Ok(given)
}

fn begins_as_json(path: &Path) -> bool {
    first_bytes(path).iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

fn is_manifest(path: &Path) -> bool {
    let begin = first_bytes(path);
    begin.windows(17).any(|word| word == b"weightfs_manifest")
        || path.as_os_str().as_bytes().ends_with(b".weightfs-part.json")
}

/// The beginning of a regular file; nothing of what is none or cannot be read.
fn first_bytes(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut begin = Vec::new();
    if path.metadata().is_ok_and(|about| about.is_file())
        && let Ok(file) = std::fs::File::open(path)
    {
        // What cannot be read says so when it is opened as what it is taken for.
        let _ = file.take(256).read_to_end(&mut begin);
    }
    begin
}

/// One part per file of the model, each compared with its file.
fn in_order(given: &[(&Path, Box<[u8]>)], loaded: &Loaded) -> Result<Vec<Seal>> {
    let shards = &loaded.model.shards;
    let mut found: BTreeMap<usize, (&Path, Seal)> = BTreeMap::new();
    for (path, name) in given {
        let (index, seal) = match_part(path, name, loaded)?;
        if let Some((other, _)) = found.get(&index) {
            return Err(anyhow!(
                "{}: is of {}, and so is {}",
                path.in_line(),
                shown(&shards[index]),
                other.in_line()
            ));
        }
        found.insert(index, (path, seal));
    }
    let missing: Vec<&Shard> =
        (0..).zip(shards).filter(|(i, _)| !found.contains_key(i)).map(|(_, s)| s).collect();
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().take(NAMED).map(|shard| shown(shard)).collect();
        let more = match missing.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Err(anyhow!(
            "{}: {} of {} given, none for: {}{more}\nmake one with weightfs seal --part FILE",
            loaded.entry.in_line(),
            found.len(),
            plural(shards.len(), "part"),
            names.join(", ")
        ));
    }
    Ok(found.into_values().map(|(_, seal)| seal).collect())
}

/// The file of the model that a part is of.
fn match_part(path: &Path, name: &[u8], loaded: &Loaded) -> Result<(usize, Seal)> {
    let base = |name: &[u8]| Path::new(OsStr::from_bytes(name)).file_name().map(OsStr::to_owned);
    let mut refused = None;
    for (index, shard) in loaded.model.shards.iter().enumerate() {
        if base(&shard.file) != base(name) {
            continue;
        }
        let alone = load::open_part(loaded.sources[index].path(), IoMode::Auto)?;
        match Seal::load(path, &alone.model, &alone.sources) {
            Ok(seal) => return Ok((index, seal)),
            Err(error) => refused = refused.or(Some(engine::seal_error(error, Cure::Part))),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let text = format!(
            "{}: the part is of {}, which is no file of {}",
            path.in_line(),
            name.in_line(),
            loaded.entry.in_line()
        );
        Failure::with(Exit::Seal, text)
    }))
}

fn shown(shard: &Shard) -> String {
    shard.file.in_line().to_string()
}
