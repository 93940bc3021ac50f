//! Ids by text, and by the hash of a text: all halves of a token are looked up in time linear
//! in its length.
//!
//! The hash is a polynomial over 2^61 - 1 whose base is drawn for each index, so that no file
//! can be made to collide; what it finds is compared byte by byte.

use super::vocabulary::Vocabulary;
use std::hash::{BuildHasher, RandomState};

const PRIME: u64 = (1 << 61) - 1;
const NONE: u32 = u32::MAX;

/// The hash of a text.
pub(super) type Hash = u64;

fn reduce(sum: u64) -> Hash {
    if sum >= PRIME { sum - PRIME } else { sum }
}

fn multiply(a: Hash, b: Hash) -> Hash {
    let product = u128::from(a) * u128::from(b);
    reduce((product as u64 & PRIME) + (product >> 61) as u64)
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u32,
    id: u32,
}

/// Ids of the listed tokens of one vocabulary.
#[derive(Debug)]
pub(super) struct Index {
    base: Hash,
    slots: Vec<Slot>,
}

impl Index {
    /// An index of `vocabulary`. Of several tokens with one text the lowest id stays listed.
    pub(super) fn new(vocabulary: &mut Vocabulary) -> Index {
        let drawn = RandomState::new().hash_one(0u64) % (PRIME - 512);
        let slot = Slot { tag: 0, id: NONE };
        let slots = vec![slot; (vocabulary.len() * 2).next_power_of_two()];
        let mut index = Index { base: drawn + 257, slots };
        let mut repeated = 0u32;
        for id in vocabulary.ids().filter(|&id| vocabulary.is_listed(id)).collect::<Vec<_>>() {
            let text = vocabulary.text(id).as_bytes();
            let hash = index.hash(text);
            if index.find_hashed(vocabulary, hash, text).is_some() {
                repeated += 1;
                vocabulary.unlist(id);
                continue;
            }
            let (mut at, tag) = index.place(hash);
            while index.slots[at].id != NONE {
                at = (at + 1) & (index.slots.len() - 1);
            }
            index.slots[at] = Slot { tag, id };
        }
        if repeated > 0 {
            log::warn!(
                "hf/tokenizer.json: {repeated} tokens repeat the text of another with a lower id"
            );
        }
        index
    }

    fn place(&self, hash: Hash) -> (usize, u32) {
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 32) as usize & (self.slots.len() - 1), hash as u32)
    }

    fn extend(&self, hash: Hash, byte: u8) -> Hash {
        reduce(multiply(hash, self.base) + u64::from(byte) + 1)
    }

    /// The hash of `text`.
    pub(super) fn hash(&self, text: &[u8]) -> Hash {
        text.iter().fold(0, |hash, &byte| self.extend(hash, byte))
    }

    /// The hashes of all beginnings of `text`, from the empty one to the whole.
    pub(super) fn beginnings(&self, text: &[u8], out: &mut Vec<Hash>) {
        out.clear();
        out.push(0);
        let mut hash = 0;
        out.extend(text.iter().map(|&byte| {
            hash = self.extend(hash, byte);
            hash
        }));
    }

    /// The factors by which a beginning counts when 0 to `most` bytes follow.
    pub(super) fn factors(&self, most: usize) -> Vec<Hash> {
        let mut factors = Vec::with_capacity(most + 1);
        let mut factor = 1;
        for _ in 0..=most {
            factors.push(factor);
            factor = multiply(factor, self.base);
        }
        factors
    }

    /// The hash of what follows a beginning.
    pub(super) fn rest(whole: Hash, beginning: Hash, factor: Hash) -> Hash {
        reduce(whole + PRIME - multiply(beginning, factor))
    }

    /// Whether a text with this hash may be a token: never wrong when it says no.
    pub(super) fn may_have(&self, hash: Hash) -> bool {
        let (mut at, tag) = self.place(hash);
        loop {
            let slot = self.slots[at];
            if slot.id == NONE || slot.tag == tag {
                return slot.id != NONE;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The id of `text`, whose hash this is.
    pub(super) fn find_hashed(
        &self,
        vocabulary: &Vocabulary,
        hash: Hash,
        text: &[u8],
    ) -> Option<u32> {
        let (mut at, tag) = self.place(hash);
        loop {
            let slot = self.slots[at];
            if slot.id == NONE {
                return None;
            }
            if slot.tag == tag && vocabulary.text(slot.id).as_bytes() == text {
                return Some(slot.id);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The id of `text`.
    pub(super) fn find(&self, vocabulary: &Vocabulary, text: &str) -> Option<u32> {
        self.find_hashed(vocabulary, self.hash(text.as_bytes()), text.as_bytes())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::hf::tokenizer::vocabulary::Kind;

    fn vocabulary(texts: &[&str]) -> Vocabulary {
        let mut vocabulary = Vocabulary::default();
        for text in texts {
            vocabulary.push(text, Kind::Normal);
        }
        vocabulary
    }

    #[test]
    fn every_token_is_found_and_nothing_else() {
        let texts: Vec<String> = (0..5000).map(|i| format!("t{i}")).collect();
        let mut vocabulary = vocabulary(&texts.iter().map(|t| &**t).collect::<Vec<_>>());
        let index = Index::new(&mut vocabulary);
        for (id, text) in (0..).zip(&texts) {
            assert_eq!(index.find(&vocabulary, text), Some(id));
            assert!(index.may_have(index.hash(text.as_bytes())));
        }
        for absent in ["", "t", "t5000", "\0", "t1\0"] {
            assert_eq!(index.find(&vocabulary, absent), None, "{absent:?}");
        }
    }

    #[test]
    fn the_lowest_id_keeps_a_text_that_repeats() {
        let mut vocabulary = vocabulary(&["a", "b", "a", "a"]);
        let index = Index::new(&mut vocabulary);
        assert_eq!(index.find(&vocabulary, "a"), Some(0));
        assert_eq!([0, 1, 2, 3].map(|id| vocabulary.is_listed(id)), [true, true, false, false]);
    }

    #[test]
    fn the_hash_of_a_rest_is_that_of_its_text() {
        let index = Index::new(&mut vocabulary(&["x"]));
        let text: Vec<u8> = (0..=255).rev().cycle().take(1000).collect();
        let factors = index.factors(text.len());
        let mut beginnings = Vec::new();
        index.beginnings(&text, &mut beginnings);
        assert_eq!(beginnings.len(), text.len() + 1);
        for at in 0..=text.len() {
            assert_eq!(beginnings[at], index.hash(&text[..at]));
            let rest =
                Index::rest(beginnings[text.len()], beginnings[at], factors[text.len() - at]);
            assert_eq!(rest, index.hash(&text[at..]), "{at}");
        }
    }
}
