//! Finding a name that occurs twice, without a quadratic scan and without a set of names.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Positions of two equal names, as (first, second) with the smallest second; `None` when
/// all `count` names are different. `name(i)` gives the `i`th.
///
/// Takes n log n time and 8 bytes a name. The hash is keyed at random, so no file can make
/// its names meet.
pub fn duplicate<'a>(count: usize, name: impl Fn(usize) -> &'a [u8]) -> Option<(usize, usize)> {
    let state = RandomState::new();
    // Half a hash over a position: half the bytes to sort, and what half a hash leaves together
    // is compared anyway.
    let slot = |i: u32| state.hash_one(name(i as usize)) & !LOWER | u64::from(i);
    let count = u32::try_from(count).expect("limits on names are far below");
    let mut slots: Vec<u64> = (0..count).map(slot).collect();
    slots.sort_unstable();
    let position = |slot: u64| (slot & LOWER) as usize;
    let mut found: Option<(usize, usize)> = None;
    for run in slots.chunk_by(|a, b| a & !LOWER == b & !LOWER).filter(|run| run.len() > 1) {
        // Positions rise within a run, so the first later one that equals an earlier one is
        // the smallest second of that pair. A run of equal names ends at its second member.
        let pair = run.iter().enumerate().find_map(|(at, &second)| {
            let second = position(second);
            let mut earlier = run.iter().take(at).map(|&slot| position(slot));
            Some((earlier.find(|&i| name(i) == name(second))?, second))
        });
        if let Some(pair) = pair
            && found.is_none_or(|(_, second)| pair.1 < second)
        {
            found = Some(pair);
        }
    }
    found
}

/// The half of a slot that is a position.
const LOWER: u64 = u32::MAX as u64;

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Option<(usize, usize)> {
        duplicate(names.len(), |i| names[i].as_bytes())
    }

    #[test]
    fn the_first_name_to_return_is_reported() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["a", "b", "ab", ""]), None);
        assert_eq!(of(&["a", "a\0", "A", "a\0b"]), None);
        assert_eq!(of(&["a", "b", "a"]), Some((0, 2)));
        assert_eq!(of(&["a", "b", "c", "b", "a", "a"]), Some((1, 3)));
        assert_eq!(of(&["", ""]), Some((0, 1)));
    }

    #[test]
    fn many_names_take_no_quadratic_time() {
        let names: Vec<String> = (0..200_000).map(|i| format!("blk.{i}.weight")).collect();
        assert_eq!(duplicate(names.len(), |i| names[i].as_bytes()), None);
        let same = duplicate(200_000, |_| b"x");
        assert_eq!(same, Some((0, 1)));
    }
}
