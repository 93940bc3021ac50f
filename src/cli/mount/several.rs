//! `--recursive`: every model of a directory in one mount.
//!
//! A model that cannot be had does not take the others with it: it is left out, and told.

use super::limits::{Limit, Spare};
use super::warnings::{self, FIRST_USE, Warnings};
use super::{Planned, parts};
use crate::cli::engine::{self, Opened};
use crate::cli::exit::{self, Exit, Failure};
use crate::cli::logfile::Log;
use crate::cli::options::Options;
use crate::cli::text::plural;
use crate::cli::{mountpoint, preflight, unopened};
use anyhow::{Result, anyhow, bail};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use weightfs::bytes::line::InLine;
use weightfs::fs::WeightFs;
use weightfs::grove::{Grove, LeftOut, Member};
use weightfs::load::{self, Found, Walk};
use weightfs::naming::MapSpec;
use weightfs::store::{OnCorruption, Verify};

/// Models that are opened at once: most of the time goes into waiting for headers.
const AT_ONCE: usize = 8;
/// Lines of one kind that are said; all are in the log and in the mount's documents.
const SAID: usize = 8;

/// A model that was opened, and what there is to say about it.
struct Grown {
    fs: WeightFs,
    about: About,
}

struct About {
    warnings: Vec<String>,
    sealed: bool,
    seal_ignored: bool,
}

/// Finds and opens all models below `directory`.
pub(super) fn plan(
    directory: &Path,
    options: &Options,
    point: &Path,
    log: &Log,
) -> Result<Planned> {
    preflight::check(options.allow_other)?;
    check_maps(options)?;
    let Walk { directory, models, notes } = load::walk(directory)?;
    let canonical = directory.canonicalize();
    let tops = [Some(directory.as_path()), canonical.as_deref().ok()];
    mountpoint::refuse_own_files(point, tops.into_iter().flatten())?;
    if models.is_empty() {
        bail!("{}: holds no model, and neither do the directories in it", directory.in_line());
    }
    let opened = open_all(&models, options, log)
        .map_err(|(limit, text)| limit.told(&directory, models.len(), &text))?;
    let mut tally = Tally::new(&directory, options, &notes);
    let mut codes = Vec::new();
    let mut first = None;
    let mut members = Vec::with_capacity(models.len());
    for (member, (found, outcome)) in models.into_iter().zip(opened).enumerate() {
        let Found { shown, path, .. } = found;
        let model = match outcome {
            Ok(Grown { fs, about }) => {
                let sources = fs.store().sources().iter();
                let files = sources.flat_map(|s| [s.path(), s.canonical_path()]);
                mountpoint::refuse_own_files(point, files)?;
                tally.opened.push((member, path.clone(), about));
                Ok(fs)
            }
            Err(error) => {
                codes.push(exit::code_of(&error));
                let text = without_name(&path, &exit::message(&error));
                first.get_or_insert_with(|| named(&path, &text));
                Err(text.replace('\n', "; "))
            }
        };
        members.push(Member { shown, path, model });
    }
    if let (Some(first), true) = (first, members.iter().all(|member| member.model.is_err())) {
        let text = match members.len() {
            1 => first,
            n => format!("{}: none of {n} models can be opened\n{first}", directory.in_line()),
        };
        return Err(Failure::with(Exit::of_several(&codes), text));
    }
    let grove = Grove::of_several(members, &notes, Some(log.described()));
    let (shown, left_out) = (grove.models().count(), grove.left_out());
    log::info!(
        "{}: {} mounted, {} left out",
        directory.in_line(),
        plural(shown, "model"),
        left_out.len()
    );
    let warnings = tally.told(left_out);
    Ok(Planned { grove, warnings, source: directory })
}

/// A map that is wrong for all models is no fault of any.
fn check_maps(options: &Options) -> Result<()> {
    options.map.iter().try_for_each(|value| Ok(MapSpec::parse(value).check()?))
}

