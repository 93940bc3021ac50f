//! From what was typed to an open model: the one place where the commands meet the library's
//! rooms for loading, names, seals and bytes.

use super::args::NameArgs;
use super::exit::{self, Exit, Failure};
use super::options::{HfDtype, Options, Override, SealChoice, SetValue};
use super::{shell, unopened, value_file};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightfs::bytes::line::InLine;
use weightfs::depot;
use weightfs::format::gguf::Known;
use weightfs::format::gguf::array::{ArrayReader, Item};
use weightfs::fs::Hf;
use weightfs::hf::{self, meta::Meta};
use weightfs::load::{self, Loaded};
use weightfs::model::{Array, Format, Model};
use weightfs::naming::{ArchFacts, Catalog, Likeness, MapError, MapSpec, Reference};
use weightfs::overrides::{self, Setting};
use weightfs::quant::Target;
use weightfs::scale::{Hints, Scales};
use weightfs::seal::{self, Seal, SealError};
use weightfs::source::{IoMode, SourceError};
use weightfs::store::{OnCorruption, Store, StoreOptions, Verify};
use weightfs::trust::{self, Anchor, Contradiction, Kind};
use weightfs::view::document::Facts;
use weightfs::view::{self, Stock};

/// Longest metadata array that names depend on: one number per layer.
const MAX_LAYERS: u64 = 100_000;
/// How commands read that go through a model once by what is served: the pages of a mapping would
/// all be counted as their memory, which then grows with the model. (Who sums all bytes gives those
/// pages back, which costs less: `Source::read_once`.)
pub(crate) const ONE_PASS: IoMode = IoMode::Pread;
/// Said at the mount and for as long as it lasts.
pub(crate) const SERVES_DAMAGE: &str = "on_corruption=log: DAMAGED BYTES ARE SERVED as they are; each damaged chunk is an error in the log";
/// A config.json is a few kilobytes; lists of quantised layers can be megabytes.
const MAX_CONFIG: u64 = 64 << 20;

/// A model with its names and its checked bytes.
pub(crate) struct Opened {
    pub(crate) model: Arc<Model>,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    /// The file that the seal is named after.
    pub(crate) entry: PathBuf,
    pub(crate) verify: Verify,
    pub(crate) on_corruption: OnCorruption,
    pub(crate) warnings: Vec<String>,
    /// What lists and names say of the bytes and nothing was compared with.
    unanswered: Vec<String>,
    pub(crate) unused_seal: Option<UnusedSeal>,
    /// The weights that are codes with scales.
    pub(crate) scales: Scales,
    /// What `hf/` holds.
    pub(crate) hf: Option<Hf>,
    /// What `like=` found, when it was asked for.
    pub(crate) likeness: Option<Likeness>,
}

/// Why a seal that is there is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnusedSeal {
    /// The user said so.
    Ignored(PathBuf),
    /// It is no valid seal.
    Invalid(PathBuf),
    /// It is of another model.
    Foreign(PathBuf),
    /// It cannot be read.
    Unreadable(PathBuf),
}

/// What the user of a command can do about a seal that is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    /// Make it anew.
    Force,
    /// Make it anew, or mount without.
    ForceOrNone,
    /// Name another one, or mount without.
    OtherOrNone,
    /// Make the part anew.
    Part,
}

impl Opened {
    /// What the views are planned from.
    pub(crate) fn stock(&self) -> Stock<'_> {
        Stock { model: &self.model, scales: &self.scales }
    }

    /// What the documents are made from.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            model: &self.model,
            catalog: &self.catalog,
            store: &self.store,
            verify: self.verify,
            warnings: &self.warnings,
            scales: &self.scales,
        }
    }
}

/// What a seal that cannot be relied on does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BadSeal {
    /// It ends the command: bytes are about to be believed.
    Refuses,
    /// It is told: the model is only described.
    IsTold,
}

