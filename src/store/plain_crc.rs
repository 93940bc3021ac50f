//! CRC32 (IEEE) by a table of 256 entries: no vector unit, nothing in common with the fast way
//! but the polynomial. Slow, and asked only when the fast way says that bytes are wrong.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    /// IEEE 802.3, lowest bit first.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (POLYNOMIAL * (value & 1));
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
}

/// A checksum being computed.
#[derive(Debug)]
pub(super) struct PlainCrc(u32);

impl PlainCrc {
    pub(super) fn new() -> PlainCrc {
        PlainCrc(!0)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |crc, &byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)]);
    }

    pub(super) fn finalize(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_function_as_the_fast_one() {
        let bytes: Vec<u8> =
            (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in [0, 1, 7, 64, 65, 4096, 70_000] {
            let mut crc = PlainCrc::new();
            let (a, b) = bytes[..len].split_at(len / 3);
            crc.update(a);
            crc.update(b);
            assert_eq!(crc.finalize(), crc32fast::hash(&bytes[..len]), "{len}");
        }
        let mut check = PlainCrc::new();
        check.update(b"123456789");
        assert_eq!(check.finalize(), 0xcbf4_3926);
    }
}
