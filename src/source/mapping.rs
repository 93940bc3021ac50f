//! The mapping of a source file, and what the system says about mapping it.
//!
//! Bytes are copied out under the guard of [`super::sigbus`]; no reference into the
//! mapping leaves this file, since another process may write to it at any time.
#![allow(unsafe_code)]

use super::sigbus::Slot;
use memmap2::{Mmap, MmapOptions};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// A read-only shared mapping of a whole file.
#[derive(Debug)]
pub(super) struct Mapping {
    // Before `map`, since fields drop in order: an address range must leave the guard's
    // table before somebody else can get it.
    slot: Slot,
    map: Mmap,
}

impl Mapping {
    /// Maps the first `len` bytes of `file`; `len` is not 0.
    pub(super) fn new(file: &File, len: usize) -> io::Result<Mapping> {
        // SAFETY: the mapping is only ever read by `copy`, through raw pointers, and never
        // seen as a slice: changes made by other processes cannot break a reference.
        let map = unsafe { MmapOptions::new().len(len).map(file)? };
        let slot = Slot::take(map.as_ptr() as usize, len)?;
        Ok(Mapping { slot, map })
    }

    /// Whether a page could not be had.
    pub(super) fn lost(&self) -> bool {
        self.slot.lost()
    }

    /// As if a page could not be had, whenever that is called.
    #[cfg(test)]
    pub(super) fn loser(&self) -> impl Fn() + Send + Sync + 'static + use<> {
        self.slot.loser()
    }

    /// Copies from `offset` on into `out`. False when a page could not be had, now or
    /// before: then `out` holds nothing of worth, and never will.
    pub(super) fn copy(&self, offset: usize, out: &mut [u8]) -> bool {
        let inside = offset.checked_add(out.len()).is_some_and(|end| end <= self.map.len());
        if !inside || self.slot.lost() {
            return false;
        }
        let mut from = self.map.as_ptr().wrapping_add(offset);
        let step = step(from, out);
        for out in out.chunks_mut(step) {
            // SAFETY: the source range lies inside the mapping (checked above), `out` is a live
            // exclusive slice that cannot overlap it. The mapped bytes may change meanwhile;
            // memcpy does not mind and nobody assumes they hold still. A page that is gone
            // raises SIGBUS, which the guard turns into zeros and the mark checked below.
            unsafe { libc::memcpy(out.as_mut_ptr().cast(), from.cast(), out.len()) };
            from = from.wrapping_add(out.len());
        }
        !self.slot.lost()
    }
}

/// Bytes that are copied and shown at a time.
const PIECE: usize = 1 << 10;
/// So far ahead of the copy the processor is told what comes.
const AHEAD: usize = 8 << 10;
/// Bytes of a line of its caches.
const LINE: usize = 64;

impl Mapping {
    /// As [`Mapping::copy`], and shows each piece of the copy while it is in the nearest cache. What
    /// is done with it costs little more than time that the processor waits for memory otherwise: what comes next
    /// is on its way meanwhile. To sum 1 MiB so takes 85 us, after the copy 115, not at all 75.
    pub(super) fn copy_through(
        &self,
        offset: usize,
        out: &mut [u8],
        mut see: impl FnMut(&[u8]),
    ) -> bool {
        let inside = offset.checked_add(out.len()).is_some_and(|end| end <= self.map.len());
        if !inside || self.slot.lost() {
            return false;
        }
        let from = self.map.as_ptr().wrapping_add(offset);
        let len = out.len();
        for (number, out) in out.chunks_mut(PIECE).enumerate() {
            let from = from.wrapping_add(number * PIECE);
            // SAFETY: as in `copy`.
            unsafe { libc::memcpy(out.as_mut_ptr().cast(), from.cast(), out.len()) };
            let next = number * PIECE + AHEAD;
            for line in (next..len.min(next + PIECE)).step_by(LINE) {
                prefetch(from.wrapping_add(AHEAD + line - next));
            }
            see(out);
        }
        !self.slot.lost()
    }
}

