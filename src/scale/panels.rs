//! The last panels of tensors that are shown transposed.
//!
//! A row of such a tensor takes a value from every stored row of a plane, so it costs all of
//! the plane's bytes; a panel of many rows costs no more, and was checked when it was made.
//! Panels are as wide as the memory for all of them allows: fewer for one reader, narrower
//! ones for many. Of several that need the same panel one makes it and the others wait.

use crate::dtype::DType;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that all panels take, whatever the number of tensors and readers. Only panels that
/// are being made at the same time may be more.
const BUDGET: usize = 20 << 20;
/// Largest panel: what a reader has left behind and what it needs next fit.
const LARGEST: usize = BUDGET / 2;
/// A view that has not been asked for in so many requests is not being read any more.
const RECENT: u64 = 64;
/// Bytes of a line of the cache: panels begin with one.
const LINE: usize = 64;

/// A plane of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// File and offset of the stored tensor.
    pub place: (u32, u64),
    /// Type of the values that are kept.
    pub dtype: DType,
    /// Number of the plane.
    pub plane: u64,
}

/// The rows of a plane as they are shown.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// Bytes of each, at least 1.
    pub bytes: u64,
    /// So many are best made together, at least 1.
    pub together: u64,
}

impl Rows {
    /// The panel of at most `most` bytes that row `row` is in.
    fn panel(&self, row: u64, most: usize) -> Option<Range<u64>> {
        let width = most as u64 / self.bytes;
        let width = if width > self.together { width - width % self.together } else { width };
        let first = row - row.checked_rem(width)?;
        Some(first..(first + width).min(self.count))
    }
}

/// Some rows of a plane.
#[derive(Debug)]
pub struct Panel {
    rows: Range<u64>,
    memory: Vec<u8>,
    start: usize,
    /// Its end was served: who reads in order needs it no more.
    finished: AtomicBool,
}

impl Panel {
    fn new(rows: Range<u64>, length: usize, old: Vec<u8>) -> Panel {
        let mut memory = old;
        if memory.len() < length + LINE {
            // Nothing of the old is needed, and both would be twice the memory.
            drop(memory);
            memory = vec![0; length + LINE];
        }
        memory.truncate(length + LINE);
        memory.shrink_to_fit();
        // Only a matter of speed; asking may fail.
        let start = memory.as_ptr().align_offset(LINE).min(LINE);
        Panel { rows, memory, start, finished: AtomicBool::new(false) }
    }

    /// Which rows.
    pub fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    /// Their bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.memory.len() - LINE]
    }

    /// Says that the last of it was served.
    pub fn finish(&self) {
        self.finished.store(true, Ordering::Relaxed);
    }
}

/// A panel, or the place of one that is being made.
#[derive(Debug)]
struct Slot {
    key: Key,
    rows: Range<u64>,
    bytes: usize,
    /// When it was last asked for, in requests.
    used: u64,
    panel: Option<Arc<Panel>>,
}

