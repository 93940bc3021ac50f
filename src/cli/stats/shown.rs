//! Statistics for people: a table of all tensors, or a few with their histograms.

use super::super::output::{Ink, Out, Piece};
use super::super::table::{Align, Table};
use super::super::text::{self, counted, number, plural, shape};
use super::{Form, Totals};
use std::io;
use weightfs::model::elements;
use weightfs::survey::stats::{Stats, Surveyed};
use weightfs::survey::{Histogram, Number, ValueKind};

/// Columns of the longest bar.
const BAR: usize = 48;

/// All tensors, a line for each. What is shown of one is kept until the columns are known.
pub(super) struct List {
    table: Table<10>,
}

impl Default for List {
    fn default() -> List {
        let right = |title| (title, Align::Right);
        let left = |title| (title, Align::Left);
        List {
            table: Table::new([
                left("NAME"),
                left("DTYPE"),
                left("SHAPE"),
                right("MIN"),
                right("MAX"),
                right("MEAN"),
                right("STD"),
                right("ZEROS"),
                right("NAN"),
                right("INF"),
            ]),
        }
    }
}

impl Form for List {
    fn tensor(&mut self, tensor: Surveyed<'_>, _: &mut Out) -> io::Result<()> {
        let [min, max, mean, std] = four(&tensor);
        let count = |n: u64, ink: Option<Ink>| match ink {
            Some(ink) if n > 0 => Piece::inked(ink, n.to_string()),
            _ => n.to_string().into(),
        };
        let [zeros, nan, inf] = match &tensor.stats {
            Ok(Some(Stats { tally, .. })) => [
                count(tally.zeros, None),
                count(tally.nan, Some(Ink::Bad)),
                count(tally.inf, Some(Ink::Bad)),
            ],
            Ok(None) => ["-"; 3].map(Piece::from),
            Err(_) => [Piece::inked(Ink::Bad, "unreadable"), "-".into(), "-".into()],
        };
        let [name, dtype] = [text::name(&tensor.name), tensor.dtype.name().to_owned()];
        let facts = [name, dtype, shape(&tensor.shape), min, max, mean, std];
        let [name, dtype, shape, min, max, mean, std] = facts.map(Piece::from);
        self.table.row([name, dtype, shape, min, max, mean, std, zeros, nan, inf]);
        Ok(())
    }

    fn end(&mut self, totals: &Totals, out: &mut Out) -> io::Result<()> {
        self.table.write(out, 0)?;
        let tally = &totals.tally;
        let mut line = format!(
            "{}, {}: {} zeros, {} NaN, {} Inf",
            plural(totals.tensors, "tensor"),
            counted(tally.elements, "value"),
            tally.zeros,
            tally.nan,
            tally.inf
        );
        if totals.without > 0 {
            line += &format!("; {} without values", totals.without);
        }
        if totals.failed > 0 {
            line += &format!("; {} could not be read", totals.failed);
        }
        out.line(line)
    }
}

/// Least, greatest, mean and deviation as text.
fn four(tensor: &Surveyed<'_>) -> [String; 4] {
    let Ok(Some(stats)) = &tensor.stats else { return ["-"; 4].map(str::to_owned) };
    let float = |x: Option<f64>| x.map_or("-".to_owned(), number);
    let exact = |x: Option<Number>| match x {
        Some(Number::Float(x)) => number(x),
        Some(Number::Integer(n)) => n.to_string(),
        None => "-".to_owned(),
    };
    let (min, max) = stats.extremes.unzip();
    [exact(min), exact(max), float(stats.tally.mean()), float(stats.tally.std())]
}

/// A few tensors, each with its histogram.
#[derive(Default)]
pub(super) struct Portraits {
    begun: bool,
}

impl Form for Portraits {
    fn tensor(&mut self, tensor: Surveyed<'_>, out: &mut Out) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            out.line("")?;
        }
        out.pieces([Piece::inked(Ink::Bold, text::name(&tensor.name))])?;
        let [min, max, mean, std] = four(&tensor);
        let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
        let mut fact = |name: &str, value: Piece| table.row([name.into(), value]);
        let values = elements(&tensor.shape);
        let dtype = tensor.dtype.name();
        let dtype = format!("{dtype} {}, {}", shape(&tensor.shape), counted(values, "value"));
        fact("dtype", dtype.into());
        let stats = match &tensor.stats {
            Ok(Some(stats)) => stats,
            Ok(None) => {
                fact("values", "none that are known".into());
                return table.write(out, 2);
            }
            Err(_) => {
                fact("values", Piece::inked(Ink::Bad, "cannot be read"));
                return table.write(out, 2);
            }
        };
        if stats.kind != ValueKind::Float {
            fact("values", stats.kind.name().into());
        }
        for (name, value) in [("min", min), ("max", max), ("mean", mean), ("std", std)] {
            fact(name, value.into());
        }
        let share = |n: u64| format!("{n} ({:.2} %)", n as f64 / values.max(1) as f64 * 100.0);
        fact("zeros", share(stats.tally.zeros).into());
        for (name, n) in [("NaN", stats.tally.nan), ("Inf", stats.tally.inf)] {
            fact(name, if n > 0 { Piece::inked(Ink::Bad, share(n)) } else { "0".into() });
        }
        table.write(out, 2)?;
        stats.histogram.as_ref().map_or(Ok(()), |bins| bars(bins, out))
    }

    fn end(&mut self, _: &Totals, _: &mut Out) -> io::Result<()> {
        Ok(())
    }
}

/// A bar for each bin: its lower edge, how many values, and how that is to the fullest.
fn bars(bins: &Histogram, out: &mut Out) -> io::Result<()> {
    let most = bins.counts.iter().copied().max().unwrap_or(0).max(1);
    let all = bins.counts.iter().sum::<u64>().max(1);
    let mut table = Table::new([("", Align::Right), ("", Align::Left), ("", Align::Right)]);
    let columns = BAR.min(out.columns().saturating_sub(36)).max(8);
    for (i, &count) in bins.counts.iter().enumerate() {
        let at = i as f64 / bins.counts.len() as f64;
        let edge = bins.from * (1.0 - at) + bins.to * at;
        let filled = (count as f64 / most as f64 * columns as f64).round() as usize;
        // A bin that holds something shows.
        let filled = if count > 0 { filled.max(1) } else { 0 };
        let bar = out.full(filled);
        let percent = format!("{:.2} %", count as f64 / all as f64 * 100.0);
        let percent = if count > 0 { percent } else { String::new() };
        table.row([number(edge).into(), Piece::inked(Ink::Accent, bar), percent.into()]);
    }
    table.row([number(bins.to), String::new(), String::new()]);
    table.write(out, 2)
}