/// Has the processor fetch the line at `address` into its caches. A hint: an address that cannot be
/// read does no harm.
#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86_64 has SSE, and a prefetch never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// How much to copy at a time. A string instruction that meets page after page that is not mapped
/// yet begins anew at each, and one whose target lies a few bytes behind its source, counted
/// within a page, takes ten times as long on AMD processors with FSRM: short copies use vectors.
fn step(from: *const u8, out: &[u8]) -> usize {
    const PAGE: usize = 4096;
    let behind = (out.as_ptr() as usize).wrapping_sub(from as usize) % PAGE;
    if (1..64).contains(&behind) { 1024 } else { 64 << 10 }
}

impl Mapping {
    /// How many pages of these bytes the kernel holds, and how many they are. `None` where it does
    /// not say. Of a file that the process neither owns nor may write, it says that it holds all.
    pub(super) fn resident(&self, offset: usize, len: usize) -> Option<(usize, usize)> {
        const PAGE: usize = 4096;
        let from = offset / PAGE * PAGE;
        let end = offset.checked_add(len).filter(|&end| end <= self.map.len())?;
        let mut pages = vec![0u8; (end - from).div_ceil(PAGE)];
        // SAFETY: the range begins on a page and lies inside the mapping; `pages` has a byte for
        // each of its pages. Where pages are larger, fewer are written.
        let done = unsafe {
            let start = self.map.as_ptr().add(from).cast_mut().cast();
            libc::mincore(start, end - from, pages.as_mut_ptr()) == 0
        };
        done.then(|| (pages.iter().filter(|&&page| page & 1 == 1).count(), pages.len()))
    }

    /// Lets go of the pages that hold these bytes, so that the kernel may drop them from its
    /// cache. Nothing is lost: the next copy brings them back.
    pub(super) fn let_go(&self, offset: usize, len: usize) {
        const PAGE: usize = 4096;
        let from = offset / PAGE * PAGE;
        let Some(end) = offset.checked_add(len).filter(|&end| end <= self.map.len()) else {
            return;
        };
        // SAFETY: the range lies inside the mapping, which is shared, read-only and backed by a
        // file: MADV_DONTNEED only drops page table entries, the pages are read again when
        // touched. Other threads that copy meanwhile fault them in anew.
        unsafe {
            let start = self.map.as_ptr().add(from).cast_mut().cast();
            libc::madvise(start, end - from, libc::MADV_DONTNEED);
        }
    }
}

/// Asks the kernel to drop its cached pages of these bytes of `file`.
pub(super) fn drop_cached(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (libc::off_t::try_from(offset), libc::off_t::try_from(len)) else {
        return;
    };
    // SAFETY: plain numbers and a live descriptor; it is advice, and its refusal no matter.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), offset, len, libc::POSIX_FADV_DONTNEED);
    }
}

/// File systems whose bytes come from another machine or process: a missing page
/// there is a matter of seconds, and a mapping faults page by page.
/// Numbers from Linux `uapi/linux/magic.h` and the projects' own headers.
const REMOTE: &[u32] = &[
    0x6573_5546, // FUSE, virtiofs
    0x0000_6969, // NFS
    0x0000_517B, // SMB
    0xFF53_4D42, // CIFS
    0xFE53_4D42, // SMB2
    0x0102_1997, // 9P
    0x00C3_6400, // Ceph
    0x5346_414F, // AFS (OpenAFS)
    0x6B41_4653, // AFS (kernel)
    0x7375_7245, // Coda
    0x0000_564C, // NCP
    0x0BD0_0BD0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x2003_0528, // OrangeFS
    0x786F_4256, // VirtualBox shared folder
    0xBACB_ACBC, // VMware shared folder
    0x7461_636F, // OCFS2
    0x0116_1970, // GFS2
    0x6163_6673, // ACFS
    0xAAD7_AAEA, // PanFS
];

