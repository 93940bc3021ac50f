//! CRC32 (IEEE) of bytes whose parts have known ones.
//!
//! A CRC32 is linear: that of two runs is the first's, moved on by the length of the second, and
//! the second's. Moving on costs four look-ups, where `crc32fast`'s own `combine` multiplies
//! matrices for each.

use crc32fast::Hasher;
use std::sync::OnceLock;

/// Runs have less than 2 to the power of one more than this many bytes.
const MOST: u32 = 63;

/// Moves a CRC32 on by some number of zero bytes, eight bits of it at a time.
#[derive(Debug)]
pub struct Shift([[u32; 256]; 4]);

impl Shift {
    /// By 2 to the power of `power` bytes, 63 at most: made when first needed, then kept.
    pub fn by_power(power: u32) -> &'static Shift {
        static SHIFTS: [OnceLock<Box<Shift>>; MOST as usize + 1] =
            [const { OnceLock::new() }; MOST as usize + 1];
        SHIFTS[power as usize].get_or_init(|| Box::new(Shift::made(1 << power)))
    }

    fn made(len: u64) -> Shift {
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
        Shift(shift)
    }

    /// `crc`, moved on.
    pub fn moved(&self, crc: u32) -> u32 {
        let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
        self.0[0][a] ^ self.0[1][b] ^ self.0[2][c] ^ self.0[3][d]
    }
}

/// `crc`, moved on by `len` bytes.
pub fn moved_by(len: u64, crc: u32) -> u32 {
    let used = (0..=MOST).filter(|power| len >> power & 1 == 1);
    used.fold(crc, |crc, power| Shift::by_power(power).moved(crc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_crc32fast_combines_them() {
        let (first, second) = (0x1234_5678, 0x9abc_def0);
        for power in 0..=MOST {
            for len in [1, 1 + 5000 % (1 << power), 1 << power, (1 << power) | 12_345] {
                let mut expected = Hasher::new_with_initial_len(first, 0);
                expected.combine(&Hasher::new_with_initial_len(second, len));
                assert_eq!(moved_by(len, first) ^ second, expected.finalize(), "{len}");
            }
        }
    }

    #[test]
    fn nothing_moves_by_nothing() {
        assert_eq!(moved_by(0, 0xdead_beef), 0xdead_beef);
        assert_eq!(moved_by(u64::MAX, 0), 0);
    }
}
