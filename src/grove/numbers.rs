//! Which number each model, and each directory above models, has in the inode numbers.
//!
//! It comes from the name in the mount, so that a model's numbers stay the same when another one
//! is added or taken away. Two names may ask for one number: in the order of the names, the later
//! one takes the next that is free. So one model in 65,535 / N moves when the N+1st is added.

use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Where a name stands among all numbers that there might be.
pub(super) fn of_name(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A number in `range` for each name, in the order of `names`; none is given twice. There must be
/// more numbers than names. `of` is what a name asks for.
pub(super) fn give(
    names: &[String],
    range: RangeInclusive<u32>,
    of: impl Fn(&str) -> u64,
) -> Vec<u32> {
    let (first, last) = (*range.start(), *range.end());
    let count = u64::from(last - first) + 1;
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|&i| &names[i]);
    let mut given = vec![first; names.len()];
    let mut taken = HashSet::with_capacity(names.len());
    for i in order {
        // Below the length of a range of u32.
        let mut number = first + (of(&names[i]) % count) as u32;
        while !taken.insert(number) {
            number = if number == last { first } else { number + 1 };
        }
        given[i] = number;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_name_keeps_its_number_whoever_is_there() {
        let all: Vec<String> = (0..200).map(|i| format!("org{}/model-{i}", i % 7)).collect();
        let given = give(&all, 1..=65_535, of_name);
        for without in [0, 77, 199] {
            let mut less = all.clone();
            less.remove(without);
            let mut want = given.clone();
            want.remove(without);
            assert_eq!(give(&less, 1..=65_535, of_name), want);
        }
        // Written into the inode numbers of every mount of several models.
        assert_eq!(give(&names(&["a", "org/b"]), 1..=65_535, of_name), [54_161, 48_598]);
    }

    #[test]
    fn names_that_ask_for_one_number_get_others_in_their_order() {
        let same = |_: &str| 7;
        assert_eq!(give(&names(&["c", "a", "b"]), 1..=65_535, same), [10, 8, 9]);
        assert_eq!(give(&names(&["a", "c", "b"]), 1..=65_535, same), [8, 10, 9]);
        // One that is taken by who asked for it moves the next one on.
        let of = |name: &str| if name == "b" { 8 } else { 7 };
        assert_eq!(give(&names(&["a", "b", "c"]), 1..=65_535, of), [8, 9, 10]);
    }

    #[test]
    fn behind_the_last_number_comes_the_first() {
        let last = |_: &str| 2;
        assert_eq!(give(&names(&["a", "b", "c"]), 5..=7, last), [7, 5, 6]);
        assert_eq!(give(&names(&["same", "same"]), 1..=9, last), [3, 4]);
    }
}
