//! The two long lists of a seal, regions and tensors, each entry compared with the piece of
//! the model that it has to be.

use super::super::as_written;
use super::super::fold::Shifts;
use super::super::grid::{Grid, Part, Piece};
use super::super::lexer::Lexer;
use super::super::write::{region_head, tensor_head};
use super::super::{Promise, ZEROS, crc_hex, table_len};
use super::{Lexed, Reader, number};
use crate::bytes::hex::hex;
use crate::bytes::line::InLine;
use sha2::{Digest, Sha256};

/// Paddings of one file that were not listed one by one.
#[derive(Clone, Copy, Default)]
struct Passed {
    shard: u32,
    count: u64,
    bytes: u64,
}

impl Reader<'_> {
    pub(super) fn regions(&mut self, lexer: &mut Lexer<'_>) -> Lexed {
        let Some(grid) = self.grid.take() else {
            self.again = true;
            return lexer.skip();
        };
        let mut pieces = grid.pieces().filter(|p| !matches!(p.part, Part::Tensor(_))).peekable();
        let mut passed = Passed::default();
        let read = lexer.array(|lexer| {
            if let Some(piece) = pieces.peek()
                && !self.again
                && self.region_as_written(lexer, &grid, piece)
            {
                pieces.next();
                return Ok(());
            }
            self.read_entry(lexer)?;
            if self.has_other_header(pieces.peek()) {
                return Ok(());
            }
            if let Some(zeros) = self.entry.zeros {
                let ours = |p: &Piece| self.entry.source == Some(p.shard.into());
                while let Some(piece) = pieces.next_if(|p| p.part == Part::Padding && ours(p)) {
                    pass(piece, &mut passed, &mut self.tables);
                }
                self.zeros(zeros, std::mem::take(&mut passed));
                return Ok(());
            }
            // The paddings before the one that is listed are not.
            let here = (self.entry.source, self.entry.offset);
            let listed = |p: &Piece| here == (Some(p.shard.into()), Some(p.offset));
            while let Some(piece) = pieces.next_if(|p| p.part == Part::Padding && !listed(p)) {
                if passed.count > 0 && passed.shard != piece.shard {
                    self.lacking(std::mem::take(&mut passed));
                }
                pass(piece, &mut passed, &mut self.tables);
            }
            match pieces.next() {
                Some(piece) => self.region(&grid, &piece),
                None => self.foreign("it has more regions than the files"),
            }
            Ok(())
        });
        if self.again {
            drop(pieces);
            self.grid = Some(grid);
            return read;
        }
        self.lacking(passed);
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

    /// Whether the entry is of a list that is cut in another way: a header in it ends elsewhere
    /// than expected, before the bytes that align the data, say. Where is noted, once.
    fn has_other_header(&mut self, piece: Option<&Piece>) -> bool {
        let entry = &self.entry;
        if entry.kind != Part::Header.kind().as_bytes() || entry.offset != Some(0) {
            return self.again;
        }
        let shard = entry.source.and_then(|source| usize::try_from(source).ok());
        let end = shard.and_then(|shard| self.header_ends.get_mut(shard));
        let expected = piece.is_some_and(|piece| entry.nbytes == Some(piece.len));
        if let Some(end @ None) = end
            && (self.again || !expected)
        {
            *end = entry.nbytes;
            self.again = true;
        }
        self.again
    }

    /// Paddings that are neither listed nor told together.
    fn lacking(&mut self, passed: Passed) {
        let Passed { shard, count, bytes } = passed;
        if count > 0 {
            self.foreign(format!("it lacks {count} paddings of {bytes} bytes of file {shard}"));
        }
    }

    /// The entry tells of paddings together that are `zeros`; `passed` are those of the file
    /// that were not listed.
    fn zeros(&mut self, zeros: u64, passed: Passed) {
        let entry = &self.entry;
        let sums = (entry.crc32, entry.sha256, entry.table, entry.offset);
        if sums != (None, None, None, None) {
            return self.invalid("paddings that are zeros need no sums and no offset of their own");
        }
        let is = (Some(u64::from(passed.shard)), passed.count, Some(passed.bytes));
        if entry.kind != Part::Padding.kind().as_bytes()
            || passed.count == 0
            || (entry.source, zeros, entry.nbytes) != is
        {
            let was = format!(
                "{zeros} of kind {:?} with {} bytes in file {}",
                String::from_utf8_lossy(&entry.kind),
                number(entry.nbytes),
                number(entry.source)
            );
            let Passed { shard, count, bytes } = passed;
            self.foreign(format!(
                "{count} paddings of {bytes} bytes of file {shard} are not listed, sealed were {was}"
            ));
        }
    }

    /// Takes the next entry if it is written as the one of this region would be.
    fn region_as_written(&mut self, lexer: &mut Lexer<'_>, grid: &Grid, piece: &Piece) -> bool {
        let (Some(hashed), Some(shifts)) = (self.hashed, &self.shifts) else {
            return false;
        };
        self.scratch.clear();
        region_head(piece, &mut self.scratch);
        let header = piece.part == Part::Header;
        let expected = expected(grid, piece, hashed && header, shifts);
        let Some(written) = as_written::take(lexer, &self.scratch, &expected) else {
            return false;
        };
        self.tables[piece.index] = written.table;
        if header {
            self.headers[piece.shard as usize] = written.sha256;
        }
        true
    }

    /// Compares the entry with the region.
    fn region(&mut self, grid: &Grid, piece: &Piece) {
        let entry = &self.entry;
        // What lies behind the last tensor is a padding too.
        let kind = &*entry.kind;
        let same = (kind == piece.part.kind().as_bytes()
            || piece.part == Part::Trailing && kind == Part::Padding.kind().as_bytes())
            && entry.source == Some(u64::from(piece.shard))
            && entry.offset == Some(piece.offset)
            && entry.nbytes == Some(piece.len);
        if same {
            let what = || format!("the {} at {}", piece.part.kind(), piece.offset);
            self.table(grid, piece, what);
            if piece.part == Part::Header {
                self.headers[piece.shard as usize] = self.entry.sha256;
                // It is part of the file, which has one.
                if self.entry.sha256.is_some() {
                    self.all_or_none(what);
                }
            } else if self.entry.sha256.is_some() {
                self.invalid(format!("{} has a SHA-256, which only headers have", what()));
            }
        } else {
            let was = format!(
                "{} of {} bytes at {} of file {}",
                entry.kind.in_line(),
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
        self.again |= self.grid.is_none();
        let Some(grid) = self.grid.take_if(|_| !self.again) else {
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
            if !self.tensor_as_written(lexer, &grid, index as usize, piece.as_ref()) {
                self.read_entry(lexer)?;
                self.tensor(&grid, index as usize, piece.as_ref());
            }
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

    /// Takes the next entry if it is written as the one of this tensor would be. Those of empty
    /// tensors are few and have rules of their own.
    fn tensor_as_written(
        &mut self,
        lexer: &mut Lexer<'_>,
        grid: &Grid,
        index: usize,
        piece: Option<&Piece>,
    ) -> bool {
        let (Some(tensor), Some(piece), Some(hashed), Some(shifts)) =
            (self.model.tensors.get(index), piece, self.hashed, &self.shifts)
        else {
            return false;
        };
        self.scratch.clear();
        tensor_head(tensor, &mut self.scratch);
        let expected = expected(grid, piece, hashed, shifts);
        let Some(written) = as_written::take(lexer, &self.scratch, &expected) else {
            return false;
        };
        let (crc32, sha256) = (written.crc32, written.sha256.unwrap_or([0; 32]));
        self.promises.push(Promise { crc32, sha256 });
        self.tables[piece.index] = written.table;
        true
    }

    /// Compares the entry with the tensor.
    fn tensor(&mut self, grid: &Grid, index: usize, piece: Option<&Piece>) {
        let Some(tensor) = self.model.tensors.get(index) else {
            return;
        };
        let entry = &self.entry;
        let name = String::from_utf8_lossy(&tensor.name);
        let extent = tensor.extent;
        let differs = if *entry.name() != *tensor.name {
            Some((
                "name",
                format!("{name:?}"),
                format!("{:?}", String::from_utf8_lossy(entry.name())),
            ))
        } else if entry.dtype != tensor.dtype.name().as_bytes() {
            let was = entry.dtype.in_line().to_string();
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

/// What has to follow the head of the entry of `piece`.
fn expected<'a>(
    grid: &Grid,
    piece: &Piece,
    hashed: bool,
    shifts: &'a Shifts,
) -> as_written::Expected<'a> {
    let chunks = grid.chunks_of(piece);
    let (_, last) = grid.chunk_of(piece, chunks - 1);
    as_written::Expected { hashed, chunks, last, shifts }
}

/// Notes a padding that is not listed.
fn pass(piece: Piece, passed: &mut Passed, tables: &mut [u64]) {
    passed.shard = piece.shard;
    passed.count += 1;
    passed.bytes += piece.len;
    tables[piece.index] = ZEROS;
}
