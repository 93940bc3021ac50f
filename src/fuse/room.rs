//! Memory for answers.
//!
//! The kernel copies an answer page by page, from our pages to the reader's, and finds each of ours
//! anew. An answer begins where in its page the reader's buffer does, so that none of its pages
//! goes to two of the reader's; and a large one lies in a huge page, where the kernel has any,
//! which makes finding cheap. Both together are a fifth of the time of a large read; for a buffer
//! that begins 16 bytes behind a page, as those of malloc do, on some AMD processors half of it.

use memmap2::{Advice, MmapMut, MmapOptions};

/// The kernel's pages.
const PAGE: usize = 4096;
/// Its huge pages, on the processors that matter. Elsewhere this is only an alignment.
const HUGE: usize = 2 << 20;
/// The largest question, but for kernels that were told otherwise: this, or less by what lies in
/// front of the reader's buffer in its first page.
const LARGEST: usize = 1 << 20;
/// From this size on, an answer is worth a huge page.
const LARGE: usize = 256 << 10;

/// Some bytes that begin on a page.
#[derive(Debug, Default)]
pub(super) struct Room {
    memory: Memory,
    /// Where the first page begins.
    page: usize,
    /// Where in it the bytes do.
    phase: usize,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Small(Vec<u8>),
    Large(MmapMut),
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Small(Vec::new())
    }
}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Memory::Small(bytes) => bytes,
            Memory::Large(bytes) => bytes,
        }
    }

    fn large(len: usize) -> Option<Memory> {
        let map = MmapOptions::new().len(len + HUGE).map_anon().ok()?;
        // Advice; without it the pages are small ones.
        let _ = map.advise(Advice::HugePage);
        Some(Memory::Large(map))
    }
}

/// Where in its page an answer of `len` bytes is best begun: where the reader's buffer does. That
/// is on a page, but when the largest question is a little shorter than the pages it may fill.
fn phase(len: usize) -> usize {
    if (LARGEST - PAGE + 1..LARGEST).contains(&len) { LARGEST - len } else { 0 }
}

impl Room {
    /// Makes room for `len` bytes, in the same memory if it is large enough. What they are is
    /// not said.
    pub(super) fn resize(&mut self, len: usize) {
        self.phase = phase(len);
        if self.memory.bytes().len() < self.page + self.phase + len {
            // Nothing of the old is needed, and both would be twice the memory.
            self.memory = Memory::default();
            let room = len + PAGE;
            let large =
                if len >= LARGE { Memory::large(room.next_multiple_of(HUGE)) } else { None };
            let align = if large.is_some() { HUGE } else { PAGE };
            self.memory = large.unwrap_or_else(|| Memory::Small(vec![0; room + PAGE]));
            self.page = self.memory.bytes().as_ptr().align_offset(align).min(align);
        }
        self.len = len;
    }

    /// The bytes, to be filled.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.page + self.phase;
        &mut self.memory.bytes()[start..start + self.len]
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        let all: &[u8] = match &self.memory {
            Memory::Small(bytes) => bytes,
            Memory::Large(bytes) => bytes,
        };
        let start = self.page + self.phase;
        &all[start..start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_begins_on_a_page_and_keeps_its_bytes() {
        let mut room = Room::default();
        for len in [
            1,
            4096,
            100_000,
            LARGE - 1,
            LARGE,
            1 << 20,
            (1 << 20) - 16,
            5 << 20,
            (1 << 20) - 16,
            3,
        ] {
            room.resize(len);
            assert_eq!(room.bytes_mut().len(), len);
            room.bytes_mut().fill(7);
            assert!(room.bytes().iter().all(|&byte| byte == 7));
            let phase = if len == (1 << 20) - 16 { 16 } else { 0 };
            assert_eq!(room.bytes().as_ptr() as usize % PAGE, phase, "{len}");
        }
    }

    #[test]
    fn what_is_large_enough_is_kept() {
        let mut room = Room::default();
        room.resize(1 << 20);
        let at = room.bytes().as_ptr();
        for len in [4096, 100, 2 << 20, 1 << 20] {
            room.resize(len);
            assert_eq!(room.bytes().as_ptr(), at);
        }
    }
}
