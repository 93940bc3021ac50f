//! What a daemon gives up once it is mounted: new privileges, and all files but those that
//! it serves from and those that it writes.
//!
//! A mount is taken away by a call that a confined process may not make, or by a setuid
//! program that it may not run: the keeper does that ([`super::keeper`]), which was started
//! before.

use super::keeper::{self, Keeper};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightfs::bytes::line::InLine;
use weightfs::fuse::{Surroundings, Unmounter};
use weightfs::grove::Grove;
use weightfs::seal;

/// Newest rights that we know of; an older kernel enforces those that it has.
const KNOWN: ABI = ABI::V5;

/// A mounted daemon's keeper and the bounds it sets itself.
#[derive(Debug)]
pub(crate) struct Confinement {
    keeper: Keeper,
    grove: Arc<Grove>,
    /// Where what was seen of unsealed models is kept.
    writable: Option<PathBuf>,
}

impl Confinement {
    /// Prepares everything that cannot be had any more once confined.
    pub(crate) fn prepare(grove: Arc<Grove>, keeper: Keeper) -> Confinement {
        let unsealed = grove.models().any(|fs| !fs.store().is_sealed());
        let wanted = unsealed.then(seal::cache_home).flatten();
        let writable = wanted.map(|cache| cache.join("tofu")).filter(|dir| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.inspect_err(|error| log::debug!("{}: {error}", dir.in_line())).is_ok()
        });
        Confinement { keeper, grove, writable }
    }

    /// The process that takes the mount away.
    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// Confines the calling thread and all that it starts from now on. What cannot be enforced
    /// is told in the log, and in `status.json` by not being there.
    pub(crate) fn apply(&self) {
        let mut given_up = Vec::new();
        match nix::sys::prctl::set_no_new_privs() {
            Ok(()) => given_up.push("no_new_privs"),
            Err(error) => log::debug!("no_new_privs: {error}"),
        }
        match self.restrict() {
            Ok(RulesetStatus::NotEnforced) => log::debug!("this kernel has no Landlock"),
            Ok(_) => given_up.push("landlock"),
            Err(error) => log::debug!("Landlock: {error}"),
        }
        self.grove.set_confined(&given_up.join(","));
    }

    fn restrict(&self) -> Result<RulesetStatus, RulesetError> {
        let mut rules = bounds()?;
        for source in self.grove.models().flat_map(|fs| fs.store().sources()) {
            // For a second look past the page cache, which opens the same file once more.
            rules = rules.add_rule(PathBeneath::new(source.file(), AccessFs::ReadFile))?;
        }
        for (path, rights) in [
            (self.writable.as_deref(), all_of_a_directory()),
            (Some(Path::new("/dev/null")), AccessFs::ReadFile | AccessFs::WriteFile),
        ] {
            if let Some(path) = path.and_then(|path| PathFd::new(path).ok()) {
                rules = rules.add_rule(PathBeneath::new(path, rights))?;
            }
        }
        Ok(rules.restrict_self()?.ruleset)
    }
}

/// Nothing is allowed: no file, no program, no TCP.
fn bounds() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .create()
}

/// To write a file beside its successor, and to clear away old ones.
fn all_of_a_directory() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
}

impl Surroundings for Confinement {
    fn before_serving(&self) {
        self.apply();
    }

    fn unmount(&self, mount: &Unmounter) -> io::Result<bool> {
        match self.keeper.unmount(mount) {
            // Whoever killed the keeper left that to us: where nothing is confined it works.
            Err(killed) if keeper::is_killed(&killed) => mount.unmount_here().map_err(|_| killed),
            done => done,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::File;

    /// What a thread that is confined as a daemon is can still do. The other tests' threads
    /// are none of its.
    #[test]
    fn a_confined_thread_reads_its_source_and_writes_its_directory_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (source, other) = (dir.path().join("source"), dir.path().join("other"));
        let mine = dir.path().join("mine");
        std::fs::write(&source, "s").unwrap();
        std::fs::write(&other, "o").unwrap();
        std::fs::create_dir(&mine).unwrap();
        let open = File::open(&source).unwrap();
        let confined = std::thread::spawn(move || {
            let rules = bounds().unwrap();
            let rules = rules.add_rule(PathBeneath::new(&open, AccessFs::ReadFile)).unwrap();
            let mine_fd = PathFd::new(&mine).unwrap();
            let rules = rules.add_rule(PathBeneath::new(mine_fd, all_of_a_directory())).unwrap();
            if rules.restrict_self().unwrap().ruleset == RulesetStatus::NotEnforced {
                return eprintln!("skipped: this kernel has no Landlock");
            }
            assert_eq!(std::fs::read(&source).unwrap(), b"s");
            let denied = |result: io::Result<()>| {
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            };
            denied(std::fs::read(&other).map(drop));
            denied(std::fs::write(&source, "x"));
            denied(std::fs::write(&other, "x"));
            denied(std::fs::write(other.with_file_name("new"), "x"));
            denied(std::fs::remove_file(&other));
            denied(std::process::Command::new("/bin/true").status().map(drop));
            std::fs::write(mine.join("draft"), "d").unwrap();
            std::fs::rename(mine.join("draft"), mine.join("kept")).unwrap();
            std::fs::remove_file(mine.join("kept")).unwrap();
            File::open(&mine).unwrap().sync_all().unwrap();
        });
        confined.join().unwrap();
        std::fs::write(dir.path().join("new"), "this thread is free").unwrap();
    }
}
