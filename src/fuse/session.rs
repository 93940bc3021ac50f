//! Mounting, waiting and unmounting.

use super::{Activity, Adapter, CacheMode, Owner, Serving, ahead, lanes, seats};
use crate::bytes::line::InLine;
use crate::grove::Grove;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use log::{debug, info, warn};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// How often it is looked for what nobody tells: a source that hangs, and the end of a connection
/// whose session does not end.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Who has waited for so long waits for a source that hangs.
const STALLED: Duration = Duration::from_secs(10);

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Source name in `/proc/mounts`.
    pub fsname: String,
    /// Let other users in.
    pub allow_other: bool,
    /// Reads at work at once.
    pub threads: usize,
    /// Whether tensor bytes pass through the page cache.
    pub cache: CacheMode,
    /// Owner of all files.
    pub uid: u32,
    /// Group of all files.
    pub gid: u32,
    /// Permission bits to take away.
    pub umask: u16,
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
#[error("{mountpoint}: cannot mount: {source}")]
pub struct MountError {
    /// Where it should have been.
    pub mountpoint: PathBuf,
    /// The system's reason.
    pub source: io::Error,
}

/// A mount that answers. Dropping it unmounts.
#[derive(Debug)]
pub struct Mounted {
    /// Never dropped: fuser would unmount whatever lies on the path by then, and that may be
    /// somebody else's mount. [`Unmounter`] looks first.
    session: ManuallyDrop<BackgroundSession>,
    /// Hangs up when the session has ended.
    ended: Receiver<()>,
    /// The kernel's end of it, another handle.
    kernel: OwnedFd,
    fs: Arc<Grove>,
    /// Whether somebody waited for a source that hangs when it was last looked.
    stalled: AtomicBool,
    handle: Unmounter,
    activity: Arc<Activity>,
}

/// What the process around a mount does for it. The default methods are those of a process
/// that may do all it likes.
pub trait Surroundings: std::fmt::Debug + Send + Sync {
    /// Called on the thread that all serving threads descend from, when the kernel has the
    /// mount and nobody has asked it anything.
    fn before_serving(&self) {}

    /// Takes the mount away; whether it had to be lazy.
    fn unmount(&self, mount: &Unmounter) -> io::Result<bool> {
        mount.unmount_here()
    }
}

/// The surroundings of a process that keeps all its rights.
#[derive(Clone, Copy, Debug)]
pub struct Unconfined;

impl Surroundings for Unconfined {}

/// Unmounts from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mountpoint: PathBuf,
    /// Device number of the mount: what lies there later may be somebody else's.
    device: u64,
    around: Arc<dyn Surroundings>,
    /// Of the mount's own process.
    lanes: Option<Arc<lanes::Lanes>>,
}

/// Mounts `fs` on `mountpoint`; when this returns, the mount answers.
pub fn mount(
    fs: Arc<Grove>,
    mountpoint: &Path,
    options: &MountOptions,
    around: Arc<dyn Surroundings>,
) -> Result<Mounted, MountError> {
    let failed = |source| MountError { mountpoint: mountpoint.to_path_buf(), source };
    let mountpoint = mountpoint.canonicalize().map_err(failed)?;
    let activity = Arc::new(Activity::new());
    let threads = options.threads.max(1);
    let (alive, ended) = mpsc::channel();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ahead = Arc::new(ahead::Ahead::new(threads.min(cores)));
    let seats = Arc::new(seats::Seats::new(threads));
    let others: Vec<Arc<dyn lanes::Patient>> =
        vec![Arc::clone(&seats) as _, Arc::clone(&ahead) as _];
    let lanes = Arc::new(lanes::Lanes::new(fs.lanes(), threads, others));
    let adapter = Adapter {
        _alive: alive,
        lanes: Arc::clone(&lanes),
        seats,
        ahead,
        passthrough: Arc::default(),
        fs: Arc::clone(&fs),
        owner: Owner { uid: options.uid, gid: options.gid, umask: options.umask },
        serving: Serving { cache: options.cache, direct_maps: false },
        activity: Arc::clone(&activity),
    };
    // One of them is left when all reads at work hang: see `seats`.
    let config = config(options, threads + 1);
    let session = Session::new(adapter, &mountpoint, &config).map_err(failed)?;
    let kernel = session.as_fd().try_clone_to_owned().map_err(failed)?;
    let session = serve(session, &*around).map_err(failed)?;
    let device = mountpoint.symlink_metadata().map_err(failed)?.dev();
    raise_readahead(device);
    info!("mounted on {}", mountpoint.in_line());
    let handle = Unmounter { mountpoint, device, around, lanes: Some(lanes) };
    Ok(Mounted {
        session: ManuallyDrop::new(session),
        ended,
        kernel,
        fs,
        stalled: AtomicBool::new(false),
        handle,
        activity,
    })
}

/// Starts the serving threads as descendants of one that gave up what it does not need: what a
/// thread may do is inherited, and this thread has things to do yet.
fn serve(session: Session<Adapter>, around: &dyn Surroundings) -> io::Result<BackgroundSession> {
    std::thread::scope(|scope| {
        let first =
            std::thread::Builder::new().name("confined".into()).spawn_scoped(scope, || {
                around.before_serving();
                session.spawn()
            })?;
        first.join().unwrap_or_else(|_| Err(io::Error::other("the serving threads did not start")))
    })
}

