//! The last decoded panels of weights that are shown transposed.
//!
//! A row of such a weight takes a code from every row of a plane, so it costs all of the
//! plane's bytes; a panel of rows costs no more. It was checked when it was decoded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a panel: the codes of one block.
pub const PANEL_ROWS: u64 = 32;
/// Largest panel that is kept, in bytes.
pub const PANEL_BYTES: u64 = 4 << 20;
/// As many readers can go on at once without decoding anew.
const KEPT: usize = 4;

/// Which panel: file and offset of the codes, plane, and number in the plane.
pub type Key = (u32, u64, u64, u64);

/// Panels as bytes of F32.
#[derive(Debug, Default)]
pub struct Panels {
    kept: Mutex<VecDeque<(Key, Arc<[u8]>)>>,
}

impl Panels {
    /// The panel `key`, if it is still there.
    pub fn get(&self, key: Key) -> Option<Arc<[u8]>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(k, _)| *k == key).map(|(_, panel)| Arc::clone(panel))
    }

    /// Keeps `panel` and forgets the oldest.
    pub fn put(&self, key: Key, panel: Arc<[u8]>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().any(|(k, _)| *k == key) {
            return;
        }
        kept.truncate(KEPT - 1);
        kept.push_front((key, panel));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_panels_are_kept_and_older_ones_are_not() {
        let panels = Panels::default();
        for i in 0..6 {
            panels.put((0, 0, 0, i), Arc::new([i as u8]));
        }
        panels.put((0, 0, 0, 5), Arc::new([9]));
        assert_eq!(panels.get((0, 0, 0, 1)), None);
        for i in 2..6 {
            assert_eq!(panels.get((0, 0, 0, i)).as_deref(), Some(&[i as u8][..]));
        }
    }
}
