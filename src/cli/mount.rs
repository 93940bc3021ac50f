//! `weightfs mount`: everything from the command line to the last unmount.

use super::args::MountArgs;
use super::confine::Confinement;
use super::daemon::{self, Side, Signals};
use super::engine::{self, Opened};
use super::exit::{self, Exit};
use super::keeper::Keeper;
use super::logfile::Log;
use super::options::Options;
use super::ready::Ready;
use super::{logfile, mountpoint, preflight, presence, shell};
use anyhow::{Context, Result, anyhow, bail};
use stage::{Stage, watch_signals};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use warnings::Warnings;
use weightfs::bytes::line::InLine;
use weightfs::fs::{Parts, WeightFs};
use weightfs::fuse::{self, MountOptions, Mounted};
use weightfs::grove::Grove;
use weightfs::load::{self, LoadError};

mod limits;
mod parting;
mod several;
mod stage;
mod warnings;

/// How often an idle mount looks at the clock, at most.
const IDLE_TICK: Duration = Duration::from_secs(1);

/// Mounts, and stays until the mount is gone: in the foreground, or as a daemon whose parent
/// returns when the mount is ready.
pub(crate) fn run(args: MountArgs, mut options: Options) -> Result<Exit> {
    let mut ready = Ready::new(args.ready_fd).context("--ready-fd")?;
    daemon::return_memory();
    // A daemon keeps none of the descriptors that a shell's `@<(command)` stands for.
    options.set.iter_mut().try_for_each(engine::read_value)?;
    if !(args.foreground || args.debug) {
        match daemon::detach().context("starting the daemon")? {
            Side::Parent(exit) => return Ok(exit),
            Side::Child(waiter) => ready = ready.with_waiter(waiter),
        }
    }
    let stage = Arc::new(Stage::default());
    watch_signals(Signals::block()?, Arc::clone(&stage))?;
    let point = mountpoint::prepare(&args.mountpoint)?;
    let log = start_log(&args, &options, ready.is_daemon(), &point)?;
    let done = mount(&args, &options, ready, &stage, &point, &log);
    if done.is_err() {
        log.discard_if_empty();
    }
    done
}

/// From the open log to the end of the mount.
fn mount(
    args: &MountArgs,
    options: &Options,
    ready: Ready,
    stage: &Arc<Stage>,
    point: &Path,
    log: &Log,
) -> Result<Exit> {
    limits::raise_open_files();
    let Planned { grove, warnings, source } = match options.recursive {
        true => several::plan(&args.model, options, point, log)?,
        false => plan(&args.model, options, point, log)?,
    };
    let grove = Arc::new(grove);
    let mount_options = mount_options(&source, options);
    log_panics();
    if !stage.begin_mounting() {
        bail!("interrupted before anything was mounted");
    }
    let confinement = Arc::new(Confinement::prepare(Arc::clone(&grove), Keeper::start()?));
    let around: Arc<dyn fuse::Surroundings> = Arc::clone(&confinement) as _;
    let mounted = fuse::mount(Arc::clone(&grove), point, &mount_options, around)
        .map_err(|error| anyhow!(preflight::mount_cure(&exit::message(&error.into()))))?;
    if !stage.is_mounted(mounted.unmounter()) {
        bail!("interrupted: {} is unmounted again", point.in_line());
    }
    presence::announce(mounted.unmounter().device());
    if options.auto_unmount {
        confinement.keeper().guard(&mounted.unmounter()).context("-o auto_unmount")?;
    }
    warnings.tell(log);
    std::env::set_current_dir("/").context("/")?;
    confine(&confinement, stage);
    ready.announce().context("nobody waits for the mount any more: it is taken away again")?;
    serve(mounted, options.idle)?;
    stage.is_parting();
    parting::keep_observed(&grove);
    log::info!("unmounted {}", point.in_line());
    Ok(Exit::Done)
}

/// What is to be mounted.
struct Planned {
    grove: Grove,
    warnings: Warnings,
    /// What `mount` and `df` show.
    source: PathBuf,
}

