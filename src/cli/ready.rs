//! Telling others that the mount is ready: a file descriptor, systemd, the waiting parent.

use super::daemon::{self, Waiter};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Everybody who wants to know.
pub(crate) struct Ready {
    fd: Option<OwnedFd>,
    waiter: Option<Waiter>,
}

impl Ready {
    /// Takes over `--ready-fd` before any other file is opened.
    pub(crate) fn new(fd: Option<RawFd>) -> io::Result<Ready> {
        let fd = fd.map(daemon::inherited_fd).transpose()?;
        Ok(Ready { fd, waiter: None })
    }

    /// In a new daemon: the parent waits as well, and nobody else's files stay open.
    pub(crate) fn with_waiter(self, waiter: Waiter) -> Ready {
        daemon::close_inherited(&waiter, self.fd.as_ref().map(AsRawFd::as_raw_fd));
        Ready { waiter: Some(waiter), ..self }
    }

    /// Whether we go to the background once ready.
    pub(crate) fn is_daemon(&self) -> bool {
        self.waiter.is_some()
    }

    /// Tells everybody. An error means that the parent, who alone must know, is gone.
    pub(crate) fn announce(self) -> io::Result<()> {
        notify(&format!("READY=1\nMAINPID={}\nSTATUS=mounted", std::process::id()));
        if let Some(fd) = self.fd
            && let Err(error) = File::from(fd).write_all(b"READY=1\n")
        {
            log::warn!("--ready-fd: {error}");
        }
        self.waiter.map_or(Ok(()), Waiter::ready)
    }
}

/// Sends a line of state to systemd, or whoever set NOTIFY_SOCKET.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        log::warn!("NOTIFY_SOCKET: {error}");
    }
}
