//! A place in a file that moves forward: numbers in the file's encoding, lengths, skips.
//!
//! Bytes come through a window that is refilled as the place moves. A skip costs nothing
//! until something behind it is read, and then only what is needed: the window starts small
//! after a jump and grows while reading goes on in sequence. Must not know GGUF.

use super::limits::{OverLimit, within};
use crate::bytes::ReadAt;
use crate::model::{ByteOrder, Encoding};
use std::io;

/// The window after a jump: a page.
const SMALLEST: usize = 4 << 10;
/// What a jump costs: page faults and reads of the disk come in pieces of about this size.
const JUMP: u64 = 64 << 10;
/// The window in sequence: fits the second-level cache, and makes refills rare.
const LARGEST: usize = 64 << 10;

/// Why a read failed. Whoever reads adds what was being read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("needs {need} bytes at byte {offset}, but the file ends after {left}")]
    PastEnd { offset: u64, need: u64, left: u64 },
    #[error("cannot be read at byte {offset}: {source}")]
    Io { offset: u64, source: io::Error },
    #[error(transparent)]
    Limit(#[from] OverLimit),
}

pub(crate) struct Cursor<'a> {
    file: &'a dyn ReadAt,
    end: u64,
    encoding: Encoding,
    position: u64,
    window: Vec<u8>,
    window_at: u64,
    charged: u64,
    may_charge: u64,
}

