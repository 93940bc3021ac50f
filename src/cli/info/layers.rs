//! What the layers of a model have in common: a line for each role that tensors have in them.

use super::super::engine::Opened;
use super::super::output::Out;
use super::super::table::{Align, Table};
use super::super::text::{self, cut, plural, shape, size};
use super::heading;
use std::collections::BTreeMap;
use std::io;
use weightfs::dtype::DType;
use weightfs::survey::place::{Places, Row};

/// Lines of the table: what is more is counted below it.
const LINES: usize = 24;
/// Roles that are told apart.
const ROLES: usize = 10_000;
/// Columns of a role's name.
const NAME: usize = 48;

/// The tensors of one role in one layer.
#[derive(Default)]
struct Cell {
    tensors: u64,
    nbytes: u64,
    dtypes: BTreeMap<DType, u64>,
    /// The shape of the first, and whether all have it.
    shape: Option<(Vec<u64>, bool)>,
}

/// Writes the table, where there are tensors.
pub(super) fn write(opened: &Opened, out: &mut Out) -> io::Result<()> {
    let (model, catalog) = (&opened.model, &opened.catalog);
    let mut places = Places::<Cell>::new(ROLES);
    for tensor in (0..catalog.len(model)).map(|i| catalog.get(model, i)) {
        let Some(cell) = places.cell(tensor.name) else { continue };
        cell.tensors += 1;
        cell.nbytes = cell.nbytes.saturating_add(tensor.nbytes);
        *cell.dtypes.entry(tensor.dtype).or_default() += 1;
        match &mut cell.shape {
            Some((first, same)) => *same &= **first == *tensor.shape,
            none => *none = Some((tensor.shape.to_vec(), true)),
        }
    }
    let rows: Vec<_> = places.rows().collect();
    if rows.is_empty() {
        return Ok(());
    }
    let layers = rows.iter().map(|row| layers(row)).max().unwrap_or(0);
    let title = match layers {
        0 => "tensors".to_owned(),
        n => format!("tensors, {}", plural(n, "layer")),
    };
    heading(out, &title)?;
    let mut table = Table::new([
        ("", Align::Left),
        ("", Align::Right),
        ("", Align::Left),
        ("", Align::Left),
        ("", Align::Right),
    ]);
    for row in rows.iter().take(LINES) {
        table.row(line(row));
    }
    table.write(out, 2)?;
    let more = rows.len().saturating_sub(LINES);
    match more {
        0 => Ok(()),
        n => out
            .line(format_args!("  and {} more (weightfs ls lists all tensors)", plural(n, "row"))),
    }
}

fn layers(row: &Row<Cell>) -> usize {
    row.cells.keys().flatten().count()
}

fn line(row: &Row<Cell>) -> [String; 5] {
    let mut dtypes: BTreeMap<DType, u64> = BTreeMap::new();
    let (mut tensors, mut nbytes) = (0, 0u64);
    let mut shapes = row.cells.values().filter_map(|cell| cell.shape.as_ref());
    let first = shapes.next();
    let same =
        first.is_some_and(|(first, same)| *same && shapes.all(|(s, same)| *same && s == first));
    for cell in row.cells.values() {
        tensors += cell.tensors;
        nbytes = nbytes.saturating_add(cell.nbytes);
        cell.dtypes.iter().for_each(|(dtype, n)| *dtypes.entry(*dtype).or_default() += n);
    }
    let one = dtypes.len() == 1;
    let mut dtypes: Vec<_> = dtypes.into_iter().collect();
    dtypes.sort_by_key(|&(dtype, n)| (std::cmp::Reverse(n), dtype));
    let dtypes = dtypes.iter().map(|(dtype, n)| match one {
        true => dtype.name().to_owned(),
        false => format!("{dtype} {n}"),
    });
    [
        cut(&text::name(&row.role), NAME),
        format!("{tensors} x"),
        dtypes.collect::<Vec<_>>().join(", "),
        match (first, same) {
            (Some((dims, _)), true) => shape(dims),
            _ => "various shapes".to_owned(),
        },
        size(nbytes),
    ]
}
