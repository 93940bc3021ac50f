//! `weightfs mount`: everything from the command line to the last unmount.

use super::args::MountArgs;
use super::confine::Confinement;
use super::daemon::{self, Side, Signals};
use super::engine::{self, Opened};
use super::exit::{self, Exit};
use super::keeper::Keeper;
use super::logfile::Log;
use super::options::Options;
use super::ready::{self, Ready};
use super::text::{self, plural};
use super::{logfile, mountpoint, preflight};
use anyhow::{Context, Result, anyhow, bail};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use weightfs::fs::{Parts, WeightFs};
use weightfs::fuse::{self, MountOptions, Mounted, Unmounter};
use weightfs::seal;
use weightfs::store::{OnCorruption, Verify};

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
    let opened = engine::open_for_mount(&args.model, options)?;
    let files = opened.store.sources().iter().flat_map(|s| [s.path(), s.canonical_path()]);
    mountpoint::refuse_own_files(point, files.chain([opened.entry.as_path()]))?;
    preflight::check(options.allow_other)?;
    let mount_options = mount_options(&opened, options);
    let warnings = warnings(&opened, &args.model);
    let fs = WeightFs::new(parts(opened, log.path.as_deref()))
        .with_context(|| args.model.display().to_string())?;
    let fs = Arc::new(fs);
    log_panics();
    if !stage.begin_mounting() {
        bail!("interrupted before anything was mounted");
    }
    let confinement = Arc::new(Confinement::prepare(Arc::clone(&fs), Keeper::start()?));
    let around: Arc<dyn fuse::Surroundings> = Arc::clone(&confinement) as _;
    let mounted = fuse::mount(Arc::clone(&fs), point, &mount_options, around)
        .map_err(|error| anyhow!(preflight::mount_cure(&exit::message(&error.into()))))?;
    if !stage.is_mounted(mounted.unmounter()) {
        bail!("interrupted: {} is unmounted again", point.display());
    }
    if options.auto_unmount {
        confinement.keeper().guard(&mounted.unmounter()).context("-o auto_unmount")?;
    }
    warnings.tell(log);
    std::env::set_current_dir("/").context("/")?;
    confine(&confinement, stage);
    ready.announce().context("nobody waits for the mount any more: it is taken away again")?;
    serve(mounted, options.idle)?;
    keep_observed(&fs);
    log::info!("unmounted {}", point.display());
    Ok(Exit::Done)
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

/// How long the end of the mount may wait for a source that hangs.
const PARTING: Duration = Duration::from_secs(2);

