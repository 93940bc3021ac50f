//! CRC32 of whole files, without reading them: a CRC32 is linear, so those of the pieces of a
//! file, each moved on to the file's end, come to that of the file.

use super::grid::{Part, Piece};
use super::{Seal, SealError};
use crate::bytes::crc;
use crate::model::Model;
use std::sync::atomic::{AtomicU32, Ordering};

/// Sums of chunks that are taken at a time.
const BATCH: usize = 4096;

/// Those of all files of a model, put together from their pieces in any order.
pub(super) struct FileCrcs {
    /// Length of each file, and the sum of the pieces that were added.
    files: Vec<(u64, AtomicU32)>,
}

impl FileCrcs {
    pub(super) fn new(model: &Model) -> FileCrcs {
        FileCrcs { files: model.shards.iter().map(|shard| (shard.len, 0.into())).collect() }
    }

    /// Adds a piece, once.
    pub(super) fn add(&self, piece: &Piece, crc32: u32) {
        if let Some((len, crc)) = self.files.get(piece.shard as usize) {
            let moved = crc::moved_by(len.saturating_sub(piece.end()), crc32);
            crc.fetch_xor(moved, Ordering::Relaxed);
        }
    }

    /// By file, once every piece was added.
    pub(super) fn into_sums(self) -> impl Iterator<Item = u32> {
        self.files.into_iter().map(|(_, crc)| crc.into_inner())
    }
}

impl Seal {
    /// The CRC32 of a whole file, from the sums that are sealed.
    pub(super) fn file_crc32_of(&self, shard: u32) -> Result<u32, SealError> {
        self.grid.pieces_from(shard, 0).try_fold(0, |crc, piece| {
            let crc = crc::moved_by(piece.len, crc);
            Ok(crc ^ self.piece_crc32(&piece)?)
        })
    }

    fn piece_crc32(&self, piece: &Piece) -> Result<u32, SealError> {
        if let Part::Tensor(index) = piece.part
            && let Some(promise) = self.promises.get(index as usize)
        {
            return Ok(promise.crc32);
        }
        let (mut crc, mut first, chunks) = (0, 0, self.grid.chunks_of(piece));
        let mut sums = vec![0; BATCH.min(chunks as usize)];
        while first < chunks {
            let take = (chunks - first).min(BATCH as u64);
            let sums = &mut sums[..take as usize];
            self.expected(piece, first, sums)?;
            for (within, sum) in (first..).zip(&*sums) {
                crc = crc::moved_by(self.grid.chunk_of(piece, within).1, crc) ^ sum;
            }
            first += take;
        }
        Ok(crc)
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid_tests::model;
    use super::*;
    use crate::seal::Grid;

    #[test]
    fn pieces_in_any_order_come_to_the_file() {
        let model = model(&[(100, 20_000), (8, 8), (0, 0)], &[(0, 100, 4097), (0, 4200, 8192)]);
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        let grid = Grid::new(&model, 4096);
        let crcs = FileCrcs::new(&model);
        let mut pieces: Vec<_> = grid.pieces().collect();
        pieces.reverse();
        for piece in pieces {
            let bytes = &bytes[piece.offset as usize..piece.end() as usize];
            crcs.add(&piece, crc32fast::hash(bytes));
        }
        let want = [crc32fast::hash(&bytes), crc32fast::hash(&bytes[..8]), 0];
        assert_eq!(crcs.into_sums().collect::<Vec<_>>(), want);
    }
}
