//! A GGUF file. No panic; memory that the reader claims stays within a small multiple of the
//! input; what is accepted lies inside the file; every value can be read to its end, from the
//! middle too; a parse that knows the metadata gives the same; as a file system every file
//! has the size it says.

use super::memory::within;
use super::with_scratch;
use weightfs::bytes::{ReadAt, read_vec};
use weightfs::format::gguf::array::{ArrayReader, Item};
use weightfs::format::gguf::{GgufFile, Known, parse, parse_known};
use weightfs::format::{Limits, detect};
use weightfs::model::{Array, Encoding, Text, Value};

/// Bytes claimed for each byte of a header: the smallest tensor takes 28 bytes there.
const MULTIPLE: usize = 16;
/// Bytes claimed whatever the input.
const CONSTANT: usize = 64 << 10;
/// Bytes that a mount may take beside that: descriptions are JSON, and a chunk is copied.
const SERVING: usize = 1 << 20;
/// One accepted input of so many is served.
const SERVED: u32 = 8;
/// Longer inputs say nothing that shorter ones do not.
const LONGEST: usize = 16 << 10;

/// One input.
pub(crate) fn run(data: &[u8]) {
    if data.len() > LONGEST {
        return;
    }
    let bytes = data.to_vec();
    let file = within(MULTIPLE * data.len() + CONSTANT, || {
        detect(&bytes).unwrap();
        parse(&bytes, &Limits::default())
    });
    let Ok(file) = file else { return };
    within(MULTIPLE * data.len() + CONSTANT, || check(&file, &bytes));
    let hint = Known { tensor_infos: file.tensor_infos, arrays: Vec::new() };
    let known = parse_known(&bytes, &Limits::default(), &hint).unwrap();
    // Metadata may hold NaN, which equals nothing.
    assert_eq!(known.tensors, file.tensors);
    assert_eq!((known.tensor_infos, known.data_start), (file.tensor_infos, file.data_start));
    assert_eq!(known.warnings, file.warnings);
    // Files take time: one accepted input of some is served as well, by its content.
    if crc32fast::hash(data).is_multiple_of(SERVED) {
        served(data);
    }
}

/// One input as a file system.
pub(crate) fn served(data: &[u8]) {
    with_scratch(|scratch| {
        let path = scratch.fill(data);
        within(SERVING + MULTIPLE * data.len(), || super::tree::walk_file(path));
    });
}

fn check(file: &GgufFile, bytes: &Vec<u8>) {
    let len = bytes.len() as u64;
    let most = (MULTIPLE * bytes.len() + CONSTANT) as u64;
    assert!(file.reserved_bytes <= most, "{} of {len}", file.reserved_bytes);
    assert!(file.tensor_infos <= file.data_start && file.data_start <= len);
    let mut end = file.data_start;
    for tensor in &file.tensors {
        assert_eq!(tensor.dtype.nbytes(tensor.elements()), Some(tensor.extent.len));
        assert!(tensor.extent.offset >= end || tensor.extent.len == 0, "tensors overlap");
        assert!(tensor.extent.end() <= len);
        // One without bytes may stand behind last padding that is not there.
        let aligned = (tensor.extent.offset - file.data_start).is_multiple_of(file.alignment);
        assert!(aligned || tensor.extent.len == 0 && tensor.extent.offset == len);
        end = end.max(tensor.extent.end());
    }
    let mut names: Vec<_> = file.tensors.iter().map(|t| &t.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "a name twice");
    for meta in &file.metadata {
        value(bytes, &meta.value);
    }
}

fn value(bytes: &Vec<u8>, value: &Value) {
    match value {
        Value::Str(Text::Span(extent)) => {
            assert!(extent.end() <= bytes.len() as u64);
            read_vec(bytes, extent.offset, extent.len as usize).unwrap();
        }
        Value::Array(array) => self::array(bytes, array),
        _ => {}
    }
}

fn array(bytes: &dyn ReadAt, array: &Array) {
    let Array::Span { elem, count, extent, encoding } = array else { return };
    assert!(extent.end() <= bytes.len());
    let new = || ArrayReader::new(bytes, *elem, *count, *extent, *encoding);
    let middle = count / 2;
    let mut at_middle = None;
    let mut reader = new();
    let mut read = 0;
    let mut last = String::new();
    loop {
        if read == middle {
            at_middle = Some(reader.position());
        }
        match reader.next().unwrap() {
            None => break,
            Some(item) => last = inner(bytes, &item),
        }
        read += 1;
    }
    assert_eq!(read, *count);
    assert_eq!(reader.position().offset, extent.end());
    if let Some(at) = at_middle.filter(|_| middle < *count) {
        let mut resumed = new().resume(at);
        let mut again = String::new();
        while let Some(item) = resumed.next().unwrap() {
            again = inner(bytes, &item);
        }
        assert_eq!(again, last);
    }
    if let (Some(size), Encoding { .. }) = (new().element_size(), encoding) {
        assert_eq!(size * count, extent.len);
    }
}

fn inner(bytes: &dyn ReadAt, item: &Item<'_>) -> String {
    if let Item::Array(array) = item {
        self::array(bytes, array);
    }
    format!("{item:?}")
}
