//! The behaviour matrix and the hostile inputs of a GGUF header, each with what it says.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use super::array::{ArrayReader, Item, Position};
use super::*;
use crate::dtype::DType;
use crate::model::{Array, Extent, Text, ValueType};

/// Writes the records of a GGUF file; what they say is up to the test.
#[derive(Clone)]
struct Writer {
    bytes: Vec<u8>,
    big: bool,
    wide: bool,
}

impl Writer {
    fn new(version: u32, big: bool, tensors: u64, keys: u64) -> Writer {
        let mut w = Writer {
            bytes: b"GGUF".to_vec(),
            big,
            wide: version != 1,
        };
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
        let bytes = if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        };
        self.raw(&bytes)
    }
    fn u64(&mut self, n: u64) -> &mut Writer {
        let bytes = if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        };
        self.raw(&bytes)
    }
    fn size(&mut self, n: u64) -> &mut Writer {
        if self.wide {
            self.u64(n)
        } else {
            self.u32(n as u32)
        }
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
        (
            name,
            t.shape.to_vec(),
            t.extent.offset - start,
            t.extent.len,
        )
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
    for (version, big) in [
        (1, false),
        (1, true),
        (2, false),
        (2, true),
        (3, false),
        (3, true),
    ] {
        let bytes = Writer::new(version, big, 1, 0)
            .info(b"a", &[8], 0, 0)
            .data(32);
        let file = read(&bytes).unwrap();
        assert_eq!(file.version, version);
        let order = if big {
            ByteOrder::Big
        } else {
            ByteOrder::Little
        };
        assert_eq!(
            file.encoding,
            Encoding {
                order,
                wide: version > 1
            }
        );
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
    refused(
        b"GGML\x03\0\0\0",
        "not GGUF: begins with \"GGML\" instead of \"GGUF\"",
    );
}

#[test]
fn a_file_without_tensors_may_end_with_the_metadata() {
    let file = read(&Writer::v3(0, 0).bytes).unwrap();
    assert_eq!(
        (file.data_start, file.tensor_infos, file.warnings.len()),
        (24, 24, 0)
    );
    // Padding that a writer put there is no surprise, more than that is.
    assert_eq!(
        read(Writer::v3(0, 0).pad(32).raw(b""))
            .unwrap()
            .warnings
            .len(),
        0
    );
    let file = read(Writer::v3(0, 0).pad(32).raw(b"xyz")).unwrap();
    assert_eq!(file.warnings, ["3 bytes after the last tensor"]);
    let mut w = Writer::v3(0, 1);
    w.key("general.alignment", 4).u32(1 << 31);
    let file = read(&w.bytes).unwrap();
    assert_eq!(
        (file.alignment, file.data_start),
        (1 << 31, w.bytes.len() as u64)
    );
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
    let limits = Limits {
        tensors: 2,
        ..Limits::default()
    };
    let e = parse(&Writer::v3(3, 0).raw(&[0; 72]).bytes, &limits).unwrap_err();
    assert_eq!(
        e.to_string(),
        "the GGUF header: not supported: tensors: 3 is over the limit of 2"
    );
}

fn every_value() -> Writer {
    let mut w = Writer::v3(0, 14);
    w.key("u8", 0).raw(&[200]);
    w.key("i8", 1).raw(&[0xff]);
    w.key("u16", 2).raw(&[1, 2]);
    w.key("i16", 3).raw(&[0, 0x80]);
    w.key("u32", 4).u32(7);
    w.key("i32", 5).u32(u32::MAX);
    w.key("f32", 6).u32(f32::NEG_INFINITY.to_bits());
    w.key("false", 7).raw(&[0]);
    w.key("two", 7).raw(&[2]);
    w.key("str", 8).string(b"\xffx\0");
    w.key("arr", 9).u32(2).u64(2).raw(&[1, 0, 2, 0]);
    w.key("u64", 10).u64(u64::MAX);
    w.key("i64", 11).u64(1 << 63);
    w.key("f64", 12).u64(1.5f64.to_bits());
    w
}

#[test]
fn every_type_of_value_is_read() {
    let w = every_value();
    let file = read(&w).unwrap();
    let get = |key| file.meta(key).unwrap().clone();
    assert_eq!(get("u8"), Value::U8(200));
    assert_eq!(get("i8"), Value::I8(-1));
    assert_eq!(get("u16"), Value::U16(0x0201));
    assert_eq!(get("i16"), Value::I16(i16::MIN));
    assert_eq!(get("u32"), Value::U32(7));
    assert_eq!(get("i32"), Value::I32(-1));
    assert_eq!(get("f32"), Value::F32(f32::NEG_INFINITY));
    assert_eq!(get("false"), Value::Bool(false));
    assert_eq!(get("two"), Value::Bool(true));
    let Value::Str(Text::Span(e)) = get("str") else {
        panic!()
    };
    assert_eq!(&w[e.offset as usize..][..e.len as usize], b"\xffx\0");
    let Value::Array(Array::Span {
        elem,
        count,
        extent,
        encoding,
    }) = get("arr")
    else {
        panic!()
    };
    assert_eq!((elem, count, encoding), (ValueType::U16, 2, file.encoding));
    assert_eq!(
        &w[extent.offset as usize..][..extent.len as usize],
        [1, 0, 2, 0]
    );
    assert_eq!(get("u64"), Value::U64(u64::MAX));
    assert_eq!(get("i64"), Value::I64(i64::MIN));
    assert_eq!(get("f64"), Value::F64(1.5));
    let keys: Vec<_> = file
        .metadata
        .iter()
        .map(|m| m.key.escape_ascii().to_string())
        .collect();
    assert_eq!(keys[..3], ["u8", "i8", "u16"]);
}

#[test]
fn the_end_of_the_file_is_an_error_at_every_byte() {
    let mut w = every_value();
    w.bytes[8] = 2;
    w.info(b"a", &[4, 3], 0, 0).info(b"b", &[32], 8, 64);
    let bytes = w.data(64 + 34);
    let whole = read(&bytes).unwrap();
    assert_eq!(
        whole.warnings,
        ["the padding after the last tensor is missing (30 bytes)"]
    );
    for cut in 0..bytes.len() {
        let e = read(&bytes[..cut]).expect_err(&format!("cut at byte {cut}"));
        assert!(!e.is_empty());
        if cut as u64 >= whole.data_start {
            let missing = bytes.len() - cut;
            assert!(
                e.starts_with("truncated: ") && e.contains(&format!("{missing} bytes")),
                "{e}"
            );
        } else {
            assert!(!e.contains("truncated"), "{e}");
        }
    }
}

#[test]
fn keys_are_bytes_but_not_empty_and_not_twice() {
    let mut w = Writer::v3(0, 4);
    for key in [&b"a"[..], b"a\0b", b"\xff\n/", &[b'k'; 65_535]] {
        w.string(key).u32(7).raw(&[1]);
    }
    assert_eq!(read(&w).unwrap().metadata.len(), 4);

    refused(
        Writer::v3(0, 1).key("", 7).raw(&[1, 1]),
        "metadata key 0 at byte 24 is empty",
    );
    let mut w = Writer::v3(0, 3);
    w.key("a", 7)
        .raw(&[1])
        .key("b", 7)
        .raw(&[1])
        .key("a", 0)
        .raw(&[1]);
    refused(&w, "metadata key \"a\" occurs twice (numbers 0 and 2)");
    refused(
        Writer::v3(0, 1).string(&[b'k'; 65_536]).u32(7).raw(&[1]),
        "metadata key 0: not supported: length of the key: 65536 is over the limit of 65535",
    );
    for (len, left) in [(1u64 << 63, 10), (u64::MAX, 10), (11, 10)] {
        let want = format!(
            "metadata key 0 needs {len} bytes at byte 32, but the file ends after {left} more"
        );
        refused(Writer::v3(0, 1).u64(len).raw(&[0; 10]), &want);
    }
}

#[test]
fn value_types_and_lengths_that_cannot_be_are_refused() {
    refused(
        Writer::v3(0, 1).key("k", 13).raw(&[0; 8]),
        "metadata key \"k\": value type 13 at byte 33 is unknown (0 to 12 are known)",
    );
    refused(
        Writer::v3(0, 1).key("k", 9).u32(13).u64(0),
        "metadata key \"k\": array element type 13 at byte 37 is unknown (0 to 12 are known)",
    );
    refused(
        Writer::v3(0, 1).key("k", 8).u64(1 << 63).raw(&[0; 3]),
        "the value of metadata key \"k\" needs 9223372036854775808 bytes at byte 45, \
         but the file ends after 3 more",
    );
    for (elem, name, count, need) in [
        (4u32, "u32", 1u64 << 63, 1u128 << 65),
        (10, "u64", 1 << 61, 1 << 64),
        (0, "u8", (1 << 30) + 1, (1 << 30) + 1),
        (8, "str", 1 << 61, 1 << 64),
        (9, "arr", u64::MAX, 12 * ((1 << 64) - 1)),
        (8, "str", 2, 16),
    ] {
        let want = format!(
            "{count} {name} elements of metadata key \"k\" (the count at byte 41) take at least \
             {need} bytes, but the file ends after 15 more"
        );
        refused(
            Writer::v3(0, 1)
                .key("k", 9)
                .u32(elem)
                .u64(count)
                .raw(&[0; 15]),
            &want,
        );
    }
    // The first string claims what the others need.
    refused(
        Writer::v3(0, 1)
            .key("k", 9)
            .u32(8)
            .u64(3)
            .u64(20)
            .raw(&[0; 16]),
        "the value of metadata key \"k\" needs 20 bytes at byte 57, \
         but the file ends after 16 more",
    );
}

#[test]
fn empty_arrays_of_every_type_are_fine() {
    for elem in 0..=12 {
        let file = read(Writer::v3(0, 1).key("k", 9).u32(elem).u64(0)).unwrap();
        let Value::Array(Array::Span {
            elem: e,
            count,
            extent,
            ..
        }) = file.metadata[0].value
        else {
            panic!()
        };
        assert_eq!(
            (e as u32, count, extent),
            (
                elem,
                0,
                Extent {
                    shard: 0,
                    offset: 49,
                    len: 0
                }
            )
        );
    }
}

#[test]
fn arrays_nest_up_to_the_limit() {
    let nested = |depth: usize| {
        let mut w = Writer::v3(0, 1);
        w.key("k", 9);
        for _ in 1..depth {
            w.u32(9).u64(1);
        }
        w.u32(0).u64(1).raw(&[5]);
        w
    };
    for depth in 1..=4 {
        let file = read(&nested(depth)).unwrap();
        let Value::Array(Array::Span {
            elem,
            count: 1,
            extent,
            ..
        }) = file.metadata[0].value
        else {
            panic!()
        };
        assert_eq!(elem == ValueType::Array, depth > 1);
        assert_eq!(extent.len, (depth as u64 - 1) * 12 + 1);
    }
    let want = "metadata key \"k\": arrays nested more than 4 deep are not supported (byte 85)";
    for depth in [5, 100, 1_000_000] {
        refused(&nested(depth), want);
    }
}

#[test]
fn alignment_is_a_u32_and_a_power_of_two() {
    for alignment in [1u32, 4, 8, 64, 4096] {
        let mut w = Writer::v3(1, 1);
        w.key("general.alignment", 4)
            .u32(alignment)
            .info(b"a", &[2], 0, 0);
        w.pad(alignment as usize);
        let file = read(w.raw(&[0; 8]).pad(alignment as usize)).unwrap();
        assert_eq!(file.alignment, u64::from(alignment));
        assert!(file.data_start.is_multiple_of(file.alignment) && file.warnings.is_empty());
    }
    let text = "metadata key \"general.alignment\" must be a u32 that is a power of two, found ";
    let wrong = |id, bytes: &[u8], found: &str| {
        let mut w = Writer::v3(0, 1);
        refused(
            w.key("general.alignment", id).raw(bytes),
            &format!("{text}{found}"),
        );
    };
    wrong(4, &0u32.to_le_bytes(), "0");
    wrong(4, &3u32.to_le_bytes(), "3");
    wrong(10, &32u64.to_le_bytes(), "u64 32");
    wrong(5, &32u32.to_le_bytes(), "i32 32");
    wrong(9, &[4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0], "arr");
    let mut w = Writer::v3(1, 1);
    w.key("general.alignment", 4)
        .u32(1 << 31)
        .info(b"a", &[1], 0, 0);
    refused(
        &w.data(4),
        "the data section starts at byte 2147483648 (alignment 2147483648), \
         but the file ends at byte 100",
    );
}

#[test]
fn shapes_are_turned_round_and_scalars_have_one_element() {
    let file = read(&one(b"a", &[5, 3], 0).data(64)).unwrap();
    assert_eq!(list(&file), [("a".into(), vec![3, 5], 0, 60)]);
    let file = read(&one(b"s", &[], 1).data(32)).unwrap();
    assert_eq!(list(&file), [("s".into(), vec![], 0, 2)]);
    for (ne, dtype) in [
        (&[0u64][..], 0),
        (&[8, 0], 0),
        (&[0, 2], 2),
        (&[1 << 62, 0, 1 << 62], 0),
    ] {
        let file = read(&one(b"z", ne, dtype).data(0)).unwrap();
        let shape: Vec<u64> = ne.iter().rev().copied().collect();
        assert_eq!(list(&file), [("z".into(), shape, 0, 0)]);
    }
}

#[test]
fn five_to_eight_dimensions_come_with_a_warning() {
    let file = read(&one(b"v", &[2, 2, 1, 3, 4], 1).data(96)).unwrap();
    assert_eq!(list(&file), [("v".into(), vec![4, 3, 1, 2, 2], 0, 96)]);
    let want = "tensors with more than 4 dimensions: 1, the first is \"v\" [4, 3, 1, 2, 2]";
    assert_eq!(file.warnings, [want]);
    assert!(read(&one(b"v", &[1; 8], 0).pad(32).data(32)).is_ok());
    for n in [9, u32::MAX] {
        let mut w = Writer::v3(1, 0);
        w.string(b"v").u32(n).raw(&[0; 200]);
        let want =
            format!("tensor \"v\": {n} dimensions (at byte 33) are not supported; at most 8 are");
        refused(&w, &want);
    }
}

#[test]
fn sizes_that_no_file_has_are_refused_without_wrapping() {
    for bad in [u64::MAX, 1 << 63] {
        let want = format!("tensor \"a\": dimension {bad} at byte 37 is over 2^63 - 1");
        refused(&one(b"a", &[bad], 0).data(32), &want);
    }
    for (ne, shape) in [
        (&[1u64 << 32, 1 << 32][..], "[4294967296, 4294967296]"),
        (&[1 << 21, 1 << 21, 1 << 22], "[4194304, 2097152, 2097152]"),
        (&[1 << 32, 1 << 31], "[2147483648, 4294967296]"),
        (
            &[4, (1 << 30) - 1, (1 << 30) + 1],
            "[1073741825, 1073741823, 4]",
        ),
    ] {
        let want = format!("tensor \"a\": F32 {shape} has more bytes than a file can");
        refused(&one(b"a", ne, 0).data(32), &want);
    }
    refused(
        &one(b"a", &[1 << 40], 0).data(32),
        "truncated: the tensors end at byte 4398046511168, the file at byte 96, \
         so 4398046511072 bytes are missing, from tensor \"a\" on",
    );
}

#[test]
fn types_without_a_size_are_named() {
    let unknown = "unknown, and with it the size of the tensor; it is not supported";
    let removed = "which was removed from ggml; it is not supported";
    for (id, why) in [
        (4, format!("Q4_2, {removed}")),
        (31, format!("Q4_0_4_4, {removed}")),
        (38, format!("IQ4_NL_8_8, {removed}")),
        (43, unknown.into()),
        (133, unknown.into()),
        (u32::MAX, unknown.into()),
    ] {
        let want = format!("tensor \"a\": element type {id} (at byte 45) is {why}");
        refused(&one(b"a", &[32], id).data(32), &want);
    }
}

#[test]
fn rows_hold_whole_blocks() {
    for (id, ne, row, text) in [
        (2, &[16u64, 2][..], 16, "Q4_0 blocks of 32"),
        (2, &[], 1, "Q4_0 blocks of 32"),
        (12, &[128, 2], 128, "Q4_K blocks of 256"),
    ] {
        let want = format!("tensor \"a\": rows of {row} elements do not fill whole {text}");
        refused(&one(b"a", ne, id).data(256), &want);
    }
    assert_eq!(
        list(&read(&one(b"a", &[64, 2], 42).pad(32).data(64)).unwrap())[0].3,
        36
    );
}

#[test]
fn names_are_bytes_and_unique() {
    let long = vec![b'n'; 300];
    let names: [&[u8]; 9] = [
        b"",
        b"..",
        b"../../etc/x",
        b"a\0b",
        b"a",
        b"\xff\xfe",
        b"A",
        &long,
        "e\u{301}".as_bytes(),
    ];
    let mut w = Writer::v3(9, 0);
    for (i, name) in names.iter().enumerate() {
        w.info(name, &[8], 0, i as u64 * 32);
    }
    let file = read(&w.data(9 * 32)).unwrap();
    assert!(file.tensors.iter().map(|t| &*t.name).eq(names));

    let mut w = Writer::v3(3, 0);
    w.info(b"x", &[8], 0, 0)
        .info(b"y", &[8], 0, 32)
        .info(b"x", &[8], 0, 64);
    refused(&w.data(96), "tensor \"x\" occurs twice (numbers 0 and 2)");
    let want = "the name of tensor 0 needs 9223372036854775808 bytes at byte 32, \
                but the file ends after 20 more";
    refused(Writer::v3(1, 0).u64(1 << 63).raw(&[0; 20]), want);
    let want = "the name of tensor 0: not supported: length of the name: 65536 is over the limit \
                of 65535";
    refused(&one(&[b'n'; 65_536], &[8], 0).data(32), want);
}

#[test]
fn unusual_places_are_served_with_a_warning() {
    let two = |first: u64, second: u64| {
        let mut w = Writer::v3(2, 0);
        w.info(b"a", &[10], 0, first).info(b"b", &[8], 0, second);
        w
    };
    // Packed: a has 40 bytes, so b follows at 64.
    assert_eq!(read(&two(0, 64).data(96)).unwrap().warnings, [""; 0]);
    let file = read(&two(0, 128).data(160)).unwrap();
    assert_eq!(
        file.warnings,
        ["gaps between tensors: 1, 64 bytes in all, the first before \"b\""]
    );
    let file = read(&two(32, 96).data(128)).unwrap();
    assert_eq!(
        file.warnings,
        ["gaps between tensors: 1, 32 bytes in all, the first before \"a\""]
    );
    let file = read(&two(32, 0).data(96)).unwrap();
    let back = "tensors whose data lies before that of the tensor declared before: 1, \
                the first is \"b\"";
    assert_eq!(file.warnings, [back,][..1].to_vec());
    assert_eq!(
        file.tensors.iter().map(|t| &*t.name).collect::<Vec<_>>(),
        [b"b", b"a"]
    );
    let file = read(&two(0, 64).data(100)).unwrap();
    assert_eq!(file.warnings, ["4 bytes after the last tensor"]);
    let file = read(&one(b"a", &[5], 0).data(20)).unwrap();
    assert_eq!(
        file.warnings,
        ["the padding after the last tensor is missing (12 bytes)"]
    );
}

#[test]
fn places_that_cannot_be_are_refused() {
    let two = |first: u64, second: u64| {
        let mut w = Writer::v3(2, 0);
        w.info(b"a", &[16], 0, first).info(b"b", &[8], 0, second);
        w
    };
    refused(
        &two(0, 65).data(128),
        "tensor \"b\": offset 65 is not a multiple of the alignment 32",
    );
    refused(
        &two(0, 32).data(128),
        "tensors \"a\" and \"b\" overlap: bytes 0..64 and 32..64",
    );
    refused(
        &two(32, 32).data(128),
        "tensors \"a\" and \"b\" overlap: bytes 32..96 and 32..64",
    );
    refused(
        &two(0, 1 << 63).data(128),
        "tensor \"b\": bytes 9223372036854775904..9223372036854775936 lie past the end of the \
         file at byte 224",
    );
    refused(
        &two(0, u64::MAX - 31).data(128),
        "tensor \"b\": bytes 18446744073709551680..18446744073709551712 lie past the end of the \
         file at byte 224",
    );
    refused(
        &two(0, 64).data(70),
        "truncated: the tensors end at byte 192, the file at byte 166, so 26 bytes are missing, \
         from tensor \"b\" on",
    );
    let mut w = two(0, 64);
    refused(
        &w,
        "the data section starts at byte 96 (alignment 32), but the file ends at byte 90",
    );
    refused(
        w.raw(&[0]),
        "the data section starts at byte 96 (alignment 32), but the file ends at byte 91",
    );
}

#[test]
fn tensors_without_bytes_share_a_place() {
    let mut w = Writer::v3(4, 0);
    w.info(b"z1", &[0], 0, 0)
        .info(b"a", &[8], 0, 0)
        .info(b"z2", &[0], 0, 32);
    w.info(b"z3", &[4, 0], 0, 32);
    let file = read(&w.data(32)).unwrap();
    let places: Vec<_> = list(&file).into_iter().map(|t| (t.0, t.2, t.3)).collect();
    let want = [("z1", 0, 0), ("a", 0, 32), ("z2", 32, 0), ("z3", 32, 0)];
    assert_eq!(places, want.map(|(n, o, l)| (n.to_string(), o, l)));
    assert_eq!(file.warnings, [""; 0]);
    // Behind last padding that is not there: the place is the end of the file.
    let mut w = Writer::v3(2, 0);
    let file = read(&w.info(b"a", &[5], 0, 0).info(b"z", &[0], 0, 32).data(20)).unwrap();
    let end = file.tensors[1].extent;
    assert_eq!((end.offset, end.len), (file.data_start + 20, 0));
    let mut w = Writer::v3(2, 0);
    refused(
        &w.info(b"a", &[5], 0, 0).info(b"z", &[0], 0, 64).data(20),
        "tensor \"z\": bytes 160..160 lie past the end of the file at byte 116",
    );
}

#[test]
fn version_1_counts_a_nul_in_its_strings_which_is_dropped() {
    let mut w = Writer::new(1, false, 1, 3);
    w.key("general.name\0", 8).string(b"tiny\0");
    w.key("e", 8).string(b"");
    w.key("k\0", 9).u32(8).size(2).string(b"ab\0").string(b"cd");
    let bytes = w.info(b"t\0", &[2], 0, 0).data(32);
    let file = read(&bytes).unwrap();
    let Some(Value::Str(Text::Span(e))) = file.meta("general.name") else {
        panic!()
    };
    assert_eq!(&bytes[e.offset as usize..][..e.len as usize], b"tiny");
    assert!(matches!(
        file.meta("e"),
        Some(Value::Str(Text::Span(Extent { len: 0, .. })))
    ));
    assert_eq!(&*file.tensors[0].name, b"t");
    let Some(Value::Array(array)) = file.meta("k") else {
        panic!()
    };
    assert_eq!(strings(&bytes, array), ["ab", "cd"]);
    refused(
        Writer::new(1, false, 0, 1).key("\0", 7).raw(&[1]),
        "metadata key 0 at byte 16 is empty",
    );
}

fn reader<'a>(bytes: &'a Vec<u8>, array: &Array) -> ArrayReader<'a> {
    let &Array::Span {
        elem,
        count,
        extent,
        encoding,
    } = array
    else {
        panic!()
    };
    ArrayReader::new(bytes, elem, count, extent, encoding)
}

