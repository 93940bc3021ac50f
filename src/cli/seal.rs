//! `weightfs seal`: checksums of every byte, written beside the model; of one file of a set
//! with `--part`, and such parts made one with `--merge`.

mod merge;

use super::args::SealArgs;
use super::below::{self, Named};
use super::daemon;
use super::engine::{self, Cure};
use super::exit::{self, Exit, Failure};
use super::output::Out;
use super::progress::Progress;
use super::text::{chunk_size, plural, size};
use anyhow::{Context, Result};
use std::path::Path;
use weightfs::bytes::line::InLine;
use weightfs::depot;
use weightfs::load::{self, Loaded};
use weightfs::seal::{self, Outcome, Seal, SealOptions, SealReport, VerifyOptions};
use weightfs::source::IoMode;
use weightfs::trust::{self, Anchor};

pub(crate) fn run(args: &SealArgs) -> Result<Exit> {
    if args.output.is_some() && args.models.len() > 1 && !args.merge {
        return Err(Failure::usage("--output names one file, but several models were given"));
    }
    // No half of a seal stays behind.
    daemon::before_death(seal::abandon_drafts).context("waiting for signals")?;
    let mut out = Out::new();
    if args.merge {
        let (model, loaded, report, anchors) = merge::run(args)?;
        conclude(args, &loaded, &report, &model, &anchors, &mut out)?;
        out.flush()?;
        return Ok(Exit::Done);
    }
    let mut ends = Vec::new();
    for Named { model, problem } in below::models(&args.models, args.recursive) {
        let done = problem.map_or_else(|| seal_one(args, &model, &mut out), Err);
        ends.push(exit::finish(done));
    }
    out.flush()?;
    Ok(Exit::of_several(&ends))
}

fn seal_one(args: &SealArgs, model: &Path, out: &mut Out) -> Result<Exit> {
    let loaded = match args.part {
        true => load::open_part(model, IoMode::Auto)?,
        false => engine::load(model, IoMode::Auto)?,
    };
    let mut anchors = anchors(&loaded)?;
    engine::call_as_asked(&mut anchors, model);
    let defaults = SealOptions::default();
    let options = SealOptions {
        chunk_bytes: args.chunk_size.map_or(defaults.chunk_bytes, u64::from),
        sha256: !args.no_sha256,
        force: args.force,
        output: args.output.clone(),
        part: args.part,
        anchors,
    };
    let report = {
        let bar = Progress::new(model, bytes_of(&loaded));
        seal::create(&loaded.model, &loaded.sources, &loaded.entry, &options, &|done| bar.set(done))
            .map_err(|error| engine::seal_error(error, cure(args)))?
    };
    conclude(args, &loaded, &report, model, &options.anchors, out)?;
    Ok(Exit::Done)
}

/// What is written down elsewhere about the files. If it contradicts itself, nothing has to be
/// read to know that nothing can be sealed.
pub(super) fn anchors(loaded: &Loaded) -> Result<Vec<Anchor>> {
    let found = trust::find(&loaded.model, &loaded.sources);
    for warning in &found.warnings {
        exit::warn(warning);
    }
    match trust::contradiction(&found.anchors, &loaded.model) {
        Some(wrong) => Err(engine::distrust(&wrong)),
        None => Ok(found.anchors),
    }
}

/// What to do about a seal that is there and does not fit.
fn cure(args: &SealArgs) -> Cure {
    if args.part { Cure::Part } else { Cure::Force }
}

