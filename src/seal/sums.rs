//! Checksums of ranges of a source, computed over private copies.

use super::grid::{Grid, Piece};
use crate::source::{Source, SourceError};
use crc32fast::Hasher;
use sha2::{Digest, Sha256};

/// Bytes copied at a time from the kernel's cache: they stay in the processor's cache while both
/// sums run over them.
const NEAR: u64 = 512 << 10;
/// The same for file systems where each read is a journey.
const FAR: u64 = 4 << 20;

/// How many bytes to take at a time.
fn step(source: &Source) -> u64 {
    if source.is_far() { FAR } else { NEAR }
}

/// CRC32 of a range, copied through `room`, which grows to one step at most.
pub(super) fn crc_of(
    source: &Source,
    offset: u64,
    len: u64,
    room: &mut Vec<u8>,
) -> Result<u32, SourceError> {
    let mut crc = Hasher::new();
    let step = step(source);
    let mut done = 0;
    while done < len {
        let take = step.min(len - done);
        room.resize(take as usize, 0);
        source.read_once(offset + done, room)?;
        crc.update(room);
        done += take;
    }
    Ok(crc.finalize())
}

/// CRC32 of so many zeros.
pub(super) fn crc_of_zeros(len: u64) -> u32 {
    const BLOCK: &[u8] = &[0; 4096];
    let mut crc = Hasher::new();
    let mut left = len;
    while left > 0 {
        let take = left.min(BLOCK.len() as u64);
        crc.update(&BLOCK[..take as usize]);
        left -= take;
    }
    crc.finalize()
}

/// The checksums of a piece.
pub(super) struct Sums {
    /// One per chunk.
    pub(super) chunks: Vec<u32>,
    /// Of the whole piece.
    pub(super) crc32: u32,
    /// Of the whole piece, where asked for.
    pub(super) sha256: Option<[u8; 32]>,
}

impl Sums {
    /// Those of an empty tensor.
    pub(super) fn of_nothing(with_sha: bool) -> Sums {
        let sha256 = with_sha.then(|| Sha256::digest([]).into());
        Sums { chunks: Vec::new(), crc32: 0, sha256 }
    }
}

/// Reads a piece once. `passed` is told of each step's offset in the file before it is read,
/// and its length; it may wait, or refuse to go on by returning false.
pub(super) fn sum_piece(
    source: &Source,
    grid: &Grid,
    piece: &Piece,
    with_sha: bool,
    mut passed: impl FnMut(u64, u64) -> bool,
) -> Result<Option<Sums>, SourceError> {
    let chunk = grid.chunk_bytes();
    let step = step(source).max(chunk);
    let mut chunks = Vec::with_capacity(grid.chunks_of(piece) as usize);
    let mut sha = with_sha.then(Sha256::new);
    let mut whole = Hasher::new();
    let mut room = Vec::new();
    let mut done = 0;
    while done < piece.len {
        let take = step.min(piece.len - done);
        if !passed(piece.offset + done, take) {
            return Ok(None);
        }
        room.resize(take as usize, 0);
        source.read_once(piece.offset + done, &mut room)?;
        for bytes in room.chunks(chunk as usize) {
            let mut crc = Hasher::new();
            crc.update(bytes);
            whole.combine(&crc);
            chunks.push(crc.finalize());
        }
        if let Some(sha) = &mut sha {
            sha.update(&room);
        }
        done += take;
    }
    Ok(Some(Sums { chunks, crc32: whole.finalize(), sha256: sha.map(|sha| sha.finalize().into()) }))
}

/// SHA-256 of a whole file, in order. `passed` as in [`sum_piece`].
pub(super) fn sha256_of(
    source: &Source,
    mut passed: impl FnMut(u64, u64) -> bool,
) -> Result<Option<[u8; 32]>, SourceError> {
    let step = step(source);
    let mut sha = Sha256::new();
    let mut room = Vec::new();
    let mut done = 0;
    while done < source.len() {
        let take = step.min(source.len() - done);
        if !passed(done, take) {
            return Ok(None);
        }
        room.resize(take as usize, 0);
        source.read_once(done, &mut room)?;
        sha.update(&room);
        done += take;
    }
    Ok(Some(sha.finalize().into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::seal::grid::tests::model;
    use crate::source::IoMode;

    #[test]
    fn zeros_of_any_number() {
        for len in [0, 1, 31, 4095, 4096, 4097, 100_000] {
            assert_eq!(crc_of_zeros(len), crc32fast::hash(&vec![0; len as usize]), "{len}");
        }
    }

    #[test]
    fn the_parts_give_the_whole() {
        let bytes: Vec<u8> = (0..1_500_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, &bytes).unwrap();
        for io in [IoMode::Mmap, IoMode::Pread] {
            let source = Source::open(&path, io).unwrap();
            let grid = Grid::new(&model(&[(7, 1_500_000)], &[(0, 7, 1_400_001)]), 65536);
            let piece = grid.pieces().nth(1).unwrap();
            let mut told = 0;
            let sums = sum_piece(&source, &grid, &piece, true, |_, len| {
                told += len;
                true
            });
            let sums = sums.unwrap().unwrap();
            let tensor = &bytes[7..1_400_008];
            assert_eq!(told, 1_400_001);
            assert_eq!(sums.crc32, crc32fast::hash(tensor));
            assert_eq!(sums.sha256.unwrap(), <[u8; 32]>::from(Sha256::digest(tensor)));
            let chunks: Vec<_> = tensor.chunks(65536).map(crc32fast::hash).collect();
            assert_eq!(sums.chunks, chunks);
            assert_eq!(
                crc_of(&source, 3, 1_000_000, &mut Vec::new()).unwrap(),
                crc32fast::hash(&bytes[3..1_000_003])
            );
            let whole = sha256_of(&source, |_, _| true).unwrap().unwrap();
            assert_eq!(whole, <[u8; 32]>::from(Sha256::digest(&bytes)));
            assert!(sum_piece(&source, &grid, &piece, false, |_, _| false).unwrap().is_none());
        }
    }
}