fn config(options: &MountOptions, threads: usize) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(threads);
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let mut fsname = options.fsname.replace('\n', "_");
    if !nix::unistd::geteuid().is_root() {
        // fusermount3 is given one string of options and takes this escape; mount(2), which only
        // root may call, is given the name by itself.
        fsname = fsname.replace('\\', "\\\\").replace(',', "\\,");
    }
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::FSName(fsname),
        MountOption::DefaultPermissions,
    ];
    // mount(2) makes `fuse.weightfs` of this, and so does fusermount3.
    config.mount_options.push(MountOption::CUSTOM("subtype=weightfs".into()));
    config
}

/// Lets the kernel read further ahead than FUSE's 128 KiB where we may say so (root).
fn raise_readahead(device: u64) {
    const KIB: &str = "1024";
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&setting, KIB) {
        debug!("{setting}: {error}: requests stay at 128 KiB in the page cache");
    }
}

impl Mounted {
    /// Something that can unmount from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.handle.clone()
    }

    /// How long no file has been open; `None` while one is.
    pub fn idle_for(&self) -> Option<Duration> {
        self.activity.idle_for()
    }

    /// Whether the mount still answers; false once somebody has unmounted it.
    pub fn is_alive(&self) -> bool {
        !self.session.guard.is_finished()
            && matches!(self.ended.try_recv(), Err(mpsc::TryRecvError::Empty))
    }

    /// Waits until the mount is gone and the last open file is closed. Not for a thread that hangs
    /// in a mapped source: the session does not end before that one, but nobody hears it any more.
    pub fn wait(self) {
        let mut was_cut_off = false;
        // Nothing is ever sent: an end comes when the session drops the file system.
        while let Err(mpsc::RecvTimeoutError::Timeout) = self.ended.recv_timeout(LOOK_EVERY)
            && !was_cut_off
        {
            was_cut_off = self.is_cut_off();
            self.look_for_stalls();
        }
    }

    /// Tells, in the log and for the status, when requests wait for a source that hangs: to be
    /// called now and then.
    pub fn look_for_stalls(&self) {
        let Some(lanes) = &self.handle.lanes else { return };
        let stalled = lanes.waiting(STALLED);
        self.fs.set_stalled(stalled);
        match (stalled, self.stalled.swap(stalled > 0, Ordering::Relaxed)) {
            (1.., false) => warn!(
                "{stalled} requests have waited for {} s: a disk or server that the model lies on does not answer (kill -TERM {} ends the mount, and their waiting)",
                STALLED.as_secs(),
                std::process::id(),
            ),
            (0, true) => info!("what hung answers again"),
            _ => {}
        }
    }

    /// Whether the kernel has given up the connection.
    fn is_cut_off(&self) -> bool {
        let mut polled = [PollFd::new(self.kernel.as_fd(), PollFlags::empty())];
        matches!(poll(&mut polled, PollTimeout::ZERO), Ok(1))
            && polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_alive() {
            let _ = self.handle.unmount();
        }
    }
}

impl Unmounter {
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// For the mount on `mountpoint` whose device number is `device`, from a process that
    /// may unmount.
    pub fn new(mountpoint: PathBuf, device: u64) -> Unmounter {
        Unmounter { mountpoint, device, around: Arc::new(Unconfined), lanes: None }
    }

    /// The mount's device number.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Unmounts: at once when nothing is open, else lazily (the mount leaves the tree now
    /// and ends with the last open file). Returns whether it had to be lazy. Reads that hang
    /// in their source fail from now on, or the last file would never be closed.
    pub fn unmount(&self) -> io::Result<bool> {
        if let Some(lanes) = &self.lanes {
            lanes.leave();
        }
        self.around.unmount(self)
    }

    /// As [`Unmounter::unmount`], by this very process.
    pub fn unmount_here(&self) -> io::Result<bool> {
        // Somebody may have unmounted us and mounted something else here.
        if self.mountpoint.symlink_metadata().is_ok_and(|m| m.dev() != self.device) {
            return Ok(false);
        }
        match umount2(&self.mountpoint, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => Ok(false),
            Err(Errno::EBUSY) => {
                umount2(&self.mountpoint, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)?;
                Ok(true)
            }
            Err(Errno::EPERM) => {
                if self.fusermount(&["-u"]).is_ok() {
                    return Ok(false);
                }
                self.fusermount(&["-u", "-z"]).map(|()| true)
            }
            // Not mounted (any more).
            Err(Errno::EINVAL) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers for all reads that wait for their source: the process is about to end, and a
    /// thread that hangs in the source would keep the connection, and them, with it.
    pub fn abandon(&self) {
        if let Some(lanes) = &self.lanes {
            lanes.abandon();
        }
    }

    fn fusermount(&self, arguments: &[&str]) -> io::Result<()> {
        let output = Command::new("fusermount3")
            .args(arguments)
            .arg("--")
            .arg(&self.mountpoint)
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(output.stderr.trim_ascii().in_line().to_string()))
    }
}
