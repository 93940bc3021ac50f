//! Reads weights that are codes with scales.
//!
//! A request costs the codes and the scales that it covers. They are read whole or not at
//! all: where that fails, the request is halved until what is good in front of the failure
//! has been served, so damage is met by exactly the values that depend on it.

mod transposed;

use crate::dtype::DType;
use crate::model::{ByteOrder, Extent};
use crate::quant::{self, Target};
use crate::scale::compute::{Factors, apply, apply_groups};
use crate::scale::{Codes, Dims, Grid, Operation, Scaled, Second};
use crate::store::{ReadFailure, Store, StoreError};
use std::cell::RefCell;
use std::ops::Range;

/// Values that are decoded, scaled and narrowed together: they stay in the nearest cache.
const PIECE: u64 = 2048;
/// Scales that a request of any length may read at once.
const SCALES: u64 = 1 << 16;

thread_local! {
    /// Bytes of one request on their way.
    static WORK: RefCell<Work> = RefCell::new(Work::default());
}

/// What one thread needs to decode.
#[derive(Debug, Default)]
struct Work {
    codes: Vec<u8>,
    scales: Numbers,
    second: Numbers,
    values: Vec<u8>,
    column: Vec<u8>,
    tile: Vec<u8>,
}

/// Numbers of a tensor from one on, as bytes of F32.
#[derive(Debug, Default)]
struct Numbers {
    raw: Vec<u8>,
    values: Vec<u8>,
    first: u64,
    count: usize,
}

/// Fills `out` with the bytes of `scaled` from `from` on.
pub(super) fn read(
    store: &Store,
    scaled: &Scaled,
    from: u64,
    out: &mut [u8],
) -> Result<(), ReadFailure> {
    WORK.with_borrow_mut(|work| Reader { store, scaled, work, keeps_panels: true }.span(from, out))
}

struct Reader<'a> {
    store: &'a Store,
    scaled: &'a Scaled,
    work: &'a mut Work,
    /// Panels of a transposed weight: not in a request that has met damage.
    keeps_panels: bool,
}

impl Reader<'_> {
    fn span(&mut self, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        if out.is_empty() {
            return Ok(());
        }
        let size = self.scaled.to.size() as u64;
        let values = from / size..(from + out.len() as u64).div_ceil(size);
        let middle = match self.attempt(values.clone(), from, out) {
            Ok(()) => return Ok(()),
            Err(Obstacle::Wide(middle)) => middle,
            Err(Obstacle::Failure(failure)) => {
                if values.end - values.start == 1 || failure.error.is_stale() {
                    return Err(ReadFailure { good: 0, ..failure });
                }
                values.start + (values.end - values.start) / 2
            }
        };
        // After the first byte of the request and before its last.
        let (left, right) = out.split_at_mut((middle * size - from) as usize);
        self.span(from, left)?;
        let good = left.len();
        self.span(middle * size, right).map_err(|f| ReadFailure { good: f.good + good, ..f })
    }

    /// All of the values, or none.
    fn attempt(&mut self, values: Range<u64>, from: u64, out: &mut [u8]) -> Result<(), Obstacle> {
        let first = self.scaled.first;
        let shown = first + values.start..first + values.end;
        if self.scaled.method.transposed {
            return self.columns(shown, from, out);
        }
        self.rows(shown, from, out)
    }

    /// Values in the order of the codes.
    fn rows(&mut self, values: Range<u64>, from: u64, out: &mut [u8]) -> Result<(), Obstacle> {
        let Scaled { method, codes, to, first, .. } = *self.scaled;
        let columns = method.dims.columns;
        let place = Place::new(method.codes, columns, method.row_bytes);
        let last = values.end - 1;
        let window = Window {
            rows: values.start / columns..last / columns + 1,
            columns: if values.start / columns == last / columns {
                values.start % columns..last % columns + 1
            } else {
                0..columns
            },
        };
        self.scales(&window, values.end - values.start)?;

        let stored = place.of(values.start)..place.of(last) + place.unit_bytes;
        let length = (stored.end - stored.start) as usize;
        let Work { codes: buffer, scales, second, values: decoded, .. } = &mut *self.work;
        grow(buffer, length);
        self.store.read(codes, stored.start, &mut buffer[..length])?;
        grow(decoded, (PIECE + 2 * place.unit_values) as usize * 4);

        let size = to.size() as u64;
        let mut at = values.start;
        let mut done = 0;
        while at < values.end {
            let row_end = if place.flat { values.end } else { (at / columns + 1) * columns };
            let end = values.end.min(at + PIECE).min(row_end);
            let lead = if place.flat { at } else { at % columns } % place.unit_values;
            let units = (lead + end - at).div_ceil(place.unit_values);
            let begin = (place.of(at) - stored.start) as usize;
            let bytes = &buffer[begin..begin + (units * place.unit_bytes) as usize];
            let decoded = &mut decoded[..(units * place.unit_values) as usize * 4];
            method.codes.decode(bytes, decoded);
            let piece = &mut decoded[lead as usize * 4..][..(end - at) as usize * 4];

            let (mut row, mut column) = (at / columns, at % columns);
            let mut rest = piece.as_chunks_mut::<4>().0;
            while !rest.is_empty() {
                let run = (columns - column).min(rest.len() as u64);
                let (now, after) = rest.split_at_mut(run as usize);
                scale_row(self.scaled, scales, second, row, column, now);
                (row, column, rest) = (row + 1, 0, after);
            }

            let before = (at - first) * size;
            let skip = from.saturating_sub(before);
            let wanted = ((end - at) * size - skip).min((out.len() - done) as u64) as usize;
            narrow(piece, to, skip, &mut out[done..done + wanted]);
            done += wanted;
            at = end;
        }
        Ok(())
    }

    /// Reads the scales of `window`, and what else belongs to its values, of which there are
    /// `count`.
    fn scales(&mut self, window: &Window, count: u64) -> Result<(), Obstacle> {
        let Scaled { method, scale, second, order, .. } = *self.scaled;
        let Dims { rows, columns, .. } = method.dims;
        let Work { scales, second: numbers, .. } = &mut *self.work;
        let lines = &window.rows;
        if let (Some(extent), Some(dtype)) = (scale, method.scale) {
            let wanted = window.numbers(&method.grid, method.dims);
            let many = wanted.end - wanted.start;
            if many > SCALES && many / 4 > count && lines.end - lines.start > 1 {
                let middle = lines.start + (lines.end - lines.start) / 2;
                return Err(Obstacle::Wide(middle * columns - self.scaled.first));
            }
            scales.read(self.store, extent, dtype, order, wanted.clone())?;
            if let (Second::Offset(dtype), Some(extent)) = (method.second, second) {
                numbers.read(self.store, extent, dtype, order, wanted)?;
            }
        }
        let Some(extent) = second else { return Ok(()) };
        match method.second {
            Second::None | Second::Over127 | Second::Offset(_) => {}
            Second::Global(operation, over) => {
                let wanted = window.numbers(&over, method.dims);
                numbers.read(self.store, extent, DType::F32, order, wanted)?;
                let in_plane = method.grid.per_plane * method.grid.columns;
                scales.combine(operation, &over, in_plane, numbers);
            }
            Second::ZeroBytes => {
                numbers.read(self.store, extent, DType::I8, order, lines.clone())?;
            }
            Second::ZeroBits(bits) => {
                // The only plane there is; `bits` divides a word.
                debug_assert!(lines.end <= rows);
                let in_word = 32 / u64::from(bits);
                let words = lines.start / in_word..(lines.end - 1) / in_word;
                let (groups, block) = (method.grid.columns, method.grid.column_block);
                let wanted = words.start * groups + window.columns.start / block
                    ..words.end * groups + (window.columns.end - 1) / block + 1;
                numbers.bytes(self.store, extent, wanted.start * 4..wanted.end * 4)?;
                numbers.first = wanted.start;
            }
        }
        Ok(())
    }
}

