//! What this process may have: open files, memory, mappings. That there is too little of it is no
//! fault of a model.

use crate::cli::exit;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::error::Error;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Open files that the mount itself needs, now and later.
const SPARE: usize = 48;
/// Files that are open for a moment while a model is opened, at most.
const PASSING: usize = 8;

/// Which limit was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Open files of this process.
    Files,
    /// Open files of the whole system.
    SystemFiles,
    /// Memory, or mappings.
    Memory,
}

impl Limit {
    /// The one that made an operation fail, if one did.
    pub(super) fn behind(error: &(dyn Error + 'static)) -> Option<Limit> {
        let mut causes = std::iter::successors(Some(error), |error| (*error).source());
        causes.find_map(|cause| Limit::of(cause.downcast_ref::<io::Error>()?))
    }

    fn of(error: &io::Error) -> Option<Limit> {
        match (error.raw_os_error(), error.kind()) {
            (Some(libc::EMFILE), _) => Some(Limit::Files),
            (Some(libc::ENFILE), _) => Some(Limit::SystemFiles),
            (_, ErrorKind::OutOfMemory) => Some(Limit::Memory),
            // An error in words may have another one inside.
            (None, _) => Limit::behind(error.get_ref()?),
            _ => None,
        }
    }

    /// What there is to do.
    pub(super) fn told(self, directory: &Path, models: usize, error: &str) -> anyhow::Error {
        let directory = directory.display();
        let cure = match self {
            Limit::Files => {
                let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, most)| most);
                return anyhow::anyhow!(
                    "{directory}: its {models} models need more open files than this process may have ({most})\n\
                     raise that limit (ulimit -n, LimitNOFILE= of a unit), or mount the directory in parts"
                );
            }
            Limit::SystemFiles => "the system has no more open files to give (sysctl fs.file-max)",
            Limit::Memory => {
                "there is no more memory, or no more mappings (sysctl vm.max_map_count; -o io=pread maps nothing)"
            }
        };
        anyhow::anyhow!("{directory}: its {models} models cannot all be opened: {cure}\n{error}")
    }
}

/// Each source is an open file; the usual limit is meant for programs that use select(2).
pub(super) fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        log::debug!("the limit of open files stays: {error}");
    }
}

/// Open files that are kept back while models are opened.
pub(super) struct Spare(#[allow(dead_code, reason = "held open")] Vec<File>);

impl Spare {
    /// What the mount will need.
    pub(super) fn take() -> Result<Spare, (Limit, String)> {
        open(SPARE).map(Spare)
    }

    /// Whether there were enough files all the time for this many threads that opened models: one
    /// of them may have met with the limit where that was not told.
    pub(super) fn was_enough_for(&self, threads: usize) -> Result<(), (Limit, String)> {
        open(PASSING * threads).map(drop)
    }
}

fn open(count: usize) -> Result<Vec<File>, (Limit, String)> {
    let opened = (0..count).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<File>>>();
    opened.or_else(|error| match Limit::of(&error) {
        Some(limit) => Err((limit, exit::without_numbers(&error.to_string()))),
        // Without that device there is nothing to be learnt so.
        None => Ok(Vec::new()),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use anyhow::Context;
    use weightfs::load::LoadError;
    use weightfs::source::SourceError;

    #[test]
    fn limits_are_told_from_what_is_wrong_with_a_model() {
        let io = io::Error::from_raw_os_error;
        let source = |source| SourceError::Io { file: "m".into(), op: "open".into(), source };
        for (error, want) in [
            (libc::EMFILE, Some(Limit::Files)),
            (libc::ENFILE, Some(Limit::SystemFiles)),
            (libc::ENOMEM, Some(Limit::Memory)),
            (libc::EACCES, None),
            (libc::EIO, None),
        ] {
            let loaded = LoadError::Source(source(io(error)));
            let wrapped = Err::<(), _>(io::Error::other(source(io(error)))).context("m");
            for error in [anyhow::Error::new(loaded), wrapped.unwrap_err()] {
                assert_eq!(Limit::behind(error.as_ref()), want, "{error:?}");
            }
        }
    }
}
