//! Tensor infos and where data may lie.

use super::*;

#[test]
fn shapes_are_turned_round_and_scalars_have_one_element() {
    let file = read(&one(b"a", &[5, 3], 0).data(64)).unwrap();
    assert_eq!(list(&file), [("a".into(), vec![3, 5], 0, 60)]);
    let file = read(&one(b"s", &[], 1).data(32)).unwrap();
    assert_eq!(list(&file), [("s".into(), vec![], 0, 2)]);
    for (ne, dtype) in [(&[0u64][..], 0), (&[8, 0], 0), (&[0, 2], 2), (&[1 << 62, 0, 1 << 62], 0)] {
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
        (&[4, (1 << 30) - 1, (1 << 30) + 1], "[1073741825, 1073741823, 4]"),
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
        (99, unknown.into()),
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
    assert_eq!(list(&read(&one(b"a", &[64, 2], 42).pad(32).data(64)).unwrap())[0].3, 36);
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
    w.info(b"x", &[8], 0, 0).info(b"y", &[8], 0, 32).info(b"x", &[8], 0, 64);
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
    assert_eq!(file.warnings, ["gaps between tensors: 1, 64 bytes in all, the first before \"b\""]);
    let file = read(&two(32, 96).data(128)).unwrap();
    assert_eq!(file.warnings, ["gaps between tensors: 1, 32 bytes in all, the first before \"a\""]);
    let file = read(&two(32, 0).data(96)).unwrap();
    let back = "tensors whose data lies before that of the tensor declared before: 1, \
                the first is \"b\"";
    assert_eq!(file.warnings, [back,][..1].to_vec());
    assert_eq!(file.tensors.iter().map(|t| &*t.name).collect::<Vec<_>>(), [b"b", b"a"]);
    let file = read(&two(0, 64).data(100)).unwrap();
    assert_eq!(file.warnings, ["4 bytes after the last tensor"]);
    let file = read(&one(b"a", &[5], 0).data(20)).unwrap();
    assert_eq!(file.warnings, ["the padding after the last tensor is missing (12 bytes)"]);
}

#[test]
fn places_that_cannot_be_are_refused() {
    let two = |first: u64, second: u64| {
        let mut w = Writer::v3(2, 0);
        w.info(b"a", &[16], 0, first).info(b"b", &[8], 0, second);
        w
    };
    refused(&two(0, 65).data(128), "tensor \"b\": offset 65 is not a multiple of the alignment 32");
    refused(&two(0, 32).data(128), "tensors \"a\" and \"b\" overlap: bytes 0..64 and 32..64");
    refused(&two(32, 32).data(128), "tensors \"a\" and \"b\" overlap: bytes 32..96 and 32..64");
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
    refused(&w, "the data section starts at byte 96 (alignment 32), but the file ends at byte 90");
    refused(
        w.raw(&[0]),
        "the data section starts at byte 96 (alignment 32), but the file ends at byte 91",
    );
}

#[test]
fn tensors_without_bytes_share_a_place() {
    let mut w = Writer::v3(4, 0);
    w.info(b"z1", &[0], 0, 0).info(b"a", &[8], 0, 0).info(b"z2", &[0], 0, 32);
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
