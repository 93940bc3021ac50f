//! Threads for requests that may have to wait: one lane per source and kind of request.
//!
//! A source on a network that stops answering would otherwise hold every thread
//! that takes requests, and `stat` and `readdir` with them. A lane takes up to a
//! fixed number of requests at once and queues the rest; lanes know nothing of each other.
//!
//! A thread that waits for its source cannot be called back, but whoever asked can: when the
//! mount is to go, [`Lanes::leave`] answers for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce() + Send>;

/// An idle thread ends after this long.
const LINGER: Duration = Duration::from_secs(10);
/// So many may be idle in all lanes together; who else has nothing to do ends at once.
const IDLE: usize = 32;
/// Once the mount is to go, nobody is left waiting for longer than this.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How often that is looked at.
const TICK: Duration = Duration::from_millis(100);

/// What somebody waits for.
pub(super) trait Reply: Send + 'static {
    /// Tells that it will not come.
    fn refuse(self);
}

/// Where others wait.
pub(super) trait Patient: Send + Sync + std::fmt::Debug {
    /// How many have waited for so long.
    fn waiting(&self, for_: Duration) -> usize;

    /// Answers for everybody who has waited for `patience`.
    fn refuse(&self, patience: Duration);
}

/// A reply that is given once, by whoever takes it first.
#[derive(Debug)]
pub(super) enum Slot<R> {
    /// Nobody else can.
    Own(R),
    Shared(Arc<Mutex<Option<R>>>),
}

impl<R> Slot<R> {
    /// The reply, unless somebody else has given it.
    pub(super) fn take(self) -> Option<R> {
        match self {
            Slot::Own(reply) => Some(reply),
            Slot::Shared(reply) => reply.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }
}

/// The lanes of all sources.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Box<[Arc<Lane>]>,
    width: usize,
    idle: Arc<AtomicUsize>,
    waiting: Arc<Waiting>,
    others: Vec<Arc<dyn Patient>>,
    leaving: AtomicBool,
}

/// Everybody who waits, in the order they came.
#[derive(Default)]
struct Waiting(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// How many have come.
    last: u64,
    /// Since when each waits, and how it is turned away.
    all: BTreeMap<u64, (Instant, Job)>,
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

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiting")
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, refuse: Job) -> u64 {
        let mut line = self.lock();
        line.last += 1;
        let number = line.last;
        line.all.insert(number, (Instant::now(), refuse));
        number
    }

    fn remove(&self, number: u64) {
        self.lock().all.remove(&number);
    }

    /// How many have waited for so long.
    fn count(&self, for_: Duration) -> usize {
        self.lock().all.values().take_while(|(since, _)| since.elapsed() >= for_).count()
    }

    /// Answers for everybody who has waited for `patience`.
    fn refuse(&self, patience: Duration) {
        let mut gone = Vec::new();
        let mut line = self.lock();
        while let Some(first) = line.all.first_entry()
            && first.get().0.elapsed() >= patience
        {
            gone.push(first.remove().1);
        }
        drop(line);
        gone.into_iter().for_each(|refuse| refuse());
    }
}

impl Lanes {
    /// `count` lanes of up to `width` threads, none of them started yet. With those who wait in
    /// them `others` are to be turned away when the mount goes.
    pub(super) fn new(count: usize, width: usize, others: Vec<Arc<dyn Patient>>) -> Lanes {
        Lanes {
            lanes: (0..count).map(|_| Arc::default()).collect(),
            width: width.max(1),
            idle: Arc::default(),
            waiting: Arc::default(),
            others,
            leaving: AtomicBool::new(false),
        }
    }

    /// Runs `job` in a thread of lane `index`, or here when there is no lane or no thread. Until
    /// it takes `reply` out of its slot the reply can be given for it.
    pub(super) fn run<R: Reply>(
        &self,
        index: Option<usize>,
        reply: R,
        job: impl FnOnce(Slot<R>) + Send + 'static,
    ) {
        let Some(lane) = index.and_then(|index| self.lanes.get(index)) else {
            return job(Slot::Own(reply));
        };
        let reply = Arc::new(Mutex::new(Some(reply)));
        let slot = Slot::Shared(Arc::clone(&reply));
        let number = self.waiting.add(Box::new(move || {
            if let Some(reply) = Slot::Shared(reply).take() {
                reply.refuse();
            }
        }));
        let waiting = Arc::clone(&self.waiting);
        lane.run(
            Box::new(move || {
                // Also when the job panics.
                let _done = Done { waiting, number };
                job(slot);
            }),
            self.width,
            &self.idle,
        );
    }

    /// How many requests have waited for so long, here and where the others wait.
    pub(super) fn waiting(&self, for_: Duration) -> usize {
        let others: usize = self.others.iter().map(|other| other.waiting(for_)).sum();
        self.waiting.count(for_) + others
    }

    /// The mount is to go: from now on nobody waits for long.
    pub(super) fn leave(&self) {
        if self.leaving.swap(true, Ordering::Relaxed) {
            return;
        }
        let (waiting, others) = (Arc::clone(&self.waiting), self.others.clone());
        let leave = move || loop {
            std::thread::sleep(TICK);
            waiting.refuse(PATIENCE);
            others.iter().for_each(|other| other.refuse(PATIENCE));
        };
        // Without a thread they wait for their source.
        let _ = std::thread::Builder::new().name("leave".into()).spawn(leave);
    }

    /// The process ends: nobody waits at all.
    pub(super) fn abandon(&self) {
        self.waiting.refuse(Duration::ZERO);
        self.others.iter().for_each(|other| other.refuse(Duration::ZERO));
    }
}