/// Why not all of a request could be done at once.
enum Obstacle {
    /// It needs too much, and falls into two here.
    Wide(u64),
    /// Some of it cannot be read.
    Failure(ReadFailure),
}

impl From<ReadFailure> for Obstacle {
    fn from(failure: ReadFailure) -> Obstacle {
        Obstacle::Failure(failure)
    }
}

/// Where codes lie.
#[derive(Clone, Copy)]
struct Place {
    unit_bytes: u64,
    unit_values: u64,
    columns: u64,
    row_bytes: u64,
    /// Rows follow one another without a gap.
    flat: bool,
}

impl Place {
    fn new(codes: Codes, columns: u64, row_bytes: u64) -> Place {
        let (unit_bytes, unit_values) = codes.unit();
        let flat =
            columns.is_multiple_of(unit_values) && columns / unit_values * unit_bytes == row_bytes;
        Place { unit_bytes, unit_values, columns, row_bytes, flat }
    }

    /// The first byte of the unit that holds value `index`.
    fn of(&self, index: u64) -> u64 {
        let (row, column) = (index / self.columns, index % self.columns);
        row * self.row_bytes + column / self.unit_values * self.unit_bytes
    }
}

/// Rows, counted over all planes, and columns of values.
struct Window {
    rows: Range<u64>,
    columns: Range<u64>,
}

impl Window {
    /// Numbers of the scales that belong to it, with those between.
    fn numbers(&self, grid: &Grid, dims: Dims) -> Range<u64> {
        let row = |line: u64| grid.row(line / dims.rows, line % dims.rows);
        let last = self.rows.end - 1;
        let planes = self.rows.start / dims.rows..last / dims.rows;
        let lines = if grid.per_plane == 0 && planes.start != planes.end {
            // The same rows of scales come again.
            0..(dims.rows - 1) / grid.row_block + 1
        } else {
            row(self.rows.start)..row(last) + 1
        };
        let across =
            self.columns.start / grid.column_block..(self.columns.end - 1) / grid.column_block + 1;
        if lines.end - lines.start == 1 {
            lines.start * grid.columns + across.start..lines.start * grid.columns + across.end
        } else {
            lines.start * grid.columns + across.start..(lines.end - 1) * grid.columns + across.end
        }
    }
}

