//! One object of the lists in a seal.

use super::fold::{Fold, Folded, Shifts};
use super::hex::{bytes_from_hex, from_hex};
use super::lexer::{LexError, Lexer, Place};

/// Longest word that is kept, bytes.
const WORD: usize = 4096;
/// Dimensions that are kept: more than any tensor has, so that a longer list differs.
const DIMENSIONS: usize = 4096;
/// Arrays that are kept, of all files together: more than all values that a GGUF may have find
/// room for, at the length from which on they are listed.
pub(super) const ARRAYS: usize = 1 << 16;

/// One entry of `sources`, `regions` or `tensors`, as it stands there.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) name_hex: Option<Vec<u8>>,
    pub(super) kind: Vec<u8>,
    pub(super) dtype: Vec<u8>,
    pub(super) source: Option<u64>,
    pub(super) shape: Vec<u64>,
    pub(super) offset: Option<u64>,
    pub(super) nbytes: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) format: Vec<u8>,
    pub(super) format_version: Option<u64>,
    pub(super) data_start: Option<u64>,
    pub(super) tensor_infos: Option<u64>,
    pub(super) mtime: Vec<u8>,
    /// Begin and end of arrays of the metadata.
    pub(super) arrays: Option<Vec<(u64, u64)>>,
    pub(super) crc32: Option<u32>,
    pub(super) sha256: Option<[u8; 32]>,
    pub(super) table: Option<Place>,
    /// What the table says; `None` where it is not base64 of whole sums.
    pub(super) folded: Option<Folded>,
}

impl Entry {
    /// The name, also when it is no UTF-8.
    pub(super) fn name(&self) -> &[u8] {
        self.name_hex.as_deref().unwrap_or(&self.name)
    }

    fn clear(&mut self) {
        self.name.clear();
        self.kind.clear();
        self.dtype.clear();
        self.shape.clear();
        self.mtime.clear();
        self.format.clear();
        (self.format_version, self.data_start, self.tensor_infos) = (None, None, None);
        (self.name_hex, self.source, self.offset, self.nbytes) = (None, None, None, None);
        self.arrays = None;
        (self.size, self.crc32, self.sha256) = (None, None, None);
        (self.table, self.folded) = (None, None);
    }

    /// Reads one object. Whether what is needed was there, and fits, is for the caller to
    /// say; what is there but has no meaning is returned in words. Strings are kept up to
    /// `limit` bytes. A table is folded by `shifts`.
    pub(super) fn read(
        &mut self,
        lexer: &mut Lexer<'_>,
        limit: usize,
        shifts: Option<&Shifts>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<&'static str>, LexError> {
        self.clear();
        let mut bad = None;
        lexer.object(|lexer, key| {
            match key {
                b"name" => lexer.string(&mut self.name, limit)?,
                b"name_hex" => {
                    lexer.string(scratch, limit)?;
                    self.name_hex = bytes_from_hex(scratch);
                    if self.name_hex.is_none() {
                        bad = Some("a \"name_hex\" that is no hexadecimal");
                    }
                }
                b"kind" => lexer.string(&mut self.kind, WORD)?,
                b"dtype" => lexer.string(&mut self.dtype, WORD)?,
                b"mtime" => lexer.string(&mut self.mtime, WORD)?,
                b"format" => lexer.string(&mut self.format, WORD)?,
                b"format_version" => self.format_version = Some(lexer.unsigned()?),
                b"data_start" => self.data_start = Some(lexer.unsigned()?),
                b"tensor_infos" => self.tensor_infos = Some(lexer.unsigned()?),
                b"source" => self.source = Some(lexer.unsigned()?),
                b"offset" => self.offset = Some(lexer.unsigned()?),
                b"nbytes" => self.nbytes = Some(lexer.unsigned()?),
                b"size" => self.size = Some(lexer.unsigned()?),
                b"shape" => {
                    self.shape.clear();
                    lexer.array(|lexer| {
                        let dim = lexer.unsigned()?;
                        if self.shape.len() < DIMENSIONS {
                            self.shape.push(dim);
                        }
                        Ok(())
                    })?;
                }
                b"arrays" => {
                    let mut arrays = Vec::new();
                    lexer.array(|lexer| {
                        let (mut pair, mut number) = ([0; 2], 0);
                        lexer.array(|lexer| {
                            let place = lexer.unsigned()?;
                            if let Some(slot) = pair.get_mut(number) {
                                *slot = place;
                            }
                            number += 1;
                            Ok(())
                        })?;
                        if number != 2 {
                            bad = Some("\"arrays\" that are not pairs");
                        }
                        match arrays.len() {
                            0..ARRAYS => arrays.push(pair.into()),
                            _ => bad = Some("more \"arrays\" than metadata can hold"),
                        }
                        Ok(())
                    })?;
                    self.arrays = Some(arrays);
                }
                b"crc32" => {
                    lexer.string(scratch, WORD)?;
                    self.crc32 = from_hex::<4>(scratch).map(u32::from_be_bytes);
                    if self.crc32.is_none() {
                        bad = Some("a \"crc32\" that is not 8 lower-case hexadecimal digits");
                    }
                }
                b"sha256" => {
                    lexer.string(scratch, WORD)?;
                    self.sha256 = from_hex::<32>(scratch);
                    if self.sha256.is_none() {
                        bad = Some("a \"sha256\" that is not 64 lower-case hexadecimal digits");
                    }
                }
                b"crcs" => {
                    let mut fold = Fold::new(shifts);
                    self.table = Some(lexer.base64(|part| fold.take(part))?);
                    self.folded = fold.finish();
                }
                _ => lexer.skip()?,
            }
            Ok(())
        })?;
        if let Some(bytes) = &self.name_hex
            && self.name != String::from_utf8_lossy(bytes).as_bytes()
        {
            bad = Some("a \"name\" that is not what its \"name_hex\" says");
        }
        Ok(bad)
    }