/// Tells what was done, once a seal that was there is known to fit.
fn conclude(
    args: &SealArgs,
    loaded: &Loaded,
    report: &SealReport,
    model: &Path,
    anchors: &[Anchor],
    out: &mut Out,
) -> Result<()> {
    if report.outcome == Outcome::Kept {
        check_kept(loaded, report, model, anchors, cure(args))?;
    } else if args.no_sha256 || args.merge {
        let seal = Seal::load(&report.path, &loaded.model, &loaded.sources)
            .map_err(|error| engine::seal_error(error, cure(args)))?;
        for what in trust::unanswered(anchors.iter(), Some(&seal)) {
            exit::say(&format!(
                "{what}: not compared by this way of sealing, weightfs verify does"
            ));
        }
    }
    say(loaded, report, model, out)?;
    if report.path.parent() == loaded.entry.parent() && depot::is_blob(&loaded.entry) {
        exit::say(&format!(
            "{}: Ollama clears its blobs of other files when it starts, this seal too; to keep one elsewhere: \
             weightfs seal --output FILE, mount with -o seal=FILE",
            model.in_line()
        ));
    }
    if report.outcome == Outcome::Kept && !args.merge {
        say_difference(args, report, model);
    }
    Ok(())
}

/// A seal that was left alone need not be the one that was asked for.
fn say_difference(args: &SealArgs, report: &SealReport, model: &Path) {
    let mut differs = Vec::new();
    if let Some(wanted) = args.chunk_size.filter(|&size| u64::from(size) != report.chunk_bytes) {
        let (has, wanted) = (chunk_size(report.chunk_bytes), chunk_size(wanted.into()));
        differs.push(format!("has chunks of {has}, not {wanted}"));
    }
    match (args.no_sha256, report.files.iter().all(Option::is_some)) {
        (true, true) => differs.push("has SHA-256".into()),
        (false, false) => differs.push("has no SHA-256".into()),
        _ => {}
    }
    if !differs.is_empty() {
        exit::say(&format!(
            "{}: the seal that is there {}; weightfs seal --force makes a new one",
            model.in_line(),
            differs.join(", and ")
        ));
    }
}

pub(super) fn bytes_of(loaded: &Loaded) -> u64 {
    loaded.sources.iter().map(|source| source.len()).sum()
}

/// A seal that was there is left alone only if it fits, and it fits when every byte does.
fn check_kept(
    loaded: &Loaded,
    report: &SealReport,
    model: &Path,
    anchors: &[Anchor],
    cure: Cure,
) -> Result<()> {
    let bar = Progress::new(model, bytes_of(loaded));
    let typed = model;
    let whole = loaded;
    let (model, sources) = (&loaded.model, &loaded.sources);
    let at_fault = |error| engine::seal_error(error, cure);
    let kept = Seal::load(&report.path, model, sources).map_err(at_fault)?;
    let found =
        seal::verify(model, sources, &kept, VerifyOptions::default(), &|done| bar.set(done))
            .map_err(at_fault)?;
    if found.is_good() {
        let tick = |done| bar.set(done);
        return engine::agree(whole, anchors, &kept, &tick);
    }
    let n = found.bad.len() as u64 + found.more;
    Err(Failure::with(
        Exit::Seal,
        format!(
            "{}: it does not fit: {n} of {} {} from what was sealed\n\
             weightfs verify lists them; if the model is as it should be, weightfs seal --force makes a new seal",
            engine::as_typed(&report.path, typed).in_line(),
            plural(found.chunks as usize, "chunk"),
            if n == 1 { "differs" } else { "differ" },
        ),
    ))
}

fn say(loaded: &Loaded, report: &SealReport, model: &Path, out: &mut Out) -> Result<()> {
    let name = model.in_line();
    let seal = engine::as_typed(&report.path, model);
    let seal = seal.in_line();
    match report.outcome {
        Outcome::Kept => {
            out.line(format_args!("{name}: sealed already, and every byte fits {seal}"))?;
        }
        Outcome::Written => out.line(format_args!(
            "{name}: sealed {}, {} in {} of {} -> {seal}",
            plural(loaded.model.tensors.len(), "tensor"),
            size(bytes_of(loaded)),
            plural(report.chunks as usize, "chunk"),
            chunk_size(report.chunk_bytes),
        ))?,
    }
    // Before the next bar is drawn.
    out.flush()?;
    Ok(())
}
