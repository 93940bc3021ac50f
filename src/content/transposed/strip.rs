//! Stored rows on their way to columns: read a strip at a time, decoded and turned a tile at
//! a time, so that what is at work lies in the nearest caches.

use super::{Planes, Stopped, Transposed, Wanted, Work, grow};
use crate::content::Bytes;
use crate::content::turn::{MOST_LINES, lines, turn};
use crate::quant::{self, Target};
use crate::store::Store;
use std::ops::Range;

/// Stored bytes that are read together; twice that where the lines of a tile are long.
const STRIP: u64 = 256 << 10;
/// From this length on, of a stored row only what is needed is read.
const LONG_ROW: u64 = 128 << 10;
/// Values of a stored row that are decoded together: no block has more.
const DECODED: u64 = 256;

/// Stored rows that are read and turned together.
pub(super) struct Strip<'a> {
    view: &'a Transposed,
    wanted: &'a Wanted,
    /// Places in the rows that are shown, of all tensors.
    pub(super) most: u64,
    /// Lines that are turned together.
    lines: u64,
}

/// Of the stored rows of a tensor, what is needed.
struct Needed {
    row_bytes: u64,
    /// Where it begins in a row, and its length, in bytes.
    start: u64,
    length: u64,
    /// From one to the next as they were read.
    stride: u64,
    /// Values in front of the first that is wanted.
    lead: u64,
}

