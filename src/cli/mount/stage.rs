//! How far a mount is, and what signals do then.

use crate::cli::daemon::{self, Signals};
use crate::cli::exit::{self, Exit};
use crate::cli::ready;
use crate::cli::shell;
use anyhow::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use weightfs::bytes::line::InLine;
use weightfs::fuse::Unmounter;

/// How far we are, for a signal or a panic to do the right thing.
#[derive(Default)]
pub(super) struct Stage {
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
    /// Nothing is mounted any more, and what was seen is being kept. Whatever is mounted there
    /// now is not ours.
    Parting,
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_task(&self, task: Task) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    fn take_task(&self) -> Option<Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// False when a signal came first.
    pub(super) fn begin_mounting(&self) -> bool {
        let mut state = self.lock();
        let free = matches!(*state, State::Opening);
        if free {
            *state = State::Mounting;
        }
        free
    }

    /// The mount is gone.
    pub(super) fn is_parting(&self) {
        *self.lock() = State::Parting;
    }

    /// False when a signal came in between.
    pub(super) fn is_mounted(&self, unmounter: Unmounter) -> bool {
        let mut state = self.lock();
        let free = matches!(*state, State::Mounting);
        if free {
            *state = State::Mounted(unmounter);
        }
        free
    }
}

/// The thread that takes signals: the first unmounts, a second one ends at once.
pub(super) fn watch_signals(signals: Signals, stage: Arc<Stage>) -> Result<()> {
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
            // Whoever mounts asks the mount about itself: were the threads gone that answer, it
            // would wait for ever. It looks here when it is done, and takes the mount away.
            let is_mounting = matches!(*stage.lock(), State::Mounting | State::Interrupted);
            if asked && !is_mounting {
                log::warn!("{signal} again: ending at once, open files get errors");
                if let State::Mounted(unmounter) = &*stage.lock() {
                    unmounter.abandon();
                    if stays {
                        let point = unmounter.mountpoint();
                        let (word, point) = (shell::word(point), point.in_line());
                        log::error!(
                            "{point}: a dead mount stays behind: umount {word}, or fusermount3 -u {word}"
                        );
                    }
                }
                std::process::exit(Exit::Failed.code().into());
            }
            asked = true;
            let mut state = stage.lock();
            match &*state {
                State::Opening => {
                    exit::say(&format!("{signal}: the mount was not ready, nothing is mounted"));
                    let _ = daemon::die_of(signal);
                    std::process::exit(Exit::Failed.code().into());
                }
                State::Mounting | State::Interrupted => *state = State::Interrupted,
                // It ends soon, and sooner only at a second one.
                State::Parting => log::info!("{signal}: unmounted already, ending"),
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
    log::info!("{why}: unmounting {}", unmounter.mountpoint().in_line());
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
            let point = unmounter.mountpoint();
            let (word, point) = (shell::word(point), point.in_line());
            log::error!(
                "{point}: cannot unmount: {error}; it is served on until somebody does: umount {word}, or fusermount3 -u {word}"
            );
            false
        }
    }
}