impl Numbers {
    /// The elements `wanted` of a tensor.
    fn read(
        &mut self,
        store: &Store,
        extent: Extent,
        dtype: DType,
        order: ByteOrder,
        wanted: Range<u64>,
    ) -> Result<(), ReadFailure> {
        let size = dtype.block().bytes;
        self.bytes(store, extent, wanted.start * size..wanted.end * size)?;
        self.first = wanted.start;
        let count = (wanted.end - wanted.start) as usize;
        let raw = &mut self.raw[..count * size as usize];
        if order == ByteOrder::Big {
            raw.chunks_exact_mut(size as usize).for_each(<[u8]>::reverse);
        }
        self.count = count;
        grow(&mut self.values, count * 4);
        if let Some(codes) = Codes::of(dtype) {
            codes.decode(raw, &mut self.values[..count * 4]);
        }
        Ok(())
    }

    fn bytes(
        &mut self,
        store: &Store,
        extent: Extent,
        bytes: Range<u64>,
    ) -> Result<(), ReadFailure> {
        // A request's scales were counted, or are fewer than its values.
        let length = usize::try_from(bytes.end - bytes.start).map_err(|_| ReadFailure {
            good: 0,
            error: StoreError::Outside {
                shard: extent.shard,
                offset: extent.offset + bytes.start,
                len: bytes.end - bytes.start,
            },
        })?;
        grow(&mut self.raw, length);
        store.read(extent, bytes.start, &mut self.raw[..length])
    }

    /// Combines each number with that of its plane, which has `in_plane` of them.
    fn combine(&mut self, operation: Operation, over: &Grid, in_plane: u64, globals: &Numbers) {
        let end = self.first + self.count as u64;
        let mut from = self.first;
        let mut rest = self.values[..self.count * 4].as_chunks_mut::<4>().0;
        while from < end {
            let plane = from / in_plane;
            let take =
                if over.per_plane == 0 { end } else { end.min((plane + 1) * in_plane) } - from;
            let global = globals.at(over.row(plane, 0));
            let (now, after) = rest.split_at_mut(take as usize);
            for scale in now {
                *scale = operation.combine(f32::from_le_bytes(*scale), global).to_le_bytes();
            }
            (from, rest) = (from + take, after);
        }
    }

    fn at(&self, index: u64) -> f32 {
        let at = (index - self.first) as usize;
        f32::from_le_bytes(self.values.as_chunks::<4>().0[at])
    }
}

/// Turns `values`, which lie in one row from `column` on; `line` is its number over all planes.
fn scale_row(
    scaled: &Scaled,
    scales: &Numbers,
    second: &Numbers,
    line: u64,
    column: u64,
    values: &mut [[u8; 4]],
) {
    let method = &scaled.method;
    if method.scale.is_none() {
        return;
    }
    let (grid, rows) = (&method.grid, method.dims.rows);
    let (plane, row) = (line / rows, line % rows);
    let block = grid.column_block.min(method.dims.columns);
    let number = grid.row(plane, row) * grid.columns + column / block;
    let mut at = (number - scales.first) as usize;
    let all = scales.values.as_chunks::<4>().0;
    let mut rest = values;
    let plain = matches!(method.second, Second::None | Second::Global(..));
    if plain && column.is_multiple_of(block) {
        // The usual groups, with a length that the compiler knows.
        let done = match block {
            16 => apply_groups::<16>(&all[at..], rest),
            32 => apply_groups::<32>(&all[at..], rest),
            _ => 0,
        };
        at += done / block as usize;
        rest = &mut rest[done..];
    }
    let mut place = (column % block) as usize;
    let mut group = column / block;
    while !rest.is_empty() {
        let run = (block as usize - place).min(rest.len());
        let (now, after) = rest.split_at_mut(run);
        let mut factors = Factors { zero: 0.0, scale: f32::from_le_bytes(all[at]), offset: 0.0 };
        match method.second {
            Second::None | Second::Global(..) | Second::Over127 => {}
            Second::ZeroBytes => factors.zero = second.at(line),
            Second::ZeroBits(bits) => factors.zero = zero_point(grid, bits, second, row, group),
            Second::Offset(_) => factors.offset = second.at(at as u64 + scales.first),
        }
        apply(method.second, factors, now);
        (at, group, place, rest) = (at + 1, group + 1, 0, after);
    }
}

/// The zero point of a row's group, out of its column of codes.
fn zero_point(grid: &Grid, bits: u8, second: &Numbers, row: u64, group: u64) -> f32 {
    let bits = u64::from(bits);
    let at = (row * bits / 32 * grid.columns + group - second.first) as usize;
    let word = u32::from_le_bytes(second.raw.as_chunks::<4>().0[at]);
    let code = word >> (row * bits % 32) & ((1 << bits) - 1);
    // At most 8 bits.
    code as f32 - (1u32 << (bits - 1)) as f32
}

/// Rounds `values` and writes the bytes from `skip` on.
fn narrow(values: &[u8], to: Target, skip: u64, out: &mut [u8]) {
    quant::decode_part(DType::F32, values, to, skip, out)
        .expect("as many values as the request covers");
}

fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
}