/// Opens a model to describe it.
pub(crate) fn open(model: &Path, names: &NameArgs) -> Result<Opened> {
    open_like(model, names, None)
}

/// As [`open`], with names derived from a second model.
pub(crate) fn open_like(model: &Path, names: &NameArgs, like: Option<&Path>) -> Result<Opened> {
    open_with(model, &naming_options(names, like), BadSeal::IsTold, Cure::Force)
}

/// Opens a model to read its bytes.
pub(crate) fn open_for_reading(model: &Path, names: &NameArgs) -> Result<Opened> {
    open_with(model, &naming_options(names, None), BadSeal::Refuses, Cure::Force)
}

/// Opens a model as the options of a mount say.
pub(crate) fn open_for_mount(model: &Path, options: &Options) -> Result<Opened> {
    let cure = match options.seal {
        SealChoice::File(_) => Cure::OtherOrNone,
        _ => Cure::ForceOrNone,
    };
    let loaded = load_known(model, options.io, &options.seal)
        .map_err(|error| unopened::refused(error, model, &options.seal, options.io))?;
    let mut opened = open_loaded(loaded, model, options, BadSeal::Refuses, cure)?;
    if let (Some(likeness), Some(like)) = (opened.likeness.take(), &options.like) {
        likeness.check().map_err(|error| unlike(error, model, options, like))?;
    }
    let unanswered = std::mem::take(&mut opened.unanswered);
    opened.warnings.extend(unanswered.into_iter().map(|what| {
        format!("{what}: no mount compares that with the bytes, weightfs verify does")
    }));
    Ok(opened)
}

/// The error of a mount that would lack names of the reference, with the way on.
fn unlike(error: MapError, model: &Path, options: &Options, like: &Path) -> anyhow::Error {
    let shown = |path: &Path| path.in_line().to_string();
    let map = options.map.iter().map(|map| format!(" --map {}", shown(Path::new(map))));
    let map = map.collect::<String>();
    let (model, like) = (shown(model), shown(like));
    let hint = format!("a map to finish by hand: weightfs map {model}{map} --like {like} --json");
    anyhow::anyhow!("{error}\n{hint}")
}

fn naming_options(names: &NameArgs, like: Option<&Path>) -> Options {
    let (map, like) = (names.map.clone(), like.map(Path::to_path_buf));
    Options { map, like, io: ONE_PASS, ..Options::default() }
}

fn open_with(path: &Path, options: &Options, bad_seal: BadSeal, cure: Cure) -> Result<Opened> {
    let loaded = load_known(path, options.io, &options.seal)?;
    open_loaded(loaded, path, options, bad_seal, cure)
}

