//! Going to the background, signals, and file descriptors given by number.
//!
//! The child of [`detach`] is the daemon; the parent stays only until the child says that the
//! mount is ready, or ends. Must run before any thread is started.
#![allow(unsafe_code)]

use super::exit::{self, Exit};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{self, ForkResult, Pid};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

/// How long a process that is to end may take for what it does before.
const LAST_WORK: Duration = Duration::from_secs(2);

/// Which of the two processes we are after [`detach`].
pub(crate) enum Side {
    /// The one that was started: it is to end with this code.
    Parent(Exit),
    /// The daemon to be.
    Child(Waiter),
}

/// The daemon's end of the pipe to whoever waits for the mount.
pub(crate) struct Waiter(PipeWriter);

/// Forks. The parent returns when the child is ready or has ended; signals that would end it
/// before that end the child.
pub(crate) fn detach() -> io::Result<Side> {
    let (reader, writer) = io::pipe()?;
    // Before the fork: none may end one of the two and not the other.
    let signals = Signals::block()?;
    let parent = Pid::this();
    // SAFETY: no thread has been started yet (this is the first thing that `mount` does), so the
    // child may do anything that the parent could.
    match unsafe { unistd::fork() }? {
        ForkResult::Parent { child } => {
            drop(writer);
            Ok(Side::Parent(wait_for(child, reader, signals)?))
        }
        ForkResult::Child => {
            drop(reader);
            unistd::setsid()?;
            // A parent that is killed cannot pass anything on.
            prctl::set_pdeathsig(Signal::SIGTERM)?;
            if unistd::getppid() != parent {
                std::process::exit(Exit::Failed.code().into());
            }
            Ok(Side::Child(Waiter(writer)))
        }
    }
}

/// From now on memory that was needed for a moment goes back to the system at once: making a
/// tokenizer takes tens of megabytes once, and a mount lasts for weeks.
pub(crate) fn return_memory() {
    // SAFETY: sets a number in the C library's allocator; before any thread is started.
    #[cfg(target_env = "gnu")]
    unsafe {
        // Also keeps the library from raising it by itself.
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
    }
}

/// Waits until the child is ready (one byte) or has ended (end of file). In the second case it
/// has said why itself, unless it was killed or a signal ended the two.
fn wait_for(child: Pid, mut reader: PipeReader, signals: Signals) -> io::Result<Exit> {
    let passed_on = Arc::new(OnceLock::new());
    let last = Arc::clone(&passed_on);
    thread::Builder::new().name("signals".into()).spawn(move || {
        while let Ok(signal) = signals.next() {
            // It is our child, and not waited for yet: nobody else has its number.
            if signal != Signals::OURS && kill(child, signal).is_ok() {
                let _ = last.set(signal);
            }
        }
    })?;
    let mut byte = [0];
    if matches!(reader.read(&mut byte), Ok(1)) {
        return Ok(Exit::Done);
    }
    let ended = waitpid(child, None);
    if let Some(&signal) = passed_on.get() {
        die_of(signal)?;
    }
    Ok(exit_of(ended))
}

/// Ends us as the signal would have: a shell goes by that when it runs a script.
pub(crate) fn die_of(signal: Signal) -> io::Result<()> {
    // SAFETY: the default action is no function of ours.
    unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
    let mut set = SigSet::empty();
    set.add(signal);
    set.thread_unblock()?;
    Ok(raise(signal)?)
}

/// The end of a child that was not ready.
fn exit_of(ended: nix::Result<WaitStatus>) -> Exit {
    match ended {
        Ok(WaitStatus::Exited(_, code)) => {
            match Exit::TABLE.iter().find(|(exit, _)| i32::from(exit.code()) == code) {
                Some((Exit::Done, _)) | None => {
                    exit::say("the daemon ended before the mount was ready");
                    Exit::Failed
                }
                Some((exit, _)) => *exit,
            }
        }
        Ok(WaitStatus::Signaled(_, signal, _)) => {
            exit::say(&format!("the daemon was killed by {signal} before the mount was ready"));
            Exit::Failed
        }
        other => {
            exit::say(&format!("the daemon was lost before the mount was ready: {other:?}"));
            Exit::Failed
        }
    }
}

