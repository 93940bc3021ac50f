//! From a file-name stem back to the tensor that has it: eight bytes per name.
//!
//! Names are not kept: a look-up recomputes the few stems whose hashes agree. The hash has
//! a random key, so no file can choose names that fall together.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

/// Finds indices by stem (or by any other name that can be recomputed from an index).
#[derive(Debug)]
pub struct StemIndex {
    hasher: RandomState,
    /// Upper half: upper half of the stem's hash; lower half: index. Sorted.
    slots: Box<[u64]>,
}

/// Two indices with one stem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("file name {:?} belongs to two names", String::from_utf8_lossy(stem))]
pub struct Collision {
    /// What both are called.
    pub stem: Box<[u8]>,
    /// The lower index.
    pub a: u32,
    /// The higher index.
    pub b: u32,
}

impl StemIndex {
    /// Indexes `stem(0)` to `stem(count - 1)`; refuses two equal ones.
    pub fn build<'a>(
        count: u32,
        stem: impl Fn(u32) -> Cow<'a, [u8]>,
    ) -> Result<StemIndex, Collision> {
        let mut first = None;
        let index = Self::build_all(count, stem, |collision| {
            first = Some(collision);
            false
        });
        match first {
            Some(collision) => Err(collision),
            None => Ok(index),
        }
    }

    /// As [`StemIndex::build`], but hands every collision to `report` until that says
    /// false. Of several equal stems the lowest index is found afterwards; collisions
    /// pair it with each of the others.
    pub fn build_all<'a>(
        count: u32,
        stem: impl Fn(u32) -> Cow<'a, [u8]>,
        mut report: impl FnMut(Collision) -> bool,
    ) -> StemIndex {
        let hasher = RandomState::new();
        let mut slots: Vec<u64> = (0..count)
            .map(|i| (hasher.hash_one(&*stem(i)) & !u64::from(u32::MAX)) | u64::from(i))
            .collect();
        slots.sort_unstable();
        let index = StemIndex { hasher, slots: slots.into_boxed_slice() };
        // Equal stems have equal hashes: they stand in one run, which is short unless the
        // stems are equal indeed, and then the first match ends the inner loop.
        for run in index.slots.chunk_by(|a, b| a >> 32 == b >> 32).filter(|run| run.len() > 1) {
            for (at, &slot) in run.iter().enumerate().skip(1) {
                let here = stem(index_of(slot));
                let twin = run[..at].iter().find(|&&s| stem(index_of(s)) == here);
                if let Some(&twin) = twin {
                    let collision = Collision {
                        stem: here.into_owned().into(),
                        a: index_of(twin),
                        b: index_of(slot),
                    };
                    if !report(collision) {
                        return index;
                    }
                }
            }
        }
        index
    }

    /// The index whose stem is `wanted`; `stem` is what the index was built with.
    pub fn find<'a>(&self, wanted: &[u8], stem: impl Fn(u32) -> Cow<'a, [u8]>) -> Option<u32> {
        let top = self.hasher.hash_one(wanted) >> 32;
        let from = self.slots.partition_point(|slot| slot >> 32 < top);
        self.slots[from..]
            .iter()
            .take_while(|&&slot| slot >> 32 == top)
            .map(|&slot| index_of(slot))
            .find(|&i| *stem(i) == *wanted)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// The lower half of a slot.
#[allow(clippy::cast_possible_truncation, reason = "the truncation is the point")]
const fn index_of(slot: u64) -> u32 {
    slot as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::naming::file_stem;

    #[test]
    fn finds_each_name_and_no_other() {
        let names: Vec<Vec<u8>> = (0..5000).map(|i| format!("blk/{i}").into_bytes()).collect();
        let stem = |i: u32| file_stem(&names[i as usize], 5);
        let index = StemIndex::build(5000, stem).unwrap();
        for i in 0..5000 {
            assert_eq!(index.find(format!("blk%2F{i}").as_bytes(), stem), Some(i));
        }
        assert_eq!(index.find(b"blk/7", stem), None);
        assert_eq!(index.find(b"", stem), None);
        assert_eq!(index.len(), 5000);
    }

    #[test]
    fn empty_index_finds_nothing() {
        let stem = |_: u32| -> Cow<'static, [u8]> { unreachable!() };
        let index = StemIndex::build(0, stem).unwrap();
        assert!(index.is_empty());
        assert_eq!(index.find(b"x", stem), None);
    }

    #[test]
    fn a_name_that_imitates_a_shortened_one_is_found_out() {
        let long = vec![b'x'; 300];
        let fake = file_stem(&long, 5).into_owned();
        let names = [b"other".to_vec(), fake.clone(), long];
        let error = StemIndex::build(3, |i| file_stem(&names[i as usize], 5)).unwrap_err();
        assert_eq!(error, Collision { stem: fake.into(), a: 1, b: 2 });
    }

    #[test]
    fn all_collisions_are_reported_against_the_lowest_index() {
        let names = ["b", "a", "b", "c", "b", "a"];
        let mut seen = Vec::new();
        let stem = |i: u32| Cow::Borrowed(names[i as usize].as_bytes());
        let index = StemIndex::build_all(6, stem, |c| {
            seen.push((c.stem[0], c.a, c.b));
            true
        });
        seen.sort_unstable();
        assert_eq!(seen, [(b'a', 1, 5), (b'b', 0, 2), (b'b', 0, 4)]);
        assert_eq!(index.find(b"b", stem), Some(0));
    }

    #[test]
    fn a_million_equal_names_do_not_take_quadratic_time() {
        let mut count = 0u32;
        StemIndex::build_all(
            200_000,
            |_| Cow::Borrowed(b"same"),
            |_| {
                count += 1;
                true
            },
        );
        assert_eq!(count, 199_999);
    }
}
