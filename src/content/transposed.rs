//! Planes with rows and columns exchanged: a row that is shown takes one value of each stored
//! row.
//!
//! Such a row costs all of the plane's bytes, and a panel of rows costs no more, so panels are
//! made and the last few are kept. What is kept was checked when it was made. Where a panel
//! cannot be made, its rows are made in smaller numbers, down to values in order, so damage is
//! met by exactly the values that depend on it.

use super::rows::Part;
use super::{Bytes, Swap};
use crate::dtype::DType;
use crate::model::Extent;
use crate::quant::{self, Target};
use crate::scale::panels::Panels;
use crate::store::{ReadFailure, Store, StoreError};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Largest panel, in bytes: each reader makes one at a time.
const PANEL: u64 = 2 << 20;
/// Stored bytes that are read together.
const STRIP: u64 = 256 << 10;
/// From this length on, of a stored row only what is needed is read.
const LONG_ROW: u64 = 128 << 10;
/// Stored rows that are turned together: their values fill a line of the cache.
const TILE: usize = 16;
/// Values of a row that is too long for a panel, made together.
const PIECE: u64 = 64 << 10;

thread_local! {
    /// Bytes of one request on their way.
    static WORK: RefCell<Work> = RefCell::new(Work::default());
}

/// What one thread needs.
#[derive(Debug, Default)]
struct Work {
    stored: Vec<u8>,
    tile: Vec<u8>,
    made: Vec<u8>,
}

/// Stored planes.
#[derive(Clone, Debug)]
pub struct Planes {
    /// Their bytes.
    pub part: Part,
    /// Where the stored bytes lie: says which panels belong to them, and which file to watch.
    pub extent: Extent,
    /// Type of what `part` gives: rows are whole blocks.
    pub dtype: DType,
    /// How its blocks are turned little-endian.
    pub swap: Option<Swap>,
}

/// Planes of `columns` rows, each with a value of every stored row. With two stored tensors
/// their values come in turn.
#[derive(Clone, Debug)]
pub struct Transposed {
    /// One or two.
    pub planes: Vec<Planes>,
    /// Planes in each.
    pub count: u64,
    /// Stored rows of a plane, at least 1 unless there are no values.
    pub rows: u64,
    /// Values of a stored row, at least 1 unless there are no values.
    pub columns: u64,
    /// Type of the values on their way: that of all planes, if each element is its own block,
    /// else F32.
    pub values: DType,
    /// The type shown; `None`: as they are.
    pub to: Option<Target>,
    /// What is kept.
    pub panels: Arc<Panels>,
}

/// Which values are to be made: of one plane, some columns of some values each.
struct Wanted {
    plane: u64,
    columns: Range<u64>,
    /// Places in the rows that are shown. All of them where there are several columns.
    places: Range<u64>,
}

/// Values that could be made in front of the first that could not.
type Stopped = (u64, ReadFailure);

impl Transposed {
    /// Bytes of a value on its way.
    fn width(&self) -> u64 {
        self.values.block().bytes
    }

    /// Bytes of a value that is shown.
    fn size(&self) -> u64 {
        self.to.map_or(self.width(), |to| to.size() as u64)
    }

    /// Values of a row that is shown.
    fn row(&self) -> u64 {
        self.rows * self.planes.len() as u64
    }

