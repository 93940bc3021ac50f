//! The keeper: a small process beside each daemon that takes its mount away.
//!
//! The daemon is confined once it is mounted and cannot unmount itself; and with `auto_unmount`
//! its dead mount goes when it was killed (fusermount3 offers that only together with
//! allow_other). The keeper is this program under another name, so that whoever kills the
//! daemon by its name or its command line does not kill it as well. It holds one end of a
//! socket; the other closes when the daemon ends, however it ends.

use super::daemon::{self, Signals};
use super::{mountinfo, mountpoint, umount};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use weightfs::bytes::line::InLine;
use weightfs::fuse::Unmounter;

/// The name (argv[0]) that makes this program the keeper.
pub(crate) const NAME: &str = "fuse-auto-unmount";

/// The daemon's end; to be kept as long as the mount.
#[derive(Debug)]
pub(crate) struct Keeper(Mutex<UnixStream>);

impl Keeper {
    /// Starts the keeper of a mount to be.
    pub(crate) fn start() -> Result<Keeper> {
        let (ours, its) = UnixStream::pair()?;
        Command::new("/proc/self/exe")
            .arg0(NAME)
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting the process that will unmount")?;
        Ok(Keeper(Mutex::new(ours)))
    }

    /// From now on the mount is taken away when this process ends without having done so.
    pub(crate) fn guard(&self, mount: &Unmounter) -> io::Result<()> {
        self.order(Order::Guard, mount).map(drop)
    }

    /// Unmounts; whether it had to be lazy.
    pub(crate) fn unmount(&self, mount: &Unmounter) -> io::Result<bool> {
        self.order(Order::Unmount, mount)
    }

    fn order(&self, order: Order, mount: &Unmounter) -> io::Result<bool> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let order = Message { order, device: mount.device(), point: mount.mountpoint().into() };
        let killed = || io::Error::other(Killed);
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => killed(),
            _ => error,
        };
        let mut answer = Vec::new();
        socket.write_all(&order.bytes()).map_err(gone)?;
        BufReader::new(&*socket).read_until(0, &mut answer).map_err(gone)?;
        match answer.strip_suffix(b"\0") {
            Some(b"done") => Ok(false),
            Some(b"lazy") => Ok(true),
            Some(why) => Err(io::Error::other(why.in_line().to_string())),
            None => Err(killed()),
        }
    }
}

/// There is no keeper any more.
#[derive(Debug, thiserror::Error)]
#[error("the process that unmounts was killed")]
struct Killed;

/// Whether an order failed since nobody is there to take it.
pub(crate) fn is_killed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Killed>())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Guard,
    Unmount,
}

/// `guard DEVICE PATH NUL` or `unmount DEVICE PATH NUL`, complete or nothing.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    order: Order,
    device: u64,
    point: PathBuf,
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let word = match self.order {
            Order::Guard => "guard",
            Order::Unmount => "unmount",
        };
        let mut bytes = format!("{word} {} ", self.device).into_bytes();
        bytes.extend_from_slice(self.point.as_os_str().as_bytes());
        bytes.push(0);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Message> {
        let mut words = bytes.strip_suffix(b"\0")?.splitn(3, |&b| b == b' ');
        let order = match words.next()? {
            b"guard" => Order::Guard,
            b"unmount" => Order::Unmount,
            _ => return None,
        };
        let device = str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let point = OsString::from_vec(words.next()?.to_vec()).into();
        Some(Message { order, device, point })
    }
}

/// The keeper itself. There is nobody to tell about failures but the daemon.
pub(crate) fn run() -> ExitCode {
    // Its own session, and no signal that is meant for all of a service: the daemon ends in
    // order, and needs us for that.
    let _ = Signals::block();
    let _ = nix::unistd::setsid();
    daemon::close_all();
    let Ok(socket) = stdin_again() else { return ExitCode::FAILURE };
    let mut guarded = None;
    let mut requests = BufReader::new(&socket);
    loop {
        let mut bytes = Vec::new();
        let read = requests.read_until(0, &mut bytes);
        let Some(message) = read.ok().and_then(|_| Message::parse(&bytes)) else { break };
        let answer = match message.order {
            Order::Guard => {
                guarded = Some(message);
                "done".to_owned()
            }
            Order::Unmount => match Unmounter::new(message.point, message.device).unmount() {
                Ok(false) => "done".to_owned(),
                Ok(true) => "lazy".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        if (&socket).write_all(&[answer.as_bytes(), b"\0"].concat()).is_err() {
            break;
        }
    }
    if let Some(message) = guarded {
        take_away_if_dead(&message);
    }
    ExitCode::SUCCESS
}

fn stdin_again() -> io::Result<UnixStream> {
    use std::os::fd::AsFd;
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}

fn take_away_if_dead(message: &Message) {
    let (major, minor) =
        (nix::sys::stat::major(message.device), nix::sys::stat::minor(message.device));
    let point: &Path = &message.point;
    let ours = |mount: mountinfo::Mount| mount.device == format!("{major}:{minor}");
    if mountinfo::top_at(point).is_ok_and(|top| top.is_some_and(ours)) && mountpoint::is_dead(point)
    {
        let _ = umount::unmount(point, true);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_taken_whole_or_not_at_all() {
        for order in [Order::Guard, Order::Unmount] {
            let message = Message { order, device: 52, point: "/mnt/a b".into() };
            let bytes = message.bytes();
            assert_eq!(Message::parse(&bytes), Some(message));
            assert_eq!(Message::parse(&bytes[..bytes.len() - 1]), None);
        }
        for bytes in [&b""[..], b"\0", b"guard\0", b"guard 5\0", b"guard x /\0", b"go 5 /\0"] {
            assert_eq!(Message::parse(bytes), None);
        }
    }
}
