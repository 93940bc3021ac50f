//! Work done by all cores, taken over in order.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Results that may wait for an earlier one, in jobs. Bounds memory.
const AHEAD: u64 = 1024;

struct State<I> {
    jobs: I,
    next: u64,
    taken_over: u64,
    stop: bool,
}

/// Runs `work` on each job on `threads` threads and hands the results to `sink` in the
/// order of the jobs, on the calling thread. `tick` is called there now and then. The
/// first error ends it all.
pub(crate) fn in_order<J, R, E>(
    threads: usize,
    jobs: impl Iterator<Item = J> + Send,
    work: impl Fn(J) -> Result<R, E> + Sync,
    mut sink: impl FnMut(R) -> Result<(), E>,
    tick: impl Fn(),
) -> Result<(), E>
where
    J: Send,
    R: Send,
    E: Send,
{
    let state = Mutex::new(State { jobs, next: 0, taken_over: 0, stop: false });
    let moved = Condvar::new();
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<(u64, Result<R, E>)>(64);
        for _ in 0..threads.max(1) {
            let (send, state, moved, work) = (send.clone(), &state, &moved, &work);
            scope.spawn(move || {
                loop {
                    let guard = state.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut guard = moved
                        .wait_while(guard, |s| !s.stop && s.next >= s.taken_over + AHEAD)
                        .unwrap_or_else(PoisonError::into_inner);
                    if guard.stop {
                        return;
                    }
                    let Some(job) = guard.jobs.next() else { return };
                    let number = guard.next;
                    guard.next += 1;
                    drop(guard);
                    if send.send((number, work(job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        let mut outcome = Ok(());
        loop {
            match receive.recv_timeout(Duration::from_millis(50)) {
                Ok((number, result)) => {
                    waiting.insert(number, result);
                }
                Err(RecvTimeoutError::Timeout) => {
                    tick();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let before = next;
            while let Some(result) = waiting.remove(&next) {
                next += 1;
                outcome = result.and_then(&mut sink);
                if outcome.is_err() {
                    break;
                }
            }
            if next != before {
                let mut guard = state.lock().unwrap_or_else(PoisonError::into_inner);
                guard.taken_over = next;
                guard.stop = outcome.is_err();
                drop(guard);
                moved.notify_all();
                tick();
            }
            if outcome.is_err() {
                break;
            }
        }
        // Threads that still want to send must not wait for ever.
        drop(receive);
        outcome
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn results_come_in_order_whatever_the_work() {
        for threads in [1, 2, 7] {
            let mut seen = Vec::new();
            in_order(
                threads,
                0..5000u64,
                |i| {
                    if i % 97 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Ok::<_, ()>(i * i)
                },
                |r| {
                    seen.push(r);
                    Ok(())
                },
                || {},
            )
            .unwrap();
            assert_eq!(seen, (0..5000).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let begun = AtomicU64::new(0);
        let result = in_order(
            4,
            0..1_000_000u64,
            |i| {
                begun.fetch_add(1, Ordering::Relaxed);
                if i == 10 { Err(i) } else { Ok(i) }
            },
            |_| Ok(()),
            || {},
        );
        assert_eq!(result, Err(10));
        assert!(begun.into_inner() < 100_000);
        let result =
            in_order(4, 0..1_000_000u64, Ok, |i| if i == 5 { Err(i) } else { Ok(()) }, || {});
        assert_eq!(result, Err(5));
    }

    #[test]
    fn no_one_runs_far_ahead_of_a_slow_first() {
        let begun = AtomicU64::new(0);
        in_order(
            2,
            0..10_000u64,
            |i| {
                begun.fetch_add(1, Ordering::Relaxed);
                if i == 0 {
                    std::thread::sleep(Duration::from_millis(100));
                    assert!(begun.load(Ordering::Relaxed) <= AHEAD + 2);
                }
                Ok::<_, ()>(())
            },
            |()| Ok(()),
            || {},
        )
        .unwrap();
    }
}
