//! Reads that are answered by the thread that took them, the fastest way there is.
//!
//! Bytes of a local file are expected at once, but a disk can hang as a server can, and the
//! threads that take requests with it. So there is one more of them than there are seats for such
//! reads: a read that finds no seat is left to whoever may wait, and there is always a thread for
//! `stat`, `readdir` and the status.
//!
//! The kernel wakes the threads that wait for requests in turn, and with one more of them than
//! processors every request would go to another processor than the last, at half the speed. So
//! one of them rests after a read, and comes back when all the others hang.

use super::lanes::{Patient, Reply, Slot};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the one that rests looks at the others: they hang when nothing has changed since.
/// More than a disk or a turn of the scheduler takes, and much less than `stat` may.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// So often without any read, and it looks no more until it is called.
const QUIET: u32 = 40;

/// In [`Seats::reads`]: seats that are taken; the rest counts those that were.
const TAKEN: u64 = 0xffff;
const ONE: u64 = TAKEN + 1;

/// All seats.
pub(super) struct Seats {
    /// How many may be taken.
    count: u64,
    reads: Apart<AtomicU64>,
    /// What `reads` was when all were found to hang.
    stuck: AtomicU64,
    /// Who sits, by the number of the thread.
    sitting: Box<[Apart<Mutex<Option<Sitting>>>]>,
    state: Mutex<State>,
    /// Wakes the one that rests.
    called: Condvar,
    /// Whether one rests: nobody else needs to ask.
    rests: AtomicBool,
    /// Whether it has to be called.
    sleeps: AtomicBool,
}

/// Not in a cache line with its neighbour, who is on another processor.
#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

#[derive(Default)]
struct State {
    /// Threads that have taken a request.
    receivers: usize,
    rests: bool,
    /// The connection is at its end.
    ended: bool,
}

struct Sitting {
    since: Instant,
    reply: Arc<dyn Refusable>,
}

/// A reply of any kind in a [`Slot`].
trait Refusable: Send + Sync {
    fn refuse(&self);
}

impl<R: Reply> Refusable for Mutex<Option<R>> {
    fn refuse(&self) {
        let reply = lock(self).take();
        reply.into_iter().for_each(R::refuse);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread that takes requests knows of itself.
struct Receiver {
    seats: Arc<Seats>,
    number: usize,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It goes when the connection is at its end.
        lock(&self.seats.state).ended = true;
        self.seats.called.notify_all();
    }
}

thread_local! {
    static RECEIVER: RefCell<Option<Receiver>> = const { RefCell::new(None) };
}

/// A seat, until it is dropped.
pub(super) struct Seat<'a> {
    seats: &'a Seats,
    number: usize,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *lock(&self.seats.sitting[self.number].0) = None;
        self.seats.reads.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Seats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seats")
    }
}

impl Seats {
    /// `count` seats, for one more thread.
    pub(super) fn new(count: usize) -> Seats {
        Seats {
            count: count as u64,
            reads: Apart::default(),
            stuck: AtomicU64::new(0),
            sitting: (0..=count).map(|_| Apart::default()).collect(),
            state: Mutex::default(),
            called: Condvar::new(),
            rests: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
        }
    }

    /// The number of this thread among those that take requests.
    fn number(self: &Arc<Self>) -> usize {
        RECEIVER.with_borrow_mut(|receiver| match receiver {
            Some(receiver) if Arc::ptr_eq(&receiver.seats, self) => receiver.number,
            _ => {
                let mut state = lock(&self.state);
                let number = state.receivers;
                state.receivers += 1;
                drop(state);
                *receiver = Some(Receiver { seats: Arc::clone(self), number });
                number
            }
        })
    }

    /// A seat, and the reply in a slot out of which others can take it; the reply alone when all
    /// seats are taken.
    pub(super) fn take<R: Reply>(self: &Arc<Self>, reply: R) -> Result<(Seat<'_>, Slot<R>), R> {
        let number = self.number();
        let Some(Apart(sitting)) = self.sitting.get(number) else {
            return Err(reply);
        };
        let before = self.reads.0.fetch_add(ONE + 1, Ordering::SeqCst);
        if before & TAKEN >= self.count {
            self.reads.0.fetch_sub(ONE + 1, Ordering::SeqCst);
            return Err(reply);
        }
        if self.sleeps.load(Ordering::SeqCst) {
            // Not between its last look and its sleep.
            drop(lock(&self.state));
            self.called.notify_all();
        }
        let reply = Arc::new(Mutex::new(Some(reply)));
        *lock(sitting) = Some(Sitting { since: Instant::now(), reply: Arc::clone(&reply) as _ });
        Ok((Seat { seats: self, number }, Slot::Shared(reply)))
    }

    /// To be called by a thread that would take the next request: one of them stays here until it
    /// is needed.
    pub(super) fn rest(self: &Arc<Self>) {
        self.number();
        if self.rests.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        // There has to be another one that can tell of the end.
        if state.rests || state.receivers < 2 {
            return;
        }
        state.rests = true;
        self.rests.store(true, Ordering::Relaxed);
        let mut last = self.stuck.load(Ordering::Relaxed);
        let mut quiet = 0;
        while !state.ended {
            let now = self.reads.0.load(Ordering::SeqCst);
            if now == last && now & TAKEN >= self.count {
                self.stuck.store(now, Ordering::Relaxed);
                break;
            }
            quiet = if now == last && now & TAKEN == 0 { quiet + 1 } else { 0 };
            last = now;
            self.sleeps.store(quiet >= QUIET, Ordering::SeqCst);
            // Who has come before that is seen here, who comes later calls.
            state = if quiet >= QUIET && self.reads.0.load(Ordering::SeqCst) == now {
                self.called.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let waited = self.called.wait_timeout(state, LOOK_EVERY);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
            self.sleeps.store(false, Ordering::SeqCst);
        }
        state.rests = false;
        self.rests.store(false, Ordering::Relaxed);
    }
}

impl Patient for Seats {
    fn waiting(&self, for_: Duration) -> usize {
        let is_late = |sitting: &Sitting| sitting.since.elapsed() >= for_;
        self.sitting.iter().filter(|Apart(seat)| lock(seat).as_ref().is_some_and(is_late)).count()
    }

