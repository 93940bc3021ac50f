//! Which scale belongs to which value: the shape of a scale tensor read against its weight's.
//!
//! facts: scales 1.3. A weight is planes of rows of columns: the last two dimensions, and
//! all before them as one. What fits no reading, or two of them, fits none.

use crate::model::elements;

/// More than any dimension: one row or column of scales for all.
const ALL: u64 = u64::MAX;

/// A weight as planes of rows of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dims {
    /// Product of all dimensions but the last two.
    pub planes: u64,
    /// The last but one, 1 without it.
    pub rows: u64,
    /// The last, 1 without it.
    pub columns: u64,
}

impl Dims {
    /// Of a shape without a zero in it.
    pub fn of(shape: &[u64]) -> Dims {
        let (lead, rows, columns) = match shape {
            [] => (&shape[..0], 1, 1),
            [columns] => (&shape[..0], 1, *columns),
            [lead @ .., rows, columns] => (lead, *rows, *columns),
        };
        Dims { planes: elements(lead), rows, columns }
    }
}

/// How scales lie over the values: the scale of (plane, row, column) is number
/// `(plane * per_plane + row / row_block) * columns + column / column_block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Rows of scales in a plane; 0 when the planes share them.
    pub per_plane: u64,
    /// Rows of values with the same scales.
    pub row_block: u64,
    /// Scales in a row of scales.
    pub columns: u64,
    /// Values of a row with the same scale.
    pub column_block: u64,
    /// What it looks like.
    pub spread: Spread,
}

/// What a grid looks like.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    Tensor,
    Expert,
    Channel,
    Group,
    Block,
}

impl Grid {
    /// One scale for all.
    pub const TENSOR: Grid = Grid {
        per_plane: 0,
        row_block: ALL,
        columns: 1,
        column_block: ALL,
        spread: Spread::Tensor,
    };

    /// One scale for each plane.
    pub const PLANE: Grid = Grid { per_plane: 1, spread: Spread::Expert, ..Grid::TENSOR };

    /// A scale for every `group` columns of each row.
    pub const fn groups(rows: u64, columns: u64, group: u64) -> Grid {
        Grid {
            per_plane: rows,
            row_block: 1,
            columns,
            column_block: group,
            spread: if columns == 1 { Spread::Channel } else { Spread::Group },
        }
    }

    /// The row of scales for a row of values.
    pub const fn row(&self, plane: u64, row: u64) -> u64 {
        plane * self.per_plane + row / self.row_block
    }

    /// Rows and columns of values that share a scale, cut to the weight; `None` when all do.
    pub fn block(&self, dims: Dims) -> Option<[u64; 2]> {
        let cut = |block, all| if block == ALL { all } else { block };
        (self.spread != Spread::Tensor)
            .then(|| [cut(self.row_block, dims.rows), cut(self.column_block, dims.columns)])
    }
}

/// Reads scales of shape `scale` against a weight of shape `weight`, neither of them empty.
/// `given` is the block that a configuration names, `group` the columns for one scale.
pub(super) fn fit(
    weight: &[u64],
    scale: &[u64],
    given: Option<[u64; 2]>,
    group: Option<u64>,
) -> Option<Grid> {
    let dims = Dims::of(weight);
    if elements(scale) == 1 {
        return Some(Grid::TENSOR);
    }
    if weight.len() == 3 && scale == [dims.planes] {
        return Some(Grid::PLANE);
    }
    if scale.len() == weight.len() && scale.iter().zip(weight).all(|(s, w)| s == w || *s == 1) {
        return broadcast(weight, scale);
    }
    let Dims { planes, rows, columns } = dims;
    match (weight.len(), scale) {
        (2, &[s]) if s == rows => return Some(Grid::groups(rows, 1, ALL)),
        // A square plane could be read either way.
        (3, &[e, s]) if e == planes && rows != columns && s == rows => {
            return Some(Grid::groups(rows, 1, ALL));
        }
        (3, &[e, s]) if e == planes && rows != columns && s == columns => {
            return Some(Grid {
                per_plane: 1,
                row_block: ALL,
                columns,
                column_block: 1,
                spread: Spread::Channel,
            });
        }
        _ => {}
    }
    let lead = weight.len().saturating_sub(2);
    let [down, across] = match (weight.len(), scale) {
        (1, &[across]) => [1, across],
        (2, &[down, across, 1]) if down == rows => [down, across],
        (2, &[down, 1, across, 1]) => [down, across],
        (r, _) if r >= 2 && scale.len() == r && scale[..lead] == weight[..lead] => {
            [scale[lead], scale[lead + 1]]
        }
        _ => return None,
    };
    blocks(dims, [down, across], given, group)
}

