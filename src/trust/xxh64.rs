//! XXH64 with seed 0, after its specification: what gguf-hash computes unless told otherwise.
//!
//! A fast checksum, good against accidents only.

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

/// Bytes that go through the four accumulators at once.
const STRIPE: usize = 32;

/// A checksum in the making.
pub(super) struct Xxh64 {
    lanes: [u64; 4],
    /// Bytes that do not fill a stripe yet.
    rest: [u8; STRIPE],
    held: usize,
    len: u64,
}

impl Xxh64 {
    pub(super) fn new() -> Xxh64 {
        let lanes = [P1.wrapping_add(P2), P2, 0, 0u64.wrapping_sub(P1)];
        Xxh64 { lanes, rest: [0; STRIPE], held: 0, len: 0 }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.len = self.len.wrapping_add(bytes.len() as u64);
        let mut bytes = bytes;
        if self.held > 0 {
            let take = bytes.len().min(STRIPE - self.held);
            self.rest[self.held..self.held + take].copy_from_slice(&bytes[..take]);
            self.held += take;
            bytes = &bytes[take..];
            if self.held < STRIPE {
                return;
            }
            let stripe = self.rest;
            self.stripe(&stripe);
            self.held = 0;
        }
        let mut stripes = bytes.chunks_exact(STRIPE);
        for stripe in &mut stripes {
            self.stripe(stripe);
        }
        let rest = stripes.remainder();
        self.rest[..rest.len()].copy_from_slice(rest);
        self.held = rest.len();
    }

    fn stripe(&mut self, stripe: &[u8]) {
        for (lane, word) in self.lanes.iter_mut().zip(stripe.chunks_exact(8)) {
            *lane = round(*lane, word_of(word));
        }
    }

    pub(super) fn finish(&self) -> u64 {
        let [a, b, c, d] = self.lanes;
        let mut hash = if self.len >= STRIPE as u64 {
            let turned = [a.rotate_left(1), b.rotate_left(7), c.rotate_left(12), d.rotate_left(18)];
            let sum = turned.into_iter().fold(0u64, u64::wrapping_add);
            self.lanes
                .iter()
                .fold(sum, |hash, &lane| (hash ^ round(0, lane)).wrapping_mul(P1).wrapping_add(P4))
        } else {
            P5
        };
        hash = hash.wrapping_add(self.len);
        let mut words = self.rest[..self.held].chunks_exact(8);
        for word in &mut words {
            hash ^= round(0, word_of(word));
            hash = hash.rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
        }
        let mut bytes = words.remainder();
        if let Some((half, rest)) = bytes.split_first_chunk::<4>() {
            hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(P1);
            hash = hash.rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
            bytes = rest;
        }
        for &byte in bytes {
            hash ^= u64::from(byte).wrapping_mul(P5);
            hash = hash.rotate_left(11).wrapping_mul(P1);
        }
        hash = (hash ^ hash >> 33).wrapping_mul(P2);
        hash = (hash ^ hash >> 29).wrapping_mul(P3);
        hash ^ hash >> 32
    }
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

/// Eight bytes as a little-endian number.
fn word_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> u64 {
        let mut sum = Xxh64::new();
        parts.iter().for_each(|part| sum.update(part));
        sum.finish()
    }

    #[test]
    fn known_values() {
        assert_eq!(of(&[]), 0xef46_db37_51d8_e999);
        assert_eq!(of(&[b"a"]), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(of(&[b"abc"]), 0x44bc_2cf5_ad77_0999);
        assert_eq!(of(&[b"Nobody inspects the spammish repetition"]), 0xfbce_a83c_8a37_8bf1);
    }

    #[test]
    fn the_same_in_pieces_of_any_size() {
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = of(&[&bytes]);
        for size in 1..100 {
            let parts: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(of(&parts), whole, "{size}");
        }
    }
}