impl Slot {
    fn is_finished(&self) -> bool {
        self.panel.as_ref().is_some_and(|panel| panel.finished.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct State {
    slots: Vec<Slot>,
    /// Requests so far.
    now: u64,
}

/// What is kept, over all tensors of a mount.
#[derive(Debug, Default)]
pub struct Panels {
    state: Mutex<State>,
    made: Condvar,
}

/// What a request for a row has met.
#[derive(Debug)]
pub enum Found<'a> {
    /// Its panel.
    Kept(Arc<Panel>),
    /// Its panel is to be made by who asks.
    Make(Making<'a>),
    /// No panel: a row is too long for one, or it could not be made a moment ago.
    Nothing,
}

/// A panel that is being made. Dropped, it is given up.
#[derive(Debug)]
pub struct Making<'a> {
    panels: &'a Panels,
    key: Key,
    panel: Option<Panel>,
}

impl Panels {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The panel with `row`, if there is one.
    pub fn get(&self, key: Key, row: u64) -> Option<Arc<Panel>> {
        let mut state = self.lock();
        state.now += 1;
        let now = state.now;
        let slot = state.slots.iter_mut().find(|s| s.key == key && s.rows.contains(&row))?;
        slot.used = now;
        slot.panel.clone()
    }

    /// The panel with `row`, which is one of `rows`: that which is kept, or is being made.
    pub fn find(&self, key: Key, row: u64, rows: Rows) -> Found<'_> {
        let mut state = self.lock();
        state.now += 1;
        let mut waited = false;
        loop {
            let now = state.now;
            match state.slots.iter_mut().find(|s| s.key == key && s.rows.contains(&row)) {
                Some(slot) => {
                    slot.used = now;
                    if let Some(panel) = &slot.panel {
                        return Found::Kept(Arc::clone(panel));
                    }
                }
                None if waited => return Found::Nothing,
                None => break,
            }
            state = self.made.wait(state).unwrap_or_else(PoisonError::into_inner);
            waited = true;
        }
        let Some(rows_now) = rows.panel(row, state.share(key)) else {
            return Found::Nothing;
        };
        // At most LARGEST.
        let bytes = ((rows_now.end - rows_now.start) * rows.bytes) as usize;
        let old = state.make_room(bytes);
        let used = state.now;
        state.slots.push(Slot { key, rows: rows_now.clone(), bytes, used, panel: None });
        drop(state);
        let panel = Some(Panel::new(rows_now, bytes, old));
        Found::Make(Making { panels: self, key, panel })
    }
}

impl State {
    /// Bytes of a panel of `key`, so that all views that are being read have one.
    fn share(&self, key: Key) -> usize {
        let view = |key: Key| (key.place, key.dtype);
        let mut others: Vec<_> = self
            .slots
            .iter()
            .filter(|s| view(s.key) != view(key))
            .filter(|s| !s.is_finished() && s.used + RECENT > self.now)
            .map(|s| view(s.key))
            .collect();
        others.sort_unstable();
        others.dedup();
        // Halves, so that the panels of a view mostly have the same borders.
        let views = (others.len() + 1).next_power_of_two();
        (BUDGET / views).clamp(LARGEST / 8, LARGEST)
    }

    /// Forgets panels until `bytes` fit: first those that were read to their end, then those
    /// that were used least lately. Returns memory that can be used again.
    fn make_room(&mut self, bytes: usize) -> Vec<u8> {
        let mut memory = Vec::new();
        let mut taken: usize = self.slots.iter().map(|s| s.bytes).sum();
        while taken + bytes > BUDGET {
            let made = self.slots.iter().enumerate().filter(|(_, s)| s.panel.is_some());
            let Some((at, _)) = made.min_by_key(|(_, s)| (!s.is_finished(), s.used)) else {
                break;
            };
            let slot = self.slots.swap_remove(at);
            taken -= slot.bytes;
            if let Some(panel) = slot.panel.and_then(Arc::into_inner) {
                memory = panel.memory;
            }
        }
        memory
    }
}

impl Making<'_> {
    /// Which rows.
    pub fn rows(&self) -> Range<u64> {
        self.panel.as_ref().map_or(0..0, Panel::rows)
    }

    /// Where their bytes go: all of them have to be written.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.panel.as_mut().map_or(&mut [], |panel| {
            let length = panel.memory.len() - LINE;
            &mut panel.memory[panel.start..panel.start + length]
        })
    }

    /// Keeps it.
    pub fn done(mut self) -> Arc<Panel> {
        let panel = Arc::new(self.panel.take().expect("taken here only"));
        let mut state = self.panels.lock();
        if let Some(slot) = state.slots.iter_mut().find(|s| s.is(self.key, &panel.rows)) {
            slot.panel = Some(Arc::clone(&panel));
        }
        drop(state);
        self.panels.made.notify_all();
        panel
    }
}