/// Somebody does not wait any more.
struct Done {
    waiting: Arc<Waiting>,
    number: u64,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.waiting.remove(self.number);
    }
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: &Arc<Lane>, job: Job, width: usize, all_idle: &Arc<AtomicUsize>) {
        let mut state = self.lock();
        state.queue.push_back(job);
        if state.idle >= state.queue.len() || state.threads >= width {
            self.work.notify_one();
            return;
        }
        let (worker, all_idle) = (Arc::clone(self), Arc::clone(all_idle));
        let serve = move || worker.serve(&all_idle);
        match std::thread::Builder::new().name("lane".into()).spawn(serve) {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads > 0 => self.work.notify_one(),
            Err(_) => {
                let jobs = std::mem::take(&mut state.queue);
                drop(state);
                jobs.into_iter().for_each(|job| job());
            }
        }
    }

    fn serve(&self, all_idle: &AtomicUsize) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                // A panic must not take a thread out of the count: answer the rest.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.lock();
                continue;
            }
            if all_idle.fetch_add(1, Ordering::Relaxed) >= IDLE {
                all_idle.fetch_sub(1, Ordering::Relaxed);
                state.threads -= 1;
                return;
            }
            state.idle += 1;
            let (woken, timeout) =
                self.work.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            all_idle.fetch_sub(1, Ordering::Relaxed);
            if timeout.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;
    use std::sync::mpsc::{self, Sender};

    /// Says on a channel what became of it.
    pub(in crate::fuse) struct Told(pub(in crate::fuse) Sender<&'static str>);

    impl Reply for Told {
        fn refuse(self) {
            let _ = self.0.send("refused");
        }
    }

    fn answer(slot: Slot<Told>) {
        if let Some(told) = slot.take() {
            let _ = told.0.send("answered");
        }
    }

    /// A job that waits until its sender is dropped.
    fn gate() -> (Sender<()>, impl Fn(Slot<Told>) + Send + Clone + 'static) {
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        (release, move |slot| {
            let _ = gate.lock().unwrap().recv();
            answer(slot);
        })
    }

    #[test]
    fn a_lane_that_hangs_holds_up_nobody_else() {
        let lanes = Lanes::new(2, 2, Vec::new());
        let (told, _heard) = mpsc::channel();
        let (release, hang) = gate();
        (0..5).for_each(|_| lanes.run(Some(0), Told(told.clone()), hang.clone()));
        let (told, heard) = mpsc::channel();
        (0..20).for_each(|_| lanes.run(Some(1), Told(told.clone()), answer));
        drop(told);
        assert_eq!(heard.iter().collect::<Vec<_>>(), ["answered"; 20]);
        drop(release);
    }

    #[test]
    fn a_job_that_panics_does_not_stop_its_lane() {
        let lanes = Lanes::new(1, 1, Vec::new());
        let (told, heard) = mpsc::channel();
        lanes.run(Some(0), Told(told.clone()), |_| panic!("planned"));
        lanes.run(Some(0), Told(told), answer);
        assert_eq!(heard.recv(), Ok("answered"));
        while !lanes.waiting.lock().all.is_empty() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_of_many_lanes_do_not_all_stay() {
        let lanes = Lanes::new(4 * IDLE, 2, Vec::new());
        let (told, heard) = mpsc::channel();
        for _ in 0..2 {
            (0..4 * IDLE).for_each(|lane| lanes.run(Some(lane), Told(told.clone()), answer));
            (0..4 * IDLE).for_each(|_| assert_eq!(heard.recv(), Ok("answered")));
            let threads = || lanes.lanes.iter().map(|lane| lane.lock().threads).sum::<usize>();
            while threads() > IDLE {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn without_a_lane_it_is_done_at_once() {
        let (told, heard) = mpsc::channel();
        let lanes = Lanes::new(1, 1, Vec::new());
        lanes.run(None, Told(told.clone()), answer);
        assert_eq!(heard.try_recv(), Ok("answered"));
        lanes.run(Some(7), Told(told), answer);
        assert_eq!(heard.try_recv(), Ok("answered"));
    }

    #[test]
    fn who_leaves_waits_for_no_source_that_hangs() {
        let lanes = Lanes::new(1, 2, Vec::new());
        let (told, heard) = mpsc::channel();
        let (release, hang) = gate();
        // Two are at work, three wait for a thread.
        (0..5).for_each(|_| lanes.run(Some(0), Told(told.clone()), hang.clone()));
        assert!(heard.recv_timeout(Duration::from_millis(50)).is_err());
        lanes.leave();
        // They hang until the end of this test: who waited for one would never be heard.
        assert_eq!(heard.iter().take(5).collect::<Vec<_>>(), ["refused"; 5]);
        // The source is well again: its late answers go nowhere.
        drop(release);
        drop(told);
        assert_eq!(heard.iter().count(), 0);
    }

    #[test]
    fn who_leaves_lets_those_finish_who_can() {
        let lanes = Lanes::new(1, 2, Vec::new());
        let (told, heard) = mpsc::channel();
        lanes.leave();
        lanes.run(Some(0), Told(told.clone()), |slot| {
            std::thread::sleep(PATIENCE / 5);
            answer(slot);
        });
        assert_eq!(heard.recv(), Ok("answered"));
        let (_release, hang) = gate();
        lanes.run(Some(0), Told(told), hang);
        lanes.abandon();
        assert_eq!(heard.recv(), Ok("refused"));
    }
}
