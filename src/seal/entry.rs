//! One object of the lists in a seal.

use super::fold::{Fold, Folded, Shifts};
use super::hex::{bytes_from_hex, from_hex};
use super::lexer::{LexError, Lexer, Place};

/// Longest word that is kept, bytes.
const WORD: usize = 4096;
/// Dimensions that are kept: more than any tensor has, so that a longer list differs.
const DIMENSIONS: usize = 4096;
/// Keys that may stand there with `null` instead of a value.
const OPTIONAL: [&[u8]; 6] =
    [b"arrays", b"data_start", b"format_version", b"mtime", b"sha256", b"tensor_infos"];
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
    /// Paddings that are zeros and not listed one by one.
    pub(super) zeros: Option<u64>,
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
        self.zeros = None;
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
            if OPTIONAL.contains(&key) && lexer.null()? {
                return Ok(());
            }
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
                b"zeros" => self.zeros = Some(lexer.unsigned()?),
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
}
