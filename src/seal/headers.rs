//! The bytes of a model's headers against its seal.
//!
//! Every chunk's CRC32 always; the SHA-256 only of headers short enough that nobody waits for
//! it. That of a longer one is for [`super::verify`], like those of tensors.

use super::grid::{Part, Piece};
use super::hex::{crc_hex, hex};
use super::sums::{Sums, sum_piece};
use super::write::arrays_of;
use super::{Seal, SealError};
use crate::bytes::line::InLine;
use crate::model::Model;
use crate::source::Source;

/// Headers up to this many bytes are compared by SHA-256 too when a seal is loaded: 3 ms. A
/// large vocabulary makes a header of 30 MiB, which a mount should not wait for.
const HASHED_AT_ONCE: u64 = 4 << 20;

impl Seal {
    /// Where a file's own metadata has its arrays is where the seal says they are.
    pub(super) fn check_arrays(&self, model: &Model) -> Result<(), SealError> {
        for (shard, sealed) in (0..).zip(&self.arrays) {
            let Some(sealed) = sealed else { continue };
            let found = arrays_of(model, shard);
            if *sealed == found {
                continue;
            }
            let differs = found.iter().zip(sealed).position(|(is, was)| is != was);
            let at = differs.unwrap_or(found.len().min(sealed.len()));
            let place = |list: &[(u64, u64)]| match list.get(at) {
                Some((from, to)) => format!("from byte {from} to {to}"),
                None => "not there".to_owned(),
            };
            let file = &model.shards[shard as usize].file;
            return Err(SealError::Foreign {
                file: self.path().in_line().to_string(),
                what: format!(
                    "array {at} of the metadata of {:?} is {}, sealed was {}",
                    String::from_utf8_lossy(file),
                    place(&found),
                    place(sealed)
                ),
            });
        }
        Ok(())
    }

    /// The headers were parsed before their bytes were known to be good; now they are.
    pub(super) fn check_headers(&self, model: &Model, sources: &[Source]) -> Result<(), SealError> {
        let file = || self.path().in_line().to_string();
        // Before the data; what aligns them may be a piece of its own.
        let before = |piece: &Piece| {
            piece.part == Part::Header
                || piece.offset < model.shards[piece.shard as usize].data_start
                    && piece.part == Part::Padding
        };
        let shards = 0..self.grid.shards() as u32;
        for piece in shards.flat_map(|shard| self.grid.pieces_from(shard, 0).take_while(before)) {
            let source = &sources[piece.shard as usize];
            let sealed = self.header_sha256(&piece).filter(|_| piece.len <= HASHED_AT_ONCE);
            let sums = sum_piece(source, &self.grid, &piece, sealed.is_some(), |_, _| true)?;
            let sums = sums.unwrap_or_else(|| Sums::of_nothing(false));
            let mut expected = vec![0; sums.chunks.len()];
            self.expected(&piece, 0, &mut expected)?;
            let differs = sums.chunks.iter().zip(&expected).position(|(is, was)| is != was);
            if let Some(within) = differs {
                source.check_unchanged()?;
                let (offset, len) = self.grid.chunk_of(&piece, within as u64);
                return Err(SealError::Foreign {
                    file: file(),
                    what: format!(
                        "the header of {} differs: {len} bytes at {offset} have CRC32 {}, sealed were {}",
                        source.path().in_line(),
                        crc_hex(sums.chunks[within]),
                        crc_hex(expected[within]),
                    ),
                });
            }
            if let (Some(found), Some(sealed)) = (sums.sha256, sealed)
                && found != sealed
            {
                source.check_unchanged()?;
                return Err(SealError::Invalid {
                    file: file(),
                    what: format!(
                        "the header of {} has SHA-256 {}, the seal says {}, and yet all its chunks are as sealed",
                        source.path().in_line(),
                        hex(&found),
                        hex(&sealed)
                    ),
                });
            }
        }
        Ok(())
    }
}
