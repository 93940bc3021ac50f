//! Keys and values, and the elements of arrays.

use super::*;

pub(super) fn every_value() -> Writer {
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
    let Value::Str(Text::Span(e)) = get("str") else { panic!() };
    assert_eq!(&w[e.offset as usize..][..e.len as usize], b"\xffx\0");
    let Value::Array(Array::Span { elem, count, extent, encoding }) = get("arr") else { panic!() };
    assert_eq!((elem, count, encoding), (ValueType::U16, 2, file.encoding));
    assert_eq!(&w[extent.offset as usize..][..extent.len as usize], [1, 0, 2, 0]);
    assert_eq!(get("u64"), Value::U64(u64::MAX));
    assert_eq!(get("i64"), Value::I64(i64::MIN));
    assert_eq!(get("f64"), Value::F64(1.5));
    let keys: Vec<_> = file.metadata.iter().map(|m| m.key.escape_ascii().to_string()).collect();
    assert_eq!(keys[..3], ["u8", "i8", "u16"]);
}

#[test]
fn keys_are_bytes_but_not_empty_and_not_twice() {
    let mut w = Writer::v3(0, 4);
    for key in [&b"a"[..], b"a\0b", b"\xff\n/", &[b'k'; 65_535]] {
        w.string(key).u32(7).raw(&[1]);
    }
    assert_eq!(read(&w).unwrap().metadata.len(), 4);

    refused(Writer::v3(0, 1).key("", 7).raw(&[1, 1]), "metadata key 0 at byte 24 is empty");
    let mut w = Writer::v3(0, 3);
    w.key("a", 7).raw(&[1]).key("b", 7).raw(&[1]).key("a", 0).raw(&[1]);
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
        refused(Writer::v3(0, 1).key("k", 9).u32(elem).u64(count).raw(&[0; 15]), &want);
    }
    // The first string claims what the others need.
    refused(
        Writer::v3(0, 1).key("k", 9).u32(8).u64(3).u64(20).raw(&[0; 16]),
        "the value of metadata key \"k\" needs 20 bytes at byte 57, \
         but the file ends after 16 more",
    );
}

#[test]
fn empty_arrays_of_every_type_are_fine() {
    for elem in 0..=12 {
        let file = read(Writer::v3(0, 1).key("k", 9).u32(elem).u64(0)).unwrap();
        let Value::Array(Array::Span { elem: e, count, extent, .. }) = file.metadata[0].value
        else {
            panic!()
        };
        assert_eq!((e as u32, count, extent), (elem, 0, Extent { shard: 0, offset: 49, len: 0 }));
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
        let Value::Array(Array::Span { elem, count: 1, extent, .. }) = file.metadata[0].value
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
        w.key("general.alignment", 4).u32(alignment).info(b"a", &[2], 0, 0);
        w.pad(alignment as usize);
        let file = read(w.raw(&[0; 8]).pad(alignment as usize)).unwrap();
        assert_eq!(file.alignment, u64::from(alignment));
        assert!(file.data_start.is_multiple_of(file.alignment) && file.warnings.is_empty());
    }
    let text = "metadata key \"general.alignment\" must be a u32 that is a power of two, found ";
    let wrong = |id, bytes: &[u8], found: &str| {
        let mut w = Writer::v3(0, 1);
        refused(w.key("general.alignment", id).raw(bytes), &format!("{text}{found}"));
    };
    wrong(4, &0u32.to_le_bytes(), "0");
    wrong(4, &3u32.to_le_bytes(), "3");
    wrong(10, &32u64.to_le_bytes(), "u64 32");
    wrong(5, &32u32.to_le_bytes(), "i32 32");
    wrong(9, &[4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0], "arr");
    let mut w = Writer::v3(1, 1);
    w.key("general.alignment", 4).u32(1 << 31).info(b"a", &[1], 0, 0);
    refused(
        &w.data(4),
        "the data section starts at byte 2147483648 (alignment 2147483648), \
         but the file ends at byte 100",
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
    let Some(Value::Str(Text::Span(e))) = file.meta("general.name") else { panic!() };
    assert_eq!(&bytes[e.offset as usize..][..e.len as usize], b"tiny");
    assert!(matches!(file.meta("e"), Some(Value::Str(Text::Span(Extent { len: 0, .. })))));
    assert_eq!(&*file.tensors[0].name, b"t");
    let Some(Value::Array(array)) = file.meta("k") else { panic!() };
    assert_eq!(strings(&bytes, array), ["ab", "cd"]);
    refused(
        Writer::new(1, false, 0, 1).key("\0", 7).raw(&[1]),
        "metadata key 0 at byte 16 is empty",
    );
}

fn reader<'a>(bytes: &'a dyn ReadAt, array: &Array) -> ArrayReader<'a> {
    let &Array::Span { elem, count, extent, encoding } = array else { panic!() };
    ArrayReader::new(bytes, elem, count, extent, encoding)
}