fn strings(bytes: &Vec<u8>, array: &Array) -> Vec<String> {
    let mut reader = reader(bytes, array);
    let mut all = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let Item::Str(s) = item else { panic!() };
        all.push(s.escape_ascii().to_string());
    }
    all
}

#[test]
fn arrays_are_read_one_by_one_from_any_place_on() {
    for big in [false, true] {
        let mut w = Writer::new(3, big, 0, 2);
        w.key("tokens", 9).u32(8).u64(5000);
        let tokens: Vec<String> = (0..5000)
            .map(|i| format!("t{}", "x".repeat(i % 37)))
            .collect();
        tokens.iter().for_each(|t| {
            w.string(t.as_bytes());
        });
        w.key("ids", 9).u32(4).u64(1000);
        (0..1000).for_each(|i| {
            w.u32(i * i);
        });
        let file = read(&w).unwrap();
        let [Value::Array(t), Value::Array(ids)] =
            [file.meta("tokens").unwrap(), file.meta("ids").unwrap()]
        else {
            panic!()
        };
        assert_eq!(strings(&w.bytes, t), tokens);

        let mut first = reader(&w.bytes, t);
        assert_eq!(first.element_size(), None);
        for _ in 0..4321 {
            first.next().unwrap();
        }
        let at = first.position();
        assert_eq!(at.index, 4321);
        let mut second = reader(&w.bytes, t).resume(at);
        assert_eq!(
            second.next().unwrap(),
            Some(Item::Str(tokens[4321].as_bytes()))
        );
        assert_eq!(
            first.next().unwrap(),
            Some(Item::Str(tokens[4321].as_bytes()))
        );

        let Array::Span { extent, .. } = ids else {
            panic!()
        };
        let ids = reader(&w.bytes, ids);
        assert_eq!(ids.element_size(), Some(4));
        let mut ids = ids.resume(Position {
            index: 998,
            offset: extent.offset + 998 * 4,
        });
        assert_eq!(
            ids.next().unwrap(),
            Some(Item::Value(Value::U32(998 * 998)))
        );
        assert_eq!(
            ids.next().unwrap(),
            Some(Item::Value(Value::U32(999 * 999)))
        );
        assert_eq!(ids.next().unwrap(), None);
        assert_eq!(ids.next().unwrap(), None);
    }
}

