//! Threads for reads that may have to wait: one lane per source.
//!
//! A source on a network that stops answering would otherwise hold every thread
//! that takes requests, and `stat` and `readdir` with them. A lane takes up to a
//! fixed number of reads at once and queues the rest; lanes know nothing of each other.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// An idle thread ends after this long.
const LINGER: Duration = Duration::from_secs(10);

/// The lanes of all sources.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Box<[Arc<Lane>]>,
    width: usize,
}

#[derive(Default)]
struct Lane {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lane")
    }
}

impl Lanes {
    /// `count` lanes of up to `width` threads, none of them started yet.
    pub(super) fn new(count: usize, width: usize) -> Lanes {
        Lanes { lanes: (0..count).map(|_| Arc::default()).collect(), width: width.max(1) }
    }

    /// Runs `job` in a thread of lane `index`, or here when there can be no thread.
    pub(super) fn run(&self, index: usize, job: impl FnOnce() + Send + 'static) {
        let Some(lane) = self.lanes.get(index) else {
            return job();
        };
        let mut state = lane.lock();
        state.queue.push_back(Box::new(job));
        if state.idle >= state.queue.len() || state.threads >= self.width {
            lane.work.notify_one();
            return;
        }
        let worker = Arc::clone(lane);
        let started =
            std::thread::Builder::new().name(format!("lane-{index}")).spawn(move || worker.serve());
        match started {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads > 0 => lane.work.notify_one(),
            Err(_) => {
                let jobs = std::mem::take(&mut state.queue);
                drop(state);
                jobs.into_iter().for_each(|job| job());
            }
        }
    }
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // A panic must not take a thread out of the count: answer the rest.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let (woken, timeout) =
                self.work.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_lane_that_hangs_holds_up_nobody_else() {
        let lanes = Lanes::new(2, 2);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..5 {
            let gate = Arc::clone(&gate);
            lanes.run(0, move || {
                let _ = gate.lock().unwrap().recv();
            });
        }
        let (done, answer) = mpsc::channel();
        for i in 0..20 {
            let done = done.clone();
            lanes.run(1, move || done.send(i).unwrap());
        }
        drop(done);
        let mut answers: Vec<i32> = answer.iter().collect();
        answers.sort_unstable();
        assert_eq!(answers, (0..20).collect::<Vec<_>>());
        drop(release);
    }

    #[test]
    fn a_job_that_panics_does_not_stop_its_lane() {
        let lanes = Lanes::new(1, 1);
        lanes.run(0, || panic!("planned"));
        let (done, answer) = mpsc::channel();
        lanes.run(0, move || done.send(7).unwrap());
        assert_eq!(answer.recv(), Ok(7));
    }
}