    /// Takes an entry that is written exactly as this program writes it, with `head` (see
    /// [`super::write::tensor_head`]) and a table of `table` characters; then it says of the
    /// layout what `head` says, and only the sums are kept here. False, with nothing taken,
    /// where it is not so: then [`Entry::read`] has to read it. Saves most of the time that a
    /// seal of very many tensors takes.
    pub(super) fn read_as_written(
        &mut self,
        lexer: &mut Lexer<'_>,
        head: &[u8],
        hashed: bool,
        table: u64,
        shifts: &Shifts,
    ) -> bool {
        let offset = lexer.offset();
        let fixed = head.len() + if hashed { SUMS.len() } else { SUM.len() };
        let Some((text, table)) = usize::try_from(table)
            .ok()
            .and_then(|table| lexer.at_hand(fixed + table + 2))
            .and_then(|text| text.strip_prefix(head))
            .map(|text| text.split_at(fixed - head.len()))
        else {
            return false;
        };
        let mut blanks = if hashed { SUMS } else { SUM }.iter().zip(text);
        if !blanks.all(|(blank, byte)| blank == byte || *blank == b'.') {
            return false;
        }
        let Some(table) = table.strip_suffix(b"\"}") else {
            return false;
        };
        let Some(crc32) = text.get(10..18).and_then(from_hex::<4>) else {
            return false;
        };
        let sha256 = text.get(30..94).filter(|_| hashed).and_then(from_hex::<32>);
        if hashed && sha256.is_none() {
            return false;
        }
        self.clear();
        let mut fold = Fold::new(Some(shifts));
        fold.take(table);
        self.folded = fold.finish();
        self.table = Some(Place { offset: offset + fixed as u64, len: table.len() as u64 });
        (self.crc32, self.sha256) = (Some(u32::from_be_bytes(crc32)), sha256);
        let len = fixed + table.len() + 2;
        lexer.take_at_hand(len);
        true
    }
}

/// What stands between layout and table; a dot is any digit.
const SUM: &[u8] = b",\"crc32\":\"........\",\"crcs\":\"";
/// The same with SHA-256.
const SUMS: &[u8] = b",\"crc32\":\"........\",\"sha256\":\"................................................................\",\"crcs\":\"";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::table_len;
    use super::*;

    const HEAD: &[u8] = b"{\"name\":\"a\",\"nbytes\":5000";

    fn text(hashed: bool) -> Vec<u8> {
        let sha = format!(",\"sha256\":\"{}\"", "0f".repeat(32));
        let sha = if hashed { &*sha } else { "" };
        let rest = format!(",\"crc32\":\"0000000a\"{sha},\"crcs\":\"AQAAAAIAAAA=\"}}");
        [HEAD, rest.as_bytes()].concat()
    }

    /// How much was taken and what it said.
    #[allow(clippy::ptr_arg, reason = "a vector can be read from, a slice cannot")]
    fn taken(text: &Vec<u8>, hashed: bool) -> (u64, Entry) {
        let mut lexer = Lexer::new(text);
        // The buffer is filled by a look.
        lexer.token("a value").unwrap();
        let (mut entry, shifts) = (Entry::default(), Shifts::new(4096));
        let good = entry.read_as_written(&mut lexer, HEAD, hashed, table_len(2), &shifts);
        assert_eq!(good, lexer.offset() > 0);
        (lexer.offset(), entry)
    }

    #[test]
    fn an_entry_as_written_says_what_reading_it_says() {
        for hashed in [false, true] {
            let text = text(hashed);
            let (end, entry) = taken(&text, hashed);
            assert_eq!(end, text.len() as u64);
            let (mut read, shifts) = (Entry::default(), Shifts::new(4096));
            read.read(&mut Lexer::new(&text), 99, Some(&shifts), &mut Vec::new()).unwrap();
            assert_eq!(entry.crc32, Some(10));
            assert_eq!((entry.crc32, entry.sha256), (read.crc32, read.sha256));
            assert_eq!((entry.table, entry.folded), (read.table, read.folded));
            assert_eq!(entry.sha256.is_some(), hashed);
            assert!(entry.folded.is_some());
        }
    }

    #[test]
    fn anything_else_is_left_to_be_read() {
        for hashed in [false, true] {
            let good = text(hashed);
            assert_eq!(taken(&good, !hashed).0, 0);
            let table = good.len() - 14..good.len() - 2;
            for at in (0..good.len()).filter(|at| !table.contains(at)) {
                let mut bad = good.clone();
                bad[at] = b'~';
                assert_eq!(taken(&bad, hashed).0, 0, "byte {at}");
            }
            for cut in 0..good.len() - 1 {
                let cut = good[..cut.max(1)].to_vec();
                assert_eq!(taken(&cut, hashed).0, 0);
            }
        }
    }

    #[test]
    fn a_table_that_is_none_is_no_sum() {
        let mut bad = text(true);
        let at = bad.len() - 9;
        bad[at] = b'"';
        assert_eq!(taken(&bad, true).1.folded, None);
    }
}
