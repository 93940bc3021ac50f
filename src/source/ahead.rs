//! Reading ahead of who reads on and on, where each read is a journey.
//!
//! Through its page cache the kernel asks a network or FUSE file system for 128 KiB at a time,
//! whatever is asked of it. A reader that goes through a file in order is served from windows
//! instead, each fetched by one large read past that cache. A window is made when a request
//! continues another, or begins an extent with a large step; who jumps about gets none.
//!
//! Memory stays below [`BUDGET`] for all sources together: where there is no room for a window
//! there is none, and bytes are read as they are asked for. No lock is held over a read; who
//! needs a window that is being fetched waits for it as for a read of its own. Must not know
//! files: it is given a function that reads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Windows begin at multiples of this from the start of the file: what direct reads need.
pub(super) const PAGE: u64 = 4096;
/// A window at first. FUSE and most network file systems take no larger request.
pub(super) const SMALL: u64 = 1 << 20;
/// A window of somebody who keeps reading, while there is room: its requests travel together.
const LARGE: u64 = 4 << 20;
/// Bytes of all windows of the process.
const BUDGET: usize = 24 << 20;
/// Above this many bytes windows stay small, so that there is room for other readers.
const PLENTY: usize = 8 << 20;
/// Readers that are told apart.
const STREAMS: usize = 32;
/// Requests of one reader may overtake each other by this much, and blocks that two of them
/// share are asked for twice.
const AHEAD: u64 = LARGE;
const BEHIND: u64 = 64 << 10;
/// Who begins an extent with a request of this size means to go on.
const EAGER: u64 = 128 << 10;
/// A request of this size is fetched in whole pages wherever it is.
const BIG: u64 = 512 << 10;
/// What nobody came back for.
const FORGOTTEN: Duration = Duration::from_secs(1);

#[cfg(not(test))]
fn forgotten() -> Duration {
    FORGOTTEN
}

/// On a busy machine a test may need longer than that from one step to the next.
#[cfg(test)]
fn forgotten() -> Duration {
    if tests::PATIENT.load(Ordering::Relaxed) { FORGOTTEN * 300 } else { FORGOTTEN }
}

/// Bytes of all windows there are.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Reads whole pages: fills the buffer from an offset on, whole but for the end of the file.
pub(super) type Fetch<'a> = &'a dyn Fn(u64, usize) -> Option<Pages>;

/// Bytes that begin at an address that direct reads can use.
#[derive(Debug)]
pub(super) struct Pages {
    room: Vec<u8>,
    skip: usize,
    len: usize,
}

impl Pages {
    /// `len` zeros.
    pub(super) fn new(len: usize) -> Pages {
        let room = vec![0; len + PAGE as usize];
        let skip = room.as_ptr().align_offset(PAGE as usize).min(PAGE as usize);
        Pages { room, skip, len }
    }

    /// Keeps the first `len` bytes.
    pub(super) fn cut(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.room[self.skip..self.skip + self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.skip..self.skip + self.len]
    }
}

/// Part of a file, in memory once it is fetched; for ever empty when that failed.
#[derive(Debug)]
struct Window {
    range: Range<u64>,
    /// Whose it is: [`Stream::id`].
    stream: u64,
    pages: OnceLock<Option<Pages>>,
    used: Mutex<Instant>,
    /// Bytes copied out of it.
    copied: AtomicUsize,
}

impl Window {
    /// Takes its share of the budget, if there is so much left.
    fn new(range: Range<u64>, stream: u64) -> Option<Arc<Window>> {
        let len = (range.end - range.start) as usize;
        TAKEN
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                taken.checked_add(len).filter(|&sum| sum <= BUDGET)
            })
            .ok()?;
        let used = Mutex::new(Instant::now());
        Some(Arc::new(Window {
            range,
            stream,
            pages: OnceLock::new(),
            used,
            copied: AtomicUsize::new(0),
        }))
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether all of it has been given out, perhaps.
    fn is_spent(&self) -> bool {
        self.copied.load(Ordering::Relaxed) as u64 >= self.range.end - self.range.start
    }

    fn is_forgotten(&self) -> bool {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > forgotten()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        TAKEN.fetch_sub((self.range.end - self.range.start) as usize, Ordering::AcqRel);
    }
}

/// Somebody who reads on.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    id: u64,
    /// Where the next request should begin.
    next: u64,
    /// The end of its last window; 0 when it has none.
    covered: u64,
    /// Size of its last window.
    window: u64,
    /// When it was heard of last, in requests.
    heard: u64,
}

#[derive(Debug, Default)]
struct State {
    streams: Vec<Stream>,
    windows: Vec<Arc<Window>>,
    requests: u64,
}

/// The windows of one file.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<State>);

impl Ahead {
    /// Somebody asks for `wanted` of an extent, for which `around` has to be read. Fetches what
    /// is worth it; whether all of that could be had.
    pub(super) fn announce(
        &self,
        wanted: Range<u64>,
        around: Range<u64>,
        extent: Range<u64>,
        fetch: Fetch<'_>,
    ) -> bool {
        let windows = self.lock().plan(wanted, around, &extent);
        windows.iter().fold(true, |all, window| {
            let len = (window.range.end - window.range.start) as usize;
            window.pages.get_or_init(|| fetch(window.range.start, len)).is_some() && all
        })
    }