/// numpy's rule: each dimension is the weight's, or 1.
fn broadcast(weight: &[u64], scale: &[u64]) -> Option<Grid> {
    let lead = weight.len().saturating_sub(2);
    let (here, there) = (Dims::of(scale), Dims::of(weight));
    let per_plane = if scale[..lead] == weight[..lead] {
        here.rows
    } else if here.planes == 1 {
        0
    } else {
        return None;
    };
    Some(Grid {
        per_plane,
        row_block: if here.rows == there.rows { 1 } else { ALL },
        columns: here.columns,
        column_block: if here.columns == there.columns { 1 } else { ALL },
        spread: Spread::Channel,
    })
}

/// `[down, across]` scales for each plane of `dims`. Where each row has scales of its own they
/// may be groups of any size: two sizes that both fit are no reading.
fn blocks(
    dims: Dims,
    [down, across]: [u64; 2],
    given: Option<[u64; 2]>,
    group: Option<u64>,
) -> Option<Grid> {
    let Dims { rows, columns, .. } = dims;
    let [given_rows, given_columns] = [given.map(|g| g[0]), given.map(|g| g[1])];
    let column_block = match given_columns {
        Some(_) => side(columns, across, given_columns)?,
        None if down == rows && group.is_some() => side(columns, across, group)?,
        None if down == rows && across > 1 => {
            let even = columns.is_multiple_of(across).then(|| columns / across);
            match (side(columns, across, None), even) {
                (Some(power), Some(even)) if power != even => return None,
                (power, even) => power.or(even)?,
            }
        }
        None => side(columns, across, None)?,
    };
    let row_block = side(rows, down, given_rows)?;
    // Where one block spans the side, its size is told by the other side if that can be.
    let or_other = |block: u64, scales, all: u64, other: u64| {
        if scales == 1 && given.is_none() && other >= all { other } else { block }
    };
    let spread = if row_block == 1 { Spread::Group } else { Spread::Block };
    Some(Grid {
        per_plane: down,
        row_block: or_other(row_block, down, rows, column_block),
        columns: across,
        column_block: or_other(column_block, across, columns, row_block),
        spread,
    })
}

/// Whether a scale of this shape is what `block` gives for each plane: a configuration that
/// names blocks contradicts scales of another number.
pub(super) fn is_covered(dims: Dims, [down, across]: [u64; 2], scale: &[u64]) -> bool {
    let each = |all: u64, block: u64| (block > 0).then(|| all.div_ceil(block));
    let count = each(dims.rows, down).zip(each(dims.columns, across));
    let count =
        count.and_then(|(rows, columns)| rows.checked_mul(columns)?.checked_mul(dims.planes));
    count == Some(elements(scale))
}

