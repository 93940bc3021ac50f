//! The only door to a source file's bytes.
//!
//! Bytes are copied out, so what a checksum saw is what is served. Must not know
//! what the bytes mean.

mod ahead;
mod brought;
mod cached;
mod direct;
mod glance;
mod identity;
mod mapping;
mod sigbus;

pub use identity::{Identity, Timestamp, timestamp};

use crate::bytes::ReadAt;
use crate::bytes::line::InLine;
use ahead::{Ahead, Pages};
use brought::Brought;
use direct::Direct;
use identity::{Baseline, Names, Verdict};
use mapping::{Mapping, Place};
use std::ffi::OsStr;
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// The mapping on local file systems, `pread` on network and FUSE ones.
    #[default]
    Auto,
    /// Always the mapping, guarded against SIGBUS.
    Mmap,
    /// Always `pread`: as fast for who reads everything once, and no page of the file is counted as
    /// memory of the process.
    Pread,
}

/// What can go wrong with a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file was truncated or modified in place since it was opened.
    #[error("{file}: changed since it was opened: {what}")]
    Changed {
        /// Which file.
        file: String,
        /// What differs, with both values.
        what: String,
    },
    /// A directory, device, pipe or socket.
    #[error("{file}: is {kind}, not a regular file")]
    NotAFile {
        /// Which file.
        file: String,
        /// What it is instead, with its article.
        kind: &'static str,
    },
    /// The operating system said no.
    #[error("{file}: {op}: {source}")]
    Io {
        /// Which file.
        file: String,
        /// What was tried, with offset and length where it was a read.
        op: String,
        /// The system's error.
        source: io::Error,
    },
}

/// By which way bytes were read: tests tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// The mapping, or `pread` where there is none.
    Usual,
    /// `pread`, for a second look.
    Reread,
    /// Past the page cache.
    Direct,
}

/// A scripted fault.
#[cfg(test)]
pub(crate) type Fault = Box<dyn Fn(Door, u64, &mut [u8]) -> io::Result<()> + Send + Sync>;

#[cfg(test)]
#[derive(Default)]
struct Faults(OnceLock<Fault>);

#[cfg(test)]
impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}

/// How often a change time that nothing explains is looked at again. A rename sets it before
/// the names move, and a busy disk can lie between the two; only a modification stays
/// unexplained. Waits double, so this is a fifth of a second, once in the life of a source.
const SECOND_LOOKS: u32 = 6;
/// The first wait between two looks.
const FIRST_WAIT: Duration = Duration::from_millis(3);

/// An open, read-only source file.
#[derive(Debug)]
pub struct Source {
    file: File,
    path: PathBuf,
    canonical: PathBuf,
    opened: Identity,
    modified: SystemTime,
    mapping: Option<Mapping>,
    /// Whether it lies on a network or FUSE file system.
    remote: bool,
    /// Beside a mapping: which pages of the kernel's cache are ours.
    brought: Brought,
    direct: Direct,
    /// Where each read is a journey.
    ahead: Option<Ahead>,
    /// Whether the kernel asks for as much at a time as we would.
    far_sighted: OnceLock<bool>,
    /// Whether what describes the file is known here: asking for it cannot hang.
    near: bool,
    /// Change time of the baseline, for a look without the lock.
    ctime: AtomicI64,
    baseline: Mutex<Baseline>,
    /// Held by the one thread that is finding out what a difference means. Apart from
    /// `baseline`, which is never held over a system call: `notes` must not wait for a
    /// source that hangs.
    judging: Mutex<()>,
    /// Set once, when the content is found to have changed.
    changed: OnceLock<String>,
    #[cfg(test)]
    faults: Faults,
}

impl Source {
    /// Opens `path` (regular files only, O_CLOEXEC) and remembers its identity.
    pub fn open(path: &Path, io: IoMode) -> Result<Source, SourceError> {
        let fail = |op: &str| {
            let (file, op) = (path.in_line().to_string(), op.to_owned());
            move |source| SourceError::Io { file, op, source }
        };
        let regular = |kind: FileType| match not_a_file(kind) {
            Some(kind) => Err(SourceError::NotAFile { file: path.in_line().to_string(), kind }),
            None => Ok(()),
        };
        // Before opening too, since opening a device can do things.
        regular(std::fs::metadata(path).map_err(fail("open"))?.file_type())?;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)
            .map_err(fail("open"))?;
        let about = file.metadata().map_err(fail("stat"))?;
        regular(about.file_type())?;
        let opened = Identity::of(&about);