fn open_loaded(
    mut loaded: Loaded,
    path: &Path,
    options: &Options,
    bad_seal: BadSeal,
    cure: Cure,
) -> Result<Opened> {
    let mut warnings = Vec::new();
    if options.on_corruption == OnCorruption::Log {
        warnings.push(SERVES_DAMAGE.into());
    }
    let (mut seal, mut unused_seal) = (None, None);
    match choose_seal(&loaded, path, &options.seal)? {
        Some(file) => match Seal::load(&file, &loaded.model, &loaded.sources) {
            Ok(found) => seal = Some(found),
            Err(error) => {
                let unused = match &error {
                    SealError::Foreign { .. } => Some(UnusedSeal::Foreign(file.clone())),
                    error if error.is_mistrust() => Some(UnusedSeal::Invalid(file.clone())),
                    error if error.is_of(&file) => Some(UnusedSeal::Unreadable(file.clone())),
                    _ => None,
                };
                let error = match error {
                    SealError::Source(error) => unreadable_seal(&file, error),
                    error => seal_error(error, cure),
                };
                if bad_seal == BadSeal::Refuses || unused.is_none() {
                    return Err(error);
                }
                unused_seal = unused;
                let text = exit::message(&error);
                exit::say(&text);
                warnings.push(text.replace('\n', "; "));
            }
        },
        None if options.seal == SealChoice::None => {
            unused_seal = seal::find(&loaded.entry).map(UnusedSeal::Ignored);
        }
        None => {}
    }
    let mut found = trust::find(&loaded.model, &loaded.sources);
    call_as_asked(&mut found.anchors, path);
    warnings.extend(found.warnings);
    if let Some(wrong) = disagreement(&loaded, &found.anchors, seal.as_ref()) {
        if bad_seal == BadSeal::Refuses {
            return Err(distrust(&wrong));
        }
        exit::say(&wrong.to_string());
        warnings.push(wrong.to_string().replace('\n', ";"));
    }
    let unanswered = unanswered(&found.anchors, seal.as_ref());
    // Behind the seal, which speaks of the files as they are.
    for setting in &options.set {
        override_key(&mut loaded.model, setting)?;
    }
    let Loaded { model, sources, entry } = loaded;
    let model = Arc::new(model);
    let store_options = StoreOptions {
        verify: options.verify,
        on_corruption: options.on_corruption,
        seal_given_on_command_line: matches!(options.seal, SealChoice::File(_)),
    };
    let store =
        Store::new(Arc::clone(&model), sources, seal, store_options).with_anchors(&found.anchors);
    if let Some(cache) = seal::cache_home() {
        store.load_tofu(&cache.join("tofu"));
    }
    let config = match model.format {
        Format::Safetensors => json_beside(&entry, "config.json", &mut warnings),
        Format::Gguf => None,
    };
    let hints = match model.format {
        Format::Safetensors => {
            let beside = json_beside(&entry, "hf_quant_config.json", &mut warnings);
            Hints::new(config.as_ref(), beside.as_ref())
        }
        Format::Gguf => Hints::default(),
    };
    let (catalog, likeness) = catalog(&model, &store, config, options)?;
    let scales = view::scaled::recognise(&model, &catalog, &store, &hints);
    warnings.extend(scales.warnings(&model));
    let hf = hf(&model, &store, options, &mut warnings);
    let (verify, on_corruption) = (options.verify, options.on_corruption);
    Ok(Opened {
        model,
        catalog,
        store,
        entry,
        verify,
        on_corruption,
        warnings,
        unanswered,
        unused_seal,
        scales,
        hf,
        likeness,
    })
}

/// What the anchors say and the seal cannot answer. Without a seal nothing is answered, and
/// lists are named: a name in a store is not more than what every mount without a seal says.
fn unanswered(anchors: &[Anchor], seal: Option<&Seal>) -> Vec<String> {
    let counts = |anchor: &&Anchor| seal.is_some() || !anchor.kind.is_of_store();
    trust::unanswered(anchors.iter().filter(counts), seal.map(|seal| seal as &dyn trust::Known))
}

/// Two sources that are trusted and disagree, if there are any: two anchors, or the seal that
/// is in use and an anchor.
pub(crate) fn disagreement(
    loaded: &Loaded,
    anchors: &[Anchor],
    seal: Option<&Seal>,
) -> Option<Contradiction> {
    trust::contradiction(anchors, &loaded.model).or_else(|| {
        let seal = seal?;
        let known_as = format!("in the seal {}", seal.path().in_line());
        trust::contradicted(anchors, &loaded.model, seal, &known_as)
    })
}

/// Refuses a model whose bytes all fit `seal` when an anchor says otherwise. What a seal cannot
/// answer, the bytes can: parts of files, other kinds of digests, and all of them where the seal
/// has no SHA-256.
pub(crate) fn agree(
    loaded: &Loaded,
    anchors: &[Anchor],
    seal: &Seal,
    tick: &dyn Fn(u64),
) -> Result<()> {
    if let Some(wrong) = disagreement(loaded, anchors, Some(seal)) {
        return Err(distrust(&wrong));
    }
    let known_as = format!("found, which fits the seal {}", seal.path().in_line());
    let (model, sources) = (&loaded.model, &loaded.sources);
    match trust::undecided(anchors, model, sources, seal, &known_as, tick)? {
        Some(wrong) => Err(distrust(&wrong)),
        None => Ok(()),
    }
}