impl Waiter {
    /// Leaves terminal and directory, then tells the parent that the mount is ready. An error
    /// means that nobody waits any more.
    pub(crate) fn ready(mut self) -> io::Result<()> {
        // The parent may end now. If it has been killed before, there is nobody to write to.
        prctl::set_pdeathsig(None)?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        unistd::dup2_stdin(&null)?;
        unistd::dup2_stdout(&null)?;
        unistd::dup2_stderr(&null)?;
        self.0.write_all(b"1")
    }
}

/// The signals that unmount, blocked; a thread of their own takes them.
pub(crate) struct Signals(SigSet);

impl Signals {
    /// What one thread of ours tells the one that waits for signals.
    pub(crate) const OURS: Signal = Signal::SIGUSR2;

    /// Has whoever waits for the next signal get [`Signals::OURS`].
    pub(crate) fn tell() -> io::Result<()> {
        Ok(nix::sys::signal::kill(Pid::this(), Signals::OURS)?)
    }

    /// Blocks INT, TERM and HUP for this thread and all that it starts. HUP is left alone where
    /// it was ignored, as under nohup.
    pub(crate) fn block() -> io::Result<Signals> {
        let mut set = SigSet::empty();
        set.add(Signals::OURS);
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        if !is_ignored(Signal::SIGHUP) {
            set.add(Signal::SIGHUP);
        }
        set.thread_block()?;
        Ok(Signals(set))
    }

    /// Waits for the next of them.
    pub(crate) fn next(&self) -> io::Result<Signal> {
        Ok(self.0.wait()?)
    }
}

/// Has a thread wait for what ends this process, INT, TERM and HUP where they are not ignored,
/// and do something before it does: for as long as [`LAST_WORK`]. For the beginning of a command,
/// before it starts a thread.
pub(crate) fn before_death(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        if !is_ignored(signal) {
            set.add(signal);
        }
    }
    set.thread_block()?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let Ok(signal) = set.wait() else { return };
        let (done, heard) = mpsc::channel();
        let last = thread::Builder::new().name("last".into()).spawn(move || {
            work();
            let _ = done.send(());
        });
        if last.is_ok() {
            // A directory of another machine may hang.
            let _ = heard.recv_timeout(LAST_WORK);
        }
        if die_of(signal).is_err() {
            std::process::exit(Exit::Failed.code().into());
        }
    })?;
    Ok(())
}

/// Whether a signal was ignored when we were started.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    super::preflight::status_mask(&status, "SigIgn")
        .is_some_and(|mask| mask & (1 << (signal as u32 - 1)) != 0)
}

/// Closes what else was open when we were started, except `kept` and the waiting parent's pipe: a
/// daemon must not keep the locks and pipes of the shell that it came from. For a new daemon,
/// before it opens anything.
pub(crate) fn close_inherited(waiter: &Waiter, kept: Option<RawFd>) {
    close_except(&[Some(waiter.0.as_raw_fd()), kept]);
}

/// Closes everything but the first three, which lead nowhere or to who started us.
pub(crate) fn close_all() {
    close_except(&[]);
}

fn close_except(kept: &[Option<RawFd>]) {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    // The listing's own descriptor is among them and closed by now: EBADF is no trouble.
    for fd in open.into_iter().filter(|fd| *fd > 2 && !kept.contains(&Some(*fd))) {
        let _ = nix::unistd::close(fd);
    }
}

/// Takes over a file descriptor that whoever started us opened for us, given by its number.
pub(crate) fn inherited_fd(fd: RawFd) -> io::Result<OwnedFd> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    // Whoever waits for its end must not wait for a process that we start.
    let close = FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC);
    // SAFETY: the borrow is used for one fcntl, which answers EBADF when the number is not open.
    fcntl(unsafe { BorrowedFd::borrow_raw(fd) }, close)?;
    // SAFETY: it is open, and nothing of ours was given that number: this is called before we
    // open files, and the numbers 0 to 2 are refused on the command line.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