/// Opens the one model.
fn plan(model: &Path, options: &Options, point: &Path, log: &Log) -> Result<Planned> {
    let opened =
        engine::open_for_mount(model, options).map_err(|error| with_way_on(error, model))?;
    let files = opened.store.sources().iter().flat_map(|s| [s.path(), s.canonical_path()]);
    mountpoint::refuse_own_files(point, files.chain([opened.entry.as_path()]))?;
    preflight::check(options.allow_other)?;
    let (warnings, source) = (warnings::of_one(&opened, model), opened.entry.clone());
    let fs = WeightFs::new(parts(opened, log)).with_context(|| model.in_line().to_string())?;
    Ok(Planned { grove: Grove::of_one(fs), warnings, source })
}

/// Adds to the error of a directory that holds several models, or has models below it, that all
/// of them can be mounted.
fn with_way_on(error: anyhow::Error, model: &Path) -> anyhow::Error {
    fn are_several(error: &LoadError) -> bool {
        match error {
            LoadError::InDepot { source, .. } => are_several(source),
            LoadError::NoModel { directory, .. } => load::seems_to_hold_some(directory),
            other => other.is_of_several(),
        }
    }
    if !error.downcast_ref::<LoadError>().is_some_and(are_several) {
        return error;
    }
    let model = shell::word(model);
    anyhow!(
        "{error}\nto mount each as a directory of its own: weightfs mount --recursive {model} MOUNTPOINT"
    )
}

/// Confines this thread and the one that waits for signals: with the serving ones, which are
/// confined already, these are all.
fn confine(confinement: &Arc<Confinement>, stage: &Stage) {
    confinement.apply();
    let (done, confined) = mpsc::channel();
    let theirs = Arc::clone(confinement);
    stage.set_task(Box::new(move || {
        theirs.apply();
        let _ = done.send(());
    }));
    let told = Signals::tell().map_err(|error| error.to_string());
    if let Err(error) = told.and_then(|()| {
        confined.recv_timeout(Duration::from_secs(1)).map_err(|error| error.to_string())
    }) {
        log::debug!("the thread that waits for signals is not confined: {error}");
    }
}

/// Waits until the mount is gone.
fn serve(mounted: Mounted, idle: Option<Duration>) -> Result<()> {
    if let Some(limit) = idle {
        wait_for_idleness(&mounted, limit);
    }
    mounted.wait();
    Ok(())
}

/// Returns when nothing has been open for `limit`, after unmounting, or when the mount is gone.
fn wait_for_idleness(mounted: &Mounted, limit: Duration) {
    while mounted.is_alive() {
        let idle = mounted.idle_for().unwrap_or(Duration::ZERO);
        if idle < limit {
            thread::sleep((limit - idle).min(IDLE_TICK));
            mounted.look_for_stalls();
            continue;
        }
        log::info!("no file was open for {} s: unmounting", limit.as_secs());
        match mounted.unmounter().unmount() {
            Ok(_) => return,
            Err(error) => {
                log::warn!("unmounting: {error}");
                thread::sleep(limit.max(IDLE_TICK));
            }
        }
    }
}

fn start_log(args: &MountArgs, options: &Options, daemon: bool, point: &Path) -> Result<Log> {
    let usual = if args.debug { log::LevelFilter::Debug } else { log::LevelFilter::Info };
    let level = options.log_level.unwrap_or(usual);
    logfile::start(options.log.as_deref(), level, daemon, point)
}

fn parts(opened: Opened, log: &Log) -> Parts {
    Parts {
        model: opened.model,
        catalog: opened.catalog,
        store: opened.store,
        verify: opened.verify,
        warnings: opened.warnings,
        scales: opened.scales,
        hf: opened.hf,
        log: Some(log.described()),
    }
}

fn mount_options(source: &Path, options: &Options) -> MountOptions {
    let fsname = options.fsname.as_deref().unwrap_or(source.as_os_str());
    let cores = thread::available_parallelism().map_or(2, usize::from);
    MountOptions {
        fsname: fsname.to_string_lossy().into_owned(),
        allow_other: options.allow_other,
        threads: options.threads.unwrap_or(cores.clamp(2, 8)),
        cache: options.cache,
        uid: options.uid.unwrap_or_else(|| nix::unistd::getuid().as_raw()),
        gid: options.gid.unwrap_or_else(|| nix::unistd::getgid().as_raw()),
        // At most 0o777.
        umask: options.umask.unwrap_or(0) as u16,
    }
}

/// A panic is a fault of ours: it costs the reader one answer (`fuse` sees to that) and is told
/// in the log, where somebody will look.
fn log_panics() {
    std::panic::set_hook(Box::new(|info| log::error!("internal error: {info}")));
}
