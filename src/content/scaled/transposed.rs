//! Weights whose planes are shown transposed: a row that is shown takes one code of each
//! stored row.

use super::{Obstacle, Place, Reader, Window, Work, grow, narrow, scale_row};
use crate::content::turn::{MOST_LINES, lines, turn};
use crate::scale::panels::{Found, Key, Panel, Rows};
use crate::scale::{Dims, Scaled};
use crate::store::{ReadFailure, StoreError};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of codes that are looked at together.
const STRIP: u64 = 256 << 10;
/// Values of a stored row that are decoded together: whole units.
const DECODED: u64 = 256;
/// Bytes of a value while it is scaled.
const WIDTH: usize = 4;

impl Reader<'_> {
    /// Values where each plane is shown transposed.
    pub(super) fn columns(
        &mut self,
        values: Range<u64>,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), Obstacle> {
        let Scaled { method, to, first, .. } = *self.scaled;
        let Dims { rows, columns, .. } = method.dims;
        // As it is shown: planes of `columns` rows with `rows` values each.
        let in_plane = rows * columns;
        let (start, last) = (values.start, values.end - 1);
        let plane = start / in_plane;
        if last / in_plane != plane {
            return Err(Obstacle::Wide((plane + 1) * in_plane - first));
        }
        let size = to.size() as u64;
        let skip = (from - (start - first) * size) as usize;
        let count = values.end - values.start;
        let row = (start % in_plane) / rows;
        // Less than a row may be had for less than the panel.
        if self.keeps_panels
            && let Some(panel) = self.panel(plane, row, count < rows)?
        {
            let base = plane * in_plane;
            let end = base + panel.rows().end * rows;
            if values.end > end {
                return Err(Obstacle::Wide(end - first));
            }
            let at = ((start - base - panel.rows().start * rows) * size) as usize + skip;
            out.copy_from_slice(&panel.bytes()[at..at + out.len()]);
            if values.end == end {
                panel.finish();
            }
            return Ok(());
        }
        // A part of one row, or whole rows.
        let row_end = start - start % rows + rows;
        if values.end > row_end && !start.is_multiple_of(rows) {
            return Err(Obstacle::Wide(row_end - first));
        }
        if values.end > row_end && !values.end.is_multiple_of(rows) {
            return Err(Obstacle::Wide(values.end - values.end % rows - first));
        }
        let shown = row..(last % in_plane) / rows + 1;
        let stored = if values.end > row_end { 0..rows } else { start % rows..last % rows + 1 };
        let mut column = std::mem::take(&mut self.work.column);
        grow(&mut column, (count * size) as usize);
        let gathered = self.gather(plane, shown, stored, &mut column[..(count * size) as usize]);
        if gathered.is_ok() {
            out.copy_from_slice(&column[skip..skip + out.len()]);
        }
        self.work.column = column;
        gathered
    }

    /// The panel with a row of a plane, if there can be one. If `few` of its values are wanted,
    /// it is not made.
    fn panel(&mut self, plane: u64, row: u64, few: bool) -> Result<Option<Arc<Panel>>, Obstacle> {
        let Scaled { method, codes, scale, second, to, .. } = *self.scaled;
        let Some(panels) = self.scaled.panels.as_ref() else { return Ok(None) };
        let key = Key { place: (codes.shard, codes.offset), dtype: to.dtype(), plane };
        let rows = Rows {
            count: method.dims.columns,
            bytes: method.dims.rows * to.size() as u64,
            together: method.codes.unit().1,
        };
        let found = match few {
            true => panels.get(key, row).map_or(Found::Nothing, Found::Kept),
            false => panels.find(key, row, rows),
        };
        match found {
            Found::Kept(panel) => {
                // Nothing is read, so nothing else would see that a file has changed.
                for extent in [Some(codes), scale, second].into_iter().flatten() {
                    let source = &self.store.sources()[extent.shard as usize];
                    let unchanged = source.check_unchanged().map_err(StoreError::from);
                    unchanged.map_err(|error| ReadFailure { good: 0, error })?;
                }
                Ok(Some(panel))
            }
            Found::Make(mut making) => {
                let all = 0..method.dims.rows;
                match self.gather(plane, making.rows(), all, making.bytes()) {
                    Ok(()) => Ok(Some(making.done())),
                    Err(Obstacle::Failure(failure)) if failure.error.is_stale() => {
                        Err(Obstacle::Failure(failure))
                    }
                    // What is good of it is found without the others.
                    Err(_) => {
                        self.keeps_panels = false;
                        Ok(None)
                    }
                }
            }
            Found::Nothing => Ok(None),
        }
    }

    /// Makes the rows `shown` of a plane, of the values of its `stored` rows.
    fn gather(
        &mut self,
        plane: u64,
        shown: Range<u64>,
        stored: Range<u64>,
        made: &mut [u8],
    ) -> Result<(), Obstacle> {
        let Scaled { method, codes, to, .. } = *self.scaled;
        let Dims { rows, columns, .. } = method.dims;
        let size = to.size();
        let place = Place::new(method.codes, columns, method.row_bytes);
        let (unit, unit_bytes) = (place.unit_values, place.unit_bytes);
        let first = shown.start / unit;
        let needed = (shown.end.div_ceil(unit) - first) * unit_bytes;
        let most = lines(size) as u64;
        let fit = |bytes: u64| bytes / method.row_bytes.max(1);
        let step = match fit(STRIP) / most * most {
            0 => most.min(fit(2 * STRIP)).max(1),
            step => step,
        };
        let room = DECODED as usize * size;
        grow(&mut self.work.values, DECODED as usize * WIDTH);
        grow(&mut self.work.tile, room * MOST_LINES);
        let mut row = stored.start;
        while row < stored.end {
            let end = stored.end.min(row + step);
            let window =
                Window { rows: plane * rows + row..plane * rows + end, columns: shown.clone() };
            self.scales(&window, u64::MAX)?;
            let begin = window.rows.start * method.row_bytes + first * unit_bytes;
            let length = ((end - 1 - row) * method.row_bytes + needed) as usize;
            let Work { codes: buffer, scales, second, values, tile, .. } = &mut *self.work;
            grow(buffer, length);
            self.store.read(codes, begin, &mut buffer[..length])?;
            let strip = row;
            while row < end {
                let number = most.min(end - row) as usize;
                let mut column = shown.start;
                while column < shown.end {
                    let until = shown.end.min((column / DECODED + 1) * DECODED);
                    let units = column / unit..until.div_ceil(unit);
                    let lead = (column - units.start * unit) as usize;
                    let wide = (until - column) as usize;
                    let decoded =
                        &mut values[..((units.end - units.start) * unit) as usize * WIDTH];
                    for (line, tile) in (row..).zip(tile.chunks_exact_mut(room).take(number)) {
                        let at =
                            (line - strip) * method.row_bytes + (units.start - first) * unit_bytes;
                        let bytes = (units.end - units.start) * unit_bytes;
                        method.codes.decode(&buffer[at as usize..(at + bytes) as usize], decoded);
                        let now = &mut decoded[lead * WIDTH..(lead + wide) * WIDTH];
                        let floats = now.as_chunks_mut::<WIDTH>().0;
                        scale_row(self.scaled, scales, second, plane * rows + line, column, floats);
                        narrow(now, to, 0, &mut tile[..wide * size]);
                    }
                    let mut all: [&[u8]; MOST_LINES] = [&[]; MOST_LINES];
                    for (line, tile) in all.iter_mut().zip(tile.chunks_exact(room)) {
                        *line = tile;
                    }
                    let across = stored.end - stored.start;
                    let into = (column - shown.start) * across + row - stored.start;
                    let into = &mut made[into as usize * size..];
                    turn(size, &all[..number], wide, into, across as usize);
                    column = until;
                }
                row += number as u64;
            }
        }
        Ok(())
    }
}
