//! `weightfs stats`: what the values of tensors are.

use super::args::StatsArgs;
use super::cat;
use super::engine::{self, Opened};
use super::exit::{self, Exit, Failure};
use super::output::Out;
use super::progress::Progress;
use super::text::plural;
use anyhow::Result;
use std::os::unix::ffi::OsStrExt;
use weightfs::bytes::line::{InLine, Name};
use weightfs::naming::Mounted;
use weightfs::survey::heatmap::HeatMap;
use weightfs::survey::stats::{self, Surveyed};
use weightfs::survey::{SurveyError, Tally};

mod json;
mod picture;
mod shown;

/// Errors that are printed one by one.
const PRINTED: usize = 20;

pub(crate) fn run(args: &StatsArgs) -> Result<Exit> {
    let only_picture = args.svg.as_deref().is_some_and(picture::is_stdout);
    if args.json && only_picture {
        return Err(Failure::usage(
            "--json and --svg - both write to standard output; name a file for one: --svg FILE",
        ));
    }
    let opened = engine::open_for_reading(&args.model, &args.names)?;
    let tensors = chosen(&opened, args)?;
    if let Some(file) = &args.svg {
        picture::check(file)?;
    }
    let mut out = Out::new();
    let mut totals = Totals::default();
    let title = opened.entry.file_name().unwrap_or(opened.entry.as_os_str());
    let mut map = args.svg.as_ref().map(|_| HeatMap::new(title.as_bytes()));
    let watched = !(args.json && out.is_terminal());
    let bar = watched.then(|| Progress::new(&args.model, stats::bytes(tensors.iter().copied())));
    let tick = |done| {
        if let Some(bar) = &bar {
            bar.set(done);
        }
    };
    let histograms = !only_picture && (args.json || !args.tensors.is_empty());
    let mut form: Box<dyn Form> = match (args.json, args.tensors.is_empty()) {
        _ if only_picture => Box::new(Unshown),
        (true, _) => Box::new(json::Document::new(args.model.as_os_str())),
        (false, true) => Box::new(shown::List::default()),
        (false, false) => Box::new(shown::Portraits::default()),
    };
    let sink = |tensor: Surveyed<'_>| {
        totals.add(&tensor);
        if let Some(map) = &mut map {
            map.add(&tensor);
        }
        form.tensor(tensor, &mut out)
    };
    let tensors = tensors.iter().copied();
    stats::stats(opened.stock(), &opened.store, tensors, histograms, &tick, sink)?;
    drop(bar);
    form.end(&totals, &mut out)?;
    out.flush()?;
    if let (Some(map), Some(file)) = (map, &args.svg) {
        picture::write(file, &map.svg(), &mut out)?;
    }
    totals.complain();
    Ok(totals.exit(args))
}

/// The tensors that are named, or all.
fn chosen<'o>(opened: &'o Opened, args: &StatsArgs) -> Result<Vec<Mounted<'o>>> {
    let model = &opened.model;
    if args.tensors.is_empty() {
        let all = 0..opened.catalog.len(model);
        return Ok(all.map(|i| opened.catalog.get(model, i)).collect());
    }
    let named = args.tensors.iter().map(|name| {
        let name = name.as_bytes();
        cat::find(opened, name).ok_or_else(|| cat::unknown(opened, name, &args.model))
    });
    named.collect()
}

/// How tensors are shown.
trait Form {
    /// Shows or keeps the next one.
    fn tensor(&mut self, tensor: Surveyed<'_>, out: &mut Out) -> std::io::Result<()>;
    /// Shows what was kept, and all together.
    fn end(&mut self, totals: &Totals, out: &mut Out) -> std::io::Result<()>;
}

/// Nothing: the picture has the output for itself.
struct Unshown;

impl Form for Unshown {
    fn tensor(&mut self, _: Surveyed<'_>, _: &mut Out) -> std::io::Result<()> {
        Ok(())
    }

    fn end(&mut self, _: &Totals, _: &mut Out) -> std::io::Result<()> {
        Ok(())
    }
}

/// All tensors together.
#[derive(Default)]
struct Totals {
    tensors: usize,
    /// Tensors without values.
    without: usize,
    tally: Tally,
    /// Tensors with NaN or infinities.
    odd: usize,
    failed: usize,
    /// The first errors.
    errors: Vec<String>,
}

impl Totals {
    fn add(&mut self, tensor: &Surveyed<'_>) {
        self.tensors += 1;
        match &tensor.stats {
            Ok(Some(stats)) => {
                self.odd += usize::from(stats.tally.nan + stats.tally.inf > 0);
                self.tally.merge(&stats.tally);
            }
            Ok(None) => self.without += 1,
            Err(error) => {
                self.failed += 1;
                if self.errors.len() < PRINTED {
                    self.errors.push(words(error));
                }
            }
        }
    }

    /// Says what could not be read, and what is no number.
    fn complain(&self) {
        self.errors.iter().for_each(|error| exit::warn(error));
        let more = self.failed - self.errors.len();
        if more > 0 {
            exit::say(&format!("and {} more could not be read", plural(more, "tensor")));
        }
    }

    fn exit(&self, args: &StatsArgs) -> Exit {
        let odd = args.check && self.odd > 0;
        if odd {
            let Tally { nan, inf, .. } = self.tally;
            let model = args.model.in_line();
            let tensors = plural(self.odd, "tensor");
            exit::warn(&format!("{model}: {nan} NaN and {inf} infinite values in {tensors}"));
        }
        match (self.failed > 0, odd) {
            (true, _) => Exit::Failed,
            (false, true) => Exit::Damage,
            (false, false) => Exit::Done,
        }
    }
}

/// An error in one line; what the bytes' own error says of the tensor is not said twice.
fn words(error: &SurveyError) -> String {
    let inner = error.source.to_string();
    if inner.contains("tensor ") {
        return inner;
    }
    format!("tensor {}: {inner}", Name(error.name.as_bytes()))
}
