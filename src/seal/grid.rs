//! How files are cut into pieces, and pieces into chunks.
//!
//! The pieces of a file tile it: its header, each tensor, and whatever lies between
//! and behind them. Chunks of equal size start anew at each piece, so a tensor's
//! chunks are the same wherever it lies in its file. Both the seal and the store
//! count chunks through all pieces in order: the chunk number is their common index.

use crate::model::Model;

/// What a piece of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Everything before the tensor data.
    Header,
    /// The tensor of this index in [`Model::tensors`].
    Tensor(u32),
    /// Bytes between tensors (or between header and first tensor).
    Padding,
    /// Bytes after the last tensor.
    Trailing,
}

impl Part {
    /// The word in a seal's `kind`; tensors have a list of their own.
    pub const fn kind(self) -> &'static str {
        match self {
            Part::Header => "header",
            Part::Tensor(_) => "tensor",
            Part::Padding => "padding",
            Part::Trailing => "trailing",
        }
    }
}

/// A run of bytes with a chunk grid of its own. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its number among all pieces of the model.
    pub index: usize,
    /// What it is.
    pub part: Part,
    /// The file it lies in.
    pub shard: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub len: u64,
    /// Number of its first chunk among all chunks of the model.
    pub first_chunk: u64,
}

impl Piece {
    /// One past the last byte.
    pub const fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// One entry per piece and one at each file's end; a piece ends where the next begins.
#[derive(Clone, Copy, Debug)]
struct Entry {
    offset: u64,
    first_chunk: u64,
    part: Part,
}

/// The pieces and chunks of all files of a model: 24 bytes a piece.
#[derive(Debug)]
pub struct Grid {
    chunk: u64,
    entries: Vec<Entry>,
    /// For each shard, the index in `entries` where it begins; one more at the end.
    shards: Vec<usize>,
    chunks: u64,
}

/// Smallest chunk size, bytes.
pub const MIN_CHUNK: u64 = 4 << 10;
/// Largest chunk size, bytes.
pub const MAX_CHUNK: u64 = 16 << 20;
/// Chunk size where nobody asks for another, bytes: half of the kernel's smallest
/// read-ahead, and 0.006 % of the model in checksums.
pub const DEFAULT_CHUNK: u64 = 64 << 10;

/// Whether chunks may have this size.
pub const fn is_chunk_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= MIN_CHUNK && bytes <= MAX_CHUNK
}

impl Grid {
    /// Cuts `model` into chunks of `chunk` bytes, a size for which [`is_chunk_size`] holds.
    pub fn new(model: &Model, chunk: u64) -> Grid {
        Grid::with_headers(model, chunk, &[])
    }

    /// As [`Grid::new`], where headers end at other places than the data begin: what lies between
    /// is padding.
    pub(super) fn with_headers(model: &Model, chunk: u64, ends: &[Option<u64>]) -> Grid {
        let mut order: Vec<u32> = (0..model.tensors.len() as u32)
            .filter(|&i| model.tensors[i as usize].extent.len > 0)
            .collect();
        let place = |&i: &u32| {
            let extent = model.tensors[i as usize].extent;
            (extent.shard, extent.offset)
        };
        if !order.is_sorted_by_key(place) {
            order.sort_by_key(place);
        }
        let mut grid = Grid { chunk, entries: Vec::new(), shards: Vec::new(), chunks: 0 };
        // A padding behind each tensor is the most there can be.
        grid.entries.reserve_exact(2 * order.len() + 3 * model.shards.len());
        let mut order = order.into_iter().peekable();
        for (number, shard) in model.shards.iter().enumerate() {
            grid.shards.push(grid.entries.len());
            let mine = |i: &u32| model.tensors[*i as usize].extent.shard as usize == number;
            let first = order
                .peek()
                .filter(|i| mine(i))
                .map_or(shard.len, |&i| model.tensors[i as usize].extent.offset);
            let mut at = 0;
            let end = ends.get(number).copied().flatten().unwrap_or(shard.data_start);
            grid.push(&mut at, end.min(first).min(shard.len), Part::Header);
            while let Some(i) = order.next_if(mine) {
                let extent = model.tensors[i as usize].extent;
                grid.push(&mut at, extent.offset, Part::Padding);
                grid.push(&mut at, extent.end(), Part::Tensor(i));
            }
            grid.push(&mut at, shard.len, Part::Trailing);
            // The end of the file closes its last piece. It is no piece itself.
            grid.entries.push(Entry { offset: at, first_chunk: grid.chunks, part: Part::Trailing });
        }
        grid.shards.push(grid.entries.len());
        grid.entries.shrink_to_fit();
        grid
    }

    /// Adds the piece from `at` to `end`, if it has any bytes. Extents of a model do not
    /// overlap; if they did, the later would be cut here and never be read past its file.
    fn push(&mut self, at: &mut u64, end: u64, part: Part) {
        if end > *at {
            self.entries.push(Entry { offset: *at, first_chunk: self.chunks, part });
            self.chunks += (end - *at).div_ceil(self.chunk);
            *at = end;
        }
    }