/// A blob of Ollama may be the weights of several models there: the one that was asked for by its
/// name is meant.
pub(crate) fn call_as_asked(anchors: &mut [Anchor], model: &Path) {
    let Some((repo, tag)) = depot::asked_of_ollama(model) else { return };
    for anchor in anchors.iter_mut().filter(|anchor| anchor.kind == Kind::OllamaBlob) {
        (anchor.repo, anchor.commit) = (Some(repo.clone()), Some(tag.clone()));
    }
}

/// Two sources that disagree: it is not for us to choose.
pub(crate) fn distrust(wrong: &Contradiction) -> anyhow::Error {
    let sealed = wrong.said[1].source.starts_with("in the seal");
    let cure = match sealed {
        true => {
            "if the file is as it should be, correct the other; a seal that is wrong is left out by -o seal=none"
        }
        false => "one of them must be wrong: correct it, or remove it",
    };
    Failure::with(Exit::Seal, format!("{wrong}\n{cure}"))
}

/// What `hf/` holds: there is one for a GGUF under `map=hf`.
fn hf(model: &Model, store: &Store, options: &Options, warnings: &mut Vec<String>) -> Option<Hf> {
    let asked = options.map.iter().any(|value| MapSpec::parse(value) == MapSpec::Hf);
    if !asked || model.format != Format::Gguf {
        if options.dtype.is_some() {
            warnings.push("dtype= has no effect: it is for hf/, of a GGUF under map=hf".into());
        }
        return None;
    }
    let plan = hf::plan(Meta::new(model, store));
    warnings.extend(plan.warnings);
    let dtype = options.dtype.map(|dtype| match dtype {
        HfDtype::Bf16 => Target::BF16,
        HfDtype::F16 => Target::F16,
        HfDtype::F32 => Target::F32,
    });
    Some(Hf { files: plan.files, dtype })
}

/// Opens the files of a model.
pub(crate) fn load(model: &Path, io: IoMode) -> Result<Loaded> {
    Ok(load::open(model, io)?)
}

/// Opens the files of a model, with the help of the seal that is going to be used: it knows
/// where long arrays end.
fn load_known(model: &Path, io: IoMode, choice: &SealChoice) -> Result<Loaded> {
    let recall = |entry: &Path| {
        let seal = match choice {
            SealChoice::None => None,
            SealChoice::File(path) => Some(path.clone()),
            SealChoice::Auto | SealChoice::Require => seal::find(entry),
        };
        // What is wrong with a seal is said when it is loaded.
        let files = seal.and_then(|seal| seal::peek(&seal).ok()).unwrap_or_default();
        let known = |file: seal::Peeked| {
            (file.name, Known { tensor_infos: file.tensor_infos, arrays: file.arrays })
        };
        files.into_iter().map(known).collect()
    };
    Ok(load::open_known(model, io, &recall)?)
}

/// The seal that is to be used, or none where that is allowed.
fn choose_seal(loaded: &Loaded, model: &Path, choice: &SealChoice) -> Result<Option<PathBuf>> {
    match choice {
        SealChoice::None => Ok(None),
        SealChoice::File(path) => Ok(Some(path.clone())),
        SealChoice::Auto => Ok(seal::find(&loaded.entry)),
        SealChoice::Require => match seal::find(&loaded.entry) {
            Some(path) => Ok(Some(path)),
            None => {
                let text = format!(
                    "{}: not sealed, and seal=require refuses that (weightfs seal {})",
                    model.in_line(),
                    shell::word(model)
                );
                Err(Failure::with(Exit::Unsealed, text))
            }
        },
    }
}

