//! Unmounting, of live and dead mounts, by the three ways there are; and waiting until the daemon
//! has let go of the model and kept what it saw.

use super::args::UmountArgs;
use super::exit::{self, Exit};
use super::mountinfo::{self, Mount};
use super::mountpoint;
use super::presence::Presence;
use super::shell;
use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::unistd::{Uid, User, geteuid, getuid};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use weightfs::bytes::line::InLine;

/// How long the daemon may take to end: as long as it gives its models to be kept.
const END: Duration = Duration::from_secs(30);

/// `weightfs umount MOUNTPOINT [--lazy]`.
pub(crate) fn run(args: &UmountArgs) -> Result<Exit> {
    let point = mountpoint::resolve(&args.mountpoint)?;
    let mount = match mountinfo::top_at(&point)? {
        None => bail!("{}: nothing is mounted here", point.in_line()),
        Some(mount) if !mount.is_weightfs() => {
            bail!(
                "{}: not a weightfs mount but {} of {}",
                point.in_line(),
                mount.kind,
                mount.source.in_line()
            )
        }
        Some(mount) => mount,
    };
    // Lazily it ends with its last reader, for which nobody waits.
    let daemon = if args.lazy { None } else { Presence::of(&mount) };
    let mut result = unmount(&point, args.lazy);
    // Who holds files of a dead mount can only get errors from them: there is nothing to wait for.
    if matches!(result, Err(Refused::Busy)) && mountpoint::is_dead(&point) {
        result = unmount(&point, true);
    }
    match result {
        Ok(()) => {
            if let Some(daemon) = daemon {
                see_off(daemon, &mount, &point);
            }
            Ok(Exit::Done)
        }
        Err(Refused::Busy) => bail!(
            "{}: files are open (fuser -vm {} shows whose); --lazy unmounts now and lets their readers finish",
            point.in_line(),
            shell::word(&point)
        ),
        Err(Refused::Other(why)) => match somebody_else(&mount) {
            // What the tools say of it does not tell why.
            Some(owner) => bail!(
                "{}: mounted by {owner}, and only that user or root may unmount it\nto unmount it: as root, weightfs umount {}",
                point.in_line(),
                shell::word(&point)
            ),
            None => bail!("{}: {why}", point.in_line()),
        },
    }
}

/// Who mounted it, where that keeps the user from unmounting it.
fn somebody_else(mount: &Mount) -> Option<String> {
    let owner = Uid::from_raw(mount.owner?);
    if geteuid().is_root() || owner == geteuid() || owner == getuid() {
        return None;
    }
    let name = User::from_uid(owner).ok().flatten().map(|user| user.name);
    Some(name.map_or_else(|| format!("user {owner}"), |name| name.in_line().to_string()))
}

/// Waits until the daemon is gone: then its files are free, and what it saw of the bytes is kept.
fn see_off(daemon: Presence, mount: &Mount, point: &Path) {
    let point = point.in_line();
    if is_connected(mount) {
        exit::warn(&format!("{point}: unmounted here, and still mounted elsewhere: served on"));
    } else if !daemon.ends_within(END) {
        let seconds = END.as_secs();
        exit::warn(&format!("{point}: unmounted; its daemon has not ended in {seconds} s"));
    }
}

/// Whether the file system is mounted once more, by a bind mount or in another namespace.
fn is_connected(mount: &Mount) -> bool {
    let again = |all: Vec<Mount>| all.iter().any(|other| other.device == mount.device);
    let number = mount.device.strip_prefix("0:");
    mountinfo::all().is_ok_and(again)
        || number.is_some_and(|number| Path::new("/sys/fs/fuse/connections").join(number).exists())
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
