//! A safetensors file, or the header of one (an input that begins with `{`), which is also
//! read as an index. No panic; memory that the reader claims stays within a small multiple
//! of the input; what is accepted fills the file without holes.

use super::memory::within;
use std::io;
use weightfs::bytes::ReadAt;
use weightfs::format::safetensors::{SafetensorsFile, index, parse};
use weightfs::format::{Limits, detect};

/// Bytes claimed for each byte of a header: the smallest tensor takes 50 bytes there.
const MULTIPLE: usize = 16;
/// Bytes claimed whatever the input.
const CONSTANT: usize = 64 << 10;
/// Longer inputs say nothing that shorter ones do not.
const LONGEST: usize = 16 << 10;

/// Bytes, then zeros up to a length.
struct Sparse {
    bytes: Vec<u8>,
    len: u64,
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|&end| end <= self.len);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        out.fill(0);
        if let Some(here) = usize::try_from(offset).ok().and_then(|o| self.bytes.get(o..)) {
            let n = here.len().min(out.len());
            out[..n].copy_from_slice(&here[..n]);
        }
        Ok(())
    }
}

/// One input.
pub(crate) fn run(data: &[u8]) {
    if data.len() > LONGEST {
        return;
    }
    if !data.starts_with(b"{") {
        return file(Sparse { bytes: data.to_vec(), len: data.len() as u64 });
    }
    let most = data.len() * MULTIPLE + CONSTANT;
    if let Ok(index) = within(most, || index::parse(data, &Limits::default())) {
        let (claimed, len) = (index.reserved_bytes, data.len());
        assert!(claimed <= most as u64, "{claimed} of {len}");
        assert!(index.weight_map.iter().all(|(_, shard)| (*shard as usize) < index.shards.len()));
    }
    let mut bytes = (data.len() as u64).to_le_bytes().to_vec();
    bytes.extend(data);
    let len = (bytes.len() as u64).saturating_add(last_number(data));
    file(Sparse { bytes, len });
}

/// The last run of digits: in most headers where the data ends.
fn last_number(text: &[u8]) -> u64 {
    let end = text.iter().rposition(u8::is_ascii_digit).map_or(0, |at| at + 1);
    let from = text[..end].iter().rposition(|b| !b.is_ascii_digit()).map_or(0, |at| at + 1);
    str::from_utf8(&text[from..end]).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn file(bytes: Sparse) {
    let parsed = within(MULTIPLE * bytes.bytes.len() + CONSTANT, || {
        detect(&bytes).unwrap();
        parse(&bytes, &Limits::default())
    });
    if let Ok(file) = parsed {
        check(&file, &bytes);
    }
}

fn check(file: &SafetensorsFile, bytes: &Sparse) {
    let header = bytes.bytes.len();
    let most = (MULTIPLE * header + CONSTANT) as u64;
    assert!(file.reserved_bytes <= most, "{} of {header}", file.reserved_bytes);
    let mut end = file.data_start;
    for tensor in &file.tensors {
        assert_eq!(tensor.dtype.nbytes(tensor.elements()), Some(tensor.extent.len));
        assert_eq!(tensor.extent.offset, end, "a hole or an overlap");
        end = tensor.extent.end();
    }
    assert_eq!(end, bytes.len, "bytes after the last tensor");
    let mut names: Vec<_> = file.tensors.iter().map(|t| &t.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "a name twice");
}
