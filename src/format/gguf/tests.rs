//! The behaviour matrix and the hostile inputs of a GGUF header, each with what it says.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::array::{ArrayReader, Item, Position};
use super::*;
use crate::dtype::DType;
use crate::model::{Array, Extent, Text, ValueType};

mod metadata;
mod tensors;

use metadata::every_value;

/// Writes the records of a GGUF file; what they say is up to the test.
#[derive(Clone)]
struct Writer {
    bytes: Vec<u8>,
    big: bool,
    wide: bool,
}

impl Writer {
    fn new(version: u32, big: bool, tensors: u64, keys: u64) -> Writer {
        let mut w = Writer { bytes: b"GGUF".to_vec(), big, wide: version != 1 };
        w.u32(version).size(tensors).size(keys);
        w
    }
    fn v3(tensors: u64, keys: u64) -> Writer {
        Writer::new(3, false, tensors, keys)
    }
    fn raw(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }
    fn u32(&mut self, n: u32) -> &mut Writer {
        let bytes = if self.big { n.to_be_bytes() } else { n.to_le_bytes() };
        self.raw(&bytes)
    }
    fn u64(&mut self, n: u64) -> &mut Writer {
        let bytes = if self.big { n.to_be_bytes() } else { n.to_le_bytes() };
        self.raw(&bytes)
    }
    fn size(&mut self, n: u64) -> &mut Writer {
        if self.wide { self.u64(n) } else { self.u32(n as u32) }
    }
    fn string(&mut self, s: &[u8]) -> &mut Writer {
        self.size(s.len() as u64).raw(s)
    }
    fn key(&mut self, key: &str, value_type: u32) -> &mut Writer {
        self.string(key.as_bytes()).u32(value_type)
    }
    fn info(&mut self, name: &[u8], ne: &[u64], dtype: u32, offset: u64) -> &mut Writer {
        self.string(name).u32(ne.len() as u32);
        ne.iter().for_each(|&n| {
            self.size(n);
        });
        self.u32(dtype).u64(offset)
    }
    fn pad(&mut self, alignment: usize) -> &mut Writer {
        let len = self.bytes.len().next_multiple_of(alignment);
        self.bytes.resize(len, 0);
        self
    }
    /// Pads, then appends `n` bytes of data: 0, 1, 2, ...
    fn data(&mut self, n: usize) -> Vec<u8> {
        self.pad(32);
        self.bytes.extend((0..n).map(|i| i as u8));
        self.bytes.clone()
    }
}

fn read(bytes: &[u8]) -> Result<GgufFile, String> {
    parse(&bytes.to_vec(), &Limits::default()).map_err(|e| e.to_string())
}

#[track_caller]
fn refused(bytes: &[u8], want: &str) {
    let found = read(bytes).expect_err("this file should be refused");
    assert_eq!(found, want);
}

/// The tensors as (name, shape, offset from the data's start, bytes).
fn list(file: &GgufFile) -> Vec<(String, Vec<u64>, u64, u64)> {
    let start = file.data_start;
    let row = |t: &Tensor| {
        let name = t.name.escape_ascii().to_string();
        (name, t.shape.to_vec(), t.extent.offset - start, t.extent.len)
    };
    file.tensors.iter().map(row).collect()
}

fn one(name: &[u8], ne: &[u64], dtype: u32) -> Writer {
    let mut w = Writer::v3(1, 0);
    w.info(name, ne, dtype, 0);
    w
}

#[test]
fn the_smallest_real_file_in_every_version_and_order() {
    for (version, big) in [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)] {
        let bytes = Writer::new(version, big, 1, 0).info(b"a", &[8], 0, 0).data(32);
        let file = read(&bytes).unwrap();
        assert_eq!(file.version, version);
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        assert_eq!(file.encoding, Encoding { order, wide: version > 1 });
        assert_eq!(list(&file), [("a".into(), vec![8], 0, 32)]);
        assert_eq!(file.tensors[0].dtype, DType::F32);
        assert_eq!(file.data_start, 64);
        assert_eq!(file.tensor_infos, if version == 1 { 16 } else { 24 });
        assert_eq!(file.warnings, [""; 0]);
    }
}

#[test]
fn versions_that_do_not_exist_are_refused() {
    let with = |version: [u8; 4]| [b"GGUF", &version[..], &[0; 16]].concat();
    let text = |v: &str| format!("{v} is not supported; versions 1, 2 and 3 are");
    refused(&with([0, 0, 0, 0]), &text("GGUF version 0"));
    refused(&with([4, 0, 0, 0]), &text("GGUF version 4"));
    refused(&with([0, 0, 0, 4]), &text("big-endian GGUF version 4"));
    refused(&with([0, 0, 1, 0]), &text("big-endian GGUF version 256"));
    refused(&with([255; 4]), &text("GGUF version 4294967295"));
    refused(b"GGML\x03\0\0\0", "not GGUF: begins with \"GGML\" instead of \"GGUF\"");
}

#[test]
fn a_file_without_tensors_may_end_with_the_metadata() {
    let file = read(&Writer::v3(0, 0).bytes).unwrap();
    assert_eq!((file.data_start, file.tensor_infos, file.warnings.len()), (24, 24, 0));
    // Padding that a writer put there is no surprise, more than that is.
    assert_eq!(read(Writer::v3(0, 0).pad(32).raw(b"")).unwrap().warnings.len(), 0);
    let file = read(Writer::v3(0, 0).pad(32).raw(b"xyz")).unwrap();
    assert_eq!(file.warnings, ["3 bytes after the last tensor"]);
    let mut w = Writer::v3(0, 1);
    w.key("general.alignment", 4).u32(1 << 31);
    let file = read(&w.bytes).unwrap();
    assert_eq!((file.alignment, file.data_start), (1 << 31, w.bytes.len() as u64));
}

