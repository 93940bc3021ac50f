//! An entry that is written exactly as this program writes it: compared, not parsed.
//!
//! Saves most of the time that a seal of very many tensors takes. Whatever is not as expected,
//! to the byte, is left to [`super::entry::Entry`], which finds out what it is instead.

use super::fold::{Fold, Shifts};
use super::hex::from_hex;
use super::lexer::Lexer;
use super::table_len;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What has to follow an entry's head.
pub(super) struct Expected<'a> {
    /// Whether there is a SHA-256.
    pub(super) hashed: bool,
    /// Sums in its table, at least one.
    pub(super) chunks: u64,
    /// Bytes of the last chunk.
    pub(super) last: u64,
    pub(super) shifts: &'a Shifts,
}

/// What an entry says about bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) crc32: u32,
    pub(super) sha256: Option<[u8; 32]>,
    /// Where its table begins in the file.
    pub(super) table: u64,
}

const CRC32: &[u8] = b",\"crc32\":\"";
const SHA256: &[u8] = b"\",\"sha256\":\"";
const TABLE: &[u8] = b"\",\"crcs\":\"";
const END: &[u8] = b"\"}";

/// Takes the next entry if it begins with `head` (see [`super::write::tensor_head`]), goes on
/// as expected, and its table gives the CRC32 of the whole: then nothing about it is left to be
/// checked. `None`, with nothing taken, otherwise.
pub(super) fn take(lexer: &mut Lexer<'_>, head: &[u8], expected: &Expected<'_>) -> Option<Written> {
    let sums = match expected.hashed {
        true => CRC32.len() + 8 + SHA256.len() + 64 + TABLE.len(),
        false => CRC32.len() + 8 + TABLE.len(),
    };
    let before = head.len() + sums;
    let table_len = usize::try_from(table_len(expected.chunks)).ok()?;
    let len = before.checked_add(table_len)?.checked_add(END.len())?;
    let rest = lexer.at_hand(len)?.strip_prefix(head)?;
    let (crc32, rest) = rest.strip_prefix(CRC32)?.split_at_checked(8)?;
    let crc32 = u32::from_be_bytes(from_hex::<4>(crc32)?);
    let (sha256, rest) = match expected.hashed {
        true => {
            let (sha256, rest) = rest.strip_prefix(SHA256)?.split_at_checked(64)?;
            (Some(from_hex::<32>(sha256)?), rest)
        }
        false => (None, rest),
    };
    let table = rest.strip_prefix(TABLE)?.strip_suffix(END)?;
    gives(table, crc32, expected).then_some(())?;
    let table = lexer.offset() + before as u64;
    lexer.take_at_hand(len);
    Some(Written { crc32, sha256, table })
}

/// Whether the sums of a table are those of bytes with this sum.
fn gives(table: &[u8], crc32: u32, expected: &Expected<'_>) -> bool {
    if expected.chunks == 1 {
        let mut only = [0; 8];
        return STANDARD.encode_slice(crc32.to_le_bytes(), &mut only) == Ok(8) && *table == only;
    }
    let mut fold = Fold::new(Some(expected.shifts));
    fold.take(table);
    fold.finish().is_some_and(|folded| folded.whole(expected.shifts, expected.last) == crc32)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::entry::Entry;
    use super::super::hex::{crc_hex, hex};
    use super::*;
    use crc32fast::Hasher;

    const HEAD: &[u8] = b"{\"name\":\"a\",\"nbytes\":5000";

    /// An entry with so many chunks of 4096 bytes, the last of 904.
    fn text(hashed: bool, chunks: u32) -> Vec<u8> {
        let mut whole = Hasher::new();
        for chunk in 1..=chunks {
            let len = if chunk == chunks { 904 } else { 4096 };
            whole.combine(&Hasher::new_with_initial_len(chunk, len));
        }
        let table: Vec<u8> = (1..=chunks).flat_map(u32::to_le_bytes).collect();
        let sha = format!("\",\"sha256\":\"{}", "0f".repeat(32));
        let rest = format!(
            ",\"crc32\":\"{}{}\",\"crcs\":\"{}\"}}",
            crc_hex(whole.finalize()),
            if hashed { &*sha } else { "" },
            STANDARD.encode(table)
        );
        [HEAD, rest.as_bytes()].concat()
    }

    /// How much was taken and what it said.
    #[allow(clippy::ptr_arg, reason = "a vector can be read from, a slice cannot")]
    fn taken(text: &Vec<u8>, hashed: bool, chunks: u32) -> (u64, Option<Written>) {
        let mut lexer = Lexer::new(text);
        // The buffer is filled by a look.
        lexer.token("a value").unwrap();
        let shifts = Shifts::new(4096);
        let expected = Expected { hashed, chunks: chunks.into(), last: 904, shifts: &shifts };
        let written = take(&mut lexer, HEAD, &expected);
        assert_eq!(written.is_some(), lexer.offset() > 0);
        (lexer.offset(), written)
    }

    #[test]
    fn an_entry_as_written_says_what_reading_it_says() {
        for (hashed, chunks) in [(false, 1), (true, 1), (false, 2), (true, 7)] {
            let text = text(hashed, chunks);
            let (end, written) = taken(&text, hashed, chunks);
            assert_eq!(end, text.len() as u64);
            let written = written.unwrap();
            let (mut read, shifts) = (Entry::default(), Shifts::new(4096));
            read.read(&mut Lexer::new(&text), 99, Some(&shifts), &mut Vec::new()).unwrap();
            assert_eq!(Some(written.crc32), read.crc32);
            assert_eq!(written.sha256, read.sha256);
            assert_eq!(written.sha256.map(|sha| hex(&sha)).is_some(), hashed);
            assert_eq!(written.table, read.table.unwrap().offset);
            assert_eq!(read.folded.unwrap().whole(&shifts, 904), written.crc32);
        }
    }

    #[test]
    fn anything_else_is_left_to_be_read() {
        for (hashed, chunks) in [(false, 1), (true, 1), (true, 4)] {
            let good = text(hashed, chunks);
            assert_eq!(taken(&good, !hashed, chunks).0, 0);
            assert_eq!(taken(&good, hashed, chunks + 1).0, 0);
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] = b'~';
                assert_eq!(taken(&bad, hashed, chunks).0, 0, "byte {at}");
            }
            for cut in 0..good.len() - 1 {
                let cut = good[..cut.max(1)].to_vec();
                assert_eq!(taken(&cut, hashed, chunks).0, 0);
            }
        }
    }

    #[test]
    fn a_sum_that_its_table_does_not_give_is_left_to_be_read() {
        for chunks in [1, 2, 5] {
            let good = text(true, chunks);
            let at = HEAD.len() + CRC32.len();
            for (at, digit) in [(at, 1), (at + 7, 2)] {
                let mut bad = good.clone();
                bad[at] = if bad[at] == b'0' + digit { b'0' } else { b'0' + digit };
                assert_eq!(taken(&bad, true, chunks).0, 0, "{chunks} chunks");
            }
            let mut bad = good.clone();
            let first = good.len() - END.len() - table_len(chunks.into()) as usize;
            bad[first] = if bad[first] == b'A' { b'B' } else { b'A' };
            assert_eq!(taken(&bad, true, chunks).0, 0, "{chunks} chunks");
        }
    }
}
