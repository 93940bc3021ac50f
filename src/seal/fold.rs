//! A chunk table as it passes: its text is checked, and its sums are folded into that of
//! all their bytes together.
//!
//! So a seal whose parts contradict each other is found when it is loaded, for a few
//! nanoseconds a chunk.

use crate::bytes::crc::{self, Shift};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Characters that hold three whole sums: base64 begins anew after each.
const GROUP: usize = 16;
const GROUP_BYTES: usize = GROUP / 4 * 3;
/// Characters decoded at a time.
const BATCH: usize = 64 * GROUP;
const BATCH_BYTES: usize = BATCH / 4 * 3;

/// Moves CRC32s on by any number of bytes up to a chunk.
pub(super) struct Shifts {
    /// A chunk has 2 to the power of this many bytes.
    power: u32,
}

impl Shifts {
    /// For chunks of `chunk` bytes, a power of two, at most 16 MiB.
    pub(super) fn new(chunk: u64) -> Shifts {
        Shifts { power: chunk.ilog2() }
    }

    /// Moves `crc` on by `len` bytes, at most a chunk.
    fn by(&self, len: u64, crc: u32) -> u32 {
        debug_assert!(len <= 1 << self.power);
        crc::moved_by(len, crc)
    }
}

/// The sums of a table, folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Folded {
    /// CRC32 of the bytes of all chunks but the last.
    head: u32,
    /// That of the last chunk, the only one that may be short.
    last: u32,
}

impl Folded {
    /// CRC32 of all bytes, where the last chunk has `last_len`.
    pub(super) fn whole(self, shifts: &Shifts, last_len: u64) -> u32 {
        match self.head {
            0 => self.last,
            head => shifts.by(last_len, head) ^ self.last,
        }
    }
}

/// Takes a table in.
pub(super) struct Fold {
    /// By a whole chunk; `None` where nobody asks for the whole.
    shift: Option<&'static Shift>,
    folded: Folded,
    /// The beginning of a group, and how much of it.
    rest: [u8; GROUP],
    held: usize,
    sound: bool,
}

impl Fold {
    pub(super) fn new(shifts: Option<&Shifts>) -> Fold {
        let shift = shifts.map(|shifts| Shift::by_power(shifts.power));
        Fold { shift, folded: Folded::default(), rest: [0; GROUP], held: 0, sound: true }
    }

    /// The next characters, cut anywhere.
    pub(super) fn take(&mut self, mut text: &[u8]) {
        if self.held > 0 {
            let fill = (GROUP - self.held).min(text.len());
            self.hold(&text[..fill]);
            text = &text[fill..];
            if self.held < GROUP {
                return;
            }
            let group = self.rest;
            self.sound &= self.decode::<GROUP_BYTES>(&group) == GROUP_BYTES;
            self.held = 0;
        }
        let groups = text.len() / GROUP * GROUP;
        for batch in text[..groups].chunks(BATCH) {
            // What fills groups has no padding.
            self.sound &= self.decode::<BATCH_BYTES>(batch) == batch.len() / 4 * 3;
        }
        self.hold(&text[groups..]);
    }

    fn hold(&mut self, text: &[u8]) {
        self.rest[self.held..self.held + text.len()].copy_from_slice(text);
        self.held += text.len();
    }

    /// The table's end. `None`: it was no base64, in its one form, of whole sums.
    pub(super) fn finish(mut self) -> Option<Folded> {
        if self.held > 0 {
            let rest = self.rest;
            self.decode::<GROUP_BYTES>(&rest[..self.held]);
        }
        self.sound.then_some(self.folded)
    }

    /// Folds some sums, `ROOM` bytes at most; how many bytes they were.
    fn decode<const ROOM: usize>(&mut self, text: &[u8]) -> usize {
        let mut bytes = [0; ROOM];
        let len = match STANDARD.decode_slice(text, &mut bytes) {
            Ok(len) if len.is_multiple_of(4) => len,
            _ => {
                self.sound = false;
                return 0;
            }
        };
        let (sums, _) = bytes[..len].as_chunks::<4>();
        for sum in sums {
            let Folded { head, last } = self.folded;
            let head = self.shift.map_or(0, |shift| shift.moved(head)) ^ last;
            self.folded = Folded { head, last: u32::from_le_bytes(*sum) };
        }
        len
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crc32fast::Hasher;

    fn folded(text: &[u8], cut: usize, shifts: &Shifts) -> Option<Folded> {
        let mut fold = Fold::new(Some(shifts));
        text.chunks(cut).for_each(|part| fold.take(part));
        fold.finish()
    }

    fn table(bytes: &[u8]) -> String {
        let sums: Vec<u8> =
            bytes.chunks(4096).flat_map(|c| crc32fast::hash(c).to_le_bytes()).collect();
        STANDARD.encode(sums)
    }

    #[test]
    fn the_sums_of_chunks_give_that_of_the_whole() {
        let shifts = Shifts::new(4096);
        let bytes: Vec<u8> = (0..90_000u32).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect();
        for len in [0, 1, 4095, 4096, 4097, 8192, 12_288, 12_289, 16_384, 70_001, 90_000] {
            let bytes = &bytes[..len];
            let last = bytes.chunks(4096).last().map_or(0, <[u8]>::len) as u64;
            for cut in [1, 7, 16, 50, 100_000] {
                let folded = folded(table(bytes).as_bytes(), cut, &shifts).unwrap();
                assert_eq!(folded.whole(&shifts, last), crc32fast::hash(bytes), "{len} by {cut}");
            }
        }
    }

    #[test]
    fn chunks_of_every_size() {
        for power in 12..=24 {
            let shifts = Shifts::new(1 << power);
            let (first, second) = (0x1234_5678, 0x9abc_def0);
            for len in [1, 5000 % (1 << power), (1 << power) - 1, 1 << power] {
                let mut expected = Hasher::new_with_initial_len(first, 1 << power);
                expected.combine(&Hasher::new_with_initial_len(second, len));
                let folded = Folded { head: first, last: second };
                assert_eq!(folded.whole(&shifts, len), expected.finalize());
            }
        }
    }

    /// The base64 of 1 to 6 sums, with every character replaced by those that do not belong.
    #[test]
    fn a_table_has_one_form() {
        let shifts = Shifts::new(4096);
        for sums in 1..=6 {
            let good = table(&vec![7; 4096 * sums]).into_bytes();
            assert!(folded(&good, 5, &shifts).is_some());
            for at in 0..good.len() {
                for wrong in *b"=-_ \0" {
                    let mut bad = good.clone();
                    bad[at] = wrong;
                    if bad != good {
                        assert_eq!(folded(&bad, 5, &shifts), None, "{sums} sums, {wrong} at {at}");
                    }
                }
                assert_eq!(folded(&good[..at], 5, &shifts).is_some(), at % 16 == 0);
            }
        }
        // Bits that the padding leaves over are nought.
        assert!(folded(b"AAAAAA==", 5, &shifts).is_some());
        assert!(folded(b"AAAAAB==", 5, &shifts).is_none());
        assert!(folded(b"AAAAAAAAAAA=", 5, &shifts).is_some());
        assert!(folded(b"AAAAAAAAAAB=", 5, &shifts).is_none());
        // Two tables are not one.
        assert!(folded(b"AAAAAA==AAAAAA==", 16, &shifts).is_none());
        assert!(folded(b"AAAAAA==AAAAAA==", 3, &shifts).is_none());
    }
}