/// A seal's error with the exit code that it asks for and what can be done about it.
pub(crate) fn seal_error(error: SealError, cure: Cure) -> anyhow::Error {
    let (file, what) = match error {
        SealError::Invalid { file, what } => (file, format!("not a valid seal: {what}")),
        SealError::Foreign { file, what } => {
            (file, format!("the seal is not of this model: {what}"))
        }
        SealError::Io { file, op, source } => {
            return anyhow::anyhow!("{file}: the seal: cannot {op} it: {source}");
        }
        SealError::NoPlace { file, source, cached } => {
            let cached = cached.map_or_else(String::new, |(cached, error)| {
                format!("nor in the cache, which was tried next: {cached}: {error}\n")
            });
            return anyhow::anyhow!(
                "{file}: the seal: cannot create it: {source}\n{cached}\
                 to write it elsewhere: --output FILE"
            );
        }
        SealError::Contradicted(wrong) => {
            let text = format!(
                "{wrong}\nnothing was sealed, and --force does not change that: fetch the file again, or remove what is wrong"
            );
            return Failure::with(Exit::Seal, text);
        }
        SealError::NotASeal { file, what } => {
            let instead = match cure {
                Cure::OtherOrNone => "name another seal",
                _ => "remove it",
            };
            let text = format!(
                "{file}: not a weightfs seal: {what}\n{instead}, or mount without it: -o seal=none"
            );
            return Failure::with(Exit::Seal, text);
        }
        other => return other.into(),
    };
    let anew = "if the model is as it should be, make the seal anew: weightfs seal --force MODEL";
    let none = "to mount without it: -o seal=none";
    let cure = match cure {
        Cure::Force => anew.to_owned(),
        Cure::ForceOrNone => format!("{anew}\n{none}"),
        Cure::Part => {
            "if the file is as it should be, make the part anew: weightfs seal --part --force FILE"
                .to_owned()
        }
        Cure::OtherOrNone => format!("it was named by -o seal=FILE\n{none}"),
    };
    Failure::with(Exit::Seal, format!("{file}: {what}\n{cure}"))
}

/// A seal that could not be read; of a source that could not, the error says so itself.
fn unreadable_seal(seal: &Path, error: SourceError) -> anyhow::Error {
    let is_seal = |file: &str| Path::new(file) == seal;
    match error {
        SourceError::Io { file, op, source } if is_seal(&file) => {
            anyhow::anyhow!("{file}: the seal: cannot {op} it: {source}")
        }
        SourceError::NotAFile { file, kind } if is_seal(&file) => {
            anyhow::anyhow!("{file}: the seal is {kind}, not a regular file")
        }
        other => other.into(),
    }
}

/// `file`, which lies beside a MODEL that was `typed`, as the user would type it.
pub(crate) fn as_typed(file: &Path, typed: &Path) -> PathBuf {
    let here = std::env::current_dir().ok().filter(|_| typed.is_relative());
    let relative = here.and_then(|here| file.strip_prefix(here).ok().map(Path::to_path_buf));
    relative.unwrap_or_else(|| file.to_path_buf())
}

/// Replaces a file by what it holds.
pub(crate) fn read_value(wanted: &mut Override) -> Result<()> {
    if let SetValue::File(file) = &wanted.value {
        wanted.value = SetValue::Verbatim(content(&wanted.key, file)?);
    }
    Ok(())
}

fn content(key: &str, file: &Path) -> Result<Vec<u8>> {
    value_file::read(file).with_context(|| format!("set={key}"))
}

/// Sets one metadata key. A value that does not fit is a wrong command line; a file that cannot
/// be read is a failure.
fn override_key(model: &mut Model, wanted: &Override) -> Result<()> {
    let setting = match &wanted.value {
        SetValue::Json(json) => Setting::Json(json.clone()),
        SetValue::Verbatim(bytes) => Setting::Verbatim(bytes.clone()),
        SetValue::File(file) => Setting::Verbatim(content(&wanted.key, file)?),
    };
    overrides::set(model, &wanted.key, &setting)
        .map_err(|error| Failure::usage(format!("-o {error}")))
}