impl Slot {
    /// Whether it is the place of a panel that is being made.
    fn is(&self, key: Key, rows: &Range<u64>) -> bool {
        self.panel.is_none() && self.key == key && self.rows == *rows
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let Some(panel) = self.panel.take() else { return };
        self.panels.lock().slots.retain(|s| !s.is(self.key, &panel.rows));
        self.panels.made.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn key(tensor: u64) -> Key {
        Key { place: (0, tensor), dtype: DType::F32, plane: 0 }
    }

    /// Rows of 64 KiB.
    fn rows(count: u64) -> Rows {
        Rows { count, bytes: MIB / 16, together: 1 }
    }

    fn make(panels: &Panels, tensor: u64, row: u64) -> Arc<Panel> {
        match panels.find(key(tensor), row, rows(1000)) {
            Found::Make(mut making) => {
                making.bytes().fill(tensor as u8);
                making.done()
            }
            other => panic!("{tensor} {row}: {other:?}"),
        }
    }

    fn taken(panels: &Panels) -> usize {
        panels.lock().slots.iter().map(|s| s.bytes).sum()
    }

    #[test]
    fn one_reader_has_wide_panels_and_many_narrow_ones() {
        let panels = Panels::default();
        assert_eq!(make(&panels, 0, 200).rows(), 160..320);
        assert_eq!(make(&panels, 1, 0).rows(), 0..160);
        assert_eq!(make(&panels, 2, 0).rows(), 0..80);
        for tensor in 3..8 {
            assert!(make(&panels, tensor, 0).rows().end <= 80);
        }
        for round in 0..4 {
            for tensor in 0..8 {
                let row = 500 + round * 10;
                if panels.get(key(tensor), row).is_none() {
                    let width = make(&panels, tensor, row).rows();
                    assert_eq!(width.end - width.start, 40, "{round} {tensor}");
                }
                assert!(taken(&panels) <= BUDGET);
            }
        }
        // Each of the eight has found its own in the last rounds.
        assert!((0..8).all(|tensor| panels.get(key(tensor), 530).is_some()));
    }

    #[test]
    fn a_tensor_that_nobody_reads_any_more_takes_no_share() {
        let panels = Panels::default();
        for tensor in 0..8 {
            make(&panels, tensor, 0);
        }
        for _ in 0..RECENT {
            panels.get(key(9), 0);
        }
        assert_eq!(make(&panels, 9, 0).rows(), 0..160);
    }

    #[test]
    fn what_was_read_to_its_end_is_forgotten_first() {
        let panels = Panels::default();
        make(&panels, 0, 0);
        make(&panels, 1, 0).finish();
        panels.get(key(1), 0);
        make(&panels, 1, 192);
        assert!(panels.get(key(0), 0).is_some());
        assert!(panels.get(key(1), 0).is_none());
        assert_eq!(panels.get(key(1), 192).unwrap().bytes(), vec![1; 10 << 20]);
    }

    #[test]
    fn memory_is_used_again_and_has_the_right_length() {
        let panel = Panel::new(0..3, 300, vec![9; 100]);
        assert_eq!(panel.bytes().len(), 300);
        let panel = Panel::new(0..3, 30, panel.memory);
        assert_eq!((panel.bytes().len(), panel.memory.len()), (30, 94));
    }

    #[test]
    fn borders_fall_between_blocks() {
        let rows = Rows { count: 100, bytes: 10, together: 32 };
        assert_eq!(rows.panel(70, 700), Some(64..100));
        assert_eq!(rows.panel(70, 300), Some(60..90));
        assert_eq!(rows.panel(70, 9), None);
        assert_eq!(rows.panel(70, 5000), Some(0..100));
    }

    #[test]
    fn one_makes_it_and_the_others_wait() {
        let panels = Panels::default();
        let Found::Make(mut making) = panels.find(key(0), 0, rows(10)) else { panic!() };
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..3)
                .map(|i| {
                    scope.spawn({
                        let panels = &panels;
                        move || match panels.find(key(0), i, rows(10)) {
                            Found::Kept(panel) => panel.bytes()[0],
                            other => panic!("{other:?}"),
                        }
                    })
                })
                .collect();
            assert!(panels.get(key(0), 0).is_none());
            making.bytes().fill(7);
            making.done();
            assert!(others.into_iter().all(|other| other.join().unwrap() == 7));
        });
    }

    #[test]
    fn one_that_is_given_up_leaves_nothing_and_nobody_waiting() {
        let panels = Panels::default();
        let Found::Make(making) = panels.find(key(0), 0, rows(10)) else { panic!() };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                matches!(panels.find(key(0), 1, rows(10)), Found::Make(_) | Found::Nothing)
            });
            drop(making);
            assert!(waiting.join().unwrap());
        });
        assert_eq!(taken(&panels), 0);
    }
}