/// `read` of a writer, without a copy of its name at each use.
impl std::ops::Deref for Writer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[test]
fn counts_are_compared_with_the_file_before_they_are_believed() {
    let mut bytes = Writer::v3(1, 0).info(b"a", &[8], 0, 0).data(32);
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(
        &bytes,
        "18446744073709551615 tensors (the count at byte 8) take at least \
         442721857769029238760 bytes, but the file ends after 72 more",
    );
    refused(
        &Writer::v3(0, 1 << 63),
        "9223372036854775808 metadata keys (the count at byte 16) take at least \
         129127208515966861312 bytes, but the file ends after 0 more",
    );
    refused(
        Writer::v3(3, 0).raw(&[0; 71]),
        "3 tensors (the count at byte 8) take at least 72 bytes, but the file ends after 71 more",
    );
    let limits = Limits { tensors: 2, ..Limits::default() };
    let e = parse(&Writer::v3(3, 0).raw(&[0; 72]).bytes, &limits).unwrap_err();
    assert_eq!(e.to_string(), "the GGUF header: not supported: tensors: 3 is over the limit of 2");
}

#[test]
fn the_end_of_the_file_is_an_error_at_every_byte() {
    let mut w = every_value();
    w.bytes[8] = 2;
    w.info(b"a", &[4, 3], 0, 0).info(b"b", &[32], 8, 64);
    let bytes = w.data(64 + 34);
    let whole = read(&bytes).unwrap();
    assert_eq!(whole.warnings, ["the padding after the last tensor is missing (30 bytes)"]);
    for cut in 0..bytes.len() {
        let e = read(&bytes[..cut]).expect_err(&format!("cut at byte {cut}"));
        assert!(!e.is_empty());
        if cut as u64 >= whole.data_start {
            let missing = bytes.len() - cut;
            assert!(e.starts_with("truncated: ") && e.contains(&format!("{missing} bytes")), "{e}");
        } else {
            assert!(!e.contains("truncated"), "{e}");
        }
    }
}

/// A file with an array of 2000 strings between other keys, and where that array lies.
fn with_vocabulary() -> (Vec<u8>, (u64, u64)) {
    let string = |text: String| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(3u64.to_le_bytes());
    bytes.extend(string("a".into()));
    bytes.extend([2u32.to_le_bytes(), [7, 0, 0, 0]].concat().split_at(6).0);
    bytes.extend(string("vocabulary".into()));
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(2000u64.to_le_bytes());
    let begin = bytes.len() as u64;
    for number in 0..2000 {
        bytes.extend(string(format!("token{number}")));
    }
    let end = bytes.len() as u64;
    bytes.extend(string("z".into()));
    bytes.extend([2u32.to_le_bytes(), [9, 0, 0, 0]].concat().split_at(6).0);
    bytes.extend(string("t".into()));
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(8u64.to_le_bytes());
    bytes.extend(24u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32) + 32, 0);
    (bytes, (begin, end))
}

/// Counts what is read of a file.
struct Counted<'a>(&'a Vec<u8>, std::sync::atomic::AtomicU64);

impl crate::bytes::ReadAt for Counted<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.1.fetch_add(out.len() as u64, std::sync::atomic::Ordering::Relaxed);
        self.0.read_at(offset, out)
    }
}

#[test]
fn a_known_array_is_not_walked() {
    let (bytes, array) = with_vocabulary();
    let whole = read(&bytes).unwrap();
    assert_eq!(whole.metadata.len(), 3);
    let known = Known { tensor_infos: whole.tensor_infos, arrays: vec![array] };
    let counted = Counted(&bytes, Default::default());
    let again = parse_known(&counted, &Limits::default(), &known).unwrap();
    assert_eq!(again, whole);
    let read = counted.1.into_inner();
    assert!(read < 10_000, "{read} bytes were read, the array has {}", array.1 - array.0);
}

/// Whatever somebody claims to know, the result is that of reading the file.
#[test]
fn what_is_known_wrongly_changes_nothing() {
    let (bytes, array) = with_vocabulary();
    let whole = read(&bytes).unwrap();
    let (begin, end) = array;
    let mut claims: Vec<(u64, u64)> = (0..bytes.len() as u64 + 9).map(|to| (begin, to)).collect();
    claims.extend([(begin - 1, end), (begin + 1, end), (begin, 0), (begin, u64::MAX), (0, end)]);
    for claim in claims {
        for tensor_infos in [whole.tensor_infos, 0, u64::MAX] {
            let known = Known { tensor_infos, arrays: vec![claim] };
            let again = parse_known(&bytes, &Limits::default(), &known).unwrap();
            assert_eq!(again, whole, "{claim:?}");
        }
    }
    // A list that is not in order, or has an array twice, is of no use and does no harm.
    let known = Known {
        tensor_infos: whole.tensor_infos,
        arrays: vec![(u64::MAX, 0), array, (begin, 1), (0, 0), array],
    };
    assert_eq!(parse_known(&bytes, &Limits::default(), &known).unwrap(), whole);
}
