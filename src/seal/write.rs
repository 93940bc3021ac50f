//! The text of a seal, written as the sums come in.
//!
//! What is known only at the end (the files' SHA-256 and the body's own) is written as
//! placeholders of the right length and filled in; the body is then hashed as it stands
//! in the file.

use super::VERSION;
use super::grid::{Grid, Part, Piece};
use super::hex::{crc_hex, hex};
use super::sums::{Sums, crc_of_zeros};
use crate::model::{Array, Model, Tensor, Value, ValueType};
use crate::source::{Source, timestamp};
use crate::trust::{Anchor, Sum};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Stands for 64 hexadecimal digits.
const BLANK: &str = "0000000000000000000000000000000000000000000000000000000000000000";

pub(super) struct Writer<'a> {
    file: &'a File,
    out: BufWriter<&'a File>,
    at: u64,
    /// Where the body's own sum belongs.
    body_sum: u64,
    body: u64,
    /// Where the sums of the files belong.
    file_sums: Vec<u64>,
    /// Whether a list has an element already.
    began: bool,
    grid: &'a Grid,
    /// Of each file, whether its paddings are too many to be listed one by one.
    terse: Vec<bool>,
    zeros: Zeros,
}

/// Paddings of one file, all of zeros, that are not listed one by one.
#[derive(Clone, Copy, Default)]
struct Zeros {
    shard: u32,
    count: u64,
    bytes: u64,
}

/// From so many paddings on those of a file that are zeros, as they should be, are told together:
/// a padding after each of very many tensors would make half of the seal.
const MANY_PADDINGS: u64 = 1024;

/// What a seal says about the time of sealing, in its words.
pub(super) struct Times {
    pub(super) created: String,
    /// The modification time of each source file.
    pub(super) mtimes: Vec<String>,
}

impl Times {
    /// Those of files that are sealed now.
    pub(super) fn now(sources: &[Source]) -> Times {
        let mtimes = sources.iter().map(|source| timestamp(source.identity().mtime)).collect();
        Times { created: utc(SystemTime::now()), mtimes }
    }
}