    /// Bytes in a chunk.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk
    }

    /// Chunks of all pieces.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len() - 1
    }

    /// One more than the largest [`Piece::index`].
    pub fn slots(&self) -> usize {
        self.entries.len()
    }

    /// The piece with this index; `None` at a file's end.
    fn piece(&self, index: usize, shard: u32) -> Option<Piece> {
        let end = self.shards.get(shard as usize + 1)?;
        if index + 1 >= *end {
            return None;
        }
        let (entry, next) = (self.entries.get(index)?, self.entries.get(index + 1)?);
        Some(Piece {
            index,
            part: entry.part,
            shard,
            offset: entry.offset,
            len: next.offset - entry.offset,
            first_chunk: entry.first_chunk,
        })
    }

    /// The pieces of a file from the one that holds `offset` on; none past its end.
    pub fn pieces_from(&self, shard: u32, offset: u64) -> impl Iterator<Item = Piece> + '_ {
        let range = match (self.shards.get(shard as usize), self.shards.get(shard as usize + 1)) {
            (Some(&from), Some(&to)) => from..to,
            _ => 0..0,
        };
        let before = self.entries[range.clone()].partition_point(|e| e.offset <= offset);
        let first = range.start + before.saturating_sub(1);
        (first..range.end).map_while(move |index| self.piece(index, shard))
    }

    /// All pieces of all files, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        (0..self.shards() as u32).flat_map(|shard| self.pieces_from(shard, 0))
    }

    /// Where chunk `chunk` of the model lies: its piece and its number within that.
    pub fn locate(&self, chunk: u64) -> Option<(Piece, u64)> {
        if chunk >= self.chunks {
            return None;
        }
        // End entries repeat the first chunk of what follows; the last of equals is a piece.
        let index = self.entries.partition_point(|e| e.first_chunk <= chunk).checked_sub(1)?;
        let shard = self.shards.partition_point(|&from| from <= index).checked_sub(1)?;
        let piece = self.piece(index, shard as u32)?;
        Some((piece, chunk - piece.first_chunk))
    }

    /// Number of chunks of a piece.
    pub fn chunks_of(&self, piece: &Piece) -> u64 {
        piece.len.div_ceil(self.chunk)
    }

    /// Offset in the file and length of chunk `within` of `piece`.
    pub fn chunk_of(&self, piece: &Piece, within: u64) -> (u64, u64) {
        let from = within * self.chunk;
        (piece.offset + from, self.chunk.min(piece.len - from))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::model::{ByteOrder, Extent, Format, Shard, Tensor};

    /// A model of U8 tensors at the given places; files of the given (data start, length).
    pub(crate) fn model(shards: &[(u64, u64)], tensors: &[(u32, u64, u64)]) -> Model {
        Model {
            format: Format::Gguf,
            format_version: 3,
            byte_order: ByteOrder::Little,
            architecture: None,
            name: None,
            metadata: Vec::new(),
            shards: (0..)
                .zip(shards)
                .map(|(i, &(data_start, len))| Shard {
                    file: format!("file{i}").into_bytes().into(),
                    len,
                    data_start,
                    tensor_infos: 24,
                })
                .collect(),
            tensors: (0..)
                .zip(tensors)
                .map(|(i, &(shard, offset, len))| Tensor {
                    name: format!("t{i}").into_bytes().into(),
                    dtype: DType::U8,
                    shape: [len].into(),
                    extent: Extent { shard, offset, len },
                })
                .collect(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn pieces_tile_the_files() {
        let model = model(
            &[(100, 20_000), (8, 8), (0, 0), (16, 5000)],
            &[(0, 100, 4097), (0, 4197, 0), (0, 4200, 8192), (3, 16, 4984), (3, 5000, 0)],
        );
        let grid = Grid::new(&model, 4096);
        let seen: Vec<_> =
            grid.pieces().map(|p| (p.part, p.shard, p.offset, p.len, p.first_chunk)).collect();
        assert_eq!(
            seen,
            [
                (Part::Header, 0, 0, 100, 0),
                (Part::Tensor(0), 0, 100, 4097, 1),
                (Part::Padding, 0, 4197, 3, 3),
                (Part::Tensor(2), 0, 4200, 8192, 4),
                (Part::Trailing, 0, 12_392, 7608, 6),
                (Part::Header, 1, 0, 8, 8),
                (Part::Header, 3, 0, 16, 9),
                (Part::Tensor(3), 3, 16, 4984, 10),
            ]
        );
        assert_eq!(grid.chunks(), 12);
        for chunk in 0..grid.chunks() {
            let (piece, within) = grid.locate(chunk).unwrap();
            assert_eq!(piece.first_chunk + within, chunk);
            assert!(within < grid.chunks_of(&piece), "{chunk}");
        }
        assert_eq!(grid.locate(12), None);
        let tensor = grid.pieces_from(0, 4196).next().unwrap();
        assert_eq!(tensor.part, Part::Tensor(0));
        assert_eq!(grid.chunk_of(&tensor, 1), (4196, 1));
        assert_eq!(grid.pieces_from(0, 4197).next().unwrap().part, Part::Padding);
        assert_eq!(grid.pieces_from(0, 20_000).count(), 0);
        assert_eq!(grid.pieces_from(2, 0).count(), 0);
        assert_eq!(grid.pieces_from(9, 0).count(), 0);
    }

    #[test]
    fn a_header_longer_than_the_file_ends_with_it() {
        // A GGUF without tensors that lacks its last padding.
        let grid = Grid::new(&model(&[(64, 50)], &[]), 4096);
        let seen: Vec<_> = grid.pieces().map(|p| (p.part, p.offset, p.len)).collect();
        assert_eq!(seen, [(Part::Header, 0, 50)]);
    }

    #[test]
    fn chunk_sizes() {
        for good in [4 << 10, 64 << 10, 16 << 20] {
            assert!(is_chunk_size(good));
        }
        for bad in [0, 1, 2048, 4097, 65_535, 32 << 20, u64::MAX] {
            assert!(!is_chunk_size(bad));
        }
    }

    #[test]
    fn an_entry_costs_24_bytes() {
        assert_eq!(size_of::<Entry>(), 24);
    }
}
