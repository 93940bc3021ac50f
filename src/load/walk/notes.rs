//! What a walk passed over, in words.

use crate::load::error::Shown;
use std::fmt::{self, Display, Formatter};
use std::path::Path;

/// Names in the directory that is walked, of each kind.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) outside: Names,
    /// Links to directories that are shown under another name.
    pub(super) again: Names,
    pub(super) deep: Names,
    pub(super) mounts: Names,
    unreadable: Vec<String>,
    /// Those of `unreadable` that were not kept.
    more: usize,
}

/// The first names of a kind, and how many there are besides: a walk may pass over 200,000.
#[derive(Default)]
pub(super) struct Names {
    first: Vec<String>,
    more: usize,
}

/// Names of a kind that are told.
const SHOWN: usize = 8;
/// Directories whose errors are told.
const ERRORS: usize = 100;

impl Names {
    pub(super) fn add(&mut self, name: impl FnOnce() -> String) {
        if self.first.len() < SHOWN { self.first.push(name()) } else { self.more += 1 }
    }
}

impl Display for Names {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl Notes {
    /// A directory could not be looked into.
    pub(super) fn add_error(&mut self, error: &dyn Display) {
        if self.unreadable.len() < ERRORS {
            self.unreadable.push(error.to_string());
        } else {
            self.more += 1;
        }
    }

    /// A line of each kind, and of each error.
    pub(super) fn told(self, directory: &Path, deepest: usize) -> Vec<String> {
        let told = |what: &str, names: Names| {
            let text = || format!("{}: {what}: {names}", Shown(directory));
            (!names.first.is_empty()).then(text)
        };
        let mut notes: Vec<String> = [
            told("links that lead out of it are not followed", self.outside),
            told("links to directories that are shown under their other names", self.again),
            told(&format!("directories deeper than {deepest} are not looked into"), self.deep),
            told("mounts of weightfs are not looked into", self.mounts),
        ]
        .into_iter()
        .flatten()
        .collect();
        notes.extend(self.unreadable);
        if self.more > 0 {
            let more = self.more;
            notes.push(format!("{}: {more} more directories are not readable", Shown(directory)));
        }
        notes
    }
}
