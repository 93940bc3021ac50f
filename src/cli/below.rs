//! `--recursive` of the commands that take models one by one: every model below a directory, as a
//! mount finds them.

use super::exit;
use anyhow::{Error, anyhow};
use std::path::{Path, PathBuf};
use weightfs::load::{self, Found, LoadError, Walk};

/// What a command is to look at.
pub(crate) struct Named {
    /// A MODEL, as it would be typed.
    pub(crate) model: PathBuf,
    /// Why there is none, where that is known already.
    pub(crate) problem: Option<Error>,
}

/// The models that were named, or with `recursive` all in the directories that were.
pub(crate) fn models(typed: &[PathBuf], recursive: bool) -> Vec<Named> {
    let one = |model: &PathBuf| Named { model: model.clone(), problem: None };
    match recursive {
        false => typed.iter().map(one).collect(),
        true => typed.iter().flat_map(|directory| below(directory)).collect(),
    }
}

fn below(typed: &Path) -> Vec<Named> {
    let none = |problem| vec![Named { model: typed.to_path_buf(), problem: Some(problem) }];
    let Walk { directory, models, notes } = match load::walk(typed) {
        Ok(walk) => walk,
        Err(error) => return none(error.into()),
    };
    notes.iter().for_each(|note| exit::say(note));
    if models.is_empty() {
        let name = typed.display();
        return none(anyhow!("{name}: holds no model, and neither do the directories in it"));
    }
    let named = |Found { path, problem, .. }: Found| {
        let model = match path.strip_prefix(&directory) {
            Ok(inner) if typed.is_dir() => typed.join(inner),
            _ => path,
        };
        // What a file is whose bytes are no model's is for the command to say: it may be damaged.
        let problem = problem.filter(|problem| matches!(problem, LoadError::Depot(_)));
        Named { model, problem: problem.map(Error::from) }
    };
    models.into_iter().map(named).collect()
}