/// Keeps what was learnt about an unsealed model for its next mount. Losing it loses no data.
fn keep_observed(fs: &Arc<WeightFs>) {
    let Some(cache) = seal::cache_home() else { return };
    let (done, kept) = mpsc::channel();
    let fs = Arc::clone(fs);
    let keep = move || {
        let saved = fs.store().save_tofu(&cache.join("tofu"));
        let _ = done.send(saved.err().map(|error| error.to_string()));
    };
    let started = thread::Builder::new().name("tofu".into()).spawn(keep);
    let problem = match started {
        Ok(_) => kept.recv_timeout(PARTING).unwrap_or_else(|error| Some(error.to_string())),
        Err(error) => Some(error.to_string()),
    };
    if let Some(problem) = problem {
        log::warn!("what was seen of the model's bytes is not kept: {problem}");
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

fn parts(opened: Opened, log: Option<&Path>) -> Parts {
    Parts {
        model: opened.model,
        catalog: opened.catalog,
        store: opened.store,
        verify: opened.verify,
        warnings: opened.warnings,
        scales: opened.scales,
        hf: opened.hf,
        log: Some(logfile::describe(log).to_string_lossy().into_owned()),
    }
}

fn mount_options(opened: &Opened, options: &Options) -> MountOptions {
    let fsname = options.fsname.as_deref().unwrap_or(opened.entry.as_os_str());
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

/// Longest warning on stderr, in columns; model.json has them whole.
const LONGEST_SAID: usize = 240;

/// What the user should know although the mount came about.
struct Warnings {
    /// For stderr and the log.
    said: Vec<String>,
    /// For the log alone: what was too much to be said.
    listed: Vec<String>,
}

impl Warnings {
    /// Each once, also where the log is stderr.
    fn tell(&self, log: &Log) {
        for text in &self.said {
            exit::say(text);
            if !log.is_stderr {
                log::warn!("{text}");
            }
        }
        self.listed.iter().for_each(|text| log::warn!("{text}"));
    }
}

fn warnings(opened: &Opened, model: &Path) -> Warnings {
    const FIRST_USE: &str =
        "what a chunk holds when first read is trusted, later reads are compared with it";
    let name = model.display();
    let (mut said, mut listed) = (Vec::new(), Vec::new());
    match (opened.store.is_sealed(), &opened.unused_seal, opened.verify) {
        (true, _, Verify::Off) => said.push(format!("{name}: verify=off: nothing is checked")),
        (true, ..) => {}
        (false, Some(_), Verify::Off) => said.push(format!(
            "{name}: its seal is ignored (seal=none), and verify=off: nothing is checked"
        )),
        (false, Some(_), _) => {
            said.push(format!("{name}: its seal is ignored (seal=none): {FIRST_USE}"));
        }
        (false, None, Verify::Off) => {
            said.push(format!("{name} is not sealed, and verify=off: nothing is checked"));
        }
        (false, None, _) => {
            said.push(format!("{name} is not sealed: {FIRST_USE} (weightfs seal {name} seals it)"))
        }
    }
    if opened.on_corruption == OnCorruption::Log {
        said.push(format!("{name}: {}", engine::SERVES_DAMAGE));
    }
    let all: Vec<&String> = opened
        .model
        .warnings
        .iter()
        .chain(opened.catalog.warnings())
        .chain(opened.warnings.iter().filter(|text| *text != engine::SERVES_DAMAGE))
        .collect();
    match all[..] {
        [] => {}
        [only] if text::width(only) > LONGEST_SAID => {
            let beginning = text::cut(only, LONGEST_SAID);
            said.push(format!("{name}: {beginning} (all of it in model.json)"));
            listed.push(only.clone());
        }
        [only] => said.push(format!("{name}: {only}")),
        _ => {
            let n = plural(all.len(), "warning");
            said.push(format!("{name}: {n}, see model.json in the mount"));
            listed.extend(all.into_iter().cloned());
        }
    }
    Warnings { said, listed }
}

/// How far we are, for a signal or a panic to do the right thing.
#[derive(Default)]
struct Stage {
    state: Mutex<State>,
    /// For the thread that waits for signals to do at the next [`Signals::OURS`].
    task: Mutex<Option<Task>>,
}

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
enum State {
    /// Nothing is mounted: we may simply end.
    #[default]
    Opening,
    /// Between the two: whoever mounts takes it away again.
    Mounting,
    Interrupted,
    Mounted(Unmounter),
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_task(&self, task: Task) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    fn take_task(&self) -> Option<Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// False when a signal came first.
    fn begin_mounting(&self) -> bool {
        let mut state = self.lock();
        let free = matches!(*state, State::Opening);
        if free {
            *state = State::Mounting;
        }
        free
    }

    /// False when a signal came in between.
    fn is_mounted(&self, unmounter: Unmounter) -> bool {
        let mut state = self.lock();
        let free = matches!(*state, State::Mounting);
        if free {
            *state = State::Mounted(unmounter);
        }
        free
    }
}

/// The thread that takes signals: the first unmounts, a second one ends at once.
fn watch_signals(signals: Signals, stage: Arc<Stage>) -> Result<()> {
    thread::Builder::new().name("signals".into()).spawn(move || {
        let (mut asked, mut stays) = (false, false);
        loop {
            let signal = match signals.next() {
                Ok(signal) => signal,
                Err(error) => return log::error!("waiting for signals: {error}"),
            };
            if signal == Signals::OURS {
                stage.take_task().into_iter().for_each(|task| task());
                continue;
            }
            if asked {
                log::warn!("{signal} again: ending at once, open files get errors");
                if let State::Mounted(unmounter) = &*stage.lock() {
                    unmounter.abandon();
                    if stays {
                        let point = unmounter.mountpoint().display();
                        log::error!(
                            "{point}: a dead mount stays behind: umount {point}, or fusermount3 -u {point}"
                        );
                    }
                }
                std::process::exit(Exit::Failed.code().into());
            }
            asked = true;
            let mut state = stage.lock();
            match &*state {
                State::Opening => std::process::exit(Exit::Failed.code().into()),
                State::Mounting | State::Interrupted => *state = State::Interrupted,
                State::Mounted(unmounter) => {
                    let unmounter = unmounter.clone();
                    drop(state);
                    stays = !leave(&unmounter, signal.as_ref());
                }
            }
        }
    })?;
    Ok(())
}

/// Unmounts; false where that cannot be done from here.
fn leave(unmounter: &Unmounter, why: &str) -> bool {
    log::info!("{why}: unmounting {}", unmounter.mountpoint().display());
    ready::notify("STOPPING=1");
    match unmounter.unmount() {
        Ok(false) => true,
        Ok(true) => {
            log::info!(
                "files are open: the daemon ends with the last of them, or at a second signal"
            );
            true
        }
        Err(error) => {
            let point = unmounter.mountpoint().display();
            log::error!(
                "{point}: cannot unmount: {error}; it is served on until somebody does: umount {point}, or fusermount3 -u {point}"
            );
            false
        }
    }
}

/// A panic is a fault of ours: it costs the reader one answer (`fuse` sees to that) and is told
/// in the log, where somebody will look.
fn log_panics() {
    std::panic::set_hook(Box::new(|info| log::error!("internal error: {info}")));
}
