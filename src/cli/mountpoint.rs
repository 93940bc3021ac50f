//! The directory to mount on: found even under a dead mount, cleared of one, and refused where
//! mounting would hide the model from ourselves.

use super::umount::{self, Refused};
use super::{exit, mountinfo, patience, shell};
use anyhow::{Context, Result, anyhow, bail};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weightfs::bytes::line::InLine;

/// Dead mounts that are cleared on one directory before we give up.
const MAX_DEAD: usize = 16;
/// How long a file system may think about a question that ours answers from memory.
const PATIENCE: Duration = Duration::from_secs(3);
/// File systems whose directories are the kernel's and the running system's.
const SYSTEM_KINDS: &[&str] = &[
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "mqueue",
    "proc",
    "pstore",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// Whether a file system is mounted on `point` whose daemon is gone. Asks for the size of the
/// file system: attributes of its root may still be in the kernel's cache.
pub(crate) fn is_dead(point: &Path) -> bool {
    answer(point) == Answer::Dead
}

/// How the file system on a directory takes a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It answers, be it with an error.
    Alive,
    /// Its daemon is gone.
    Dead,
    /// Its daemon is there and says nothing: stopped, or waiting itself.
    Silent,
}

/// Asks the file system on `point`.
pub(crate) fn answer(point: &Path) -> Answer {
    let point = point.to_path_buf();
    match patience::within(PATIENCE, move || nix::sys::statvfs::statvfs(&point)) {
        None => Answer::Silent,
        Some(Err(error)) if is_dead_error(error as i32) => Answer::Dead,
        Some(_) => Answer::Alive,
    }
}

/// As `Path::canonicalize`; a daemon that does not answer is [`io::ErrorKind::TimedOut`].
fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    let path = path.to_path_buf();
    patience::within(PATIENCE, move || path.canonicalize())
        .unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

fn is_dead_error(errno: i32) -> bool {
    matches!(errno, libc::ENOTCONN | libc::ECONNABORTED)
}

/// The absolute path without symlinks, also when a mount lies on it that is dead or says nothing.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    match canonicalize(path) {
        Ok(point) => Ok(point),
        Err(error)
            if error.raw_os_error().is_some_and(is_dead_error)
                || error.kind() == io::ErrorKind::TimedOut =>
        {
            let absolute = std::path::absolute(path)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => {
                    Ok(canonicalize(parent).with_context(|| path.in_line().to_string())?.join(name))
                }
                _ => Err(error).with_context(|| path.in_line().to_string()),
            }
        }
        Err(error) => Err(error).with_context(|| path.in_line().to_string()),
    }
}

/// Makes the directory ready to be mounted on and returns its absolute path.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf> {
    let point = resolve(path).map_err(|error| {
        let missing =
            error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::NotFound);
        if missing {
            anyhow!(
                "{}: there is no such directory to mount on (mkdir {})",
                path.in_line(),
                shell::word(path)
            )
        } else {
            error
        }
    })?;
    refuse_system(&point, &mountinfo::all()?)?;
    clear_dead(&point)?;
    if answer(&point) == Answer::Silent {
        bail!("{}: the file system that is mounted here does not answer", point.in_line());
    }
    if !std::fs::metadata(&point).with_context(|| point.in_line().to_string())?.is_dir() {
        bail!("{}: not a directory: a model is mounted on a directory", point.in_line());
    }
    if let Some(mount) = mountinfo::top_at(&point)?
        && mount.is_weightfs()
    {
        bail!(
            "{}: {} is mounted here already\nto unmount it: weightfs umount {}",
            point.in_line(),
            mount.source.in_line(),
            shell::word(&point)
        );
    }
    Ok(point)
}

/// Takes away what a killed daemon of ours left on `point`.
fn clear_dead(point: &Path) -> Result<()> {
    for _ in 0..MAX_DEAD {
        if !is_dead(point) {
            return Ok(());
        }
        let by_hand = format!(
            "to clear it: fusermount3 -u -z {0}, or as root umount -l {0}",
            shell::word(point)
        );
        match mountinfo::top_at(point)? {
            Some(mount) if mount.is_weightfs() => {}
            other => {
                let kind = other.map_or("unknown".into(), |mount| mount.kind);
                bail!("{}: a dead mount of type {kind} is in the way\n{by_hand}", point.in_line());
            }
        }
        umount::unmount(point, true).map_err(|refused| {
            let why = match refused {
                Refused::Busy => "busy".to_owned(),
                Refused::Other(why) => why,
            };
            anyhow!(
                "{}: a dead mount is in the way and could not be cleared: {why}\n{by_hand}",
                point.in_line()
            )
        })?;
        exit::say(&format!(
            "{}: cleared the dead mount of a daemon that was killed",
            point.in_line()
        ));
    }
    bail!("{}: more than {MAX_DEAD} dead mounts lie on top of each other", point.in_line())
}

