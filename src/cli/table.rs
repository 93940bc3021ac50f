//! Columns that line up.

use super::output::{Ink, Out, Piece};
use super::text::width;
use std::borrow::Cow;
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
    rows: Vec<[Piece; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with these titles.
    pub(crate) fn new(columns: [(&'static str, Align); N]) -> Table<N> {
        Table { columns: Columns::new(columns), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [impl Into<Piece>; N]) {
        let cells = cells.map(Into::into);
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
    pub(crate) fn row(&mut self, cells: [impl Into<Piece>; N]) -> io::Result<()> {
        let cells = cells.map(Into::into);
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

    fn measure(&mut self, cells: &[Piece; N]) {
        for (column, cell) in self.widths.iter_mut().zip(cells) {
            let cell = width(cell.text());
            if cell <= MAX_COLUMN {
                *column = cell.max(*column);
            }
        }
    }

    fn write_titles(&self, out: &mut Out, indent: usize) -> io::Result<()> {
        if self.titles.iter().any(|title| !title.is_empty()) {
            let titles = self.line(&self.titles.map(Piece::from), indent, &|p| p.text().into());
            out.pieces([Piece::inked(Ink::Dim, titles)])?;
        }
        Ok(())
    }

    fn write_row(&self, out: &mut Out, cells: &[Piece; N], indent: usize) -> io::Result<()> {
        let line = self.line(cells, indent, &|piece| out.ink(piece));
        writeln!(out.exact(), "{line}")
    }

    fn line(
        &self,
        cells: &[Piece; N],
        indent: usize,
        ink: &dyn Fn(&Piece) -> Cow<'_, str>,
    ) -> String {
        let mut line = " ".repeat(indent);
        for (i, cell) in cells.iter().enumerate().filter(|(i, _)| self.widths[*i] > 0) {
            let pad = " ".repeat(self.widths[i].saturating_sub(width(cell.text())));
            let cell = ink(cell);
            match self.align[i] {
                Align::Left => line.extend([&*cell, &*pad, "  "]),
                Align::Right => line.extend([&*pad, &*cell, "  "]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(columns: &Columns<2>, cells: [&str; 2], indent: usize) -> String {
        let ink = |piece: &Piece| Cow::Owned(format!("\x1b[36m{}\x1b[0m", piece.text()));
        let line = columns.line(&cells.map(Piece::from), indent, &|piece| ink(piece));
        line.replace("\x1b[36m", "").replace("\x1b[0m", "")
    }

    #[test]
    fn columns_line_up_whatever_the_width_of_letters() {
        let mut table = Table::new([("NAME", Align::Left), ("SIZE", Align::Right)]);
        table.row(["\u{4f60}\u{597d}", "1 B"]);
        table.row(["x".repeat(100), "12 B".to_owned()]);
        let columns = &table.columns;
        assert_eq!(columns.widths, [4, 4]);
        assert_eq!(line(columns, ["NAME", "SIZE"], 2), "  NAME  SIZE");
        assert_eq!(line(columns, ["\u{4f60}\u{597d}", "1 B"], 2), "  \u{4f60}\u{597d}   1 B");
        assert_eq!(
            line(columns, [&"x".repeat(100), "12 B"], 0),
            format!("{}  12 B", "x".repeat(100))
        );
    }
}