impl<'a> Cursor<'a> {
    /// Starts at `position`; nothing at or after `end` exists for this cursor. At most
    /// `may_charge` bytes are read from the file in all; a jump counts as 64 KiB.
    pub(crate) fn new(
        file: &'a dyn ReadAt,
        position: u64,
        end: u64,
        encoding: Encoding,
        may_charge: u64,
    ) -> Cursor<'a> {
        let end = end.min(file.len());
        Cursor {
            file,
            end,
            encoding,
            position: position.min(end),
            window: Vec::new(),
            window_at: position.min(end),
            charged: 0,
            may_charge,
        }
    }

    pub(crate) fn file(&self) -> &'a dyn ReadAt {
        self.file
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes from here to the end.
    pub(crate) fn left(&self) -> u64 {
        self.end.saturating_sub(self.position)
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub(crate) fn set_encoding(&mut self, encoding: Encoding) {
        self.encoding = encoding;
    }

    /// Moves `bytes` forward without reading them.
    #[inline]
    pub(crate) fn skip(&mut self, bytes: u64) -> Result<(), ReadError> {
        self.need(bytes)?;
        self.position = self.position.saturating_add(bytes);
        Ok(())
    }

    #[inline]
    fn need(&self, bytes: u64) -> Result<(), ReadError> {
        let left = self.left();
        if bytes > left {
            return Err(ReadError::PastEnd { offset: self.position, need: bytes, left });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        if let Some(found) = self.peek::<N>() {
            self.position = self.position.saturating_add(N as u64);
            return Ok(found);
        }
        self.need(N as u64)?;
        self.refill()?;
        let found = self.peek::<N>().expect("the window was filled from here on");
        self.position = self.position.saturating_add(N as u64);
        Ok(found)
    }

    #[inline]
    fn peek<const N: usize>(&self) -> Option<[u8; N]> {
        let from = usize::try_from(self.position.checked_sub(self.window_at)?).ok()?;
        self.window.get(from..)?.first_chunk::<N>().copied()
    }

    /// Fills the window from the position on, up to the end of the file.
    #[cold]
    fn refill(&mut self) -> Result<(), ReadError> {
        let window_end = self.window_at.saturating_add(self.window.len() as u64);
        let near = window_end.saturating_add(SMALLEST as u64);
        let (size, jump) = match self.window.len() {
            0 => (SMALLEST, 0),
            len if self.position <= near => {
                let larger = len.saturating_mul(2).clamp(SMALLEST, LARGEST);
                (larger, 0)
            }
            _ => (SMALLEST, JUMP),
        };
        let size = size.min(usize::try_from(self.left()).unwrap_or(usize::MAX));
        self.charge(jump.max(size as u64))?;
        self.window.resize(size, 0);
        self.window_at = self.position;
        self.file.read_at(self.position, &mut self.window).map_err(|source| {
            self.window.clear();
            ReadError::Io { offset: self.position, source }
        })
    }

    fn charge(&mut self, bytes: u64) -> Result<(), ReadError> {
        self.charged = self.charged.saturating_add(bytes);
        Ok(within("bytes of header to read", self.charged, self.may_charge)?)
    }

    /// Copies `len` bytes out; the caller has bounded `len`.
    pub(crate) fn bytes_into(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), ReadError> {
        self.need(len)?;
        let len_here = usize::try_from(len).expect("bounded by the caller");
        out.clear();
        let from = self.position.checked_sub(self.window_at).and_then(|n| usize::try_from(n).ok());
        let held = from
            .and_then(|from| Some(from..from.checked_add(len_here)?))
            .and_then(|range| self.window.get(range));
        if let Some(held) = held {
            out.extend_from_slice(held);
        } else if len_here < SMALLEST {
            self.refill()?;
            out.extend_from_slice(self.window.get(..len_here).unwrap_or_default());
        } else {
            self.charge(len)?;
            out.resize(len_here, 0);
            self.file
                .read_at(self.position, out)
                .map_err(|source| ReadError::Io { offset: self.position, source })?;
        }
        self.position = self.position.saturating_add(len);
        Ok(())
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, ReadError> {
        let bytes = self.array()?;
        Ok(match self.encoding.order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        })
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, ReadError> {
        let bytes = self.array()?;
        Ok(match self.encoding.order {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        })
    }

    /// A length, count or dimension: u64, or u32 in the narrow encoding.
    #[inline]
    pub(crate) fn size(&mut self) -> Result<u64, ReadError> {
        if self.encoding.wide { self.u64() } else { self.u32().map(u64::from) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const LITTLE: Encoding = Encoding { order: ByteOrder::Little, wide: true };

    /// A file that is its own offsets, without bytes in memory, and notes what is read.
    struct Counting {
        len: u64,
        reads: RefCell<Vec<(u64, usize)>>,
    }

    impl ReadAt for Counting {
        fn len(&self) -> u64 {
            self.len
        }
        fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            assert!(offset + out.len() as u64 <= self.len);
            self.reads.borrow_mut().push((offset, out.len()));
            for (at, byte) in (offset..).zip(out.iter_mut()) {
                *byte = (at / 8).to_le_bytes()[(at % 8) as usize];
            }
            Ok(())
        }
    }

    #[test]
    fn numbers_follow_the_encoding() {
        let bytes: Vec<u8> = (1..=40).collect();
        let mut c = Cursor::new(&bytes, 0, 40, LITTLE, 1 << 20);
        assert_eq!(c.u32().unwrap(), 0x0403_0201);
        assert_eq!(c.size().unwrap(), 0x0c0b_0a09_0807_0605);
        c.set_encoding(Encoding { order: ByteOrder::Big, wide: false });
        assert_eq!(c.size().unwrap(), 0x0d0e_0f10);
        assert_eq!(c.u64().unwrap(), 0x1112_1314_1516_1718);
        assert_eq!(c.array::<2>().unwrap(), [0x19, 0x1a]);
        assert_eq!((c.position(), c.left()), (26, 14));
    }

    #[test]
    fn the_end_is_an_error_that_counts() {
        let bytes = vec![0u8; 10];
        let mut c = Cursor::new(&bytes, 0, 10, LITTLE, 1 << 20);
        c.skip(6).unwrap();
        let e = c.u64().unwrap_err().to_string();
        assert_eq!(e, "needs 8 bytes at byte 6, but the file ends after 4");
        assert!(c.skip(u64::MAX).is_err());
        assert_eq!(c.position(), 6);
        assert!(c.bytes_into(u64::MAX, &mut Vec::new()).is_err());
        c.skip(4).unwrap();
        assert!(c.array::<1>().is_err());
        assert_eq!(c.array::<0>().unwrap(), [0u8; 0]);
    }

    #[test]
    fn skips_read_nothing_and_sequences_read_in_large_pieces() {
        let file = Counting { len: 1 << 40, reads: RefCell::default() };
        let mut c = Cursor::new(&file, 0, u64::MAX, LITTLE, 1 << 30);
        c.skip(8 << 30).unwrap();
        assert_eq!(c.u64().unwrap(), 1 << 30);
        for i in 1..100_000u64 {
            assert_eq!(c.u64().unwrap(), (1 << 30) + i);
        }
        let reads = file.reads.borrow();
        assert!(reads.len() < 20, "{}", reads.len());
        assert_eq!(reads[0], (8 << 30, SMALLEST));
        assert!(reads.iter().map(|r| r.1).sum::<usize>() < 800_000 + 2 * LARGEST);
    }

    #[test]
    fn jumps_cost_a_page_each_and_are_counted() {
        let file = Counting { len: 1 << 40, reads: RefCell::default() };
        let mut c = Cursor::new(&file, 0, 1 << 40, LITTLE, 100 * JUMP);
        let mut n = 0;
        let e = loop {
            match c.u64() {
                Ok(_) => c.skip(1 << 20).unwrap(),
                Err(e) => break e.to_string(),
            }
            n += 1;
        };
        assert_eq!(n, 100);
        assert_eq!(e, "bytes of header to read: 6557696 is over the limit of 6553600");
    }

    #[test]
    fn bytes_come_whole_across_the_window() {
        let file = Counting { len: 1 << 20, reads: RefCell::default() };
        for (start, len) in [(0, 1), (4090, 20), (5, 4096), (8, 300_000), (100, 0)] {
            let mut c = Cursor::new(&file, 0, 1 << 20, LITTLE, 1 << 30);
            c.u32().unwrap();
            c.skip(start).unwrap();
            let mut got = vec![7; 3];
            c.bytes_into(len, &mut got).unwrap();
            let mut want = vec![0; len as usize];
            file.read_at(4 + start, &mut want).unwrap();
            assert_eq!(got, want);
            assert_eq!(c.position(), 4 + start + len);
        }
    }
}
