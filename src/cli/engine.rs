//! From what was typed to an open model: the one place where the commands meet the library's
//! rooms for loading, names, seals and bytes.

use super::args::NameArgs;
use super::exit::{self, Exit, Failure};
use super::options::{Options, Override, SealChoice, SetValue};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightfs::format::gguf::array::{ArrayReader, Item};
use weightfs::load::{self, Loaded};
use weightfs::model::{Array, Format, Model};
use weightfs::naming::{ArchFacts, Catalog, MapSpec};
use weightfs::overrides::{self, Setting};
use weightfs::scale::{Hints, Scales};
use weightfs::seal::{self, Seal, SealError};
use weightfs::source::IoMode;
use weightfs::store::{Store, StoreOptions, Verify};
use weightfs::view::document::Facts;
use weightfs::view::{self, Stock};

/// Longest metadata array that names depend on: one number per layer.
const MAX_LAYERS: u64 = 100_000;
/// A config.json is a few kilobytes.
const MAX_CONFIG: u64 = 4 << 20;

/// A model with its names and its checked bytes.
pub(crate) struct Opened {
    pub(crate) model: Arc<Model>,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    /// The file that the seal is named after.
    pub(crate) entry: PathBuf,
    pub(crate) verify: Verify,
    pub(crate) warnings: Vec<String>,
    /// The weights that are codes with scales.
    pub(crate) scales: Scales,
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
    open_with(model, &naming_options(names, like), BadSeal::IsTold)
}

/// Opens a model to read its bytes.
pub(crate) fn open_for_reading(model: &Path, names: &NameArgs) -> Result<Opened> {
    open_with(model, &naming_options(names, None), BadSeal::Refuses)
}

/// Opens a model as the options of a mount say.
pub(crate) fn open_for_mount(model: &Path, options: &Options) -> Result<Opened> {
    open_with(model, options, BadSeal::Refuses)
}

fn naming_options(names: &NameArgs, like: Option<&Path>) -> Options {
    Options { map: names.map.clone(), like: like.map(Path::to_path_buf), ..Options::default() }
}

fn open_with(path: &Path, options: &Options, bad_seal: BadSeal) -> Result<Opened> {
    if options.like.is_some() {
        bail!(
            "like=: this version cannot derive names from a second model; map=FILE takes a map file"
        );
    }
    let mut loaded = load(path, options.io)?;
    for setting in &options.set {
        override_key(&mut loaded.model, setting)?;
    }
    let mut warnings = Vec::new();
    if options.dtype.is_some() {
        warnings.push("dtype= has no effect: this version makes no hf/ directory".into());
    }
    let seal = match find_seal(&loaded, path, &options.seal) {
        Err(error) if bad_seal == BadSeal::IsTold && exit::code_of(&error) == Exit::Seal => {
            exit::complain(&error);
            warnings.push(exit::message(&error));
            None
        }
        found => found?,
    };
    let Loaded { model, sources, entry } = loaded;
    let model = Arc::new(model);
    let store_options = StoreOptions {
        verify: options.verify,
        on_corruption: options.on_corruption,
        seal_given_on_command_line: matches!(options.seal, SealChoice::File(_)),
    };
    let store = Store::new(Arc::clone(&model), sources, seal, store_options);
    if let Some(cache) = seal::cache_home() {
        store.load_tofu(&cache.join("tofu"));
    }
    let config = match model.format {
        Format::Safetensors => json_beside(&entry, "config.json"),
        Format::Gguf => None,
    };
    let hints = match model.format {
        Format::Safetensors => {
            Hints::new(config.as_ref(), json_beside(&entry, "hf_quant_config.json").as_ref())
        }
        Format::Gguf => Hints::default(),
    };
    let catalog = catalog(&model, &store, config, &options.map)?;
    let scales = view::scaled::recognise(&model, &catalog, &store, &hints);
    warnings.extend(scales.warnings(&model));
    Ok(Opened { model, catalog, store, entry, verify: options.verify, warnings, scales })
}

/// Opens the files of a model.
pub(crate) fn load(model: &Path, io: IoMode) -> Result<Loaded> {
    Ok(load::open(model, io)?)
}

/// The seal that is to be used, or none where that is allowed.
fn find_seal(loaded: &Loaded, model: &Path, choice: &SealChoice) -> Result<Option<Seal>> {
    let path = match choice {
        SealChoice::None => return Ok(None),
        SealChoice::File(path) => path.clone(),
        SealChoice::Auto | SealChoice::Require => match seal::find(&loaded.entry) {
            Some(path) => path,
            None if *choice == SealChoice::Auto => return Ok(None),
            None => {
                let text = format!(
                    "{0}: not sealed, and seal=require refuses that (weightfs seal {0})",
                    model.display()
                );
                return Err(Failure::with(Exit::Unsealed, text));
            }
        },
    };
    Seal::load(&path, &loaded.model, &loaded.sources).map(Some).map_err(seal_error)
}

/// A seal's error with the exit code that it asks for.
pub(crate) fn seal_error(error: SealError) -> anyhow::Error {
    if error.is_mistrust() { Failure::with(Exit::Seal, error.to_string()) } else { error.into() }
}

/// Sets one metadata key. A value that does not fit is a wrong command line; a file that cannot
/// be read is a failure.
fn override_key(model: &mut Model, wanted: &Override) -> Result<()> {
    let setting = match &wanted.value {
        SetValue::Json(json) => Setting::Json(json.clone()),
        SetValue::File(file) => {
            let bytes = std::fs::read(file)
                .with_context(|| format!("set={}: {}", wanted.key, file.display()))?;
            Setting::Verbatim(bytes)
        }
    };
    overrides::set(model, &wanted.key, &setting)
        .map_err(|error| Failure::usage(format!("-o {error}")))
}

fn catalog(
    model: &Model,
    store: &Store,
    config: Option<serde_json::Value>,
    map: &[OsString],
) -> Result<Catalog> {
    let stages: Vec<_> = map.iter().map(|value| MapSpec::parse(value)).collect();
    if stages.is_empty() {
        return Ok(Catalog::identity());
    }
    let facts = ArchFacts::read(model, &|array| integers(store, array));
    Ok(Catalog::build(model, &facts.with_config(config), &stages)?)
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
fn json_beside(entry: &Path, name: &str) -> Option<serde_json::Value> {
    let path = entry.with_file_name(name);
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    File::open(&path).ok()?.take(MAX_CONFIG).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