#[test]
fn inner_arrays_are_given_as_arrays() {
    let mut w = Writer::v3(0, 1);
    w.key("k", 9).u32(9).u64(2);
    w.u32(8).u64(2).string(b"a").string(b"bc");
    w.u32(7).u64(3).raw(&[0, 1, 2]);
    let mut file = read(&w).unwrap();
    file.set_shard(7);
    let Value::Array(outer) = &file.metadata[0].value else {
        panic!()
    };
    let mut outer = reader(&w.bytes, outer);
    let Some(Item::Array(inner)) = outer.next().unwrap() else {
        panic!()
    };
    assert!(matches!(
        inner,
        Array::Span {
            extent: Extent { shard: 7, .. },
            ..
        }
    ));
    assert_eq!(strings(&w.bytes, &inner), ["a", "bc"]);
    let Some(Item::Array(inner)) = outer.next().unwrap() else {
        panic!()
    };
    let mut bools = reader(&w.bytes, &inner);
    for want in [false, true, true] {
        assert_eq!(bools.next().unwrap(), Some(Item::Value(Value::Bool(want))));
    }
    assert_eq!(outer.next().unwrap(), None);
}

#[test]
fn an_array_that_is_not_what_it_was_is_an_error() {
    let bytes = [&1000u64.to_le_bytes()[..], b"abc"].concat();
    let extent = Extent {
        shard: 0,
        offset: 0,
        len: 11,
    };
    let encoding = Encoding {
        order: ByteOrder::Little,
        wide: true,
    };
    let mut reader = ArrayReader::new(&bytes, ValueType::Str, 1, extent, encoding);
    let e = reader.next().unwrap_err().to_string();
    assert_eq!(
        e,
        "array element 0 needs 1000 bytes at byte 8, but the file ends after 3 more"
    );
}

