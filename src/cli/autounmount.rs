//! `auto_unmount`: a small process that outlives the daemon and takes its dead mount away.
//!
//! fusermount3 offers the same, but only together with allow_other. The watcher is this program
//! under another name, so that whoever kills the daemon by its name or its command line does not
//! kill the watcher as well. It holds the read end of a pipe; the daemon's end closes when the
//! daemon ends, however it ends.

use super::umount;
use super::{mountinfo, mountpoint};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitCode, Stdio};

/// The name (argv[0]) that makes this program the watcher.
pub(crate) const NAME: &str = "fuse-auto-unmount";

/// The daemon's end; to be kept as long as the mount.
pub(crate) struct Watcher(
    #[expect(dead_code, reason = "held open, never written again")] ChildStdin,
);

/// Starts the watcher of a mount that is there.
pub(crate) fn watch(point: &Path) -> Result<Watcher> {
    let mount = mountinfo::top_at(point)?.context("-o auto_unmount: the mount is gone already")?;
    let mut child = Command::new("/proc/self/exe")
        .arg0(NAME)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("-o auto_unmount: starting the watcher")?;
    let mut pipe = child.stdin.take().context("-o auto_unmount: no pipe to the watcher")?;
    let mut order = mount.device.into_bytes();
    order.push(b' ');
    order.extend_from_slice(point.as_os_str().as_bytes());
    order.push(0);
    pipe.write_all(&order).context("-o auto_unmount")?;
    Ok(Watcher(pipe))
}

/// The watcher itself. There is nobody to tell about failures.
pub(crate) fn run() -> ExitCode {
    // Its own session: a Ctrl-C or a closing terminal is for the daemon, which ends in order.
    let _ = nix::unistd::setsid();
    let mut order = Vec::new();
    if io::stdin().lock().read_to_end(&mut order).is_ok()
        && let Some((device, point)) = parse(&order)
        && mountinfo::top_at(&point)
            .is_ok_and(|top| top.is_some_and(|mount| mount.device == device))
        && mountpoint::is_dead(&point)
    {
        let _ = umount::unmount(&point, true);
    }
    ExitCode::SUCCESS
}

/// `MAJOR:MINOR PATH NUL`, complete or nothing.
fn parse(order: &[u8]) -> Option<(String, PathBuf)> {
    let order = order.strip_suffix(b"\0")?;
    let space = order.iter().position(|&b| b == b' ')?;
    let device = String::from_utf8(order[..space].to_vec()).ok()?;
    Some((device, OsString::from_vec(order[space + 1..].to_vec()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_taken_whole_or_not_at_all() {
        assert_eq!(parse(b"0:52 /mnt/a b\0"), Some(("0:52".into(), "/mnt/a b".into())));
        for order in [&b""[..], b"0:52 /mnt/a", b"\0", b"0:52\0"] {
            assert_eq!(parse(order), None);
        }
    }
}