    /// Bytes shown.
    pub fn len(&self) -> u64 {
        self.count * self.columns * self.row() * self.size()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows of a panel; 0: a single row is too long for one.
    fn panel_rows(&self) -> u64 {
        let most = (PANEL / (self.row() * self.width())).min(self.columns);
        let blocks = self.planes.iter().map(|p| p.dtype.block().elements).max().unwrap_or(1);
        if most > blocks { most / blocks * blocks } else { most }
    }

    /// Writes `values`, from byte `skip` of what is shown of them on.
    fn show(&self, values: &[u8], skip: u64, out: &mut [u8]) {
        match self.to {
            Some(to) => quant::decode_part(self.values, values, to, skip, out)
                .expect("as many values as the bytes need"),
            None => out.copy_from_slice(&values[skip as usize..skip as usize + out.len()]),
        }
    }

    /// The panel that holds row `column` of a plane.
    fn panel(
        &self,
        store: &Store,
        plane: u64,
        number: u64,
        columns: Range<u64>,
    ) -> Result<Arc<[u8]>, ReadFailure> {
        let first = self.planes[0].extent;
        let key = (first.shard, first.offset, plane, number);
        if let Some(panel) = self.panels.get(key) {
            // Nothing is read, so nothing else would see that a file has changed.
            for planes in &self.planes {
                let source = &store.sources()[planes.extent.shard as usize];
                let unchanged = source.check_unchanged().map_err(StoreError::from);
                unchanged.map_err(|error| ReadFailure { good: 0, error })?;
            }
            return Ok(panel);
        }
        let wanted = Wanted { plane, columns, places: 0..self.row() };
        let panel: Arc<[u8]> = WORK.with_borrow_mut(|work| {
            let made = self.gather(store, &wanted, work).map_err(|(_, failure)| failure);
            made.map(|length| work.made[..length].into())
        })?;
        self.panels.put(key, Arc::clone(&panel));
        Ok(panel)
    }

    /// Makes `wanted`, row by row, and returns their bytes' number. Where it fails, tells how
    /// many values at the front are good; that is 0 where there are several columns.
    fn gather(&self, store: &Store, wanted: &Wanted, work: &mut Work) -> Result<usize, Stopped> {
        let several = wanted.columns.end - wanted.columns.start > 1;
        let row = wanted.places.end - wanted.places.start;
        let length = ((wanted.columns.end - wanted.columns.start) * row * self.width()) as usize;
        grow(&mut work.made, length);
        let mut stopped: Option<Stopped> = None;
        for which in 0..self.planes.len() as u64 {
            let count = self.planes.len() as u64;
            // Stored rows whose values have these places, of every `count`th.
            let first = (wanted.places.start + count - 1 - which) / count;
            let end = (wanted.places.end + count - 1 - which) / count;
            let Err((rows, failure)) = self.strips(store, which, first..end, wanted, work) else {
                continue;
            };
            let good = rows * count + which - wanted.places.start;
            let good = if several { 0 } else { good };
            if stopped.as_ref().is_none_or(|(least, _)| good < *least) {
                stopped = Some((good, failure));
            }
        }
        stopped.map_or(Ok(length), Err)
    }

    /// Spreads the stored `rows` of one tensor over what is made. Where it fails, tells which
    /// row was not had.
    fn strips(
        &self,
        store: &Store,
        which: u64,
        rows: Range<u64>,
        wanted: &Wanted,
        work: &mut Work,
    ) -> Result<(), Stopped> {
        let Planes { part, dtype, swap, .. } = &self.planes[which as usize];
        let block = dtype.block();
        let row_bytes = self.columns / block.elements * block.bytes;
        let blocks =
            wanted.columns.start / block.elements..wanted.columns.end.div_ceil(block.elements);
        let needed = (blocks.end - blocks.start) * block.bytes;
        let longest = if row_bytes >= LONG_ROW { 1 } else { (STRIP / row_bytes).max(1) };
        let mut row = rows.start;
        let mut step = longest;
        while row < rows.end {
            let end = rows.end.min(row + step);
            let begin = (wanted.plane * self.rows + row) * row_bytes + blocks.start * block.bytes;
            let length = ((end - 1 - row) * row_bytes + needed) as usize;
            grow(&mut work.stored, length);
            let read = part.read(store, begin, &mut work.stored[..length]);
            let had = read.as_ref().map_or_else(
                |f| (f.good as u64 + row_bytes).saturating_sub(needed) / row_bytes,
                |()| end - row,
            );
            let Work { stored, tile, made } = &mut *work;
            let mut turned = 0;
            while turned < had {
                let lines = (had - turned).min(TILE as u64);
                let width = self.width() as usize;
                let lead = (wanted.columns.start - blocks.start * block.elements) as usize;
                let span = ((blocks.end - blocks.start) * block.elements) as usize * width;
                grow(tile, span * TILE);
                for line in 0..lines {
                    let at = ((turned + line) * row_bytes) as usize;
                    let bytes = &mut stored[at..at + needed as usize];
                    if let Some(swap) = swap {
                        swap.apply(bytes);
                    }
                    let into = &mut tile[line as usize * span..][..span];
                    if *dtype == self.values {
                        into.copy_from_slice(bytes);
                    } else {
                        quant::decode(*dtype, bytes, Target::F32, into)
                            .expect("whole blocks of a type with values, and room for them");
                    }
                }
                let count = self.planes.len() as u64;
                let place = (row + turned) * count + which - wanted.places.start;
                let spread = Spread {
                    lines: lines as usize,
                    line: span / width,
                    lead,
                    columns: (wanted.columns.end - wanted.columns.start) as usize,
                    row: (wanted.places.end - wanted.places.start) as usize,
                    place: place as usize,
                    step: count as usize,
                };
                match width {
                    1 => spread.run::<1>(tile, made),
                    2 => spread.run::<2>(tile, made),
                    4 => spread.run::<4>(tile, made),
                    _ => spread.run::<8>(tile, made),
                }
                turned += lines;
            }
            row += had;
            step = match read {
                Ok(()) => longest,
                // What is bad may lie between the rows, where nobody needs it.
                Err(failure) if end - row + had > 1 && !failure.error.is_stale() => 1,
                Err(failure) => return Err((row, failure)),
            };
        }
        Ok(())
    }

    /// Fills `out` with what is shown of the values from `value` on, all in the rows `columns`
    /// of one plane; from byte `skip` on.
    fn rows(
        &self,
        store: &Store,
        wanted: &Wanted,
        skip: u64,
        out: &mut [u8],
    ) -> Result<(), ReadFailure> {
        let made = WORK.with_borrow_mut(|work| {
            let made = self.gather(store, wanted, work);
            let good = match &made {
                Ok(_) => out.len(),
                Err((values, _)) => {
                    ((values * self.size()).saturating_sub(skip) as usize).min(out.len())
                }
            };
            if good > 0 {
                let values = (skip + good as u64).div_ceil(self.size()) * self.width();
                self.show(&work.made[..values as usize], skip, &mut out[..good]);
            }
            made.map(|_| ()).map_err(|(_, failure)| ReadFailure { good, ..failure })
        });
        let columns = wanted.columns.end - wanted.columns.start;
        match made {
            Err(failure) if columns > 1 && !failure.error.is_stale() => {}
            done => return done,
        }
        let middle = wanted.columns.start + columns / 2;
        let bytes = columns / 2 * self.row() * self.size() - skip;
        let (left, right) = out.split_at_mut((bytes as usize).min(out.len()));
        let places = || wanted.places.clone();
        let half = |columns| Wanted { plane: wanted.plane, columns, places: places() };
        self.rows(store, &half(wanted.columns.start..middle), skip, left)?;
        if right.is_empty() {
            return Ok(());
        }
        self.rows(store, &half(middle..wanted.columns.end), 0, right)
            .map_err(|f| ReadFailure { good: f.good + left.len(), ..f })
    }

    /// Fills the front of `out` and returns how much: up to the end of a panel, or of a piece
    /// of a row that is too long for one.
    fn some(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<usize, ReadFailure> {
        let (size, row) = (self.size(), self.row());
        let value = from / size;
        let skip = from % size;
        let plane = value / (self.columns * row);
        let (column, place) = (value / row % self.columns, value % row);
        let wanted_values = (skip + out.len() as u64).div_ceil(size);
        let panel_rows = self.panel_rows();
        let number = column.checked_div(panel_rows);
        let few = place + wanted_values <= row && wanted_values < row / 8;
        let first = self.planes[0].extent;
        let kept = |number| self.panels.get((first.shard, first.offset, plane, number)).is_some();
        if let Some(number) = number.filter(|&n| !few || kept(n)) {
            let columns = number * panel_rows..((number + 1) * panel_rows).min(self.columns);
            let at = (column - columns.start) * row + place;
            let left = (columns.end - columns.start) * row - at;
            let take = ((left * size - skip).min(out.len() as u64)) as usize;
            match self.panel(store, plane, number, columns.clone()) {
                Ok(panel) => {
                    let values = &panel[(at * self.width()) as usize..];
                    self.show(values, skip, &mut out[..take]);
                    return Ok(take);
                }
                Err(failure) if failure.error.is_stale() => {
                    return Err(ReadFailure { good: 0, ..failure });
                }
                Err(_) => {}
            }
            // What is good of it is found without the rows that nobody asked for: the rest of
            // the row that was begun, then whole rows.
            let rows = if place > 0 || left.min(wanted_values) < row {
                let end = row.min(place + wanted_values);
                (column..column + 1, place..end)
            } else {
                (column..column + left.min(wanted_values) / row, 0..row)
            };
            return self.piece(store, plane, rows, skip, out);
        }
        let end = row.min(place + wanted_values.min(PIECE));
        self.piece(store, plane, (column..column + 1, place..end), skip, out)
    }

    /// Makes rows, or a piece of one, for the front of `out`.
    fn piece(
        &self,
        store: &Store,
        plane: u64,
        (columns, places): (Range<u64>, Range<u64>),
        skip: u64,
        out: &mut [u8],
    ) -> Result<usize, ReadFailure> {
        let values = (columns.end - columns.start) * (places.end - places.start);
        let take = ((values * self.size() - skip).min(out.len() as u64)) as usize;
        let wanted = Wanted { plane, columns, places };
        self.rows(store, &wanted, skip, &mut out[..take])?;
        Ok(take)
    }
}

impl Bytes for Transposed {
    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        let mut done = 0;
        while done < out.len() {
            done += self
                .some(store, from + done as u64, &mut out[done..])
                .map_err(|f| ReadFailure { good: f.good + done, ..f })?;
        }
        Ok(())
    }
}

/// How the values of some stored rows are spread over the rows that are shown.
struct Spread {
    /// Stored rows, and values of each that are at hand.
    lines: usize,
    line: usize,
    /// Values at hand before the first that is wanted, and how many are.
    lead: usize,
    columns: usize,
    /// Values of a row that is made; where the first of these goes, and the next.
    row: usize,
    place: usize,
    step: usize,
}

impl Spread {
    fn run<const N: usize>(&self, tile: &[u8], made: &mut [u8]) {
        let tile = tile.as_chunks::<N>().0;
        let made = made.as_chunks_mut::<N>().0;
        for column in 0..self.columns {
            let into = &mut made[column * self.row + self.place..];
            let values = tile[self.lead + column..].iter().step_by(self.line);
            for (to, value) in into.iter_mut().step_by(self.step).zip(values.take(self.lines)) {
                *to = *value;
            }
        }
    }
}

fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
}
