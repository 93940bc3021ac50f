//! Whether the daemon of a mount still runs. It holds a socket until its very end, by a name that
//! is made of the mount's device number: whoever unmounts can wait for that end without asking
//! the mount anything, and so without keeping it busy.

use super::mountinfo::Mount;
use super::patience;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// How long a connection may take: the kernel makes it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Names the mount's daemon, this process, until it ends. Where the name cannot be had, nobody
/// waits for us.
pub(crate) fn announce(device: u64) {
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    match listen(&device) {
        // To be closed by the kernel, behind everything else.
        Ok(listener) => std::mem::forget(listener),
        Err(error) => {
            log::debug!("who unmounts will not wait for the end of this process: {error}")
        }
    }
}

fn listen(device: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(device)?)
}

/// A name in the abstract namespace: no file is made, none stays behind.
fn address(device: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("weightfs/{device}"))
}

/// A daemon that runs.
#[derive(Debug)]
pub(crate) struct Presence(UnixStream);

impl Presence {
    /// The daemon of a mount, where it can be known: not in another network namespace.
    pub(crate) fn of(mount: &Mount) -> Option<Presence> {
        let address = address(&mount.device).ok()?;
        let stream = patience::within(PATIENCE, move || UnixStream::connect_addr(&address));
        let stream = stream?.ok()?;
        // Anybody can take such a name.
        let peer = getsockopt(&stream, PeerCredentials).ok()?.uid();
        (peer == 0 || Some(peer) == mount.owner).then_some(Presence(stream))
    }

    /// Waits for its end, at most so long; whether it came.
    pub(crate) fn ends_within(mut self, limit: Duration) -> bool {
        if self.0.set_read_timeout(Some(limit)).is_err() {
            return false;
        }
        // Nothing is ever sent. A connection that nobody took in is reset.
        let end = loop {
            match self.0.read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                end => break end,
            }
        };
        !end.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn mount(device: &str) -> Mount {
        Mount {
            device: device.into(),
            point: "/m".into(),
            kind: "fuse".into(),
            source: "x".into(),
            owner: Some(nix::unistd::geteuid().as_raw()),
        }
    }

    #[test]
    fn the_end_is_seen_and_waited_for_no_longer_than_said() {
        let device = format!("test:{}", std::process::id());
        assert!(Presence::of(&mount(&device)).is_none());
        let listener = listen(&device).unwrap();
        let presence = Presence::of(&mount(&device)).unwrap();
        assert!(!presence.ends_within(Duration::from_millis(5)));
        let presence = Presence::of(&mount(&device)).unwrap();
        drop(listener);
        assert!(presence.ends_within(Duration::from_secs(60)));
    }
}
