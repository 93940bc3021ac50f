//! From what was typed to an open model: the one place where the commands meet the library's
//! rooms for loading, names, seals and bytes.

use super::args::NameArgs;
use super::exit::{Exit, Failure};
use super::options::{Options, Override, SetValue};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightfs::load::{self, Loaded};
use weightfs::model::Model;
use weightfs::naming::Catalog;
use weightfs::overrides::{self, Setting};
use weightfs::seal::SealError;
use weightfs::source::IoMode;
use weightfs::store::{Store, Verify};
use weightfs::view::document::Facts;

/// A model with its names and its checked bytes.
pub(crate) struct Opened {
    pub(crate) model: Arc<Model>,
    pub(crate) catalog: Catalog,
    pub(crate) store: Store,
    /// The file that the seal is named after.
    pub(crate) entry: PathBuf,
    pub(crate) verify: Verify,
    pub(crate) warnings: Vec<String>,
}

impl Opened {
    /// What the documents are made from.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            model: &self.model,
            catalog: &self.catalog,
            store: &self.store,
            verify: self.verify,
            warnings: &self.warnings,
        }
    }
}

/// Opens a model for a look at it, with every byte checked.
pub(crate) fn open(model: &Path, names: &NameArgs) -> Result<Opened> {
    open_like(model, names, None)
}

/// As [`open`], with names derived from a second model.
pub(crate) fn open_like(model: &Path, names: &NameArgs, like: Option<&Path>) -> Result<Opened> {
    let options = Options {
        map: names.map.clone(),
        like: like.map(Path::to_path_buf),
        ..Options::default()
    };
    open_for_mount(model, &options)
}

/// Opens a model as the options say.
pub(crate) fn open_for_mount(model: &Path, options: &Options) -> Result<Opened> {
    if options.like.is_some() {
        bail!(
            "like=: this version cannot derive names from a second model; map=FILE takes a map file"
        );
    }
    let mut loaded = load(model, options.io)?;
    for setting in &options.set {
        override_key(&mut loaded.model, setting)?;
    }
    let catalog = catalog(&loaded.model, &options.map)?;
    let entry = loaded.entry.clone();
    let (model, store) = store(loaded, options)?;
    let mut warnings = Vec::new();
    if options.dtype.is_some() {
        warnings.push("dtype= has no effect: this version makes no hf/ directory".into());
    }
    Ok(Opened {
        model,
        catalog,
        store,
        entry,
        verify: options.verify,
        warnings,
    })
}

/// Opens the files of a model.
pub(crate) fn load(model: &Path, io: IoMode) -> Result<Loaded> {
    Ok(load::open(model, io)?)
}

/// A seal's error with the exit code that it asks for.
pub(crate) fn seal_error(error: SealError) -> anyhow::Error {
    if error.is_mistrust() {
        Failure::new(Exit::Seal, error.to_string())
    } else {
        error.into()
    }
}

/// Sets one metadata key. A value that does not fit is a wrong command line; a file that cannot
/// be read is a failure.
fn override_key(model: &mut Model, wanted: &Override) -> Result<()> {
    let setting = match &wanted.value {
        SetValue::Json(json) => Setting::Json(json.clone()),
        SetValue::File(file) => Setting::Verbatim(
            std::fs::read(file)
                .with_context(|| format!("set={}: {}", wanted.key, file.display()))?,
        ),
    };
    overrides::set(model, &wanted.key, &setting)
        .map_err(|error| Failure::usage(format!("-o {error}")))
}

fn catalog(_model: &Model, map: &[OsString]) -> Result<Catalog> {
    if map.is_empty() {
        return Ok(Catalog::identity());
    }
    bail!("map= is not built yet")
}

fn store(_loaded: Loaded, _options: &Options) -> Result<(Arc<Model>, Store)> {
    bail!("the store is not built yet")
}

/// A map file that leads to the names in force.
pub(crate) fn map_document(_opened: &Opened) -> serde_json::Value {
    serde_json::Value::Null
}