fn catalog(
    model: &Model,
    store: &Store,
    config: Option<serde_json::Value>,
    options: &Options,
) -> Result<(Catalog, Option<Likeness>)> {
    let stages: Vec<_> = options.map.iter().map(|value| MapSpec::parse(value)).collect();
    if stages.is_empty() && options.like.is_none() {
        return Ok((Catalog::identity(), None));
    }
    let facts = ArchFacts::read(model, &|array| integers(store, array)).with_config(config);
    let Some(path) = &options.like else {
        return Ok((Catalog::build(model, &facts, &stages)?, None));
    };
    // Names and shapes are in the headers: nothing else of it is read.
    let reference = load(path, IoMode::Auto).context("like=")?.model;
    let label = path.in_line().to_string();
    let like = Reference { label: &label, model: &reference };
    Ok(Catalog::build_like(model, &facts, &stages, Some(like))?)
}

/// The elements of a short array of integers that stayed in the file.
fn integers(store: &Store, array: &Array) -> Option<Vec<u64>> {
    let Array::Span { elem, count, extent, encoding } = array else {
        return None;
    };
    if *count > MAX_LAYERS {
        return None;
    }
    let shard = store.shard(extent.shard as usize);
    let mut reader = ArrayReader::new(&shard, *elem, *count, *extent, *encoding);
    let mut numbers = Vec::new();
    while let Ok(Some(item)) = reader.next() {
        match item {
            Item::Value(value) => numbers.push(value.as_u64()?),
            _ => return None,
        }
    }
    (numbers.len() as u64 == *count).then_some(numbers)
}

/// A configuration of a checkpoint. Without one, or with one that is no JSON, what needs it is
/// simply not certain.
fn json_beside(entry: &Path, name: &str, warnings: &mut Vec<String>) -> Option<serde_json::Value> {
    let path = entry.with_file_name(name);
    let metadata = path.metadata().ok()?;
    let read = || -> Result<serde_json::Value, String> {
        if !metadata.is_file() {
            return Err("it is no regular file".into());
        }
        if metadata.len() > MAX_CONFIG {
            return Err(format!("it has {} bytes, at most {MAX_CONFIG} are read", metadata.len()));
        }
        let mut text = Vec::new();
        let file = File::open(&path).map_err(|e| e.to_string())?;
        file.take(MAX_CONFIG).read_to_end(&mut text).map_err(|e| e.to_string())?;
        serde_json::from_slice(&without_python(&text)).map_err(|e| e.to_string())
    };
    read().map_err(|why| warnings.push(format!("{name} beside the model is not heard: {why}"))).ok()
}

/// JSON as Python's json module writes and reads it, made plain: a byte order mark in front goes,
/// and NaN and the infinities, which JSON lacks and nobody here asks for, become null.
fn without_python(text: &[u8]) -> Vec<u8> {
    const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut rest = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut plain = Vec::with_capacity(rest.len());
    let mut in_string = false;
    while let Some(&byte) = rest.first() {
        if !in_string && let Some(word) = WORDS.iter().find(|word| rest.starts_with(word)) {
            plain.extend(b"null");
            rest = &rest[word.len()..];
            continue;
        }
        let step = if in_string && byte == b'\\' { 2.min(rest.len()) } else { 1 };
        in_string ^= byte == b'"';
        plain.extend(&rest[..step]);
        rest = &rest[step..];
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_writes_as_json_becomes_json() {
        let plain = |text: &str| String::from_utf8(without_python(text.as_bytes()));
        let text = r#"{"a": [0.0, Infinity, -Infinity, NaN], "b": "NaN \" Infinity"}"#;
        let want = r#"{"a": [0.0, null, null, null], "b": "NaN \" Infinity"}"#;
        assert_eq!(plain(text).as_deref(), Ok(want));
        assert_eq!(plain("\u{feff}{}").as_deref(), Ok("{}"));
        assert_eq!(plain("\"\\").as_deref(), Ok("\"\\"));
    }
}
