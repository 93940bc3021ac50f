//! A picture of the statistics: a row for each role, a column for each layer, as SVG.

use super::Tally;
use super::ValueKind;
use super::place::Places;
use super::stats::Surveyed;
use crate::view::json::lossy;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Rows and columns of the picture, at most: what is more is said below it.
const MAX: (usize, usize) = (200, 512);
/// Side of a cell, and the room for the names in front, in pixels.
const CELL: usize = 18;
const TOP: usize = 92;
/// Letters of a role that are shown.
const LETTERS: usize = 56;
/// Tenths of a pixel that a letter of the roles takes.
const LETTER: usize = 75;
/// From the smallest deviation to the largest (viridis, by Stefan van der Walt and Nathaniel
/// Smith).
const COLOURS: [[u8; 3]; 5] =
    [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

/// What is collected for the picture: little per tensor.
#[derive(Debug)]
pub struct HeatMap {
    title: String,
    places: Places<Cell>,
}

/// The values of the tensors that share a place.
#[derive(Clone, Debug, Default)]
struct Cell {
    /// Of weights: what has a colour.
    weights: Tally,
    /// Of integers and booleans: positions, masks and codes, whose deviation is of another kind.
    integers: Tally,
}

impl Cell {
    /// What the cell tells of: weights, where there are any.
    fn tally(&self) -> &Tally {
        if self.is_grey() { &self.integers } else { &self.weights }
    }

    fn is_grey(&self) -> bool {
        self.weights.elements == 0 && self.integers.elements > 0
    }
}

impl HeatMap {
    /// An empty one of the model called `title`.
    pub fn new(title: &[u8]) -> HeatMap {
        HeatMap { title: lossy(title).into_owned(), places: Places::new(MAX.0) }
    }

    /// Adds a tensor. Experts of one layer share a cell.
    pub fn add(&mut self, tensor: &Surveyed<'_>) {
        if let Ok(Some(stats)) = &tensor.stats
            && let Some(cell) = self.places.cell(&tensor.name)
        {
            match stats.kind {
                ValueKind::Integer | ValueKind::Boolean => cell.integers.merge(&stats.tally),
                _ => cell.weights.merge(&stats.tally),
            }
        }
    }

    /// The picture. The colour of a cell is the standard deviation of its values on a logarithmic
    /// scale; a cell that holds NaN or an infinity is marked. Integers are grey and not on the
    /// scale.
    pub fn svg(&self) -> String {
        let rows: Vec<_> = self.places.rows().collect();
        let layers: BTreeSet<Option<u32>> =
            rows.iter().flat_map(|row| row.cells.keys().copied()).collect();
        let all = layers.len();
        let layers: Vec<Option<u32>> = layers.into_iter().take(MAX.1).collect();
        let cells = || rows.iter().flat_map(|row| row.cells.values());
        let scale = Scale::new(cells().map(|cell| &cell.weights));
        let role = |row: &[u8]| shortened(&lossy(row));
        let letters = rows.iter().map(|row| role(&row.role).chars().count()).max().unwrap_or(0);
        let left = 24 + letters * LETTER / 10;
        let width = (left + layers.len() * CELL + 24).max(560);
        let hidden = self.places.more() + all.saturating_sub(layers.len());
        let height = TOP + rows.len() * CELL + 40;
        let mut out = String::new();
        let _ = write!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <style>\n\
             svg {{ background: #ffffff; color: #1b1b1b; }}\n\
             text {{ fill: currentColor; font: 12px ui-monospace, monospace; }}\n\
             .bad {{ fill: none; stroke: #d00000; stroke-width: 2; }}\n\
             .none {{ fill: currentColor; opacity: 0.15; }}\n\
             @media (prefers-color-scheme: dark) {{ svg {{ background: #16181c; color: #e8e8e8; }} .bad {{ stroke: #ff5050; }} }}\n\
             </style>\n"
        );
        let title = escape(&self.title);
        let _ = write!(
            out,
            "<title>{title}: standard deviation by layer</title>\n\
             <text x=\"12\" y=\"22\">{title}: standard deviation by tensor and layer</text>\n"
        );
        scale.legend(&mut out);
        let mut notes = Vec::new();
        if layers.contains(&None) {
            notes.push("column -: tensors of no layer");
        }
        if cells().any(Cell::is_grey) {
            notes.push("grey: integers, not on the scale");
        }
        if !notes.is_empty() {
            let _ = writeln!(out, "<text x=\"12\" y=\"66\">{}</text>", notes.join("; "));
        }
        for (at, layer) in layers.iter().enumerate() {
            let x = left + at * CELL + CELL / 2;
            let name = layer.map_or("-".to_owned(), |n| n.to_string());
            if at % (1 + name.len() / 3) == 0 {
                let y = TOP - 6;
                let _ =
                    writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{name}</text>");
            }
        }
        for (at, row) in rows.iter().enumerate() {
            let y = TOP + at * CELL;
            let _ = writeln!(
                out,
                "<text x=\"12\" y=\"{}\">{}</text>",
                y + CELL - 5,
                escape(&role(&row.role))
            );
            for (at, layer) in layers.iter().enumerate() {
                if let Some(cell) = row.cells.get(layer) {
                    scale.cell(&mut out, left + at * CELL, y, (&row.role, *layer), cell);
                }
            }
        }
        if hidden > 0 {
            let y = height - 12;
            let _ = writeln!(
                out,
                "<text x=\"12\" y=\"{y}\">and {hidden} more that found no room</text>"
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

/// From a deviation to a colour.
struct Scale {
    /// Logarithms of the least and the greatest deviation that is not 0.
    range: Option<(f64, f64)>,
}

impl Scale {
    fn new<'t>(tallies: impl Iterator<Item = &'t Tally>) -> Scale {
        let spread = tallies.filter_map(Tally::std).filter(|std| std.is_normal());
        let range = spread.map(f64::log10).fold(None, |range, x| {
            let (least, greatest) = range.unwrap_or((x, x));
            Some((x.min(least), x.max(greatest)))
        });
        Scale { range }
    }

    fn colour(&self, std: f64) -> String {
        let (least, greatest) = self.range.unwrap_or((0.0, 0.0));
        let width = greatest - least;
        let at = if width > 0.0 { (std.log10() - least) / width } else { 0.5 };
        colour(at)
    }

    fn cell(&self, out: &mut String, x: usize, y: usize, of: (&[u8], Option<u32>), cell: &Cell) {
        let (role, layer) = of;
        let tally = cell.tally();
        let side = CELL - 2;
        let fill = match tally.std() {
            Some(std) if std >= 0.0 && !cell.is_grey() => format!("fill=\"{}\"", self.colour(std)),
            _ => "class=\"none\"".into(),
        };
        let _ = write!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" rx=\"2\" {fill}><title>"
        );
        let _ = write!(out, "{}", escape(&lossy(role)));
        if let Some(layer) = layer {
            let _ = write!(out, "\nlayer {layer}");
        }
        if let (Some((least, greatest)), Some(mean), Some(std)) =
            (tally.range(), tally.mean(), tally.std())
        {
            let _ = write!(
                out,
                "\nstd {std:.4e}\nmean {mean:.4e}\nmin {least:.4e}\nmax {greatest:.4e}"
            );
        }
        let _ = write!(
            out,
            "\nzeros {}, NaN {}, Inf {}</title></rect>",
            tally.zeros, tally.nan, tally.inf
        );
        if tally.nan + tally.inf > 0 {
            let _ = write!(
                out,
                "<rect class=\"bad\" x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" rx=\"2\"/>"
            );
        }
        out.push('\n');
    }

    fn legend(&self, out: &mut String) {
        let Some((least, greatest)) = self.range else { return };
        const STEPS: usize = 20;
        let _ = writeln!(out, "<text x=\"12\" y=\"46\">{:.1e}</text>", 10f64.powf(least));
        for step in 0..STEPS {
            let x = 84 + step * 8;
            let fill = colour(step as f64 / (STEPS - 1) as f64);
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"36\" width=\"8\" height=\"12\" fill=\"{fill}\"/>"
            );
        }
        let x = 84 + STEPS * 8 + 8;
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"46\">{:.1e}; red: NaN or Inf</text>",
            10f64.powf(greatest)
        );
    }
}

/// A colour of the scale, `at` from 0 to 1.
fn colour(at: f64) -> String {
    let at = if at.is_nan() { 0.0 } else { at.clamp(0.0, 1.0) } * (COLOURS.len() - 1) as f64;
    let low = (at as usize).min(COLOURS.len() - 2);
    let part = at - low as f64;
    let mix = |i: usize| {
        let (a, b) = (f64::from(COLOURS[low][i]), f64::from(COLOURS[low + 1][i]));
        (a + (b - a) * part).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

/// The end of a long name, which tells more than its beginning.
fn shortened(text: &str) -> String {
    let letters = text.chars().count();
    match letters > LETTERS {
        true => format!("...{}", text.chars().skip(letters - LETTERS + 3).collect::<String>()),
        false => text.to_owned(),
    }
}

/// Text for XML, which knows no control characters.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        assert_eq!(
            escape("<a b=\"&\">\u{1}\u{ffff}"),
            "&lt;a b=&quot;&amp;&quot;&gt;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = format!("{}.weight", "x".repeat(100));
        let shown = shortened(&name);
        assert_eq!(shown.chars().count(), LETTERS);
        assert!(shown.starts_with("...x") && shown.ends_with("x.weight"), "{shown}");
    }

    #[test]
    fn the_ends_of_the_scale_are_its_colours() {
        assert_eq!(colour(0.0), "#440154");
        assert_eq!(colour(1.0), "#fde725");
        assert_eq!(colour(f64::NAN), "#440154");
    }

    #[test]
    fn an_empty_model_has_a_picture_too() {
        let svg = HeatMap::new(b"m<").svg();
        assert!(svg.contains("m&lt;") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