/// Opens the models, several at once; what becomes of each, in their order. An error where this
/// process may not have what they need.
fn open_all(
    models: &[Found],
    options: &Options,
    log: &Log,
) -> Result<Vec<Result<Grown>>, (Limit, String)> {
    let spare = Spare::take()?;
    let done: Vec<OnceLock<Result<Grown>>> = models.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let met = OnceLock::new();
    let work = || {
        while let Some((found, slot)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            models.get(at).zip(done.get(at)).filter(|_| met.get().is_none())
        } {
            let opened = catch_unwind(AssertUnwindSafe(|| open(found, options, log)));
            let opened = opened.unwrap_or_else(|_| Err(anyhow!("internal error")));
            if let Err(error) = &opened {
                let limit = match &found.problem {
                    Some(problem) => Limit::behind(problem),
                    None => Limit::behind(error.as_ref()),
                };
                limit.into_iter().for_each(|limit| drop(met.set((limit, exit::message(error)))));
            }
            let _ = slot.set(opened);
        }
    };
    let threads = AT_ONCE.min(models.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // This thread does what the others leave.
            let _ = thread::Builder::new().name("open".into()).spawn_scoped(scope, work);
        }
        work();
    });
    if let Some(met) = met.into_inner() {
        return Err(met);
    }
    spare.was_enough_for(threads)?;
    let lost = || Err(anyhow!("internal error"));
    Ok(done.into_iter().map(|slot| slot.into_inner().unwrap_or_else(lost)).collect())
}

fn open(found: &Found, options: &Options, log: &Log) -> Result<Grown> {
    if let Some(problem) = &found.problem {
        return Err(unopened::refused(
            anyhow!("{problem}"),
            &found.path,
            &options.seal,
            options.io,
        ));
    }
    let mut opened = engine::open_for_mount(&found.path, options)?;
    opened.warnings.extend(found.warnings.iter().cloned());
    let warnings = warnings::of_model(&opened).into_iter().cloned().collect();
    let Opened { ref store, ref unused_seal, .. } = opened;
    let (sealed, seal_ignored) = (store.is_sealed(), unused_seal.is_some());
    let fs = WeightFs::new(parts(opened, log))?;
    Ok(Grown { fs, about: About { warnings, sealed, seal_ignored } })
}

/// A text about the model at `path`, with its name in front.
fn named(path: &Path, text: &str) -> String {
    let path = path.in_line().to_string();
    if text.starts_with(&path) { text.to_owned() } else { format!("{path}: {text}") }
}

/// What a text about the model at `path` says behind its name: which model it is about stands
/// beside it.
fn without_name(path: &Path, text: &str) -> String {
    let name = format!("{}: ", path.in_line());
    text.strip_prefix(&name).unwrap_or(text).to_owned()
}

/// What there is to say about all of them together.
struct Tally<'a> {
    directory: PathBuf,
    options: &'a Options,
    warnings: Warnings,
    /// Those that were opened, by their numbers among all.
    opened: Vec<(usize, PathBuf, About)>,
}

impl<'a> Tally<'a> {
    fn new(directory: &Path, options: &'a Options, notes: &[String]) -> Tally<'a> {
        let mut warnings = Warnings::default();
        warnings.add_first(SAID, notes.to_vec(), "more of the kind: see models.json in the mount");
        let directory = directory.to_path_buf();
        Tally { directory, options, warnings, opened: Vec::new() }
    }

    fn told(self, left_out: &[LeftOut]) -> Warnings {
        let Tally { directory, options, mut warnings, mut opened } = self;
        // In the order of their numbers, as these are.
        opened.retain(|(member, ..)| {
            left_out.binary_search_by_key(member, |one| one.member).is_err()
        });
        let models = opened.len();
        let (mut sealed, mut ignored, mut warned) = (0, 0, 0);
        for (_, path, about) in opened {
            sealed += usize::from(about.sealed);
            ignored += usize::from(about.seal_ignored);
            warned += usize::from(!about.warnings.is_empty());
            warnings.listed.extend(about.warnings.iter().map(|text| named(&path, text)));
        }
        let name = directory.in_line();
        let lines = left_out
            .iter()
            .map(|LeftOut { path, error, .. }| format!("left out: {}", named(path, error)));
        warnings.add_first(
            SAID,
            lines.collect(),
            "more are left out: see models.json in the mount",
        );
        let unsealed = models - sealed;
        if options.verify == Verify::Off {
            warnings.said.push(format!("{name}: verify=off: nothing is checked"));
        } else if ignored > 0 {
            let seals = plural(ignored, "seal");
            warnings.said.push(format!("{name}: {seals} ignored (seal=none): {FIRST_USE}"));
        } else if unsealed > 0 {
            let of = plural(models, "model");
            warnings.said.push(format!(
                "{name}: {unsealed} of {of} not sealed: {FIRST_USE} (weightfs seal MODEL seals one)"
            ));
        }
        if options.on_corruption == OnCorruption::Log {
            warnings.said.push(format!("{name}: {}", engine::SERVES_DAMAGE));
        }
        if warned > 0 {
            let of = plural(warned, "model");
            warnings.said.push(format!("{name}: warnings about {of}, see model.json of each"));
        }
        warnings
    }
}
