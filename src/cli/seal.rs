//! `weightfs seal`: checksums of every byte, written beside the model.

use super::args::SealArgs;
use super::engine;
use super::exit::{self, Exit, Failure};
use super::output::Out;
use super::progress::Progress;
use super::text::{Safe, plural, size};
use anyhow::Result;
use std::io::Write;
use std::path::Path;
use weightfs::load::Loaded;
use weightfs::seal::{self, Outcome, Seal, SealOptions, SealReport, VerifyOptions};
use weightfs::source::IoMode;

pub(crate) fn run(args: &SealArgs) -> Result<Exit> {
    if args.output.is_some() && args.models.len() > 1 {
        return Err(Failure::usage("--output names one file, but several models were given"));
    }
    let mut out = Out::new();
    let mut ends = Vec::new();
    for model in &args.models {
        ends.push(exit::finish(seal_one(args, model, &mut out)));
    }
    out.flush()?;
    Ok(Exit::of_several(&ends))
}

fn seal_one(args: &SealArgs, model: &Path, out: &mut Out) -> Result<Exit> {
    let loaded = engine::load(model, IoMode::Auto)?;
    let options = SealOptions {
        chunk_bytes: args.chunk_size.into(),
        sha256: !args.no_sha256,
        force: args.force,
        output: args.output.clone(),
    };
    let report = {
        let bar = Progress::new(model, bytes_of(&loaded));
        seal::create(&loaded.model, &loaded.sources, &loaded.entry, &options, &|done| bar.set(done))
            .map_err(engine::seal_error)?
    };
    if report.outcome == Outcome::Kept {
        check_kept(&loaded, &report, model)?;
    }
    say(&loaded, &report, model, out)?;
    Ok(Exit::Done)
}

pub(super) fn bytes_of(loaded: &Loaded) -> u64 {
    loaded.sources.iter().map(|source| source.len()).sum()
}

/// A seal that was there is left alone only if it fits, and it fits when every byte does.
fn check_kept(loaded: &Loaded, report: &SealReport, model: &Path) -> Result<()> {
    let bar = Progress::new(model, bytes_of(loaded));
    let (model, sources) = (&loaded.model, &loaded.sources);
    let kept = Seal::load(&report.path, model, sources).map_err(engine::seal_error)?;
    let found =
        seal::verify(model, sources, &kept, VerifyOptions::default(), &|done| bar.set(done))
            .map_err(engine::seal_error)?;
    if found.is_good() {
        return Ok(());
    }
    Err(Failure::with(
        Exit::Seal,
        format!(
            "{}: it does not fit: {} of {} differ from what was sealed\n\
             weightfs verify lists them; if the model is as it should be, weightfs seal --force makes a new seal",
            report.path.display(),
            found.bad.len() as u64 + found.more,
            plural(found.chunks as usize, "chunk"),
        ),
    ))
}

fn say(loaded: &Loaded, report: &SealReport, model: &Path, out: &mut Out) -> Result<()> {
    let name = Safe(model.as_os_str().as_encoded_bytes());
    let seal = Safe(report.path.as_os_str().as_encoded_bytes());
    match report.outcome {
        Outcome::Kept => writeln!(out, "{name}: sealed already, and every byte fits {seal}")?,
        Outcome::Written => writeln!(
            out,
            "{name}: sealed {}, {} in {} of {} KiB -> {seal}",
            plural(loaded.model.tensors.len(), "tensor"),
            size(bytes_of(loaded)),
            plural(report.chunks as usize, "chunk"),
            report.chunk_bytes >> 10,
        )?,
    }
    // Before the next bar is drawn.
    out.flush()?;
    Ok(())
}
