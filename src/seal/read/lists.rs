//! The two long lists of a seal, regions and tensors, each entry compared with the piece of
//! the model that it has to be.

use super::super::grid::{Grid, Part, Piece};
use super::super::lexer::Lexer;
use super::super::write::{region_head, tensor_head};
use super::super::{Promise, crc_hex, table_len};
use super::{Lexed, Reader, number};
use crate::bytes::hex::hex;
use sha2::{Digest, Sha256};

impl Reader<'_> {
    pub(super) fn regions(&mut self, lexer: &mut Lexer<'_>) -> Lexed {
        let Some(grid) = self.grid.take() else {
            self.invalid("\"chunk\" must come before \"regions\"");
            return lexer.skip();
        };
        let mut pieces = grid.pieces().filter(|p| !matches!(p.part, Part::Tensor(_)));
        let read = lexer.array(|lexer| {
            let piece = pieces.next();
            let as_written =
                piece.is_some_and(|piece| self.read_region_as_written(lexer, &grid, &piece));
            if !as_written {
                self.read_entry(lexer)?;
            }
            match piece {
                Some(piece) => self.region(&grid, &piece, as_written),
                None => self.foreign("it has more regions than the files"),
            }
            Ok(())
        });
        if let Some(piece) = pieces.next() {
            self.foreign(format!(
                "it lacks the {} of {} bytes at {} of file {}",
                piece.part.kind(),
                piece.len,
                piece.offset,
                piece.shard
            ));
        }
        drop(pieces);
        self.grid = Some(grid);
        read
    }

    /// Reads the next entry if it is written as the one of this region would be.
    fn read_region_as_written(
        &mut self,
        lexer: &mut Lexer<'_>,
        grid: &Grid,
        piece: &Piece,
    ) -> bool {
        let (Some(hashed), Some(shifts)) = (self.hashed, &self.shifts) else {
            return false;
        };
        self.scratch.clear();
        region_head(piece, &mut self.scratch);
        let (hashed, table) =
            (hashed && piece.part == Part::Header, table_len(grid.chunks_of(piece)));
        self.entry.read_as_written(lexer, &self.scratch, hashed, table, shifts)
    }

    /// Compares the entry with the region; what `as_written` has compared already, not again.
    fn region(&mut self, grid: &Grid, piece: &Piece, as_written: bool) {
        let entry = &self.entry;
        let same = as_written
            || (entry.kind == piece.part.kind().as_bytes()
                && entry.source == Some(u64::from(piece.shard))
                && entry.offset == Some(piece.offset)
                && entry.nbytes == Some(piece.len));
        if same {
            let what = || format!("the {} at {}", piece.part.kind(), piece.offset);
            self.table(grid, piece, what);
            if piece.part == Part::Header {
                self.headers[piece.shard as usize] = self.entry.sha256;
                self.all_or_none(what);
            } else if self.entry.sha256.is_some() {
                self.invalid(format!("{} has a SHA-256, which only headers have", what()));
            }
        } else {
            let was = format!(
                "{} of {} bytes at {} of file {}",
                String::from_utf8_lossy(&entry.kind),
                number(entry.nbytes),
                number(entry.offset),
                number(entry.source)
            );
            self.foreign(format!(
                "the {} of {} bytes at {} of file {} was sealed as {was}",
                piece.part.kind(),
                piece.len,
                piece.offset,
                piece.shard
            ));
        }
    }

    /// Takes the chunk table of the entry for `piece`, if it fits and gives the CRC32 that
    /// the entry has for the whole.
    fn table(&mut self, grid: &Grid, piece: &Piece, what: impl Fn() -> String) {
        let chunks = grid.chunks_of(piece);
        let (needed, (_, last)) = (table_len(chunks), grid.chunk_of(piece, chunks - 1));
        let Some(place) = self.entry.table else {
            return self.invalid(format!("{} has no \"crcs\"", what()));
        };
        let Some(crc32) = self.entry.crc32 else {
            return self.invalid(format!("{} has no \"crc32\"", what()));
        };
        if place.len != needed {
            return self.invalid(format!(
                "the chunk table of {} has {} characters, {needed} are needed",
                what(),
                place.len
            ));
        }
        let (Some(folded), Some(shifts)) = (self.entry.folded, &self.shifts) else {
            return self
                .invalid(format!("the chunk table of {} is not base64 of whole sums", what()));
        };
        let found = folded.whole(shifts, last);
        if found != crc32 {
            return self.invalid(format!(
                "{} has CRC32 {} by its chunks, {} by its own entry",
                what(),
                crc_hex(found),
                crc_hex(crc32)
            ));
        }
        self.tables[piece.index] = place.offset;
    }

    pub(super) fn tensors(&mut self, lexer: &mut Lexer<'_>) -> Lexed {
        let Some(grid) = self.grid.take() else {
            self.invalid("\"chunk\" must come before \"tensors\"");
            return lexer.skip();
        };
        let mut pieces = grid.pieces().filter(|p| matches!(p.part, Part::Tensor(_))).peekable();
        let mut index = 0u32;
        let read = lexer.array(|lexer| {
            // Tensor order is the order of pieces; empty tensors have none.
            let part = Part::Tensor(index);
            let piece = pieces.next_if(|p| p.part == part).or_else(|| {
                let extent = self.model.tensors.get(index as usize)?.extent;
                grid.pieces_from(extent.shard, extent.offset).next().filter(|p| p.part == part)
            });
            let chunks = piece.as_ref().map_or(0, |piece| grid.chunks_of(piece));
            let as_written = self.read_as_written(lexer, index as usize, table_len(chunks));
            if !as_written {
                self.read_entry(lexer)?;
            }
            self.tensor(&grid, index as usize, piece.as_ref(), as_written);
            index = index.saturating_add(1);
            Ok(())
        });
        if index as usize != self.model.tensors.len() {
            let have = self.model.tensors.len();
            self.foreign(format!("it has {index} tensors, the model has {have}"));
        }
        drop(pieces);
        self.grid = Some(grid);
        read
    }

    /// Reads the next entry if it is written as the one of this tensor would be.
    fn read_as_written(&mut self, lexer: &mut Lexer<'_>, index: usize, table: u64) -> bool {
        let (Some(tensor), Some(hashed), Some(shifts)) =
            (self.model.tensors.get(index), self.hashed, &self.shifts)
        else {
            return false;
        };
        self.scratch.clear();
        tensor_head(tensor, &mut self.scratch);
        self.entry.read_as_written(lexer, &self.scratch, hashed, table, shifts)
    }

    /// Compares the entry with the tensor; what `as_written` has compared already, not again.
    fn tensor(&mut self, grid: &Grid, index: usize, piece: Option<&Piece>, as_written: bool) {
        let Some(tensor) = self.model.tensors.get(index) else {
            return;
        };
        let entry = &self.entry;
        let name = String::from_utf8_lossy(&tensor.name);
        let extent = tensor.extent;
        let differs = if as_written {
            None
        } else if *entry.name() != *tensor.name {
            Some((
                "name",
                format!("{name:?}"),
                format!("{:?}", String::from_utf8_lossy(entry.name())),
            ))
        } else if entry.dtype != tensor.dtype.name().as_bytes() {
            let was = String::from_utf8_lossy(&entry.dtype).into_owned();
            Some(("dtype", tensor.dtype.name().to_owned(), was))
        } else if *entry.shape != *tensor.shape {
            Some(("shape", format!("{:?}", tensor.shape), format!("{:?}", entry.shape)))
        } else {
            [
                ("source", u64::from(extent.shard), entry.source),
                ("offset", extent.offset, entry.offset),
                ("nbytes", extent.len, entry.nbytes),
            ]
            .into_iter()
            .find(|(_, is, was)| Some(*is) != *was)
            .map(|(what, is, was)| (what, is.to_string(), number(was)))
        };
        let (crc32, sha256) = (entry.crc32, entry.sha256);
        self.promises
            .push(Promise { crc32: crc32.unwrap_or(0), sha256: sha256.unwrap_or([0; 32]) });
        if let Some((what, is, was)) = differs {
            self.foreign(format!("tensor {index} {name:?}: {what} is {is}, sealed was {was}"));
            return;
        }
        let what = || format!("tensor {name:?}");
        self.all_or_none(what);
        match piece {
            Some(piece) => self.table(grid, piece, what),
            None => self.nothing(what),
        }
    }

    /// The entry is that of an empty tensor.
    fn nothing(&mut self, what: impl Fn() -> String) {
        let entry = &self.entry;
        if entry.table.is_some_and(|table| table.len > 0) {
            self.invalid(format!("{} is empty but has a chunk table", what()));
        } else if entry.crc32 != Some(0) {
            let was = entry.crc32.map_or("none".to_owned(), crc_hex);
            self.invalid(format!("{} is empty, its CRC32 is 00000000, not {was}", what()));
        } else if let Some(sealed) = entry.sha256
            && sealed != <[u8; 32]>::from(Sha256::digest([]))
        {
            self.invalid(format!("{} is empty and has not the SHA-256 {}", what(), hex(&sealed)));
        }
    }
}