#[test]
fn known_metadata_is_not_walked_again() {
    let mut w = every_value();
    w.bytes[8] = 1;
    let bytes = w.info(b"a", &[8], 0, 0).data(32);
    let file = read(&bytes).unwrap();
    let again = parse_known(
        &bytes,
        &Limits::default(),
        file.metadata.clone(),
        file.tensor_infos,
    )
    .unwrap();
    assert_eq!(again.tensors, file.tensors);
    assert_eq!(again.data_start, file.data_start);
    assert!(parse_known(&bytes, &Limits::default(), vec![], u64::MAX).is_err());
}

#[test]
fn limits_hold_for_what_counts_cannot_bound() {
    let tokens = |n: u64| {
        let mut w = Writer::v3(0, 1);
        w.key("k", 9).u32(8).u64(n).raw(&vec![0; n as usize * 8]);
        w
    };
    let limits = Limits {
        elements: 99,
        ..Limits::default()
    };
    let e = parse(&tokens(100).bytes, &limits).unwrap_err().to_string();
    let want =
        "metadata key \"k\": not supported: strings and inner arrays: 100 is over the limit of 99";
    assert_eq!(e, want);
    assert!(parse(&tokens(99).bytes, &limits).is_ok());
    let limits = Limits {
        reserved_bytes: 200,
        ..Limits::default()
    };
    assert!(parse(&every_value().bytes, &limits).is_err());
    let limits = Limits {
        string_bytes: 3,
        ..Limits::default()
    };
    let mut w = Writer::v3(0, 1);
    let e = parse(&w.key("k", 9).u32(8).u64(1).string(b"four").bytes, &limits).unwrap_err();
    assert!(
        e.to_string()
            .ends_with("length of a string in an array: 4 is over the limit of 3")
    );
}
