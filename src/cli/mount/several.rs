//! `--recursive`: every model of a directory in one mount.
//!
//! A model that cannot be had does not take the others with it: it is left out, and told.

use super::warnings::{self, FIRST_USE, Warnings};
use super::{Planned, parts};
use crate::cli::engine::{self, Opened};
use crate::cli::exit::{self, Exit, Failure};
use crate::cli::logfile::Log;
use crate::cli::options::Options;
use crate::cli::text::plural;
use crate::cli::{mountpoint, preflight, unopened};
use anyhow::{Result, anyhow, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use weightfs::fs::WeightFs;
use weightfs::grove::{Grove, LeftOut, Member};
use weightfs::load::{self, Found, Walk};
use weightfs::store::{OnCorruption, Verify};

/// Models that are opened at once: most of the time goes into waiting for headers.
const AT_ONCE: usize = 8;
/// Lines of one kind that are said; all are in the log and in the mount's documents.
const SAID: usize = 8;

/// Open files that the mount itself needs, now and later.
const SPARE: usize = 48;

/// A model that was opened, and what there is to say about it.
struct Grown {
    fs: WeightFs,
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
    let Walk { directory, models, notes } = load::walk(directory)?;
    let canonical = directory.canonicalize();
    let tops = [Some(directory.as_path()), canonical.as_deref().ok()];
    mountpoint::refuse_own_files(point, tops.into_iter().flatten())?;
    if models.is_empty() {
        bail!("{}: holds no model, and neither do the directories in it", directory.display());
    }
    raise_open_files();
    let spare = spare_files();
    let opened = open_all(&models, options, log);
    drop(spare);
    let mut tally = Tally::new(&directory, options, &notes);
    let mut codes = Vec::new();
    let mut first = None;
    let mut members = Vec::with_capacity(models.len());
    for (found, outcome) in models.into_iter().zip(opened) {
        let Found { shown, path, .. } = found;
        let model = match outcome {
            Ok(grown) => {
                let sources = grown.fs.store().sources().iter();
                let files = sources.flat_map(|s| [s.path(), s.canonical_path()]);
                mountpoint::refuse_own_files(point, files)?;
                tally.add(&path, &grown);
                Ok(grown.fs)
            }
            Err(error) => {
                codes.push(exit::code_of(&error));
                let text = named(&path, &exit::message(&error));
                first.get_or_insert_with(|| text.clone());
                Err(text.replace('\n', "; "))
            }
        };
        members.push(Member { shown, path, model });
    }
    if let (Some(first), true) = (first, members.iter().all(|member| member.model.is_err())) {
        let text = match members.len() {
            1 => first,
            n => format!("{}: none of {n} models can be opened\n{first}", directory.display()),
        };
        return Err(Failure::with(Exit::of_several(&codes), text));
    }
    let log = log.path.as_deref();
    let grove = Grove::of_several(members, &notes, Some(super::logged_to(log)));
    let (shown, left_out) = (grove.models().count(), grove.left_out());
    log::info!(
        "{}: {} mounted, {} left out",
        directory.display(),
        plural(shown, "model"),
        left_out.len()
    );
    let warnings = tally.told(left_out);
    Ok(Planned { grove, warnings, source: directory })
}

/// Opens the models, several at once; what becomes of each, in their order.
fn open_all(models: &[Found], options: &Options, log: &Log) -> Vec<Result<Grown>> {
    let done: Vec<OnceLock<Result<Grown>>> = models.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((found, slot)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            models.get(at).zip(done.get(at))
        } {
            let opened = catch_unwind(AssertUnwindSafe(|| open(found, options, log)));
            let _ = slot.set(opened.unwrap_or_else(|_| Err(anyhow!("internal error"))));
        }
    };
    thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(models.len()) {
            // This thread does what the others leave.
            let _ = thread::Builder::new().name("open".into()).spawn_scoped(scope, work);
        }
        work();
    });
    let lost = || Err(anyhow!("internal error"));
    done.into_iter().map(|slot| slot.into_inner().unwrap_or_else(lost)).collect()
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
    let opened = engine::open_for_mount(&found.path, options)?;
    let warnings = warnings::of_model(&opened).into_iter().cloned().collect();
    let Opened { ref store, ref unused_seal, .. } = opened;
    let (sealed, seal_ignored) = (store.is_sealed(), unused_seal.is_some());
    let fs = WeightFs::new(parts(opened, log.path.as_deref()))?;
    Ok(Grown { fs, warnings, sealed, seal_ignored })
}

/// A text about the model at `path`, with its name.
fn named(path: &Path, text: &str) -> String {
    let path = path.display().to_string();
    if text.contains(&path) { text.to_owned() } else { format!("{path}: {text}") }
}

/// Each model keeps its files open; the usual limit is meant for programs that use select(2).
fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        log::debug!("the limit of open files stays: {error}");
    }
}

/// Open files to be closed again: where models need more than there may be, the last of them are
/// left out, and not the mount.
fn spare_files() -> Vec<File> {
    (0..SPARE).map_while(|_| File::open("/dev/null").ok()).collect()
}

/// What there is to say about all of them together.
struct Tally<'a> {
    directory: PathBuf,
    options: &'a Options,
    warnings: Warnings,
    models: usize,
    sealed: usize,
    ignored: usize,
    warned: usize,
}

impl<'a> Tally<'a> {
    fn new(directory: &Path, options: &'a Options, notes: &[String]) -> Tally<'a> {
        let mut warnings = Warnings::default();
        warnings.add_first(SAID, notes.to_vec(), "more of the kind: see models.json in the mount");
        let directory = directory.to_path_buf();
        Tally { directory, options, warnings, models: 0, sealed: 0, ignored: 0, warned: 0 }
    }

    fn add(&mut self, path: &Path, grown: &Grown) {
        self.models += 1;
        self.sealed += usize::from(grown.sealed);
        self.ignored += usize::from(grown.seal_ignored);
        self.warned += usize::from(!grown.warnings.is_empty());
        self.warnings.listed.extend(grown.warnings.iter().map(|text| named(path, text)));
    }

    fn told(self, left_out: &[LeftOut]) -> Warnings {
        let Tally { directory, options, mut warnings, models, sealed, ignored, warned } = self;
        let name = directory.display();
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
