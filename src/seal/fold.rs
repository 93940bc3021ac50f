//! A chunk table as it passes: its text is checked, and its sums are folded into that of
//! all their bytes together.
//!
//! A CRC32 is linear: that of two runs is the first's, moved on by the length of the
//! second, and the second's. So a seal whose parts contradict each other is found when
//! it is loaded, for a few nanoseconds a chunk.

use super::grid::MAX_CHUNK;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc32fast::Hasher;
use std::sync::OnceLock;

/// Characters that hold three whole sums: base64 begins anew after each.
const GROUP: usize = 16;
const GROUP_BYTES: usize = GROUP / 4 * 3;
/// Characters decoded at a time.
const BATCH: usize = 64 * GROUP;
const BATCH_BYTES: usize = BATCH / 4 * 3;

/// Moves a CRC32 on by some number of zero bytes, eight bits of it at a time.
type Shift = [[u32; 256]; 4];

/// Moves CRC32s on by any number of bytes up to a chunk.
pub(super) struct Shifts {
    /// A chunk has 2 to the power of this many bytes.
    power: u32,
}

impl Shifts {
    /// For chunks of `chunk` bytes, a power of two, at most [`MAX_CHUNK`].
    pub(super) fn new(chunk: u64) -> Shifts {
        Shifts { power: chunk.ilog2() }
    }

    /// Moves `crc` on by `len` bytes, at most a chunk.
    fn by(&self, len: u64, crc: u32) -> u32 {
        let used = (0..=self.power).filter(|power| len >> power & 1 == 1);
        used.fold(crc, |crc, power| moved(shift(power), crc))
    }
}

/// By 2 to the power of `power` bytes: made when first needed, then kept.
fn shift(power: u32) -> &'static Shift {
    static SHIFTS: [OnceLock<Box<Shift>>; MAX_CHUNK.ilog2() as usize + 1] =
        [const { OnceLock::new() }; MAX_CHUNK.ilog2() as usize + 1];
    SHIFTS[power as usize].get_or_init(|| Box::new(shift_by(1 << power)))
}

fn shift_by(len: u64) -> Shift {
    let mut shift = [[0; 256]; 4];
    for (place, table) in shift.iter_mut().enumerate() {
        for value in 1..256 {
            let low = value & (value - 1);
            table[value] = if low > 0 {
                table[low] ^ table[value ^ low]
            } else {
                let mut crc = Hasher::new_with_initial_len((value as u32) << (8 * place), 0);
                crc.combine(&Hasher::new_with_initial_len(0, len));
                crc.finalize()
            };
        }
    }
    shift
}

fn moved(shift: &Shift, crc: u32) -> u32 {
    let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
    shift[0][a] ^ shift[1][b] ^ shift[2][c] ^ shift[3][d]
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
        let shift = shifts.map(|shifts| shift(shifts.power));
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
            let head = self.shift.map_or(0, |shift| moved(shift, head)) ^ last;
            self.folded = Folded { head, last: u32::from_le_bytes(*sum) };
        }
        len
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
