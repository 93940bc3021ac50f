//! Reads past the page cache, for a second opinion about bytes that look wrong.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Offsets, lengths and addresses are multiples of this: the logical block of every
/// device in use is this or a divisor of it.
const ALIGN: usize = 4096;
/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// A second, O_DIRECT descriptor of a file, opened at the first need.
#[derive(Debug, Default)]
pub(super) struct Direct {
    file: OnceLock<Option<File>>,
    /// Whether a read succeeded.
    proved: AtomicBool,
}

impl Direct {
    /// Whether a direct read has ever succeeded: one that fails tells something about the file.
    pub(super) fn is_proved(&self) -> bool {
        self.proved.load(Ordering::Relaxed)
    }

    /// Fills `out` from `offset` of `file`, from the device. `Ok(false)` when the file
    /// system has no direct reads (or gives fewer bytes than asked for).
    pub(super) fn read_at(&self, file: &File, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        let Some(direct) = self.file.get_or_init(|| reopen(file)) else {
            return Ok(false);
        };
        let mut room = vec![0u8; STEP + 2 * ALIGN];
        let skip = room.as_ptr().align_offset(ALIGN);
        let Some(aligned) = room.get_mut(skip..) else {
            return Ok(false);
        };
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let from = at - at % ALIGN as u64;
            let lead = (at - from) as usize;
            let want = (out.len() - done).min(STEP - lead);
            let length = (lead + want).next_multiple_of(ALIGN);
            let got = match direct.read_at(&mut aligned[..length], from) {
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(false),
                Err(e) => return Err(e),
            };
            if got < lead + want {
                return Ok(false);
            }
            out[done..done + want].copy_from_slice(&aligned[lead..lead + want]);
            done += want;
        }
        self.proved.store(true, Ordering::Relaxed);
        Ok(true)
    }
}

impl Direct {
    /// Fills `pages`, aligned as direct reads need it, from `offset` of `file`, a multiple of a
    /// page; returns how many bytes there were. `Ok(None)` when the file system has no direct
    /// reads.
    pub(super) fn fill(
        &self,
        file: &File,
        offset: u64,
        pages: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let Some(direct) = self.file.get_or_init(|| reopen(file)) else {
            return Ok(None);
        };
        let mut done = 0;
        while done < pages.len() {
            match direct.read_at(&mut pages[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) && done == 0 => return Ok(None),
                Err(e) => return Err(e),
            }
            if !done.is_multiple_of(ALIGN) {
                break; // the end of the file
            }
        }
        self.proved.store(true, Ordering::Relaxed);
        Ok(Some(done))
    }
}

/// The same open file again, whatever its path leads to by now.
fn reopen(file: &File) -> Option<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn any_range_equals_the_slice_where_direct_reads_exist() {
        let bytes: Vec<u8> =
            (0..3_000_017u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let direct = Direct::default();
        for (offset, len) in [(0, 1), (1, 4096), (4095, 2), (100, 2_999_000), (3_000_016, 1)] {
            let mut out = vec![0; len];
            if direct.read_at(&file, offset as u64, &mut out).unwrap() {
                assert_eq!(out, bytes[offset..offset + len], "{offset}+{len}");
            }
        }
        assert!(!direct.read_at(&file, 3_000_010, &mut [0; 8]).unwrap(), "past the end");
    }
}