    /// Copies from `offset` on what the windows have; how many bytes.
    pub(super) fn copy(&self, offset: u64, out: &mut [u8]) -> usize {
        let end = offset + out.len() as u64;
        let mut windows = self.lock().over(offset..end);
        windows.sort_unstable_by_key(|window| window.range.start);
        let mut done = 0;
        for window in windows {
            let at = offset + done as u64;
            if done == out.len() || !window.range.contains(&at) {
                continue;
            }
            let Some(Some(pages)) = window.pages.get() else { break };
            let from = (at - window.range.start) as usize;
            let n = (pages.bytes().len() - from).min(out.len() - done);
            out[done..done + n].copy_from_slice(&pages.bytes()[from..from + n]);
            window.touch();
            window.copied.fetch_add(n, Ordering::Relaxed);
            done += n;
        }
        done
    }

    /// Drops the windows that hold any of these bytes: they were not good.
    pub(super) fn forget(&self, bytes: Range<u64>) {
        self.lock().windows.retain(|window| !overlap(&window.range, &bytes));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl State {
    fn over(&self, bytes: Range<u64>) -> Vec<Arc<Window>> {
        self.windows.iter().filter(|window| overlap(&window.range, &bytes)).cloned().collect()
    }

    /// The windows, old and new, that the request should have.
    fn plan(
        &mut self,
        wanted: Range<u64>,
        around: Range<u64>,
        extent: &Range<u64>,
    ) -> Vec<Arc<Window>> {
        self.windows.retain(|window| !window.is_forgotten());
        self.requests += 1;
        let requests = self.requests;
        let len = wanted.end - wanted.start;
        let known = self.streams.iter_mut().find(|stream| {
            wanted.start + BEHIND >= stream.next && wanted.start <= stream.next + AHEAD
        });
        let (stream, goes_on) = match known {
            Some(stream) => (stream, true),
            None => {
                if self.streams.len() < STREAMS {
                    self.streams.push(Stream::default());
                }
                let oldest = self.streams.iter_mut().min_by_key(|stream| stream.heard);
                let Some(stream) = oldest else { return Vec::new() };
                *stream = Stream { id: requests, next: wanted.start, ..Stream::default() };
                (stream, false)
            }
        };
        stream.heard = requests;
        stream.next = stream.next.max(wanted.end);
        let worth = goes_on || len >= BIG || (len >= EAGER && wanted.start == extent.start);
        if !worth || around.end - around.start > LARGE {
            return Vec::new();
        }
        // A request that overtook another leaves no hole for it.
        let hole = stream.covered > 0
            && stream.covered < around.start
            && around.start - stream.covered <= AHEAD;
        let mut at = if hole { stream.covered } else { around.start / PAGE * PAGE };
        let stop = extent.end.max(around.end).next_multiple_of(PAGE);
        while at < around.end {
            if let Some(window) = self.windows.iter().find(|window| window.range.contains(&at)) {
                at = window.range.end;
                continue;
            }
            let grown = if goes_on { (stream.window * 2).min(LARGE) } else { 0 };
            let plenty = TAKEN.load(Ordering::Acquire) + grown as usize <= PLENTY;
            let size = if plenty { grown.max(SMALL) } else { SMALL };
            let starts = self.windows.iter().map(|window| window.range.start);
            let next = starts.filter(|&start| start > at).min().unwrap_or(u64::MAX);
            let end = (at + size).min(stop).min(next);
            let Some(window) = Window::new(at..end, stream.id) else { break };
            self.windows.push(window);
            (stream.covered, stream.window) = (end, size);
            at = end;
        }
        // What this reader has left behind, and what a request that it overtook may still want.
        let left = stream.next.saturating_sub(AHEAD + BEHIND).min(around.start);
        let id = stream.id;
        self.windows.retain(|window| {
            let end = window.range.end;
            window.stream != id || (end > left && !(window.is_spent() && end <= around.start))
        });
        self.over(around)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Whether windows are kept for longer than in earnest.
    pub(super) static PATIENT: std::sync::atomic::AtomicBool =
        std::sync::atomic::AtomicBool::new(true);
    use std::sync::atomic::AtomicBool;

    const MIB: u64 = 1 << 20;

    /// The budget is the process's: one test at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    /// A file of so many bytes, and the fetches made of it.
    struct Far {
        len: u64,
        ahead: Ahead,
        fetched: Mutex<Vec<(u64, usize)>>,
        plain: AtomicUsize,
        fails: AtomicBool,
    }

    impl Far {
        fn new(len: u64) -> Far {
            Far {
                len,
                ahead: Ahead::default(),
                fetched: Mutex::default(),
                plain: AtomicUsize::new(0),
                fails: AtomicBool::new(false),
            }
        }

        fn fetch(&self, at: u64, len: usize) -> Option<Pages> {
            assert_eq!(at % PAGE, 0);
            self.fetched.lock().unwrap().push((at, len));
            if self.fails.load(Ordering::Relaxed) {
                return None;
            }
            let mut pages = Pages::new(len.min((self.len - at) as usize));
            assert_eq!(pages.bytes().as_ptr() as usize % PAGE as usize, 0);
            (at..).zip(pages.bytes_mut()).for_each(|(at, out)| *out = byte(at));
            Some(pages)
        }

        /// A request of an extent that is all of the file but its first 100 bytes, checked in
        /// chunks of 64 KiB.
        fn read(&self, from: u64, len: u64) {
            let wanted = 100 + from..(100 + from + len).min(self.len);
            let chunk = |at: u64| (at - 100) / 65536 * 65536 + 100;
            let around = chunk(wanted.start)..chunk(wanted.end + 65535).min(self.len);
            self.ahead
                .announce(wanted, around.clone(), 100..self.len, &|at, len| self.fetch(at, len));
            let mut out = vec![0; (around.end - around.start) as usize];
            let done = self.ahead.copy(around.start, &mut out);
            for (at, &got) in (around.start..).zip(&out[..done]) {
                assert_eq!(got, byte(at), "at {at}");
            }
            if done < out.len() {
                self.plain.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn fetched(&self) -> Vec<(u64, usize)> {
            self.fetched.lock().unwrap().clone()
        }
    }

    fn alone() -> MutexGuard<'static, ()> {
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn who_reads_on_causes_large_reads_that_touch_each_byte_once() {
        let _alone = alone();
        for step in [4096, 100_000, 131_072, MIB, 3 * MIB] {
            let far = Far::new(32 * MIB + 5000);
            (0..far.len).step_by(step as usize).for_each(|at| far.read(at, step));
            let fetched = far.fetched();
            let mut end = 0;
            for &(at, len) in &fetched {
                assert!(end == 0 || at == end, "step {step}: {fetched:?}");
                end = at + len as u64;
            }
            let plain = far.plain.load(Ordering::Relaxed);
            assert!(plain <= 1, "step {step}: {plain} plain reads");
            assert!(fetched.len() <= 33, "step {step}: {fetched:?}");
            assert!(fetched.iter().all(|&(at, len)| len as u64 >= MIB || at + LARGE > far.len));
            let taken = TAKEN.load(Ordering::Relaxed);
            assert!(taken <= 3 * LARGE as usize, "step {step}: {taken}");
        }
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0, "given back");
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_stream() {
        let _alone = alone();
        let far = Far::new(32 * MIB);
        let mut at: Vec<u64> = (0..far.len / 131_072).map(|i| i * 131_072).collect();
        at.chunks_mut(4).for_each(|four| four.swap(1, 3));
        at.into_iter().for_each(|at| far.read(at, 131_072));
        assert!(far.fetched().len() <= 34, "{:?}", far.fetched());
        assert!(far.plain.load(Ordering::Relaxed) <= 4);
    }

    #[test]
    fn who_jumps_about_in_small_steps_gets_no_windows() {
        let _alone = alone();
        let far = Far::new(256 * MIB);
        let mut seed = 1u64;
        for _ in 0..200 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(9);
            far.read((seed >> 20) % (255 * MIB), 4096);
        }
        let fetched: usize = far.fetched().iter().map(|&(_, len)| len).sum();
        // One that falls beside another by chance.
        assert!(fetched <= 40 * MIB as usize, "{fetched}");
    }

    #[test]
    fn twenty_readers_share_the_budget() {
        let _alone = alone();
        let far = Far::new(256 * MIB);
        for step in 0..64 {
            for reader in 0..20 {
                far.read(reader * 12 * MIB + step * 131_072, 131_072);
                assert!(TAKEN.load(Ordering::Relaxed) <= BUDGET);
            }
        }
        assert!(far.fetched().len() <= 20 * 10, "{}", far.fetched().len());
    }

    #[test]
    fn what_cannot_be_fetched_is_left_to_plain_reads() {
        let _alone = alone();
        let far = Far::new(8 * MIB);
        far.fails.store(true, Ordering::Relaxed);
        (0..8).for_each(|i| far.read(i * MIB, MIB));
        assert_eq!(far.plain.load(Ordering::Relaxed), 8);
        assert!(far.fetched().len() <= 9, "each window was tried once: {:?}", far.fetched());
    }

    #[test]
    fn bytes_that_were_not_good_are_not_kept() {
        let _alone = alone();
        let far = Far::new(8 * MIB);
        far.read(0, MIB);
        far.ahead.forget(500_000..500_001);
        let mut out = [0; 10];
        assert_eq!(far.ahead.copy(400_000, &mut out), 0);
    }

    #[test]
    fn windows_that_nobody_comes_back_for_go() {
        let _alone = alone();
        PATIENT.store(false, Ordering::Relaxed);
        let far = Far::new(64 * MIB);
        far.read(0, MIB);
        std::thread::sleep(FORGOTTEN + Duration::from_millis(50));
        far.read(32 * MIB, 10);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
        PATIENT.store(true, Ordering::Relaxed);
    }
}
