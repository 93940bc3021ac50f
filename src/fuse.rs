//! fuser's calls turned into [`Grove`] questions, and its answers back.
//!
//! The only room that knows fuser. Decides what the kernel may cache, and which
//! thread a read waits in; everything else is `grove`'s and `fs`'s.

use crate::fs::{Attr, FsError, Handle, NAME_MAX, Reader};
use crate::grove::{Grove, Place, Spot};
use crate::layout::{FileKind, Ino, Node, View};
use activity::Activity;
use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, PollEvents,
    PollFlags, PollNotifier, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyXattr, Request,
};
use log::{debug, warn};
use passthrough::Passthrough;
use reads::{Asked, Question, answer_read};
use std::ffi::OsStr;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Answers with what `$result` holds, or with its error's number.
macro_rules! answer {
    ($reply:ident, $what:expr, $result:expr, $ok:expr) => {
        match $result {
            Ok(value) => $ok(value),
            Err(error) => {
                debug!("{} -> {error}", $what);
                $reply.error(errno::errno(&error));
            }
        }
    };
}

mod activity;
mod ahead;
mod errno;
mod lanes;
mod passthrough;
mod reads;
mod room;
mod seats;
mod session;

pub use session::{MountError, MountOptions, Mounted, Surroundings, Unconfined, Unmounter, mount};

/// Nothing changes while mounted, so the kernel may keep what it knows. A year.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Live documents: what is known of them is old at once.
const NOT_AT_ALL: Duration = Duration::ZERO;

/// Under `cache=auto`, tensors from this size on are served past the page cache:
/// below it the copy in memory is small and the round trips would dominate. One chunk:
/// what is larger can be damaged in part, and only a direct read gives exactly what is good.
const DIRECT_FROM: u64 = 64 * 1024;

/// What the kernel asks for ahead of a reader at the most; it has limits of its own.
const READAHEAD: u32 = 16 * 1024 * 1024;
/// Requests the kernel may have under way without somebody waiting for them: reading ahead, for
/// pages and past them. One limit for the whole mount, so if reads of a source that hangs could
/// reach it, nothing of another source would be read any more; how far each reader runs ahead
/// is limited elsewhere.
const BACKGROUND: u16 = 16 * 1024;

/// Whether tensor bytes pass through the kernel's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// Direct for large tensors, page cache for the rest.
    #[default]
    Auto,
    /// The page cache for everything.
    Page,
    /// Direct for all tensors.
    Direct,
}

/// Who files belong to and who may read them.
#[derive(Clone, Copy, Debug)]
struct Owner {
    uid: u32,
    gid: u32,
    umask: u16,
}

/// Which files pass through the page cache.
#[derive(Clone, Copy, Debug)]
struct Serving {
    cache: CacheMode,
    /// Whether the kernel can map files that are served past its page cache.
    direct_maps: bool,
}

#[derive(Debug)]
struct Adapter {
    fs: Arc<Grove>,
    owner: Owner,
    serving: Serving,
    lanes: Arc<lanes::Lanes>,
    seats: Arc<seats::Seats>,
    ahead: Arc<ahead::Ahead<Question>>,
    passthrough: Arc<Passthrough>,
    activity: Arc<Activity>,
    /// Dropped with this: whoever waits for the end of the mount hears it.
    _alive: Sender<()>,
}

impl Owner {
    fn attr(self, attr: &Attr) -> FileAttr {
        let (kind, perm) = match attr.kind {
            FileKind::Directory => (FileType::Directory, 0o555),
            FileKind::File => (FileType::RegularFile, 0o444),
            FileKind::Symlink => (FileType::Symlink, 0o777),
        };
        FileAttr {
            ino: INodeNo(attr.ino.0.get()),
            size: attr.size,
            blocks: attr.size.div_ceil(512),
            atime: attr.mtime,
            mtime: attr.mtime,
            ctime: attr.mtime,
            crtime: attr.mtime,
            kind,
            perm: if attr.kind == FileKind::Symlink { perm } else { perm & !self.umask },
            nlink: attr.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            // What cp and Python take as their buffer size: one large request instead of many.
            blksize: 1024 * 1024,
            flags: 0,
        }
    }
}

