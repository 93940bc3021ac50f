//! Lines of values turned to columns: what all transposed views have in common.

/// Values of a line that are turned together.
const BLOCK: usize = 8;

/// Bytes that are written in a piece, where there are enough lines: a line of the cache.
const WRITTEN: usize = 64;

/// As many lines at most.
pub(super) const MOST_LINES: usize = WRITTEN;

/// So many lines of values of `size` bytes are best turned together.
pub(super) const fn lines(size: usize) -> usize {
    WRITTEN / size
}

/// Writes value `c` of all `lines` one after another to the front of row `c` of `to`, whose
/// rows have `row` values: for the first `columns` values of `size` (1, 2, 4 or 8) bytes.
pub(super) fn turn(size: usize, lines: &[&[u8]], columns: usize, to: &mut [u8], row: usize) {
    match size {
        1 => run::<1, 64>(lines, columns, to, row),
        2 => run::<2, 32>(lines, columns, to, row),
        4 => run::<4, 16>(lines, columns, to, row),
        _ => run::<8, 8>(lines, columns, to, row),
    }
}

fn run<const N: usize, const L: usize>(lines: &[&[u8]], columns: usize, to: &mut [u8], row: usize) {
    let to = to.as_chunks_mut::<N>().0;
    let mut done = 0;
    if let Ok(lines) = <&[&[u8]; L]>::try_from(lines) {
        while columns - done >= BLOCK {
            // In between, so that what is written is whole lines of the cache.
            let mut block = [[[0; N]; L]; BLOCK];
            for (at, line) in lines.iter().enumerate() {
                let values = line.as_chunks::<N>().0[done..].first_chunk::<BLOCK>();
                let values = values.expect("as many values as columns");
                for (column, value) in block.iter_mut().zip(values) {
                    column[at] = *value;
                }
            }
            for (column, values) in block.iter().enumerate() {
                let into = to[(done + column) * row..].first_chunk_mut::<L>();
                *into.expect("room for every line") = *values;
            }
            done += BLOCK;
        }
    }
    for column in done..columns {
        let into = &mut to[column * row..][..lines.len()];
        for (to, line) in into.iter_mut().zip(lines) {
            *to = line.as_chunks::<N>().0[column];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_with_few_lines_and_with_many() {
        for size in [1, 2, 4, 8] {
            for count in [1, lines(size) - 1, lines(size)] {
                for columns in [1, 7, 8, 35] {
                    let value = |line: usize, column: usize, byte: usize| {
                        (line * 89 + column * 7 + byte * 3) as u8
                    };
                    let stored: Vec<Vec<u8>> = (0..count)
                        .map(|l| {
                            (0..columns * size).map(|i| value(l, i / size, i % size)).collect()
                        })
                        .collect();
                    let slices: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
                    let row = count + 3;
                    let mut to = vec![0xEE; columns * row * size];
                    turn(size, &slices, columns, &mut to, row);
                    for (i, byte) in to.iter().enumerate() {
                        let (column, line) = (i / size / row, i / size % row);
                        let wanted =
                            if line < count { value(line, column, i % size) } else { 0xEE };
                        assert_eq!(*byte, wanted, "{size} {count} {columns} at {i}");
                    }
                }
            }
        }
    }
}