impl<'a> Strip<'a> {
    pub(super) fn new(view: &'a Transposed, wanted: &'a Wanted) -> Strip<'a> {
        let mut strip = Strip { view, wanted, most: 1, lines: 1 };
        let widest = view.planes.iter().map(|p| strip.needed(p).stride).max().unwrap_or(1);
        strip.lines = lines(view.made().block().bytes as usize) as u64;
        let fit = |bytes: u64| bytes / widest.max(1);
        strip.most = match fit(STRIP) / strip.lines * strip.lines {
            0 => strip.lines.min(fit(2 * STRIP)).max(1),
            most => most,
        };
        strip
    }

    fn needed(&self, planes: &Planes) -> Needed {
        let columns = &self.wanted.columns;
        let block = planes.dtype.block();
        let row_bytes = self.view.columns / block.elements * block.bytes;
        let first = columns.start / block.elements;
        let length = (columns.end.div_ceil(block.elements) - first) * block.bytes;
        Needed {
            row_bytes,
            start: first * block.bytes,
            length,
            stride: if row_bytes < LONG_ROW { row_bytes } else { length },
            lead: columns.start - first * block.elements,
        }
    }

    /// The stored rows of tensor `which` at `places`, of every so-manyth.
    fn rows(&self, which: u64, places: &Range<u64>) -> Range<u64> {
        let count = self.view.planes.len() as u64;
        let row = |place: u64| (place + count - 1 - which) / count;
        row(places.start)..row(places.end)
    }

    /// Where the rows of tensor `which` lie among what was read.
    fn begin(&self, which: u64, places: &Range<u64>) -> u64 {
        let before = |which: u64| {
            let rows = self.rows(which, places);
            (rows.end - rows.start) * self.needed(&self.view.planes[which as usize]).stride
        };
        (0..which).map(before).sum()
    }

    /// Reads the rows at `places`. Where it fails, tells the first place that was not had.
    pub(super) fn read(
        &self,
        store: &Store,
        places: Range<u64>,
        work: &mut Work,
    ) -> Result<(), Stopped> {
        let mut stopped: Option<Stopped> = None;
        let count = self.view.planes.len() as u64;
        grow(&mut work.stored, self.begin(count, &places) as usize);
        for (which, planes) in (0..).zip(&self.view.planes) {
            let rows = self.rows(which, &places);
            let into = &mut work.stored[self.begin(which, &places) as usize..];
            let Err((row, failure)) = self.read_rows(store, planes, &rows, into) else { continue };
            let place = row * count + which;
            if stopped.as_ref().is_none_or(|(least, _)| place < *least) {
                stopped = Some((place, failure));
            }
        }
        stopped.map_or(Ok(()), Err)
    }

    /// Reads `rows` of one tensor and turns them little-endian. Where it fails, tells which
    /// row was not had.
    fn read_rows(
        &self,
        store: &Store,
        planes: &Planes,
        rows: &Range<u64>,
        into: &mut [u8],
    ) -> Result<(), Stopped> {
        let Needed { row_bytes, start, length, stride, .. } = self.needed(planes);
        let begin = |row: u64| (self.wanted.plane * self.view.rows + row) * row_bytes + start;
        let mut row = rows.start;
        while row < rows.end {
            // At once, where one follows another closely.
            let together = if stride == row_bytes { rows.end - row } else { 1 };
            let bytes = (together - 1) * stride + length;
            let into = &mut into[((row - rows.start) * stride) as usize..][..bytes as usize];
            let read = planes.part.read(store, begin(row), into);
            let had = read.as_ref().map_or_else(
                |f| (f.good as u64 + stride).saturating_sub(length) / stride,
                |()| together,
            );
            if let Some(swap) = planes.swap {
                for line in into.chunks_mut(stride as usize).take(had as usize) {
                    swap.apply(&mut line[..length as usize]);
                }
            }
            row += had;
            read.map_err(|failure| (row, failure))?;
        }
        Ok(())
    }

    /// Turns the rows at `places`, which are the first of those that were `read`.
    pub(super) fn turn(
        &self,
        places: Range<u64>,
        read: &Range<u64>,
        work: &mut Work,
        made: &mut [u8],
    ) {
        let Strip { view, wanted, .. } = *self;
        let (row, dtype) = (wanted.places.end - wanted.places.start, view.made());
        let width = dtype.block().bytes as usize;
        let target = view.to.filter(|to| to.dtype() == dtype).unwrap_or(Target::F32);
        let count = view.planes.len() as u64;
        let Work { stored, tile } = work;
        let room = DECODED as usize * width;
        grow(tile, room * MOST_LINES);
        let mut place = places.start;
        while place < places.end {
            let some = place..places.end.min(place + self.lines);
            let number = (some.end - some.start) as usize;
            let mut all: [Line<'_>; MOST_LINES] = std::array::from_fn(|_| Line::default());
            for (line, place) in all.iter_mut().zip(some) {
                let which = place % count;
                let needed = self.needed(&view.planes[which as usize]);
                let row = place / count - self.rows(which, read).start;
                let at = (self.begin(which, read) + row * needed.stride) as usize;
                let stored = &stored[at..at + needed.length as usize];
                *line = Line { stored, lead: needed.lead, which: which as usize };
            }
            let all = &all[..number];
            let mut column = wanted.columns.start;
            while column < wanted.columns.end {
                let end = wanted.columns.end.min((column / DECODED + 1) * DECODED);
                let at = |line: &Line<'_>| column - wanted.columns.start + line.lead;
                for (line, room) in all.iter().zip(tile.chunks_exact_mut(room)) {
                    let from = view.planes[line.which].dtype;
                    if from != dtype {
                        let block = from.block();
                        let first = at(line) / block.elements;
                        let last = (at(line) + end - column).div_ceil(block.elements);
                        let bytes = &line.stored
                            [(first * block.bytes) as usize..(last * block.bytes) as usize];
                        let room = &mut room[..((last - first) * block.elements) as usize * width];
                        quant::decode(from, bytes, target, room)
                            .expect("whole blocks of a type with values, and room for them");
                    }
                }
                let mut lines: [&[u8]; MOST_LINES] = [&[]; MOST_LINES];
                for ((to, line), room) in lines.iter_mut().zip(all).zip(tile.chunks_exact(room)) {
                    let block = view.planes[line.which].dtype.block().elements;
                    let (bytes, first) = match view.planes[line.which].dtype == dtype {
                        true => (line.stored, at(line)),
                        false => (room, at(line) % block),
                    };
                    *to = &bytes[first as usize * width..][..(end - column) as usize * width];
                }
                let into = (column - wanted.columns.start) * row + place - wanted.places.start;
                let into = &mut made[into as usize * width..];
                turn(width, &lines[..number], (end - column) as usize, into, row as usize);
                column = end;
            }
            place += number as u64;
        }
    }
}

/// A stored row.
#[derive(Default)]
struct Line<'a> {
    /// What is needed of it.
    stored: &'a [u8],
    /// Values in front of the first that is wanted.
    lead: u64,
    /// Its tensor.
    which: usize,
}
