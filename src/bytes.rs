//! Random access to bytes, without saying where they lie; bytes as hexadecimal digits, or as a
//! piece of a line for people; and the checksums of runs of them.
//!
//! The formats read through [`ReadAt`]; a file, a checked store and a slice in a
//! test all offer it. Must not know files, formats or checks.

use std::io;

pub mod crc;
pub mod hex;
pub mod line;

/// Bytes that can be copied out from any place.
pub trait ReadAt {
    /// Total number of bytes.
    fn len(&self) -> u64;

    /// Fills `out` from `offset` on. Fails without a promise about `out` when the
    /// range is not wholly inside, or the bytes cannot be had.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let range = usize::try_from(offset)
            .ok()
            .and_then(|from| Some(from..from.checked_add(out.len())?))
            .and_then(|range| self.get(range));
        match range {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, out)
    }
}

/// Reads `len` bytes at `offset` into a new vector; the caller has bounded `len`.
pub fn read_vec(from: &(impl ReadAt + ?Sized), offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    from.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_leaves_the_slice_is_refused() {
        let bytes = vec![1u8, 2, 3];
        let mut out = [0; 2];
        bytes.read_at(1, &mut out).unwrap();
        assert_eq!(out, [2, 3]);
        assert!(bytes.read_at(2, &mut out).is_err());
        assert!(bytes.read_at(u64::MAX, &mut out).is_err());
        assert_eq!(read_vec(&bytes, 0, 3).unwrap(), bytes);
    }
}