impl Adapter {
    /// Inode 0: the kernel remembers that there is no such file.
    fn nothing(&self) -> FileAttr {
        let mut none = self.owner.attr(&Attr {
            ino: Ino::ROOT,
            kind: FileKind::File,
            size: 0,
            nlink: 0,
            mtime: std::time::UNIX_EPOCH,
        });
        none.ino = INodeNo(0);
        none
    }

    /// Gives `then` the attributes of `spot`: from another thread when its size has to be found
    /// first.
    fn with_attr<R: lanes::Reply>(
        &self,
        spot: Spot,
        reply: R,
        then: impl FnOnce(R, Result<FileAttr, FsError>) + Send + 'static,
    ) {
        let (fs, owner) = (Arc::clone(&self.fs), self.owner);
        let lane = self.fs.lane_of_attr(spot).map(|lane| lane.0);
        self.lanes.run(lane, reply, move |slot| {
            let attr = guarded(|| Ok(owner.attr(&fs.attr(spot)?)));
            if let Some(reply) = slot.take() {
                then(reply, attr);
            }
        });
    }
}

/// Replies that can be given by somebody else than who finds them out.
macro_rules! refusable {
    ($($reply:ty),+) => {
        $(impl lanes::Reply for $reply {
            fn refuse(self) {
                debug!("given up: the source does not answer, and the mount is to go");
                self.error(Errno::EIO);
            }
        })+
    };
}

/// Set in the handles of files whose pages the kernel keeps.
const KEPT: u64 = 1 << 62;

/// What the kernel is to call an open file.
fn file_handle(handle: Handle, flags: FopenFlags) -> FileHandle {
    let kept = if flags.contains(FopenFlags::FOPEN_KEEP_CACHE) { KEPT } else { 0 };
    FileHandle(handle.0 | kept)
}

/// What we call it, and who gets what is read of it.
fn opened(handle: FileHandle) -> (Handle, Reader) {
    let reader = if handle.0 & KEPT != 0 { Reader::Cache } else { Reader::Program };
    (Handle(handle.0 & !KEPT), reader)
}

refusable!(ReplyAttr, ReplyData, ReplyEntry, ReplyOpen);

impl Serving {
    /// How a file is opened: past the page cache, or with its pages kept between opens.
    fn open_flags(self, spot: Spot, size: u64) -> FopenFlags {
        let direct = match spot {
            Spot::Own(Place::Live(_)) | Spot::In(_, Node::Live(_)) => true,
            Spot::In(
                _,
                Node::Tensor(_, _, View::Bin | View::Npy)
                | Node::Source(_)
                | Node::Whole(_)
                | Node::Gguf
                | Node::HfWeights,
            ) if self.direct_maps => match self.cache {
                CacheMode::Auto => size >= DIRECT_FROM,
                CacheMode::Page => false,
                CacheMode::Direct => true,
            },
            _ => false,
        };
        let how = if direct { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::FOPEN_KEEP_CACHE };
        how | FopenFlags::FOPEN_NOFLUSH
    }

    fn open(self, fs: &Grove, ino: Ino) -> Result<(Handle, FopenFlags), FsError> {
        let spot = fs.spot(ino)?;
        // Pages in the kernel's cache would outlive a change of the source: look before they are
        // used.
        fs.check_source(spot)?;
        let handle = fs.open(ino)?;
        let size = if spot.is_live() { 0 } else { fs.attr(spot)?.size };
        Ok((handle, self.open_flags(spot, size)))
    }
}

/// Answers one question. A panic is a fault of ours: it costs that one answer, not the mount.
fn guarded<T>(answer: impl FnOnce() -> Result<T, FsError>) -> Result<T, FsError> {
    // What the closures touch is immutable or behind locks that recover from a panic.
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or(Err(FsError::Internal))
}

