//! What a safetensors file may be, and the hostile ones, each with what it says.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::*;
use crate::model::{Text, Value};

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend((0..data).map(|i| i as u8));
    bytes
}

fn read(bytes: &[u8]) -> Result<SafetensorsFile, String> {
    parse(&bytes.to_vec(), &Limits::default()).map_err(|e| e.to_string())
}

fn served(header: &str, data: usize) -> SafetensorsFile {
    read(&file(header, data)).unwrap_or_else(|e| panic!("{header}: {e}"))
}

#[track_caller]
fn refused(header: &str, data: usize, want: &str) {
    let found = read(&file(header, data)).expect_err(header);
    assert_eq!(found, want, "{:.200}", header);
}

/// One tensor entry.
fn entry(name: &str, dtype: &str, shape: &str, begin: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

fn list(file: &SafetensorsFile) -> Vec<(String, Vec<u64>, u64, u64)> {
    let start = file.data_start;
    let row = |t: &Tensor| {
        let name = String::from_utf8(t.name.to_vec()).unwrap();
        (name, t.shape.to_vec(), t.extent.offset - start, t.extent.len)
    };
    file.tensors.iter().map(row).collect()
}

#[test]
fn the_smallest_files() {
    let empty = served("{}", 0);
    assert_eq!((empty.tensors.len(), empty.data_start), (0, 10));
    assert_eq!(served("{}      ", 0).data_start, 16);
    for metadata in ["null", "{}"] {
        assert_eq!(served(&format!(r#"{{"__metadata__":{metadata}}}"#), 0).metadata.len(), 0);
    }
}

#[test]
fn every_dtype_is_known_by_its_name() {
    for (dtype, bits) in DTYPES
        .into_iter()
        .zip([8, 4, 6, 6, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64])
    {
        let bytes = 4 * bits / 8;
        let header = format!("{{{}}}", entry("t", dtype.name(), "[2,2]", 0, bytes));
        let file = served(&header, bytes as usize);
        assert_eq!((file.tensors[0].dtype, file.tensors[0].extent.len), (dtype, bytes));
    }
    for wrong in ["f32", "Q4_0", "F128", "", "F8_E4M3FN", "I4"] {
        let want = format!("tensor \"t\": unsupported dtype \"{wrong}\"");
        refused(&format!("{{{}}}", entry("t", wrong, "[1]", 0, 4)), 4, &want);
    }
}

#[test]
fn tensors_come_in_the_order_of_their_data() {
    let header = format!(
        "{{{},{},{},{}}}",
        entry("late", "U8", "[2]", 6, 8),
        entry("none", "F32", "[3,0]", 6, 6),
        entry("early", "U8", "[2,3]", 0, 6),
        entry("end", "F64", "[0]", 8, 8),
    );
    let want = [
        ("early", vec![2, 3], 0, 6),
        ("none", vec![3, 0], 6, 0),
        ("late", vec![2], 6, 2),
        ("end", vec![0], 8, 0),
    ];
    assert_eq!(list(&served(&header, 8)), want.map(|(n, s, o, l)| (n.to_string(), s, o, l)));
}

#[test]
fn scalars_zeros_and_many_dimensions() {
    assert_eq!(list(&served(&format!("{{{}}}", entry("s", "F64", "[]", 0, 8)), 8))[0].3, 8);
    let huge = format!("{{{}}}", entry("z", "F32", "[0,9223372036854775808,4]", 0, 0));
    let z = &served(&huge, 0).tensors[0];
    assert_eq!((z.elements(), z.extent.len), (0, 0));
    for rank in [65, 1000] {
        let shape = format!("[{}]", ["1"; 1000][..rank].join(","));
        let file = served(&format!("{{{}}}", entry("r", "F32", &shape, 0, 4)), 4);
        assert_eq!(file.tensors[0].shape.len(), rank);
    }
    let shape = format!("[{}]", vec!["1"; 65_536].join(","));
    let want = "not supported: dimensions: 65536 is over the limit of 65535";
    refused(&format!("{{{}}}", entry("r", "F32", &shape, 0, 4)), 4, want);
}

#[test]
fn it_is_the_total_that_fills_whole_bytes() {
    assert_eq!(served(&format!("{{{}}}", entry("t", "F4", "[2,3]", 0, 3)), 3).tensors.len(), 1);
    assert_eq!(served(&format!("{{{}}}", entry("t", "F6_E2M3", "[4]", 0, 3)), 3).tensors.len(), 1);
    for (dtype, shape, bits) in [("F4", "[3]", 12), ("F6_E3M2", "[2]", 12), ("F4", "[]", 4)] {
        let want = format!(
            "tensor \"t\": {dtype} {shape} takes {bits} bits, which do not fill whole bytes"
        );
        refused(&format!("{{{}}}", entry("t", dtype, shape, 0, 2)), 2, &want);
    }
}

#[test]
fn metadata_is_strings_in_order() {
    let file = served(r#" {"__metadata__":{"format":"pt","b":"\u00e9\n","a":""}} "#, 0);
    let entries: Vec<(&[u8], &[u8])> = file
        .metadata
        .iter()
        .map(|m| match &m.value {
            Value::Str(Text::Inline(s)) => (&*m.key, &**s),
            other => panic!("{other:?}"),
        })
        .collect();
    let want: [(&[u8], &[u8]); 3] =
        [(b"format", b"pt"), (b"b", "\u{e9}\n".as_bytes()), (b"a", b"")];
    assert_eq!(entries, want);
}

#[test]
fn names_are_whatever_json_can_say() {
    for (written, name) in [
        ("", ""),
        ("..", ".."),
        ("/etc/passwd", "/etc/passwd"),
        (r"a\u0000\n\u001b", "a\0\n\u{1b}"),
        (r"\ud83d\ude00\/\\", "\u{1f600}/\\"),
        ("\u{202e}e\u{301}", "\u{202e}e\u{301}"),
        (&"n".repeat(300), &"n".repeat(300)),
    ] {
        let file = served(&format!("{{{}}}", entry(written, "U8", "[1]", 0, 1)), 1);
        assert_eq!(&*file.tensors[0].name, name.as_bytes());
    }
    let two = format!(
        "{{{},{}}}",
        entry("\u{e9}", "U8", "[1]", 0, 1),
        entry("e\u{301}", "U8", "[1]", 1, 2)
    );
    assert_eq!(served(&two, 2).tensors.len(), 2);
}

#[test]
fn unknown_fields_and_white_space_are_passed_over() {
    let t =
        r#"{ "extra":[{"a":1}] ,"shape" : [ 1 ],"data_offsets":[0,1],"dtype":"U8","more":null}"#;
    let header = format!(" \t\r\n{{\"t\":{t}\n}}\t ");
    assert_eq!(served(&header, 1).tensors.len(), 1);
    let mut page = " ".repeat(4086);
    page.push_str("{}");
    assert_eq!(served(&page, 0).data_start, 4096);
}

#[test]
fn data_at_an_odd_address_comes_with_a_warning() {
    let header = format!("{{{}}}", entry("ab", "BF16", "[1]", 0, 2));
    let file = served(&header, 2);
    let at = header.len() + 8;
    let (odd, even) = (format!("{header} "), header.clone());
    assert_eq!(file.warnings.len(), at % 2);
    let (odd, even) = if at % 2 == 1 { (even, odd) } else { (odd, even) };
    let at = odd.len() + 8;
    let want = format!("the data starts at an odd address, byte {at}");
    assert_eq!(served(&odd, 2).warnings, [want]);
    assert_eq!(served(&even, 2).warnings, [""; 0]);
}

#[test]
fn the_length_is_checked_before_anything_is_allocated() {
    for len in 0..8 {
        let want = format!("too small: {len} bytes, but the length of the header alone takes 8");
        assert_eq!(read(&vec![0; len]).unwrap_err(), want);
    }
    for n in [100_000_001, 1 << 63, u64::MAX] {
        let bytes = [&n.to_le_bytes()[..], b"{}"].concat();
        let want = format!("the header's length is {n} bytes; at most 100000000 are allowed");
        assert_eq!(read(&bytes).unwrap_err(), want);
    }
    for n in [3u64, 100_000_000] {
        let bytes = [&n.to_le_bytes()[..], b"{}"].concat();
        let want = format!(
            "a header of {n} bytes would end at byte {}, but the file ends at byte 10",
            n + 8
        );
        assert_eq!(read(&bytes).unwrap_err(), want);
    }
}

#[test]
fn what_is_not_the_json_of_a_header_is_refused_with_its_place() {
    let f = "the JSON header is not valid:";
    let cases: &[(&str, &str)] = &[
        ("", "EOF while parsing a value (byte 8 of the file)"),
        ("[]", "invalid type: sequence, expected an object of tensors (byte 8 of the file)"),
        ("null", "invalid type: null, expected an object of tensors (byte 11 of the file)"),
        (
            "\"x\"",
            "invalid type: string \"x\", expected an object of tensors (byte 10 of the file)",
        ),
        ("7", "invalid type: integer `7`, expected an object of tensors (byte 8 of the file)"),
        ("{}\0\0", "trailing characters (byte 10 of the file)"),
        ("\u{feff}{}", "expected value (byte 8 of the file)"),
        ("{\"a\":{}", "tensor \"a\": dtype is missing"),
        ("{\"\\ud800\":1}", "unexpected end of hex escape (byte 16 of the file)"),
        ("{\"a\nb\":1}", "control character"),
        (r#"{"a":["F32",[1],[0,4]]}"#, "at \"a\": invalid type: sequence, expected an object with"),
        (r#"{"a":3}"#, "at \"a\": invalid type: integer `3`, expected an object with"),
        (
            r#"{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}"#,
            "at \"a\": invalid type: map, expected a string (byte 21 of the file)",
        ),
        (r#"{"__metadata__":{"a":1}}"#, "invalid type: integer `1`, expected a string"),
        (r#"{"__metadata__":{"a":{}}}"#, "invalid type: map, expected a string"),
        (r#"{"__metadata__":[]}"#, "invalid type: sequence, expected an object of strings"),
        (r#"{"__metadata__":7}"#, "at \"__metadata__\": invalid type: integer `7`"),
        (
            r#"{"__metadata__":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            "invalid type: sequence",
        ),
    ];
    for (header, want) in cases {
        let e = read(&file(header, 4)).expect_err(header);
        assert!(e.contains(want), "{header}: {e}");
        assert!(e.starts_with(f) || e.starts_with("tensor"), "{e}");
    }
    let e = read(&[&5u64.to_le_bytes()[..], b"{\"\xff\"}"].concat()).unwrap_err();
    assert_eq!(e, "the header is not UTF-8 at byte 10 of the file");
}

#[test]
fn numbers_are_plain_counts() {
    for bad in
        ["1.0", "1e0", "-1", "-0", "01", "\"1\"", "18446744073709551616", "null", "[1]", "true"]
    {
        for header in [
            format!(r#"{{"a":{{"dtype":"U8","shape":[{bad}],"data_offsets":[0,1]}}}}"#),
            format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,{bad}]}}}}"#),
        ] {
            let e = read(&file(&header, 1)).expect_err(bad);
            assert!(e.starts_with("the JSON header is not valid: at \"a\": "), "{bad}: {e}");
        }
    }
}

#[test]
fn entries_have_each_field_once() {
    let with = |fields: &str| format!(r#"{{"a":{{{fields}}}}}"#);
    for (fields, missing) in [
        (r#""shape":[1],"data_offsets":[0,1]"#, "dtype"),
        (r#""dtype":"U8","data_offsets":[0,1]"#, "shape"),
        (r#""dtype":"U8","shape":[1]"#, "data_offsets"),
    ] {
        refused(&with(fields), 1, &format!("tensor \"a\": {missing} is missing"));
        let (name, _) = fields.split_once(':').unwrap();
        let field = name.trim_matches('"');
        let doubled = format!("{fields},{fields}");
        refused(&with(&doubled), 1, &format!("tensor \"a\": {field} occurs twice"));
    }
    for (offsets, n) in [("[]", 0), ("[0]", 1), ("[0,1,1]", 3)] {
        let e =
            read(&file(&with(&format!(r#""dtype":"U8","shape":[1],"data_offsets":{offsets}"#)), 1));
        let want = format!("at \"a\": invalid length {n}, expected data_offsets, an array of two");
        let e = e.unwrap_err();
        assert!(e.contains(&want), "{e}");
    }
}

#[test]
fn keys_given_twice_are_refused_however_spelled() {
    let a = entry("a", "U8", "[1]", 0, 1);
    for again in [&a, &entry(r"\u0061", "I8", "[1]", 0, 1), &entry("a", "U8", "[1]", 1, 2)] {
        refused(&format!("{{{a},{again}}}"), 2, "tensor \"a\" occurs twice");
    }
    for again in [r#""__metadata__":{}"#, r#""\u005f_metadata__":null"#] {
        let header = format!("{{\"__metadata__\":{{}},{a},{again}}}");
        refused(&header, 1, "__metadata__ occurs twice");
    }
    let header = r#"{"__metadata__":{"k":"1","\u006b":"1"}}"#;
    refused(header, 0, "__metadata__ has the key \"k\" twice");
}

#[test]
fn tensors_tile_the_data() {
    let two = |a: (u64, u64), b: (u64, u64)| {
        let (na, nb) = (a.1.saturating_sub(a.0), b.1.saturating_sub(b.0));
        format!(
            "{{{},{}}}",
            entry("a", "U8", &format!("[{na}]"), a.0, a.1),
            entry("b", "U8", &format!("[{nb}]"), b.0, b.1)
        )
    };
    let hole = |name: &str, begin: u64, end: u64| {
        format!(
            "tensor \"{name}\" begins at byte {begin} of the data, but what is before it ends at \
             {end}: a hole of {} bytes",
            begin - end
        )
    };
    refused(&two((1, 4), (4, 8)), 8, &hole("a", 1, 0));
    refused(&two((0, 4), (6, 8)), 8, &hole("b", 6, 4));
    let overlap = |a: &str, b: &str| {
        format!("tensors \"a\" and \"b\" overlap: bytes {a} and {b} of the data")
    };
    refused(&two((0, 4), (3, 8)), 8, &overlap("0..4", "3..8"));
    refused(&two((0, 4), (0, 4)), 4, &overlap("0..4", "0..4"));
    refused(&two((0, 4), (2, 2)), 4, &overlap("0..4", "2..2"));
    refused(&two((0, 4), (6, 4)), 8, "tensor \"b\": data_offsets [6, 4] run backwards");
    let zero_past_end = two((0, 4), (6, 6));
    refused(&zero_past_end, 8, &hole("b", 6, 4));
    served(&two((0, 4), (4, 4)), 4);
}

#[test]
fn the_data_ends_with_the_file() {
    let header = format!("{{{}}}", entry("a", "F32", "[2]", 0, 8));
    let start = header.len() + 8;
    let (end, len) = (start + 8, start + 11);
    let want = format!(
        "3 bytes after the last tensor: the tensors end at byte {end} of the file, \
         the file at byte {len}"
    );
    refused(&header, 11, &want);
    let want = format!(
        "truncated: the tensors end at byte {end} of the file, but it has only {} bytes: 3 are missing; \
         tensor \"a\" ends behind that",
        start + 5
    );
    refused(&header, 5, &want);
    let header = format!("{{{}}}", entry("a", "U8", "[18446744073709551615]", 0, u64::MAX));
    let e = read(&file(&header, 5)).unwrap_err();
    assert_eq!(e, "tensor \"a\": U8 [18446744073709551615] has more bits than 64 bits can count");
}

#[test]
fn ranges_have_the_size_of_their_shape() {
    let one = |dtype, shape, end| format!("{{{}}}", entry("a", dtype, shape, 0, end));
    refused(
        &one("F32", "[2,3]", 20),
        20,
        "tensor \"a\": F32 [2, 3] takes 24 bytes, but data_offsets [0, 20] hold 20",
    );
    for shape in ["[9223372036854775808,4,0]", "[4294967296,4294967296]", "[2305843009213693952]"] {
        let shown = shape.replace(',', ", ");
        let want = format!("tensor \"a\": U8 {shown} has more bits than 64 bits can count");
        refused(&one("U8", shape, 0), 0, &want);
    }
}

#[test]
fn depth_and_length_have_limits() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let with = |value: &str| {
        format!(r#"{{"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{value}}}}}"#)
    };
    served(&with(&deep(100)), 1);
    let want = "not supported: nesting of the JSON: 132 is over the limit of 128";
    refused(&with(&deep(130)), 1, want);
    let want = "not supported: nesting of the JSON: 1000000 is over the limit of 128";
    refused(&"[".repeat(1_000_000), 0, want);

    let long = format!(r#"{{"__metadata__":{{"k":"{}"}}}}"#, "x".repeat((8 << 20) + 1));
    let want = "not supported: length of a string in the JSON, in bytes: 8388609 is over the \
                limit of 8388608";
    refused(&long, 0, want);
    let name = "n".repeat(65_536);
    let want = "not supported: length of a name, in bytes: 65536 is over the limit of 65535";
    refused(&format!("{{{}}}", entry(&name, "U8", "[1]", 0, 1)), 1, want);
    let limits = Limits { tensors: 1, ..Limits::default() };
    let two = format!("{{{},{}}}", entry("a", "U8", "[0]", 0, 0), entry("b", "U8", "[0]", 0, 0));
    let e = parse(&file(&two, 0), &limits).unwrap_err().to_string();
    assert_eq!(e, "not supported: tensors: 2 is over the limit of 1");
    let limits = Limits { reserved_bytes: 150, ..Limits::default() };
    assert!(parse(&file(&two, 0), &limits).is_err());
}

#[test]
fn a_wordy_mistake_makes_a_short_message() {
    let header =
        format!(r#"{{"{}":{{"shape":"{}"}}}}"#, "n".repeat(1000), "\u{7f}".repeat(100_000));
    let e = read(&file(&header, 0)).unwrap_err();
    assert!(e.len() < 700, "{}", e.len());
    assert!(e.contains("invalid type: string") && e.contains("(880 bytes more)"), "{e}");
}

#[test]
fn the_header_cut_at_every_byte_is_an_error() {
    let header = format!(
        r#"{{"__metadata__":{{"format":"pt"}},{},{}}}"#,
        entry("a", "F32", "[2]", 0, 8),
        entry("b", "U8", "[]", 8, 9)
    );
    let bytes = file(&header, 9);
    read(&bytes).unwrap();
    for cut in 0..bytes.len() {
        let e = read(&bytes[..cut]).expect_err(&format!("cut at byte {cut}"));
        let want = match cut {
            0..8 => "too small",
            _ if cut < header.len() + 8 => "a header of ",
            _ => "truncated: ",
        };
        assert!(e.starts_with(want), "{cut}: {e}");
    }
    // The same with a length that fits: the JSON itself is cut.
    for cut in 0..header.len() {
        let e = read(&file(&header[..cut], 0)).expect_err(&format!("cut at byte {cut}"));
        assert!(e.contains("(byte ") && e.contains("EOF while parsing"), "{cut}: {e}");
    }
}

#[test]
fn many_tensors_take_linear_time() {
    let entries: Vec<String> = (0..100_000)
        .map(|i| entry(&format!("model.layers.{i}.weight"), "F32", "[1]", i * 4, i * 4 + 4))
        .collect();
    let file = served(&format!("{{{}}}", entries.join(",")), 400_000);
    assert_eq!(file.tensors.len(), 100_000);
    assert!(file.tensors.is_sorted_by_key(|t| t.extent.offset));
    assert!(file.reserved_bytes < 300 * 100_000);
}