/// The size of blocks of which `scales` cover `all`: the given one, else the power of two up
/// to 4096, of which there is only one. Never `all / scales`: the last block may be short.
fn side(all: u64, scales: u64, given: Option<u64>) -> Option<u64> {
    let covers = |block: &u64| *block > 0 && all.div_ceil(*block) == scales;
    match given {
        Some(block) => Some(block).filter(covers),
        None if scales == 1 => Some(all),
        None => (0..=12).map(|power| 1 << power).find(covers),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn block(weight: &[u64], scale: &[u64]) -> Option<[u64; 2]> {
        fit(weight, scale, None, None).and_then(|grid| grid.block(Dims::of(weight)))
    }

    /// Numbers of the scales of every value, row by row, as numpy would index them.
    fn numbers(weight: &[u64], scale: &[u64]) -> Vec<u64> {
        let grid = fit(weight, scale, None, None).unwrap();
        let Dims { planes, rows, columns } = Dims::of(weight);
        let mut all = Vec::new();
        for plane in 0..planes {
            for row in 0..rows {
                for column in 0..columns {
                    let index = grid.row(plane, row) * grid.columns + column / grid.column_block;
                    assert!(index < elements(scale), "{weight:?} {scale:?}");
                    all.push(index);
                }
            }
        }
        all
    }

    #[test]
    fn one_element_of_any_rank_is_for_the_whole_tensor() {
        for scale in [&[][..], &[1], &[1, 1], &[1, 1, 1]] {
            assert_eq!(fit(&[4, 6], scale, None, None), Some(Grid::TENSOR));
        }
    }

    #[test]
    fn broadcasting_is_numpys() {
        assert_eq!(numbers(&[2, 3], &[2, 1]), [0, 0, 0, 1, 1, 1]);
        assert_eq!(numbers(&[2, 3], &[1, 3]), [0, 1, 2, 0, 1, 2]);
        assert_eq!(numbers(&[2, 3], &[2]), [0, 0, 0, 1, 1, 1]);
        assert_eq!(numbers(&[2, 2, 2], &[2, 1, 1]), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(numbers(&[2, 2, 2], &[2]), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(numbers(&[2, 2, 2], &[1, 2, 1]), [0, 0, 1, 1, 0, 0, 1, 1]);
        assert_eq!(numbers(&[2, 2, 2], &[2, 1, 2]), [0, 1, 0, 1, 2, 3, 2, 3]);
        assert_eq!(numbers(&[2, 1, 3], &[2, 1]), [0, 0, 0, 1, 1, 1]);
        assert_eq!(numbers(&[2, 1, 3], &[2, 3]), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_square_plane_with_a_scale_per_side_is_not_guessed() {
        assert_eq!(fit(&[2, 3, 3], &[2, 3], None, None), None);
        assert!(fit(&[2, 3, 4], &[2, 3], None, None).is_some());
    }

    #[test]
    fn blocks_are_powers_of_two_with_a_short_last_one() {
        assert_eq!(block(&[3, 5], &[2, 3]), Some([2, 2]));
        assert_eq!(block(&[1000, 256], &[8, 2]), Some([128, 128]));
        assert_eq!(block(&[128, 256], &[1, 2]), Some([128, 128]));
        assert_eq!(block(&[2, 300, 256], &[2, 3, 2]), Some([128, 128]));
        assert_eq!(block(&[4, 64], &[4, 2]), Some([1, 32]));
        assert_eq!(block(&[4, 64], &[4, 2, 1]), Some([1, 32]));
        assert_eq!(block(&[256, 256], &[2, 1, 2, 1]), Some([128, 128]));
        assert_eq!(numbers(&[3, 5], &[2, 3]), [0, 0, 1, 1, 2, 0, 0, 1, 1, 2, 3, 3, 4, 4, 5]);
    }

    #[test]
    fn joined_blocks_of_two_tensors_do_not_fit() {
        assert_eq!(fit(&[1408, 256], &[12, 2], None, None), None);
        assert!(fit(&[1408, 256], &[11, 2], None, None).is_some());
    }

    #[test]
    fn a_given_block_must_fit_and_then_holds() {
        assert!(fit(&[256, 256], &[2, 2], Some([128, 128]), None).is_some());
        assert_eq!(fit(&[256, 256], &[2, 2], Some([64, 64]), None), None);
        let odd = fit(&[300, 300], &[3, 3], Some([100, 100]), None).unwrap();
        assert_eq!(odd.block(Dims::of(&[300, 300])), Some([100, 100]));
    }

    #[test]
    fn other_shapes_are_refused() {
        for scale in [&[5][..], &[6], &[4, 5], &[2, 2, 2], &[0], &[3, 4, 6], &[8, 1]] {
            assert_eq!(fit(&[4, 6], scale, None, None), None, "{scale:?}");
        }
    }

    #[test]
    fn groups_are_of_any_size_when_told_and_of_none_when_two_fit() {
        let told = |weight: &[u64], scale: &[u64], group| {
            fit(weight, scale, None, Some(group)).and_then(|grid| grid.block(Dims::of(weight)))
        };
        assert_eq!(told(&[8, 96], &[8, 2], 48), Some([1, 48]));
        assert_eq!(told(&[8, 256], &[8, 2], 64), None, "four groups, not two");
        assert_eq!(block(&[8, 96], &[8, 2]), None, "48 and 64 both fit");
        assert_eq!(block(&[8, 256], &[8, 2]), Some([1, 128]));
    }

    #[test]
    fn a_named_block_covers_the_weight_or_contradicts() {
        let dims = Dims::of(&[300, 256]);
        assert!(is_covered(dims, [128, 128], &[3, 2]));
        assert!(!is_covered(dims, [128, 128], &[300, 1]));
        assert!(!is_covered(dims, [128, 128], &[]));
        assert!(is_covered(Dims::of(&[64, 64]), [128, 128], &[]));
        assert!(!is_covered(dims, [0, 128], &[3, 2]));
    }
}
