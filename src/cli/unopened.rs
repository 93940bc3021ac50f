//! Models that cannot be opened, and the seals that say what they should be.

use super::exit::{self, Exit, Failure};
use super::options::SealChoice;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weightfs::depot;
use weightfs::load::{self, LoadError};
use weightfs::seal::{self, SealError};
use weightfs::source::IoMode;

/// The seal of a model that cannot be opened.
pub(crate) struct Sealed {
    pub(crate) seal: PathBuf,
    /// The file that the seal is named after.
    pub(crate) entry: PathBuf,
    /// The file that was asked for; `None`: a directory.
    pub(crate) named: Option<PathBuf>,
}

impl Sealed {
    /// Finds the seal of the model that `model` is, is a file of, or is the directory of; with
    /// `given` it is that one.
    pub(crate) fn find(model: &Path, given: Option<&Path>) -> Option<Sealed> {
        let model = std::path::absolute(model).ok()?;
        let is_directory = model.is_dir();
        let entry = entry_of(&model, is_directory, given)?;
        let seal = given.map(Path::to_path_buf).or_else(|| seal::find(&entry))?;
        Some(Sealed { seal, entry, named: (!is_directory).then_some(model) })
    }
}

/// The entry file of the sealed model.
fn entry_of(model: &Path, is_directory: bool, given: Option<&Path>) -> Option<PathBuf> {
    if !is_directory && (given.is_some() || seal::find(model).is_some()) {
        return Some(model.to_owned());
    }
    let dir = if is_directory { model } else { model.parent()? };
    let mut entries = seal::sealed_in(dir);
    if !is_directory {
        let lists = |entry: &PathBuf| {
            let files = seal::find(entry).and_then(|seal| seal::peek(&seal).ok());
            let name = model.file_name().unwrap_or_default().as_bytes();
            files.is_some_and(|files| files.iter().any(|file| *file.name == *name))
        };
        entries.retain(lists);
    }
    if entries.len() > 1 {
        // A list of shards goes before what else lies there.
        entries.retain(|entry| entry.extension().is_some_and(|extension| extension == "json"));
    }
    entries.pop().filter(|_| entries.is_empty())
}

/// The error of a mount whose model cannot be opened, as `why` says: when its seal describes
/// other files than those that are there, it is the seal that refuses them.
pub(crate) fn refused(
    why: anyhow::Error,
    model: &Path,
    choice: &SealChoice,
    io: IoMode,
) -> anyhow::Error {
    let given = match choice {
        SealChoice::None => return why,
        SealChoice::File(file) => Some(&**file),
        SealChoice::Auto | SealChoice::Require => None,
    };
    let Some(objection) = objection(&why, model, given, io) else {
        return why;
    };
    // What the seal knows helped to open it: without that it may go better.
    let without = match load::open(model, io) {
        Ok(_) => "to mount without it: -o seal=none".to_owned(),
        Err(error) => format!(
            "and by itself it cannot be opened: {}\n\
             weightfs verify tells what is damaged; -o seal=none does not help: \
             the model cannot be opened without its seal either",
            exit::message(&error.into()).replace('\n', "; ")
        ),
    };
    Failure::with(Exit::Seal, format!("{objection}\n{without}"))
}

/// What the seal has against the files, in one line.
fn objection(
    why: &anyhow::Error,
    model: &Path,
    given: Option<&Path>,
    io: IoMode,
) -> Option<String> {
    // Which of them was meant is not known; nothing is damaged.
    if why.downcast_ref::<LoadError>().is_some_and(LoadError::is_of_several) {
        return None;
    }
    let located = depot::locate(model).ok()?;
    let model = located.as_ref().map_or(model, |located| &located.path);
    let Sealed { seal, entry, named } = Sealed::find(model, given)?;
    match seal::objection(&seal, &entry, named.as_deref(), io)? {
        SealError::Foreign { file, what } => {
            Some(format!("{file}: the seal is not of this model: {what}"))
        }
        SealError::Invalid { file, what } => Some(format!("{file}: not a valid seal: {what}")),
        SealError::NotASeal { file, what } => Some(format!("{file}: not a weightfs seal: {what}")),
        _ => None,
    }
}
