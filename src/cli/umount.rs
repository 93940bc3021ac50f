//! Unmounting, of live and dead mounts, by the three ways there are.

use super::args::UmountArgs;
use super::exit::Exit;
use super::{mountinfo, mountpoint};
use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use std::path::Path;
use std::process::{Command, Stdio};
use weightfs::bytes::line::InLine;

/// `weightfs umount MOUNTPOINT [--lazy]`.
pub(crate) fn run(args: &UmountArgs) -> Result<Exit> {
    let point = mountpoint::resolve(&args.mountpoint)?;
    match mountinfo::top_at(&point)? {
        None => bail!("{}: nothing is mounted here", point.in_line()),
        Some(mount) if !mount.is_weightfs() => {
            bail!(
                "{}: not a weightfs mount but {} of {}",
                point.in_line(),
                mount.kind,
                mount.source.in_line()
            )
        }
        Some(_) => {}
    }
    let mut result = unmount(&point, args.lazy);
    // Who holds files of a dead mount can only get errors from them: there is nothing to wait for.
    if matches!(result, Err(Refused::Busy)) && mountpoint::is_dead(&point) {
        result = unmount(&point, true);
    }
    match result {
        Ok(()) => Ok(Exit::Done),
        Err(Refused::Busy) => bail!(
            "{}: files are open (fuser -vm {0} shows whose); --lazy unmounts now and lets their readers finish",
            point.in_line()
        ),
        Err(Refused::Other(why)) => bail!("{}: {why}", point.in_line()),
    }
}

/// Why a mount is still there.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Files are open and the unmount was not lazy.
    Busy,
    /// What the last tool said.
    Other(String),
}

/// Unmounts what is mounted on `point`: by the system call, which only root may use; as the
/// mount's owner through fusermount3; at last by umount(8).
pub(crate) fn unmount(point: &Path, lazy: bool) -> Result<(), Refused> {
    let flags = if lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    match umount2(point, flags | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(Errno::EBUSY) => return Err(Refused::Busy),
        Err(Errno::EPERM) => {}
        Err(error) => return Err(Refused::Other(error.desc().to_owned())),
    }
    let helper: &[&str] = if lazy { &["-u", "-z", "--"] } else { &["-u", "--"] };
    let umount: &[&str] = if lazy { &["-l", "--"] } else { &["--"] };
    let mut said = Vec::new();
    for (program, args) in [
        ("fusermount3", helper),
        ("/bin/fusermount3", helper),
        ("fusermount", helper),
        ("umount", umount),
        ("/bin/umount", umount),
    ] {
        match attempt(program, args, point) {
            None => {}
            Some(Ok(())) => return Ok(()),
            Some(Err(text)) if text.contains("busy") => return Err(Refused::Busy),
            Some(Err(text)) => said.push(text),
        }
    }
    match said.into_iter().next() {
        Some(first) => Err(Refused::Other(first)),
        None => Err(Refused::Other(
            "only root may unmount without fusermount3 (apt install fuse3)".into(),
        )),
    }
}

/// Runs one tool; `None` when there is no such program.
fn attempt(program: &str, args: &[&str], point: &Path) -> Option<Result<(), String>> {
    let output = Command::new(program)
        .args(args)
        .arg(point)
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    if output.status.success() {
        return Some(Ok(()));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().next().unwrap_or_default();
    Some(Err(if first.is_empty() {
        format!("{program}: {}", output.status)
    } else {
        first.to_owned()
    }))
}