    fn refuse(&self, patience: Duration) {
        for Apart(sitting) in &self.sitting {
            let is_late = |sitting: &&Sitting| sitting.since.elapsed() >= patience;
            let late = lock(sitting).as_ref().filter(is_late).map(|late| Arc::clone(&late.reply));
            late.into_iter().for_each(|reply| reply.refuse());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::fuse::lanes::tests::Told;
    use std::sync::mpsc::{self, Receiver as Heard, Sender};

    fn told() -> (Told, Heard<&'static str>) {
        let (told, heard) = mpsc::channel();
        (Told(told), heard)
    }

    /// A thread that takes requests.
    struct Thread {
        commands: Sender<Command>,
        back: Heard<bool>,
    }

    enum Command {
        /// Take a seat; whether there was one.
        Sit,
        Leave,
        Rest,
    }

    impl Thread {
        fn new(seats: &Arc<Seats>) -> Thread {
            let (command, commands) = mpsc::channel();
            let (done, back) = mpsc::channel();
            let seats = Arc::clone(seats);
            std::thread::spawn(move || {
                let mut seat = None;
                for command in commands {
                    match command {
                        Command::Sit => seat = seats.take(told().0).ok(),
                        Command::Leave => seat = None,
                        Command::Rest => seats.rest(),
                    }
                    done.send(seat.is_some()).unwrap();
                }
            });
            Thread { commands: command, back }
        }

        fn send(&self, command: Command) {
            self.commands.send(command).unwrap();
        }

        fn does(&self, command: Command) -> bool {
            self.send(command);
            self.back.recv().unwrap()
        }
    }

    fn until(happens: impl Fn() -> bool) {
        while !happens() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn there_is_always_one_thread_without_a_seat() {
        let seats = Arc::new(Seats::new(2));
        let threads = [(); 3].map(|()| Thread::new(&seats));
        assert!(threads[0].does(Command::Sit) && threads[1].does(Command::Sit));
        assert!(!threads[2].does(Command::Sit));
        assert!(!threads[0].does(Command::Leave));
        assert!(threads[2].does(Command::Sit));
        assert!(!threads[0].does(Command::Sit));
        // It keeps its reply for the lane.
        let (reply, heard) = told();
        let Err(Told(reply)) = seats.take(reply) else { panic!("a seat") };
        reply.send("still there").unwrap();
        assert_eq!(heard.recv(), Ok("still there"));
    }

    #[test]
    fn one_of_several_rests_until_all_others_hang() {
        let seats = Arc::new(Seats::new(2));
        let [first, second, third] = [(); 3].map(|()| Thread::new(&seats));
        // Nobody could tell a single one of the end.
        first.does(Command::Sit);
        first.does(Command::Leave);
        first.does(Command::Rest);
        second.does(Command::Sit);
        second.does(Command::Leave);
        second.send(Command::Rest);
        until(|| lock(&seats.state).rests);
        third.does(Command::Sit);
        // There is another one.
        first.does(Command::Rest);
        assert!(second.back.try_recv().is_err());
        assert!(first.does(Command::Sit));
        second.back.recv().unwrap();
        // As long as it is needed it does not rest, nor sit.
        assert!(!second.does(Command::Sit));
        second.does(Command::Rest);
        first.does(Command::Leave);
        second.send(Command::Rest);
        until(|| lock(&seats.state).rests);
        // The connection ends, and with it the others.
        drop(first);
        second.back.recv().unwrap();
    }

    #[test]
    fn who_sleeps_is_called_by_the_next_read() {
        let seats = Arc::new(Seats::new(1));
        let [first, second] = [(); 2].map(|()| Thread::new(&seats));
        for thread in [&first, &second] {
            thread.does(Command::Sit);
            thread.does(Command::Leave);
        }
        second.send(Command::Rest);
        until(|| seats.sleeps.load(Ordering::SeqCst));
        assert!(first.does(Command::Sit));
        // That one hangs.
        second.back.recv().unwrap();
        first.does(Command::Leave);
        second.send(Command::Rest);
        until(|| seats.sleeps.load(Ordering::SeqCst));
        drop(first);
        second.back.recv().unwrap();
    }

    #[test]
    fn who_sits_for_long_is_answered_for_once() {
        let seats = Arc::new(Seats::new(2));
        let (reply, heard) = told();
        let (seat, slot) = seats.take(reply).ok().unwrap();
        seats.refuse(Duration::from_secs(3600));
        assert!(heard.try_recv().is_err());
        seats.refuse(Duration::ZERO);
        seats.refuse(Duration::ZERO);
        assert_eq!(heard.try_recv(), Ok("refused"));
        assert!(slot.take().is_none(), "its own answer goes nowhere");
        drop(seat);
        // What was answered is not answered again.
        let (reply, heard) = told();
        let (_seat, slot) = seats.take(reply).ok().unwrap();
        let own = slot.take();
        seats.refuse(Duration::ZERO);
        assert!(heard.try_recv().is_err());
        drop(own);
    }
}
