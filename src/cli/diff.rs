//! `weightfs diff`: which tensors of two models differ, and how much.

use super::args::{DiffArgs, NameArgs};
use super::engine::{self, Opened};
use super::exit::{self, Exit};
use super::output::{Ink, Out, Piece};
use super::progress::Progress;
use super::table::{Align, Table};
use super::text::{self, number, plural, shape};
use anyhow::Result;
use serde_json::{Value as Json, json};
use std::cmp::Ordering;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weightfs::bytes::line::Name;
use weightfs::naming::MapSpec;
use weightfs::survey;
use weightfs::survey::diff::{self, Compared, Difference, Evidence, Shown, Side, Verdict};
use weightfs::view::json::lossy;

/// Errors that are printed one by one.
const PRINTED: usize = 20;

pub(crate) fn run(args: &DiffArgs) -> Result<Exit> {
    let a = engine::open_for_reading(&args.a, &NameArgs { map: args.map.clone() })?;
    // A map file leads from the names of A to those of B; the words stand for names of both.
    let is_word = |map: &&OsString| !matches!(MapSpec::parse(map), MapSpec::File(_));
    let words = args.map.iter().filter(is_word).cloned().collect();
    let b = engine::open_for_reading(&args.b, &NameArgs { map: words })?;
    let (side_a, side_b) = (side(&a), side(&b));
    let bar = Progress::new(&args.a, diff::bytes(side_a, side_b));
    let mut all = Vec::new();
    let sink = |pair| {
        all.push(pair);
        Ok::<_, Infallible>(())
    };
    let Ok(()) = diff::diff(side_a, side_b, &|done| bar.set(done), sink);
    drop(bar);
    let totals = Totals::of(&all);
    let mut out = Out::new();
    match args.json {
        true => out.json(&document(args, &all, &totals))?,
        false => write(&mut all, &totals, &mut out)?,
    }
    out.flush()?;
    let failed = all.iter().filter_map(|pair| match &pair.verdict {
        Verdict::Failed(error) => Some(error),
        _ => None,
    });
    for error in failed.take(PRINTED) {
        exit::warn(&format!("tensor {}: {}", Name(error.name.as_bytes()), error.source));
    }
    if totals.failed > PRINTED {
        exit::say(&format!(
            "and {} more could not be read",
            plural(totals.failed - PRINTED, "tensor")
        ));
    }
    Ok(if totals.failed > 0 { Exit::Failed } else { Exit::Done })
}

fn side(opened: &Opened) -> Side<'_> {
    Side { stock: opened.stock(), catalog: &opened.catalog, store: &opened.store }
}

/// How many there are of each verdict.
#[derive(Default)]
struct Totals {
    same: usize,
    /// Of these, those that were not read.
    from_seals: usize,
    equal: usize,
    differ: usize,
    shape: usize,
    bytes: usize,
    only_a: usize,
    only_b: usize,
    failed: usize,
}

impl Totals {
    fn of(all: &[Compared<'_>]) -> Totals {
        let mut totals = Totals::default();
        for pair in all {
            let by_seals = matches!(pair.verdict, Verdict::Same(Evidence::Seals));
            totals.from_seals += usize::from(by_seals);
            *match pair.verdict {
                Verdict::Same(_) => &mut totals.same,
                Verdict::Equal(_) => &mut totals.equal,
                Verdict::Differs(_) => &mut totals.differ,
                Verdict::Shape => &mut totals.shape,
                Verdict::Bytes => &mut totals.bytes,
                Verdict::OnlyA => &mut totals.only_a,
                Verdict::OnlyB => &mut totals.only_b,
                Verdict::Failed(_) => &mut totals.failed,
            } += 1;
        }
        totals
    }

    /// In words, without what there is none of.
    fn words(&self) -> String {
        let same = match self.from_seals {
            0 => "the same bytes".to_owned(),
            n => format!("the same bytes ({n} by the seals, not read)"),
        };
        let words: Vec<String> = [
            (self.same, &*same),
            (self.equal, "equal values"),
            (self.differ, "differ"),
            (self.shape, "of another shape"),
            (self.bytes, "differ in what has no values"),
            (self.only_a, "only in A"),
            (self.only_b, "only in B"),
            (self.failed, "could not be read"),
        ]
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what}"))
        .collect();
        words.join(", ")
    }
}

fn difference(verdict: &Verdict) -> Option<&Difference> {
    match verdict {
        Verdict::Equal(difference) | Verdict::Differs(difference) => Some(difference),
        _ => None,
    }
}

