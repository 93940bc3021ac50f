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
    titles: [&'static str; N],
    align: [Align; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with these titles.
    pub(crate) fn new(columns: [(&'static str, Align); N]) -> Table<N> {
        Table {
            titles: columns.map(|(title, _)| title),
            align: columns.map(|(_, align)| align),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// Writes titles and rows, each line behind `indent` spaces. A column without a title and
    /// without any text takes no room.
    pub(crate) fn write(&self, out: &mut Out, indent: usize) -> io::Result<()> {
        let widths: [usize; N] = std::array::from_fn(|i| {
            let cells = self.rows.iter().map(|row| width(&row[i])).filter(|&w| w <= MAX_COLUMN);
            cells.max().unwrap_or(0).max(width(self.titles[i]))
        });
        if self.titles.iter().any(|title| !title.is_empty()) {
            let line = self.line(&widths, self.titles, indent);
            let line = out.ink(Ink::Dim, &line).into_owned();
            writeln!(out, "{line}")?;
        }
        for row in &self.rows {
            let cells: [&str; N] = std::array::from_fn(|i| row[i].as_str());
            writeln!(out, "{}", self.line(&widths, cells, indent))?;
        }
        Ok(())
    }

    fn line(&self, widths: &[usize; N], cells: [&str; N], indent: usize) -> String {
        let mut line = " ".repeat(indent);
        for (i, cell) in cells.iter().enumerate().filter(|(i, _)| widths[*i] > 0) {
            let pad = " ".repeat(widths[i].saturating_sub(width(cell)));
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
        let widths = [4, 4];
        assert_eq!(table.line(&widths, ["NAME", "SIZE"], 2), "  NAME  SIZE");
        assert_eq!(table.line(&widths, ["\u{4f60}\u{597d}", "1 B"], 2), "  \u{4f60}\u{597d}   1 B");
        assert_eq!(
            table.line(&widths, [&"x".repeat(100), "12 B"], 0),
            format!("{}  12 B", "x".repeat(100))
        );
    }
}
