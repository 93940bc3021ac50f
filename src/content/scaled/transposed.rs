//! Weights whose planes are shown transposed: a row that is shown takes one code of each
//! stored row.

use super::{Obstacle, Place, Reader, Window, Work, grow, narrow, scale_row};
use crate::scale::panels::{PANEL_BYTES, PANEL_ROWS};
use crate::scale::{Dims, Scaled};
use crate::store::{ReadFailure, StoreError};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of codes that are looked at together.
const STRIP: u64 = 256 << 10;

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
        let skip = from - (start - first) * to.size() as u64;
        let count = values.end - values.start;
        // Less than a row may be had for less than the panel.
        if self.keeps_panels && count >= rows && rows * PANEL_ROWS * 4 <= PANEL_BYTES {
            let panel = (start % in_plane) / (rows * PANEL_ROWS);
            let begin = plane * in_plane + panel * rows * PANEL_ROWS;
            let end = (begin + rows * PANEL_ROWS).min((plane + 1) * in_plane);
            if values.end > end {
                return Err(Obstacle::Wide(end - first));
            }
            match self.panel(plane, panel, begin..end) {
                Ok(panel) => {
                    let at = (start - begin) as usize * 4;
                    narrow(&panel[at..at + count as usize * 4], to, skip, out);
                    return Ok(());
                }
                // What is good of it is found without the others.
                Err(_) => self.keeps_panels = false,
            }
        }
        self.gather(values)?;
        narrow(&self.work.column[..count as usize * 4], to, skip, out);
        Ok(())
    }

    /// The values of a panel.
    fn panel(
        &mut self,
        plane: u64,
        number: u64,
        values: Range<u64>,
    ) -> Result<Arc<[u8]>, Obstacle> {
        let Scaled { codes, scale, second, .. } = *self.scaled;
        let key = (codes.shard, codes.offset, plane, number);
        let panels = self.scaled.panels.as_ref();
        if let Some(panel) = panels.and_then(|panels| panels.get(key)) {
            // Nothing is read, so nothing else would see that a file has changed.
            for extent in [Some(codes), scale, second].into_iter().flatten() {
                let source = &self.store.sources()[extent.shard as usize];
                let unchanged = source.check_unchanged().map_err(StoreError::from);
                unchanged.map_err(|error| ReadFailure { good: 0, error })?;
            }
            return Ok(panel);
        }
        let bytes = (values.end - values.start) as usize * 4;
        self.gather(values)?;
        let panel: Arc<[u8]> = self.work.column[..bytes].into();
        if let Some(panels) = &self.scaled.panels {
            panels.put(key, Arc::clone(&panel));
        }
        Ok(panel)
    }

    /// Decodes `values`, which lie in one plane, into the column buffer.
    fn gather(&mut self, values: Range<u64>) -> Result<(), Obstacle> {
        let Scaled { method, codes, .. } = *self.scaled;
        let Dims { rows, columns, .. } = method.dims;
        let (start, last) = (values.start, values.end - 1);
        let plane = start / (rows * columns);
        let base = plane * rows * columns;
        let shown = (start - base) / rows..(last - base) / rows + 1;
        let stored = if shown.end - shown.start == 1 {
            (start - base) % rows..(last - base) % rows + 1
        } else {
            0..rows
        };
        let place = Place::new(method.codes, columns, method.row_bytes);
        let (unit, unit_bytes) = (place.unit_values, place.unit_bytes);
        let units = shown.start / unit..shown.end.div_ceil(unit);
        let count = (values.end - values.start) as usize;
        grow(&mut self.work.column, count * 4);
        grow(&mut self.work.values, ((units.end - units.start) * unit) as usize * 4);
        let step = (STRIP / method.row_bytes.max(1)).max(1);
        let mut row = stored.start;
        while row < stored.end {
            let end = stored.end.min(row + step);
            let global = plane * rows;
            let window = Window { rows: global + row..global + end, columns: shown.clone() };
            self.scales(&window, u64::MAX)?;
            let begin = (global + row) * method.row_bytes + units.start * unit_bytes;
            let length = ((end - 1 - row) * method.row_bytes
                + (units.end - units.start) * unit_bytes) as usize;
            let Work { codes: buffer, scales, second, values, column } = &mut *self.work;
            grow(buffer, length);
            self.store.read(codes, begin, &mut buffer[..length])?;
            let places = column.as_chunks_mut::<4>().0;
            for line in row..end {
                let at = ((line - row) * method.row_bytes) as usize;
                let bytes = &buffer[at..at + ((units.end - units.start) * unit_bytes) as usize];
                let decoded = &mut values[..((units.end - units.start) * unit) as usize * 4];
                method.codes.decode(bytes, decoded);
                let lead = (shown.start - units.start * unit) as usize * 4;
                let width = (shown.end - shown.start) as usize;
                let now = &mut decoded[lead..].as_chunks_mut::<4>().0[..width];
                scale_row(self.scaled, scales, second, global + line, shown.start, now);
                for (k, value) in shown.clone().zip(now.iter()) {
                    let index = base + k * rows + line;
                    if (start..=last).contains(&index) {
                        places[(index - start) as usize] = *value;
                    }
                }
            }
            row = end;
        }
        Ok(())
    }
}