fn strings(bytes: &dyn ReadAt, array: &Array) -> Vec<String> {
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
        let tokens: Vec<String> = (0..5000).map(|i| format!("t{}", "x".repeat(i % 37))).collect();
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
        assert_eq!(second.next().unwrap(), Some(Item::Str(tokens[4321].as_bytes())));
        assert_eq!(first.next().unwrap(), Some(Item::Str(tokens[4321].as_bytes())));

        let Array::Span { extent, .. } = ids else { panic!() };
        let ids = reader(&w.bytes, ids);
        assert_eq!(ids.element_size(), Some(4));
        let mut ids = ids.resume(Position { index: 998, offset: extent.offset + 998 * 4 });
        assert_eq!(ids.next().unwrap(), Some(Item::Value(Value::U32(998 * 998))));
        assert_eq!(ids.next().unwrap(), Some(Item::Value(Value::U32(999 * 999))));
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
    let Value::Array(outer) = &file.metadata[0].value else { panic!() };
    let mut outer = reader(&w.bytes, outer);
    let Some(Item::Array(inner)) = outer.next().unwrap() else { panic!() };
    assert!(matches!(inner, Array::Span { extent: Extent { shard: 7, .. }, .. }));
    assert_eq!(strings(&w.bytes, &inner), ["a", "bc"]);
    let Some(Item::Array(inner)) = outer.next().unwrap() else { panic!() };
    let mut bools = reader(&w.bytes, &inner);
    for want in [false, true, true] {
        assert_eq!(bools.next().unwrap(), Some(Item::Value(Value::Bool(want))));
    }
    assert_eq!(outer.next().unwrap(), None);
}

#[test]
fn an_array_that_is_not_what_it_was_is_an_error() {
    let bytes = [&1000u64.to_le_bytes()[..], b"abc"].concat();
    let extent = Extent { shard: 0, offset: 0, len: 11 };
    let encoding = Encoding { order: ByteOrder::Little, wide: true };
    let mut reader = ArrayReader::new(&bytes, ValueType::Str, 1, extent, encoding);
    let e = reader.next().unwrap_err().to_string();
    assert_eq!(e, "array element 0 needs 1000 bytes at byte 8, but the file ends after 3 more");
}

#[test]
fn limits_hold_for_what_counts_cannot_bound() {
    let tokens = |n: u64| {
        let mut w = Writer::v3(0, 1);
        w.key("k", 9).u32(8).u64(n).raw(&vec![0; n as usize * 8]);
        w
    };
    let limits = Limits { elements: 99, ..Limits::default() };
    let e = parse(&tokens(100).bytes, &limits).unwrap_err().to_string();
    let want =
        "metadata key \"k\": not supported: strings and inner arrays: 100 is over the limit of 99";
    assert_eq!(e, want);
    assert!(parse(&tokens(99).bytes, &limits).is_ok());
    let limits = Limits { reserved_bytes: 200, ..Limits::default() };
    assert!(parse(&every_value().bytes, &limits).is_err());
    let limits = Limits { string_bytes: 3, ..Limits::default() };
    let mut w = Writer::v3(0, 1);
    let e = parse(&w.key("k", 9).u32(8).u64(1).string(b"four").bytes, &limits).unwrap_err();
    assert!(e.to_string().ends_with("length of a string in an array: 4 is over the limit of 3"));
}