/// Refuses directories that the running system needs as they are. /dev is in no file system of
/// its own in some containers, and in a plain tmpfs in others.
fn refuse_system(point: &Path, mounts: &[mountinfo::Mount]) -> Result<()> {
    const NEEDED: [&str; 4] = ["/", "/dev", "/proc", "/sys"];
    // Of those that lie deepest, the last is on top.
    let over = mounts
        .iter()
        .filter(|mount| point.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count());
    let kind = over.map_or("", |mount| mount.kind.as_str());
    let is_dev = over.is_some_and(|mount| mount.point == Path::new("/dev"));
    if NEEDED.iter().any(|needed| point == Path::new(needed)) {
        bail!(
            "{}: the system needs this directory; choose another, best an empty one",
            point.in_line()
        );
    }
    if is_dev || SYSTEM_KINDS.contains(&kind) {
        bail!(
            "{}: it lies in a file system of the system ({kind}); choose another directory",
            point.in_line()
        );
    }
    Ok(())
}

/// Refuses a mount that would hide the model's own files. `files` are absolute paths, as named
/// and with symlinks resolved: the daemon must never look through its own mount.
pub(crate) fn refuse_own_files<'a>(
    point: &Path,
    files: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    match files.into_iter().find(|file| file.starts_with(point)) {
        Some(file) => bail!(
            "{}: it contains {}, a file of the model, which the mount would hide; choose another directory",
            point.in_line(),
            file.in_line()
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_above_the_model_is_refused_and_one_beside_it_is_not() {
        let file = Path::new("/models/g/gemma.gguf");
        for point in ["/", "/models", "/models/g"] {
            let text = refuse_own_files(Path::new(point), [file]).unwrap_err().to_string();
            assert!(text.contains("gemma.gguf"), "{text}");
        }
        for point in ["/models/g/mnt", "/models/gem", "/mnt"] {
            refuse_own_files(Path::new(point), [file]).unwrap();
        }
    }

    #[test]
    fn directories_of_the_system_are_refused_and_mounts_below_them_are_not() {
        let mount = |point: &str, kind: &str| mountinfo::Mount {
            device: "0:1".into(),
            point: point.into(),
            kind: kind.into(),
            source: "x".into(),
            owner: None,
        };
        let mounts = [
            mount("/", "ext4"),
            mount("/proc", "proc"),
            mount("/sys", "sysfs"),
            mount("/sys/fs/cgroup", "cgroup2"),
            mount("/dev", "tmpfs"),
            mount("/dev/pts", "devpts"),
            mount("/dev/shm", "tmpfs"),
            mount("/jail/p", "proc"),
            mount("/over", "proc"),
            mount("/over", "tmpfs"),
        ];
        for point in [
            "/",
            "/proc",
            "/proc/1/task",
            "/sys/kernel",
            "/sys/fs/cgroup/x",
            "/dev",
            "/dev/x",
            "/dev/pts",
            "/jail/p",
            "/jail/p/sys",
        ] {
            let text = refuse_system(Path::new(point), &mounts).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{point}: ")), "{text}");
        }
        for point in ["/mnt", "/procession", "/devices", "/dev/shm/x", "/over/x", "/jail"] {
            refuse_system(Path::new(point), &mounts).unwrap();
        }
        for needed in ["/proc", "/sys", "/dev"] {
            refuse_system(Path::new(needed), &[]).unwrap_err();
        }
        assert!(prepare(Path::new("/proc/self")).is_err());
    }

    #[test]
    fn what_is_no_directory_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plain");
        std::fs::write(&file, "").unwrap();
        assert!(prepare(&file).unwrap_err().to_string().contains("plain: not a directory"));
        let text = prepare(&dir.path().join("none")).unwrap_err().to_string();
        assert!(text.contains("none: there is no such directory"), "{text}");
    }

    #[test]
    fn symlinks_to_the_directory_are_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        let got = prepare(&dir.path().join("link/../link")).unwrap();
        assert_eq!(got, real.canonicalize().unwrap());
        assert!(!is_dead(&got));
    }
}