fn document(args: &DiffArgs, all: &[Compared<'_>], totals: &Totals) -> Json {
    let path = |path: &Path| Json::from(lossy(path.as_os_str().as_bytes()));
    let shown = |shown: &Option<Shown<'_>>| {
        shown.as_ref().map(|shown| json!({"dtype": shown.dtype.name(), "shape": shown.shape}))
    };
    let tensors: Vec<Json> = all
        .iter()
        .map(|pair| {
            let found = difference(&pair.verdict);
            let same = matches!(pair.verdict, Verdict::Same(_));
            let none = || same.then(|| Json::from(0));
            let most = found.map(|found| survey::json(found.max_abs)).or_else(none);
            let mut entry = json!({
                "name": lossy(&pair.name),
                "result": pair.verdict.name(),
                "a": shown(&pair.a),
                "b": shown(&pair.b),
                "max_abs_diff": most,
                "rms_diff": found.map_or_else(none, |found| found.rms().map(survey::json)),
                "cosine": found.and_then(Difference::cosine),
                "differing": found.map(|found| found.differing.into()).or_else(none),
                "nan": found.map(|found| found.nan.into()).or_else(none),
            });
            if let Verdict::Failed(error) = &pair.verdict {
                entry["error"] = error.to_string().into();
            }
            entry
        })
        .collect();
    json!({
        "a": path(&args.a),
        "b": path(&args.b),
        "tensors": tensors,
        "totals": {
            "tensors": all.len(),
            "same": totals.same,
            "from_seals": totals.from_seals,
            "equal": totals.equal,
            "differs": totals.differ,
            "shape": totals.shape,
            "bytes": totals.bytes,
            "only_a": totals.only_a,
            "only_b": totals.only_b,
            "failed": totals.failed,
        },
    })
}

/// What is not the same: what differs most comes first, what could not be compared last.
fn write(all: &mut [Compared<'_>], totals: &Totals, out: &mut Out) -> io::Result<()> {
    let rank = |pair: &Compared<'_>| match pair.verdict {
        Verdict::Differs(_) => 0,
        Verdict::Equal(_) => 1,
        Verdict::Shape => 2,
        Verdict::Bytes => 3,
        Verdict::OnlyA => 4,
        Verdict::OnlyB => 5,
        Verdict::Failed(_) => 6,
        Verdict::Same(_) => 7,
    };
    let most = |pair: &Compared<'_>| difference(&pair.verdict).map_or(0.0, |found| found.max_abs);
    all.sort_by(|x, y| {
        let more = most(y).partial_cmp(&most(x)).unwrap_or(Ordering::Equal);
        rank(x).cmp(&rank(y)).then(more).then_with(|| x.name.cmp(&y.name))
    });
    let mut table = Table::new([
        ("NAME", Align::Left),
        ("DTYPE", Align::Left),
        ("SHAPE", Align::Left),
        ("MAX ABS", Align::Right),
        ("RMS", Align::Right),
        ("COSINE", Align::Right),
        ("DIFFERING", Align::Right),
    ]);
    let mut rows = 0;
    for pair in all.iter().filter(|pair| !matches!(pair.verdict, Verdict::Same(_))) {
        table.row(row(pair));
        rows += 1;
    }
    if rows > 0 {
        table.write(out, 0)?;
    }
    let words = totals.words();
    let colon = if words.is_empty() { "" } else { ": " };
    out.line(format_args!("{}{colon}{words}", plural(all.len(), "tensor")))
}

fn row(pair: &Compared<'_>) -> [Piece; 7] {
    let both = |of: &dyn Fn(&Shown<'_>) -> String| match (&pair.a, &pair.b) {
        (Some(a), Some(b)) if of(a) == of(b) => of(a),
        (Some(a), Some(b)) => format!("{} -> {}", of(a), of(b)),
        (Some(one), None) | (None, Some(one)) => of(one),
        (None, None) => String::new(),
    };
    let word = match &pair.verdict {
        Verdict::Shape => "another shape",
        Verdict::Bytes => "other bytes, no values",
        Verdict::OnlyA => "only in A",
        Verdict::OnlyB => "only in B",
        Verdict::Failed(_) => "could not be read",
        _ => "",
    };
    let [most, rms, cosine, differing] = match difference(&pair.verdict) {
        Some(found) => [
            number(found.max_abs),
            found.rms().map_or("-".into(), number),
            found.cosine().map_or("-".into(), |cosine| format!("{cosine:.6}")),
            format!("{:.2} %", found.differing as f64 / found.elements.max(1) as f64 * 100.0),
        ]
        .map(Piece::from),
        None => [Piece::inked(Ink::Warn, word), "".into(), "".into(), "".into()],
    };
    let name = text::name(&pair.name);
    let dtype = both(&|shown| shown.dtype.name().to_owned());
    let shape = both(&|shown| shape(&shown.shape));
    [name.into(), dtype.into(), shape.into(), most, rms, cosine, differing]
}