/// Those that lie on others and ask them, which may be any of the above.
const STACKED: &[u32] = &[
    0x794C_7630, // overlayfs
    0x0000_F15F, // eCryptfs
    0x6175_6673, // aufs
];

/// Where a file's bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This machine.
    Local,
    /// A file system that lies on another one.
    Stacked,
    /// Another machine or process.
    Remote,
}

/// Where `file` lies.
pub(super) fn place(file: &File) -> Place {
    // SAFETY: statfs is a C struct for which all zeros is valid; fstatfs gets a live
    // descriptor and a pointer to it.
    let kind = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut about) != 0 {
            return Place::Remote; // unknown: the careful way
        }
        about.f_type
    };
    // The field's width and sign differ between architectures; the numbers have 32 bits.
    match kind as u32 {
        kind if REMOTE.contains(&kind) => Place::Remote,
        kind if STACKED.contains(&kind) => Place::Stacked,
        _ => Place::Local,
    }
}

/// What a request of the kernel has to be to be called large, in KiB.
const LARGE_KIB: u64 = 1024;

/// Whether the kernel reads the file system of `file` in large pieces, as somebody has told it
/// to: then its page cache is as good a way as any, and keeps what it read.
pub(super) fn reads_far(file: &File) -> bool {
    let Ok(about) = file.metadata() else { return false };
    let (major, minor) = (libc::major(about.dev()), libc::minor(about.dev()));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    std::fs::read_to_string(setting)
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .is_some_and(|kib| kib >= LARGE_KIB)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn copies_what_is_there() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let map = Mapping::new(&file_of(&bytes), bytes.len()).unwrap();
        let mut out = vec![0; 5000];
        assert!(map.copy(4999, &mut out));
        assert_eq!(out, bytes[4999..9999]);
        assert!(!map.copy(5001, &mut out), "one byte past the end");
        assert!(!map.copy(usize::MAX, &mut out));
    }

    #[test]
    fn what_is_seen_is_what_is_copied() {
        let bytes: Vec<u8> = (0..40_000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let map = Mapping::new(&file_of(&bytes), bytes.len()).unwrap();
        for (offset, len) in [(0, 40_000), (1, 39_999), (17, 1), (39_999, 1), (5, 0), (100, 9000)] {
            let (mut out, mut seen) = (vec![0; len], Vec::new());
            assert!(map.copy_through(offset, &mut out, |piece| seen.extend_from_slice(piece)));
            assert_eq!(out, bytes[offset..offset + len]);
            assert_eq!(seen, out);
        }
        assert!(!map.copy_through(1, &mut [0; 40_000], |_| panic!("one byte past the end")));
    }

    #[test]
    fn a_lost_page_is_told_and_stays_told() {
        let file = file_of(&[7; 16384]);
        let map = Mapping::new(&file, 16384).unwrap();
        let mut out = [0; 100];
        assert!(map.copy(12_000, &mut out));
        file.set_len(4096).unwrap();
        assert!(!map.copy(12_000, &mut out));
        assert!(!map.copy_through(0, &mut out, |_| panic!("nothing of it is worth a look")));
        file.set_len(16384).unwrap();
        assert!(!map.copy(12_000, &mut out), "a patched page must never be served");
        assert!(!map.copy(0, &mut out), "nor anything else of this mapping");
    }

    #[test]
    fn losing_one_mapping_leaves_the_others() {
        let a = file_of(&[1; 8192]);
        let b = file_of(&[2; 8192]);
        let (map_a, map_b) = (Mapping::new(&a, 8192).unwrap(), Mapping::new(&b, 8192).unwrap());
        a.set_len(0).unwrap();
        let mut out = [0; 8192];
        assert!(!map_a.copy_through(0, &mut out, |_| {}));
        assert!(map_b.copy(0, &mut out));
        assert_eq!(out, [2; 8192]);
    }
}