        let path = std::path::absolute(path).map_err(fail("absolute path"))?;
        let canonical = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let place = mapping::place(&file);
        let remote = place == Place::Remote;
        let map = match io {
            IoMode::Pread => false,
            IoMode::Mmap => true,
            IoMode::Auto => !remote,
        };
        let mapping = match usize::try_from(opened.size) {
            Ok(len) if map && len > 0 => match Mapping::new(&file, len) {
                Ok(mapping) => Some(mapping),
                Err(_) if io == IoMode::Auto => None, // e.g. a file system without mmap
                Err(e) => return Err(fail("mmap")(e)),
            },
            _ => None,
        };
        let names = Names::look(&path, &file);
        Ok(Source {
            modified: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            ctime: AtomicI64::new(opened.ctime_nanos()),
            baseline: Mutex::new(Baseline { identity: opened, names, notes: Vec::new() }),
            judging: Mutex::new(()),
            changed: OnceLock::new(),
            #[cfg(test)]
            faults: Faults::default(),
            direct: Direct::default(),
            ahead: (remote && mapping.is_none()).then(Ahead::default),
            far_sighted: OnceLock::new(),
            near: place == Place::Local,
            file,
            path,
            canonical,
            brought: Brought::new(if mapping.is_some() { opened.size } else { 0 }),
            opened,
            mapping,
            remote,
        })
    }

    /// The path it was opened by, made absolute but with symlinks kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File name of [`Source::path`].
    pub fn file_name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(self.path.as_os_str())
    }

    /// Symlinks resolved, at open.
    pub fn canonical_path(&self) -> &Path {
        &self.canonical
    }

    /// Size at open; it never changes afterwards.
    pub fn len(&self) -> u64 {
        self.opened.size
    }

    /// Whether the file was empty at open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Modification time at open.
    pub fn mtime(&self) -> SystemTime {
        self.modified
    }

    /// Which mode `Auto` came to; [`IoMode::Pread`] as well once the mapping was lost.
    pub fn io(&self) -> IoMode {
        match &self.mapping {
            Some(mapping) if !mapping.lost() => IoMode::Mmap,
            _ => IoMode::Pread,
        }
    }

    /// Whether each read of it is a journey, to another machine or process.
    pub fn is_far(&self) -> bool {
        self.remote
    }

    /// The identity at open, with what harmless changes made of it since.
    pub fn identity(&self) -> Identity {
        self.baseline().identity
    }

    /// Copies bytes out, through the mapping or `pread`. Does not look at the identity.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        self.bounds(offset, out.len())?;
        if let Some(mapping) = &self.mapping
            && let Ok(from) = usize::try_from(offset)
        {
            self.note(mapping, offset, out.len());
            if mapping.copy(from, out) {
                return self.with_faults(Door::Usual, offset, out);
            }
        }
        let done = self.ahead.as_ref().map_or(0, |ahead| ahead.copy(offset, out));
        self.pread(offset + done as u64, &mut out[done..])?;
        self.with_faults(Door::Usual, offset, out)
    }

    /// As [`Source::read_at`], and shows the bytes to `see`, in order, while they are at hand.
    /// `Ok(false)` where they do not come from a mapping: then nothing that was shown or copied is
    /// worth anything.
    pub fn read_through(
        &self,
        offset: u64,
        out: &mut [u8],
        see: impl FnMut(&[u8]),
    ) -> Result<bool, SourceError> {
        self.bounds(offset, out.len())?;
        let (Some(mapping), Ok(from), false) =
            (&self.mapping, usize::try_from(offset), self.is_scripted())
        else {
            return Ok(false);
        };
        self.note(mapping, offset, out.len());
        Ok(mapping.copy_through(from, out, see))
    }

    /// Takes note of what the kernel holds before it is read.
    fn note(&self, mapping: &Mapping, offset: u64, len: usize) {
        let bytes = offset..offset + len as u64;
        // Inside the mapping, whose length is a usize.
        self.brought.note(&bytes, |part| {
            mapping.resident(part.start as usize, (part.end - part.start) as usize)
        });
    }

    /// Tells that `wanted` of `extent` is asked for, and that `around` will be read for it: who
    /// reads on and on from a source that is far away is read ahead of. False when something that
    /// was to be had for it by now could not be read. (Of one that is near, the kernel reads ahead
    /// by itself, in large folios; MADV_WILLNEED makes small ones, and is several times slower.)
    pub fn announce(&self, wanted: Range<u64>, around: Range<u64>, extent: Range<u64>) -> bool {
        self.ahead.as_ref().is_none_or(|ahead| {
            ahead.announce(wanted, around, extent, &|at, len| self.fetch(at, len))
        })
    }

    /// Whole pages for a window; `None` when they cannot be had, all of them.
    fn fetch(&self, at: u64, len: usize) -> Option<Pages> {
        let left = usize::try_from(self.len().checked_sub(at)?).unwrap_or(usize::MAX);
        let bytes = len.min(left);
        // The last request of a file is as large as the others: it costs nothing.
        let last = left <= len;
        let room = if last { len.next_multiple_of(ahead::SMALL as usize) } else { len };
        let mut pages = Pages::new(room.next_multiple_of(ahead::PAGE as usize));
        let far_sighted = *self.far_sighted.get_or_init(|| mapping::reads_far(&self.file));
        let got = match far_sighted {
            false => self.direct.fill(&self.file, at, pages.bytes_mut()).ok()?,
            true => None,
        };
        match got {
            Some(got) if got >= bytes => {}
            // It is no longer as long as it was: who reads there finds out.
            Some(_) => return None,
            None => self.pread(at, &mut pages.bytes_mut()[..bytes]).ok()?,
        }
        pages.cut(bytes);
        Some(pages)
    }

    /// As `read_at` but always by `pread`, past the mapping: for a second look.
    pub fn reread_at(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        self.bounds(offset, out.len())?;
        self.pread(offset, out)?;
        self.with_faults(Door::Reread, offset, out)
    }

    /// As `reread_at` but past the page cache as well, from the device. `Ok(false)`, and
    /// nothing promised about `out`, where the file system cannot do that.
    pub fn reread_direct(&self, offset: u64, out: &mut [u8]) -> Result<bool, SourceError> {
        self.bounds(offset, out.len())?;
        let done = self
            .direct
            .read_at(&self.file, offset, out)
            .map_err(|e| self.read_failed("direct read", offset, out.len(), e))?;
        if done {
            self.with_faults(Door::Direct, offset, out)?;
        }
        Ok(done)
    }

    /// Whether reads past the page cache are known to work: what they say can be believed.
    pub fn reads_direct(&self) -> bool {
        self.direct.is_proved()
    }

    /// What the tests' faults make of a read that went well.
    #[cfg(test)]
    fn with_faults(&self, door: Door, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let Some(fault) = self.faults.0.get() else { return Ok(()) };
        fault(door, offset, out).map_err(|e| self.read_failed("read", offset, out.len(), e))
    }

    #[cfg(not(test))]
    #[inline]
    fn with_faults(&self, _: Door, _: u64, _: &mut [u8]) -> Result<(), SourceError> {
        Ok(())
    }

    #[cfg(test)]
    fn is_scripted(&self) -> bool {
        self.faults.0.get().is_some()
    }

    #[cfg(not(test))]
    #[inline]
    fn is_scripted(&self) -> bool {
        false
    }

    /// From now on `fault` sees every read that went well, and may change its bytes, fail it or
    /// take its time.
    #[cfg(test)]
    pub(crate) fn set_fault(&self, fault: Fault) {
        assert!(self.faults.0.set(fault).is_ok(), "one fault a source");
    }

    /// `bytes` were read for somebody who keeps them in memory: the kernel, in the page cache of
    /// the mount. What our own reading brought into its cache of the source is given back, but for
    /// the `held` bytes at each end, which who reads on may need again.
    pub fn pass_on(&self, bytes: &Range<u64>, held: u64) {
        if self.mapping.is_some()
            && let Some(gone) = self.brought.pass_on(bytes, held)
        {
            self.evict(gone.start, gone.end - gone.start);
        }
    }

    /// Whether the open file was modified in place: compares fstat with the identity at open.
    /// Renames, unlinks, chmods and links are noted, not errors. Sticky once it failed.
    /// One fstat and no lock while nothing happened.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        if let Some(what) = self.changed.get() {
            return Err(self.changed_error(what));
        }
        let now = self.stat()?;
        if now.size == self.opened.size
            && now.mtime == self.opened.mtime
            && now.ctime_nanos() == self.ctime.load(Ordering::Acquire)
        {
            return Ok(());
        }
        self.judge()
    }

    /// Whether the content is known to have changed. No system call.
    pub fn is_changed(&self) -> bool {
        self.changed.get().is_some()
    }

    /// What changed, if the content is known to have changed. No system call.
    pub fn changed(&self) -> Option<&str> {
        self.changed.get().map(String::as_str)
    }

    /// Whether `check_unchanged` ever noted a harmless change (renamed, unlinked, ...), in words.
    pub fn notes(&self) -> Vec<String> {
        self.baseline().notes.clone()
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Something about the file differs: find out what, one thread at a time.
    fn judge(&self) -> Result<(), SourceError> {
        let _alone = self.judging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looks = 0;
        loop {
            if let Some(what) = self.changed() {
                return Err(self.changed_error(what));
            }
            let now = self.stat()?;
            let names = Names::look(&self.path, &self.file);
            let mut baseline = self.baseline();
            match baseline.judge(&now, &names) {
                Verdict::Same => return Ok(()),
                Verdict::Harmless(what) => {
                    let room = NOTES.saturating_sub(baseline.notes.len());
                    let new: Vec<_> = what
                        .into_iter()
                        .filter(|w| !baseline.notes.contains(w))
                        .take(room)
                        .collect();
                    baseline.notes.extend(new.iter().cloned());
                    baseline.identity = now;
                    baseline.names = names;
                    self.ctime.store(now.ctime_nanos(), Ordering::Release);
                    drop(baseline);
                    for what in new {
                        log::warn!("{}: {what}; still served", self.path.in_line());
                    }
                    return Ok(());
                }
                Verdict::Unexplained if looks < SECOND_LOOKS => {
                    drop(baseline);
                    std::thread::sleep(FIRST_WAIT * 2u32.pow(looks));
                    looks += 1;
                }
                Verdict::Unexplained => {
                    let old = baseline.identity.ctime;
                    drop(baseline);
                    return Err(self.latch(format!(
                        "change time was {}, is {}, and no link, mode, owner or name explains it",
                        timestamp(old),
                        timestamp(now.ctime)
                    )));
                }
                Verdict::Changed(what) => {
                    drop(baseline);
                    return Err(self.latch(what));
                }
            }
        }
    }

    fn latch(&self, what: String) -> SourceError {
        if self.changed.set(what).is_ok()
            && let Some(what) = self.changed.get()
        {
            log::error!("{}: changed since it was opened: {what}", self.path.in_line());
        }
        self.changed_error(self.changed.get().map_or("", String::as_str))
    }

    fn changed_error(&self, what: &str) -> SourceError {
        SourceError::Changed { file: self.path.in_line().to_string(), what: what.to_owned() }
    }

    fn stat(&self) -> Result<Identity, SourceError> {
        Identity::now(&self.file).map_err(|source| SourceError::Io {
            file: self.path.in_line().to_string(),
            op: "stat".to_owned(),
            source,
        })
    }

    fn baseline(&self) -> MutexGuard<'_, Baseline> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bounds(&self, offset: u64, len: usize) -> Result<(), SourceError> {
        if offset.checked_add(len as u64).is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        let past = io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("past the end, the file has {} bytes", self.len()),
        );
        Err(self.read_failed("read", offset, len, past))
    }

    fn pread(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let mut done = 0;
        while done < out.len() {
            match self.file.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => {
                    // Inside the size at open, so the file has shrunk, or its server lies.
                    self.check_unchanged()?;
                    let short = io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends early");
                    return Err(self.read_failed("read", offset, out.len(), short));
                }
                Ok(got) => done += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.read_failed("read", offset, out.len(), e)),
            }
        }
        Ok(())
    }

    fn read_failed(&self, verb: &str, offset: u64, len: usize, source: io::Error) -> SourceError {
        SourceError::Io {
            file: self.path.in_line().to_string(),
            op: format!("{verb} of {len} bytes at {offset}"),
            source,
        }
    }
}

/// Notes kept per source; somebody may chmod it for ever.
const NOTES: usize = 32;

/// What a file is that is not a regular one.
fn not_a_file(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a directory")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else if kind.is_block_device() {
        Some("a block device")
    } else {
        Some("a character device")
    }
}

impl ReadAt for Source {
    fn len(&self) -> u64 {
        Source::len(self)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Source::read_at(self, offset, out).map_err(io::Error::other)
    }
}

#[cfg(test)]
#[path = "source/tests.rs"]
mod tests;
