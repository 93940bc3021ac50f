//! Columns that line up.

use super::output::{Ink, Out};
use super::text;
use std::io::{self, Write};

/// Cells wider than this do not widen their column: one absurd name must not push the rest of
/// the table off the screen. They are shown whole all the same.
const MAX_COLUMN: usize = 72;

/// How a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table, row by row.
pub(crate) struct Table<const N: usize> {
    columns: Columns<N>,
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with these titles.
    pub(crate) fn new(columns: [(&'static str, Align); N]) -> Table<N> {
        Table { columns: Columns::new(columns), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.columns.measure(&cells);
        self.rows.push(cells);
    }

    /// Writes titles and rows, each line behind `indent` spaces. A column without a title and
    /// without any text takes no room.
    pub(crate) fn write(&self, out: &mut Out, indent: usize) -> io::Result<()> {
        self.columns.write_titles(out, indent)?;
        self.rows.iter().try_for_each(|row| self.columns.write_row(out, row, indent))
    }
}

/// Writes a table of very many rows without keeping them: `rows` is called twice, to measure and
/// to write, and has to give the same rows both times.
pub(crate) fn stream<const N: usize, T>(
    columns: [(&'static str, Align); N],
    out: &mut Out,
    rows: impl Fn(&mut Rows<'_, N>) -> io::Result<T>,
) -> io::Result<T> {
    let mut columns = Columns::new(columns);
    rows(&mut Rows { columns: &mut columns, out: None })?;
    columns.write_titles(out, 0)?;
    rows(&mut Rows { columns: &mut columns, out: Some(out) })
}

/// Where the rows of [`stream`] go.
pub(crate) struct Rows<'t, const N: usize> {
    columns: &'t mut Columns<N>,
    /// None while columns are measured.
    out: Option<&'t mut Out>,
}

impl<const N: usize> Rows<'_, N> {
    /// The next row.
    pub(crate) fn row(&mut self, cells: [String; N]) -> io::Result<()> {
        match &mut self.out {
            None => self.columns.measure(&cells),
            Some(out) => self.columns.write_row(out, &cells, 0)?,
        }
        Ok(())
    }
}

/// Titles, and how wide and on which side the cells stand.
struct Columns<const N: usize> {
    titles: [&'static str; N],
    align: [Align; N],
    widths: [usize; N],
}

impl<const N: usize> Columns<N> {
    fn new(columns: [(&'static str, Align); N]) -> Columns<N> {
        Columns {
            titles: columns.map(|(title, _)| title),
            align: columns.map(|(_, align)| align),
            widths: columns.map(|(title, _)| width(title)),
        }
    }

    fn measure(&mut self, cells: &[String; N]) {
        for (column, cell) in self.widths.iter_mut().zip(cells) {
            let cell = width(cell);
            if cell <= MAX_COLUMN {
                *column = cell.max(*column);
            }
        }
    }

    fn write_titles(&self, out: &mut Out, indent: usize) -> io::Result<()> {
        if self.titles.iter().any(|title| !title.is_empty()) {
            let line = self.line(self.titles, indent);
            let line = out.ink(Ink::Dim, &line).into_owned();
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn write_row(&self, out: &mut Out, cells: &[String; N], indent: usize) -> io::Result<()> {
        let cells: [&str; N] = std::array::from_fn(|i| cells[i].as_str());
        writeln!(out, "{}", self.line(cells, indent))
    }

    fn line(&self, cells: [&str; N], indent: usize) -> String {
        let mut line = " ".repeat(indent);
        for (i, cell) in cells.iter().enumerate().filter(|(i, _)| self.widths[*i] > 0) {
            let pad = " ".repeat(self.widths[i].saturating_sub(width(cell)));
            match self.align[i] {
                Align::Left => line.extend([cell, pad.as_str(), "  "]),
                Align::Right => line.extend([pad.as_str(), cell, "  "]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Columns of a cell; what only sets a colour takes none.
fn width(cell: &str) -> usize {
    let mut pieces = cell.split("\x1b[");
    let first = pieces.next().map_or(0, text::width);
    first
        + pieces
            .map(|piece| piece.split_once('m').map_or(0, |(_, rest)| text::width(rest)))
            .sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_room() {
        assert_eq!(width("\x1b[36mab\x1b[0mc"), 3);
        assert_eq!(width("abc"), 3);
    }

    #[test]
    fn columns_line_up_whatever_the_width_of_letters() {
        let mut table = Table::new([("NAME", Align::Left), ("SIZE", Align::Right)]);
        table.row(["\u{4f60}\u{597d}".into(), "1 B".into()]);
        table.row(["x".repeat(100), "12 B".into()]);
        let columns = &table.columns;
        assert_eq!(columns.widths, [4, 4]);
        assert_eq!(columns.line(["NAME", "SIZE"], 2), "  NAME  SIZE");
        assert_eq!(columns.line(["\u{4f60}\u{597d}", "1 B"], 2), "  \u{4f60}\u{597d}   1 B");
        assert_eq!(
            columns.line([&"x".repeat(100), "12 B"], 0),
            format!("{}  12 B", "x".repeat(100))
        );
    }
}
