//! Planes with rows and columns exchanged: a row that is shown takes one value of each stored
//! row.
//!
//! Such a row costs all of the plane's bytes, and a panel of rows costs no more, so panels are
//! made and the last few are kept. What is kept was checked when it was made. Where a panel
//! cannot be made, its rows are made in smaller numbers, down to values in order, so damage is
//! met by exactly the values that depend on it.

mod strip;

use super::rows::Part;
use super::{Bytes, Swap};
use crate::dtype::DType;
use crate::model::Extent;
use crate::quant::{self, Target};
use crate::scale::panels::{Found, Key, Panel, Panels, Rows};
use crate::store::{ReadFailure, Store, StoreError};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use strip::Strip;

/// Values of one row that are made together without a panel.
const PIECE: u64 = 64 << 10;

thread_local! {
    /// Bytes of one request on their way.
    static WORK: RefCell<Work> = RefCell::new(Work::default());
    /// Values that are made without a panel.
    static MADE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What one thread needs.
#[derive(Debug, Default)]
struct Work {
    stored: Vec<u8>,
    tile: Vec<u8>,
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

    /// The type in which values are made: the narrower of both.
    fn made(&self) -> DType {
        match self.to {
            Some(to) if (to.size() as u64) < self.width() => to.dtype(),
            _ => self.values,
        }
    }

    /// Writes `values` as they were made, from byte `skip` of what is shown of them on.
    fn show(&self, values: &[u8], skip: u64, out: &mut [u8]) {
        match self.to {
            Some(to) if to.dtype() != self.made() => {
                quant::decode_part(self.made(), values, to, skip, out)
                    .expect("as many values as the bytes need");
            }
            _ => out.copy_from_slice(&values[skip as usize..skip as usize + out.len()]),
        }
    }

    /// The panel that holds row `column` of a plane, if there can be one. If `few` of its
    /// values are wanted, it is not made.
    fn panel(
        &self,
        store: &Store,
        plane: u64,
        column: u64,
        few: bool,
    ) -> Result<Option<Arc<Panel>>, ReadFailure> {
        let first = self.planes[0].extent;
        let key = Key { place: (first.shard, first.offset), dtype: self.made(), plane };
        let blocks = self.planes.iter().map(|p| p.dtype.block().elements).max();
        let rows = Rows {
            count: self.columns,
            bytes: self.row() * key.dtype.block().bytes,
            together: blocks.unwrap_or(1),
        };
        let found = match few {
            true => self.panels.get(key, column).map_or(Found::Nothing, Found::Kept),
            false => self.panels.find(key, column, rows),
        };
        match found {
            Found::Kept(panel) => {
                // Nothing is read, so nothing else would see that a file has changed.
                for planes in &self.planes {
                    let source = &store.sources()[planes.extent.shard as usize];
                    let unchanged = source.check_unchanged().map_err(StoreError::from);
                    unchanged.map_err(|error| ReadFailure { good: 0, error })?;
                }
                Ok(Some(panel))
            }
            Found::Make(mut making) => {
                let wanted = Wanted { plane, columns: making.rows(), places: 0..self.row() };
                match self.gather(store, &wanted, making.bytes()) {
                    Ok(()) => Ok(Some(making.done())),
                    Err((_, failure)) if failure.error.is_stale() => {
                        Err(ReadFailure { good: 0, ..failure })
                    }
                    // What is good of it is found without the rows that nobody asked for.
                    Err(_) => Ok(None),
                }
            }
            Found::Nothing => Ok(None),
        }
    }

    /// Makes `wanted`, row by row. Where it fails, tells how many values at the front are
    /// good; that is 0 where there are several columns.
    fn gather(&self, store: &Store, wanted: &Wanted, made: &mut [u8]) -> Result<(), Stopped> {
        let several = wanted.columns.end - wanted.columns.start > 1;
        let strip = Strip::new(self, wanted);
        WORK.with_borrow_mut(|work| {
            let mut place = wanted.places.start;
            let mut step = strip.most;
            while place < wanted.places.end {
                let places = place..wanted.places.end.min(place + step);
                let read = strip.read(store, places.clone(), work);
                let end = read.as_ref().map_or_else(|(bad, _)| *bad, |()| places.end);
                strip.turn(place..end, &places, work, made);
                place = end;
                step = match read {
                    Ok(()) => strip.most,
                    // What is bad may lie between the rows, where nobody needs it.
                    Err((_, failure)) if step > 1 && !failure.error.is_stale() => 1,
                    Err((_, failure)) => {
                        let good = if several { 0 } else { place - wanted.places.start };
                        return Err((good, failure));
                    }
                };
            }
            Ok(())
        })
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
        let made = MADE.with_borrow_mut(|made| {
            let columns = wanted.columns.end - wanted.columns.start;
            let values = columns * (wanted.places.end - wanted.places.start);
            let width = self.made().block().bytes;
            grow(made, (values * width) as usize);
            let read = self.gather(store, wanted, made);
            let good = match &read {
                Ok(()) => out.len(),
                Err((values, _)) => {
                    ((values * self.size()).saturating_sub(skip) as usize).min(out.len())
                }
            };
            if good > 0 {
                let values = (skip + good as u64).div_ceil(self.size()) * width;
                self.show(&made[..values as usize], skip, &mut out[..good]);
            }
            read.map_err(|(_, failure)| ReadFailure { good, ..failure })
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

    /// Fills the front of `out` and returns how much: up to the end of a panel, or what is
    /// made without one.
    fn some(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<usize, ReadFailure> {
        let (size, row) = (self.size(), self.row());
        let value = from / size;
        let skip = from % size;
        let plane = value / (self.columns * row);
        let (column, place) = (value / row % self.columns, value % row);
        let wanted = (skip + out.len() as u64).div_ceil(size);
        let few = place + wanted <= row && wanted < row / 8;
        if let Some(panel) = self.panel(store, plane, column, few)? {
            let rows = panel.rows();
            let at = (column - rows.start) * row + place;
            let left = ((rows.end - rows.start) * row - at) * size - skip;
            let take = left.min(out.len() as u64) as usize;
            let values = &panel.bytes()[(at * self.made().block().bytes) as usize..];
            self.show(values, skip, &mut out[..take]);
            if take as u64 == left {
                panel.finish();
            }
            return Ok(take);
        }
        // Rest of the row that was begun, then whole rows.
        if place > 0 || wanted < row || row > PIECE {
            let end = row.min(place + wanted.min(PIECE));
            return self.piece(store, plane, (column..column + 1, place..end), skip, out);
        }
        let most = (wanted / row).min(4 * PIECE / row).min(self.columns - column);
        self.piece(store, plane, (column..column + most, 0..row), skip, out)
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

fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
}