fn ino(number: INodeNo) -> Result<Ino, FsError> {
    NonZeroU64::new(number.0).map(Ino).ok_or(FsError::NotFound)
}

fn time_to_live(spot: Spot) -> Duration {
    if spot.is_live() { NOT_AT_ALL } else { FOREVER }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each one alone: a kernel that lacks one refuses the whole set.
        for flag in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            if config.add_capabilities(flag).is_err() {
                debug!("the kernel lacks {flag:?}");
            }
        }
        // An overlay may still be put on top of this mount.
        let passes = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok();
        self.passthrough = Arc::new(Passthrough::new(passes));
        self.serving.direct_maps =
            config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        if !self.serving.direct_maps && self.serving.cache == CacheMode::Direct {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "cache=direct: this kernel cannot map such files (it needs Linux 6.6); use cache=page",
            ));
        }
        if let Err(limit) = config.set_max_readahead(READAHEAD) {
            // The kernel's own limit; the backing-device setting is what goes beyond it.
            let _ = config.set_max_readahead(limit);
        }
        if config.set_max_background(BACKGROUND).is_err() {
            warn!("the kernel keeps its own limit of background requests");
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let spot = match guarded(|| self.fs.lookup(ino(parent)?, name.as_bytes())) {
            Ok(spot) => spot,
            Err(FsError::NotFound) => return reply.entry(&FOREVER, &self.nothing(), Generation(0)),
            Err(error) => {
                debug!("lookup parent={parent} name={name:?} -> {error}");
                return reply.error(errno::errno(&error));
            }
        };
        self.with_attr(spot, reply, move |reply, found| {
            answer!(
                reply,
                format_args!("lookup parent={parent} ino={}", spot.ino().0),
                found,
                |attr| {
                    reply.entry(&time_to_live(spot), &attr, Generation(0));
                }
            );
        });
    }

    fn getattr(&self, _req: &Request, number: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let spot = match guarded(|| self.fs.spot(ino(number)?)) {
            Ok(spot) => spot,
            Err(error) => return reply.error(errno::errno(&error)),
        };
        self.with_attr(spot, reply, move |reply, found| {
            answer!(reply, format_args!("getattr ino={number}"), found, |attr| {
                reply.attr(&time_to_live(spot), &attr);
            });
        });
    }

    fn readlink(&self, _req: &Request, number: INodeNo, reply: ReplyData) {
        let target = guarded(|| self.fs.read_link(ino(number)?));
        answer!(reply, format_args!("readlink ino={number}"), target, |t: Vec<u8>| reply.data(&t));
    }

    fn open(&self, _req: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let ino = match ino(number) {
            Ok(ino) => ino,
            Err(error) => return reply.error(errno::errno(&error)),
        };
        let (fs, serving) = (Arc::clone(&self.fs), self.serving);
        let (activity, passthrough) = (Arc::clone(&self.activity), Arc::clone(&self.passthrough));
        let lane = self.fs.lane_of_open(ino).map(|lane| lane.0);
        self.lanes.run(lane, reply, move |slot| {
            let opened = guarded(|| serving.open(&fs, ino));
            let Some(reply) = slot.take() else {
                return opened.into_iter().for_each(|(handle, _)| fs.release(ino, handle));
            };
            answer!(reply, format_args!("open ino={number}"), opened, |(handle, flags): (
                Handle,
                _
            )| {
                activity.open.fetch_add(1, Ordering::Relaxed);
                activity.touch();
                let reply = match fs.is_source(ino) {
                    true => passthrough.open(ino, fs.passes_through(ino), reply),
                    false => Some(reply),
                };
                if let Some(reply) = reply {
                    reply.opened(file_handle(handle, flags), flags);
                }
            });
        });
    }

    fn read(
        &self,
        _req: &Request,
        number: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        mut reply: ReplyData,
    ) {
        let Ok(ino) = ino(number) else {
            return reply.error(Errno::ENOENT);
        };
        let (handle, reader) = opened(fh);
        let asked = Asked { ino, handle, offset, size, lock_owner, reader };
        let lane = match self.fs.lane_of_read(ino, offset) {
            Some(lane) => Some(lane),
            None => match self.seats.take(reply) {
                Ok((seat, reply)) => {
                    let answer = || {
                        self.answer(Question { asked, reply });
                        Ok(())
                    };
                    // The kernel hears of a reply that was dropped.
                    guarded(answer).unwrap_or_default();
                    drop(seat);
                    return self.seats.rest();
                }
                Err(back) => {
                    reply = back;
                    self.fs.lane_of_wait(ino, offset)
                }
            },
        };
        let fs = Arc::clone(&self.fs);
        self.lanes.run(lane.map(|lane| lane.0), reply, move |slot| answer_read(&fs, asked, slot));
        self.seats.rest();
    }

    fn release(
        &self,
        _req: &Request,
        number: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Ok(ino) = ino(number) {
            self.fs.release(ino, opened(fh).0);
            self.ahead.forget(ino);
            self.passthrough.close(ino, fh);
        }
        self.activity.touch();
        self.activity.open.fetch_sub(1, Ordering::Relaxed);
        reply.ok();
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn readdir(
        &self,
        _req: &Request,
        number: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = guarded(|| {
            self.fs.list(ino(number)?, offset, &mut |next, spot, name| {
                let kind = match spot.kind() {
                    FileKind::Directory => FileType::Directory,
                    FileKind::File => FileType::RegularFile,
                    FileKind::Symlink => FileType::Symlink,
                };
                !reply.add(INodeNo(spot.ino().0.get()), next, kind, OsStr::from_bytes(name))
            })
        });
        answer!(reply, format_args!("readdir ino={number}"), listed, |()| { reply.ok() });
    }

    fn readdirplus(
        &self,
        _req: &Request,
        number: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = guarded(|| {
            self.fs.list(ino(number)?, offset, &mut |next, spot, name| {
                // Where the size is not known yet, the name alone counts: valid for no time, so
                // that whoever wants the size asks for it.
                let known =
                    self.fs.knows_size(spot).then(|| self.fs.attr(spot)).and_then(Result::ok);
                let (ttl, attr) = match known {
                    Some(attr) => (time_to_live(spot), attr),
                    None => match self.fs.attr_without_size(spot) {
                        Ok(attr) => (NOT_AT_ALL, attr),
                        Err(_) => return true,
                    },
                };
                let attr = self.owner.attr(&attr);
                !reply.add(attr.ino, next, OsStr::from_bytes(name), &ttl, &attr, Generation(0))
            })
        });
        answer!(reply, format_args!("readdirplus ino={number}"), listed, |()| reply.ok());
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    /// Python asks each file it opens whether it is a terminal.
    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    /// Left to the kernel: it does without from then on.
    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    /// As above: the whole file is data.
    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _handle: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        const BLOCK: u32 = 4096;
        let totals = self.fs.totals();
        let blocks = totals.bytes.div_ceil(BLOCK.into());
        reply.statfs(blocks, 0, 0, totals.files, 0, BLOCK, NAME_MAX as u32, BLOCK);
    }

    fn getxattr(
        &self,
        _req: &Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let value = guarded(|| self.fs.xattr(ino(number)?, name.as_bytes()));
        answer!(reply, format_args!("getxattr ino={number}"), value, |v: Vec<u8>| {
            answer_xattr(reply, size, &v);
        });
    }

    fn listxattr(&self, _req: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let list = guarded(|| self.fs.xattrs(ino(number)?));
        answer!(reply, format_args!("listxattr ino={number}"), list, |v: Vec<u8>| {
            answer_xattr(reply, size, &v);
        });
    }
}

/// xattr calls ask for the size first, with a size of 0.
fn answer_xattr(reply: ReplyXattr, size: u32, value: &[u8]) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(Errno::ERANGE);
    } else {
        reply.data(value);
    }
}