impl<'a> Writer<'a> {
    /// Writes everything up to the list of regions.
    pub(super) fn begin(
        file: &'a File,
        model: &Model,
        times: &Times,
        grid: &'a Grid,
        with_sha: bool,
        anchors: &[Anchor],
    ) -> io::Result<Writer<'a>> {
        let out = BufWriter::with_capacity(1 << 18, file);
        let mut paddings = vec![0; model.shards.len()];
        for piece in grid.pieces().filter(|piece| piece.part == Part::Padding) {
            paddings[piece.shard as usize] += 1;
        }
        let mut w = Writer {
            file,
            out,
            at: 0,
            body_sum: 0,
            body: 0,
            file_sums: Vec::new(),
            began: false,
            grid,
            terse: paddings.into_iter().map(|count| count >= MANY_PADDINGS).collect(),
            zeros: Zeros::default(),
        };
        w.text(&format!("{{\"weightfs_manifest\":{VERSION},\"body_sha256\":\""))?;
        w.body_sum = w.at;
        w.text(BLANK)?;
        w.text("\",\"body\":")?;
        w.body = w.at;
        w.text(&format!(
            "{{\n\"created\":{},\n\"tool\":{},\n\"chunk\":{},\n\"sources\":[",
            json!(times.created),
            json!({"name": "weightfs", "version": env!("CARGO_PKG_VERSION")}),
            json!({
                "size": grid.chunk_bytes(),
                "algorithm": "crc32",
                "grid": "region-start",
                "encoding": "base64-le-u32",
            }),
        ))?;
        for (number, (shard, mtime)) in (0..).zip(model.shards.iter().zip(&times.mtimes)) {
            w.element()?;
            w.text(&format!(
                "{{{},\"format\":\"{}\",\"format_version\":{},\"size\":{},\"mtime\":{},\"data_start\":{},\"tensor_infos\":{}",
                name(&shard.file),
                model.format.name(),
                model.format_version,
                shard.len,
                json!(mtime),
                shard.data_start,
                shard.tensor_infos,
            ))?;
            let arrays = arrays_of(model, number);
            if !arrays.is_empty() {
                w.text(&format!(",\"arrays\":{}", json!(arrays)))?;
            }
            if with_sha {
                w.text(",\"sha256\":\"")?;
                w.file_sums.push(w.at);
                w.text(BLANK)?;
                w.text("\"")?;
            }
            let ours = anchors.iter().filter(|anchor| anchor.shard == number as usize);
            let ours: Vec<_> = ours.map(|anchor| recorded(anchor, with_sha)).collect();
            if !ours.is_empty() {
                w.text(&format!(",\"anchors\":{}", json!(ours)))?;
            }
            w.text("}")?;
        }
        w.list("regions")?;
        Ok(w)
    }

    /// One region, in the order of the pieces.
    pub(super) fn region(&mut self, piece: &Piece, sums: &Sums) -> io::Result<()> {
        if self.zeros.shard != piece.shard {
            self.zeros_done()?;
        }
        if piece.part == Part::Padding && self.terse[piece.shard as usize] && self.zero(piece, sums)
        {
            let Zeros { count, bytes, .. } = self.zeros;
            self.zeros = Zeros { shard: piece.shard, count: count + 1, bytes: bytes + piece.len };
            return Ok(());
        }
        self.element()?;
        let mut head = Vec::new();
        region_head(piece, &mut head);
        self.bytes(&head)?;
        self.sums(sums)
    }

    /// Whether a piece has the sums of zeros, which is all that can be told from a part.
    fn zero(&self, piece: &Piece, sums: &Sums) -> bool {
        let len = |within| self.grid.chunk_of(piece, within).1;
        (0..).zip(&sums.chunks).all(|(within, &crc)| crc == crc_of_zeros(len(within)))
    }

    /// Tells of the paddings of a file that were not listed.
    fn zeros_done(&mut self) -> io::Result<()> {
        let Zeros { shard, count, bytes } = std::mem::take(&mut self.zeros);
        if count == 0 {
            return Ok(());
        }
        self.element()?;
        self.text(&format!(
            "{{\"source\":{shard},\"kind\":\"padding\",\"zeros\":{count},\"nbytes\":{bytes}}}"
        ))
    }

    /// Ends the list of regions and begins that of tensors.
    pub(super) fn regions_done(&mut self) -> io::Result<()> {
        self.zeros_done()?;
        self.list("tensors")
    }

    /// One tensor, in tensor order.
    pub(super) fn tensor(&mut self, tensor: &Tensor, sums: &Sums) -> io::Result<()> {
        self.element()?;
        let mut head = Vec::new();
        tensor_head(tensor, &mut head);
        self.bytes(&head)?;
        self.sums(sums)
    }

    /// Ends the text and fills in what was left blank.
    pub(super) fn finish(mut self, files: &[Option<[u8; 32]>]) -> io::Result<u64> {
        self.text("\n]}")?;
        let body_end = self.at;
        self.text("}\n")?;
        self.out.flush()?;
        for (&at, sum) in self.file_sums.iter().zip(files.iter().flatten()) {
            self.file.write_all_at(hex(sum).as_bytes(), at)?;
        }
        let mut hash = Sha256::new();
        let mut room = vec![0; 1 << 18];
        let mut at = self.body;
        while at < body_end {
            let take = room.len().min((body_end - at) as usize);
            self.file.read_exact_at(&mut room[..take], at)?;
            hash.update(&room[..take]);
            at += take as u64;
        }
        self.file.write_all_at(hex(&hash.finalize()).as_bytes(), self.body_sum)?;
        Ok(self.at)
    }

    fn sums(&mut self, sums: &Sums) -> io::Result<()> {
        self.text(&format!(",\"crc32\":\"{}\"", crc_hex(sums.crc32)))?;
        if let Some(sha) = &sums.sha256 {
            self.text(&format!(",\"sha256\":\"{}\"", hex(sha)))?;
        }
        self.text(",\"crcs\":\"")?;
        // A multiple of three sums encodes without padding, so the parts join.
        for sums in sums.chunks.chunks(3 * 256) {
            let bytes: Vec<u8> = sums.iter().flat_map(|crc| crc.to_le_bytes()).collect();
            self.text(&STANDARD.encode(bytes))?;
        }
        self.text("\"}")
    }

    fn list(&mut self, key: &str) -> io::Result<()> {
        self.began = false;
        self.text(&format!("\n],\n\"{key}\":["))
    }

    fn element(&mut self) -> io::Result<()> {
        let comma = if self.began { ",\n" } else { "\n" };
        self.began = true;
        self.text(comma)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.bytes(text.as_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// What a seal says of a tensor's layout, up to its sums: the same text always, so that whoever
/// knows the tensor can compare instead of parse.
pub(super) fn tensor_head(tensor: &Tensor, out: &mut Vec<u8>) {
    // Most names are their own JSON.
    let plain = |byte: &u8| (b' '..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    if tensor.name.iter().all(plain) {
        out.extend_from_slice(b"{\"name\":\"");
        out.extend_from_slice(&tensor.name);
        out.push(b'"');
    } else {
        out.push(b'{');
        out.extend_from_slice(name(&tensor.name).as_bytes());
    }
    let extent = tensor.extent;
    number(b",\"source\":", extent.shard.into(), out);
    out.extend_from_slice(b",\"dtype\":\"");
    out.extend_from_slice(tensor.dtype.name().as_bytes());
    out.extend_from_slice(b"\",\"shape\":[");
    for (index, &dim) in tensor.shape.iter().enumerate() {
        number(if index == 0 { b"" } else { b"," }, dim, out);
    }
    number(b"],\"offset\":", extent.offset, out);
    number(b",\"nbytes\":", extent.len, out);
}

/// The same for a region.
pub(super) fn region_head(piece: &Piece, out: &mut Vec<u8>) {
    number(b"{\"source\":", piece.shard.into(), out);
    out.extend_from_slice(b",\"kind\":\"");
    out.extend_from_slice(piece.part.kind().as_bytes());
    number(b"\",\"offset\":", piece.offset, out);
    number(b",\"nbytes\":", piece.len, out);
}

/// Decimal digits behind a text.
fn number(before: &[u8], mut value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(before);
    let mut digits = [0; 20];
    let mut at = digits.len();
    while value >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    if value > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// The digits of the numbers below a hundred.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// Arrays of fewer bytes are walked over as fast as they are looked up.
const LEAST_ARRAY: u64 = 4096;

/// Begin and end of the arrays in the metadata of file `shard` whose elements have to be walked
/// one by one to find that end: a reader that has the seal need not.
pub(super) fn arrays_of(model: &Model, shard: u32) -> Vec<(u64, u64)> {
    let walked = |elem: ValueType| matches!(elem, ValueType::Str | ValueType::Array);
    let mut arrays: Vec<(u64, u64)> = model
        .metadata
        .iter()
        .filter_map(|meta| match &meta.value {
            Value::Array(Array::Span { elem, extent, .. }) if walked(*elem) => Some(*extent),
            _ => None,
        })
        .filter(|extent| extent.shard == shard && extent.len >= LEAST_ARRAY)
        .map(|extent| (extent.offset, extent.end()))
        .collect();
    arrays.sort_unstable();
    arrays
}

/// What is kept of an anchor. One that does not agree keeps the seal from being finished.
fn recorded(anchor: &Anchor, with_sha: bool) -> serde_json::Value {
    let claim = &anchor.claim;
    let compared = with_sha && claim.sha256.is_some()
        || claim.crc32.is_some()
        || claim.tensors.iter().any(|(_, sum)| with_sha || matches!(sum, Sum::Crc32(_)));
    json!({
        "kind": anchor.kind.name(),
        "sha256": claim.sha256.map(|sha256| hex(&sha256)),
        "repo": anchor.repo,
        "commit": anchor.commit,
        "agrees": compared.then_some(true),
    })
}

/// `"name":...`, with the exact bytes as well when they are not UTF-8.
fn name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(name) => format!("\"name\":{}", json!(name)),
        Err(_) => {
            format!(
                "\"name\":{},\"name_hex\":\"{}\"",
                json!(String::from_utf8_lossy(bytes)),
                hex(bytes)
            )
        }
    }
}

/// A time as `2026-11-30T00:00:00Z`. Times before 1970 are shown as its first second.
pub(super) fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days, in eras of 400 years that begin on 1 March (H. Hinnant's
    // "chrono-compatible low-level date algorithms").
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_796_083_200, "2026-12-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_tensor_is_written_as_json_reads_it() {
        use crate::dtype::DType;
        use crate::model::Extent;
        for name in ["blk.0.attn_q.weight", "caf\u{e9} \"x\"\\\n\u{7f}", "", "~ !"] {
            for shape in [&[][..], &[0], &[7, 10, u64::MAX]] {
                let tensor = Tensor {
                    name: name.as_bytes().into(),
                    dtype: DType::Q4_K,
                    shape: shape.into(),
                    extent: Extent { shard: 3, offset: 1 << 60, len: 100 },
                };
                let mut text = Vec::new();
                tensor_head(&tensor, &mut text);
                text.push(b'}');
                let read: serde_json::Value =
                    serde_json::from_slice(&text).expect("what is written is JSON");
                let want = json!({
                    "name": name, "source": 3, "dtype": "Q4_K", "shape": shape,
                    "offset": 1u64 << 60, "nbytes": 100,
                });
                assert_eq!(read, want);
            }
        }
    }

    #[test]
    fn numbers_are_written_as_ever() {
        let around = |n: u64| [n - 1, n, n + 1];
        let powers = (1..20).flat_map(|power| around(10u64.pow(power)));
        for value in (0..1200).chain(powers).chain([u64::MAX]) {
            let mut text = Vec::new();
            number(b"x", value, &mut text);
            assert_eq!(text, format!("x{value}").as_bytes());
        }
    }

    #[test]
    fn names_keep_their_bytes() {
        assert_eq!(name(b"a\"b"), r#""name":"a\"b""#);
        assert_eq!(name(b"a\xff"), "\"name\":\"a\u{fffd}\",\"name_hex\":\"61ff\"");
    }
}
