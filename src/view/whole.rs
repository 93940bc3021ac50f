//! The whole model as one virtual file: a header, then each tensor's bytes at its place.
//!
//! Here is the reading, and the safetensors file; [`gguf`] is the other one. The header is text
//! that is written while it is read, the data one body per tensor; kept are an order and an offset
//! per tensor. safetensors is laid out as the reference writer does: by type (widest first), then
//! by name, without holes, data aligned to 64 bytes.

use crate::content::Body;
use crate::dtype::DType;
use crate::format::safetensors::DTYPES;
use crate::model::Model;
use crate::store::{ReadFailure, Store};
use crate::view::json::{escape_into, escaped_len};
use crate::view::text::{Builder, Lines, Text};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::io::{self, Write};
use std::sync::Arc;

pub mod gguf;

/// Longest header that the reference reader takes, in bytes.
pub const MAX_HEADER: u64 = 100_000_000;
/// Alignment of the data in the file, in bytes: what vector loads from a mapping like.
const ALIGNMENT: u64 = 64;

/// Whether safetensors has the type.
pub fn has_dtype(dtype: DType) -> bool {
    DTYPES.contains(&dtype)
}

/// One tensor of the file.
#[derive(Debug)]
pub struct Member<'a> {
    /// Its name in the header.
    pub name: Cow<'a, str>,
    /// A type that safetensors has.
    pub dtype: DType,
    /// Row-major, outermost first.
    pub shape: Cow<'a, [u64]>,
    /// Its bytes.
    pub body: Body,
}

/// The tensors to choose from.
pub trait Members: std::fmt::Debug + Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// The `index`th; `None` when it has no place in the file.
    fn member(&self, index: usize) -> Option<Member<'_>>;
}

/// What comes behind the header.
trait Data: std::fmt::Debug + Send + Sync {
    /// Where each body begins, from the start of the data, in order; last, where the data ends.
    fn starts(&self) -> &[u64];

    /// The `i`th body. Zeros follow it up to the next.
    fn body(&self, i: usize) -> Body;
}

/// The plan of a file.
#[derive(Debug)]
pub struct Whole {
    header: Text,
    /// Zeros between header and data.
    gap: u64,
    data: Arc<dyn Data>,
}

/// The safetensors file's.
#[derive(Debug)]
struct Plan {
    members: Arc<dyn Members>,
    /// Indices of the members in the order of their data.
    order: Box<[u32]>,
    /// Where each one's data begins in the data section, and where it ends.
    starts: Box<[u64]>,
    /// Bytes of the header's text, without the spaces behind it.
    written: u64,
}

/// The header's length as `model.safetensors` of these members would say it.
pub fn header_len(members: Arc<dyn Members>) -> io::Result<u64> {
    Plan::new(members).map(|plan| plan.header_len())
}

impl Whole {
    /// Plans `model.safetensors`. Fails when the sum of sizes is more than a file can have.
    pub fn new(members: Arc<dyn Members>, model: &Arc<Model>, store: &Store) -> io::Result<Whole> {
        let plan = Arc::new(Plan::new(members)?);
        let padded = plan.header_len();
        let mut header = Builder::new(model, store);
        header.bytes(&padded.to_le_bytes());
        header.lines(Arc::clone(&plan) as Arc<dyn Lines>)?;
        header.bytes(&vec![b' '; (padded - plan.written) as usize]);
        Ok(Whole { header: header.finish(), gap: 0, data: plan })
    }

    /// Bytes in front of the data; safetensors' own length of its header is not counted in
    /// that header.
    pub fn header_len(&self) -> u64 {
        self.header.len() + self.gap
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.header_len() + self.data.starts().last().copied().unwrap_or(0)
    }

    /// Never: there is always a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The source file that the data at `from` comes from, where it is one as it is stored or
    /// plainly decoded.
    pub fn shard_at(&self, from: u64) -> Option<u32> {
        let at = from.checked_sub(self.header_len())?;
        let starts = self.data.starts();
        let i = starts.partition_point(|&s| s <= at).checked_sub(1)?;
        (i + 1 < starts.len()).then(|| self.data.body(i).shard()).flatten()
    }

    /// Fills `out` from `from` on; the caller keeps inside the file.
    pub(crate) fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        let (written, data) = (self.header.len(), self.header_len());
        let mut done = 0;
        if from < written {
            done = fitting(out.len(), written - from);
            self.header.read(store, from, &mut out[..done])?;
        }
        let at = from + done as u64;
        if done < out.len() && at < data {
            let n = fitting(out.len() - done, data - at);
            out[done..done + n].fill(0);
            done += n;
        }
        let starts = self.data.starts();
        let mut next = None;
        while done < out.len() {
            let at = from + done as u64 - data;
            let i = next.unwrap_or_else(|| starts.partition_point(|&s| s <= at).saturating_sub(1));
            let body = self.data.body(i);
            let (inside, end) = (at - starts[i], starts[i] + body.len());
            if at < end {
                let n = fitting(out.len() - done, end - at);
                body.read(store, inside, &mut out[done..done + n])
                    .map_err(|f| ReadFailure { good: f.good + done, ..f })?;
                done += n;
            }
            // From the end of the body on, or from where the request begins behind it.
            let n = fitting(out.len() - done, starts[i + 1].saturating_sub(end.max(at)));
            out[done..done + n].fill(0);
            done += n;
            next = Some(i + 1);
        }
        Ok(())
    }
}

/// As much of `len` as `room` has.
fn fitting(room: usize, len: u64) -> usize {
    usize::try_from(len).map_or(room, |len| len.min(room))
}

impl Plan {
    fn new(members: Arc<dyn Members>) -> io::Result<Plan> {
        let rank = |dtype| DTYPES.iter().position(|&d| d == dtype);
        // Members are asked once each: they are planned anew every time.
        let mut sorted: Vec<_> = (0..members.count())
            .filter_map(|i| {
                let member = members.member(i)?;
                let text = entry_len(&member.name, member.dtype, &member.shape);
                // A model has at most 2^20 tensors, and fewer than 2^32 slices of them.
                let (index, len) = (i as u32, member.body.len());
                Some((Reverse(rank(member.dtype)), member.name, index, len, text))
            })
            .collect();
        sorted.sort_unstable();
        let mut starts = Vec::with_capacity(sorted.len() + 1);
        let (mut end, mut written) = (0u64, (OPENING.len() + CLOSING.len()) as u64);
        starts.push(end);
        for (.., len, text) in &sorted {
            let start = end;
            end = end
                .checked_add(*len)
                .filter(|&end| end < i64::MAX as u64 - 2 * MAX_HEADER)
                .ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
            written += text + digits(start) + digits(end);
            starts.push(end);
        }
        let order: Box<[u32]> = sorted.into_iter().map(|(_, _, i, ..)| i).collect();
        Ok(Plan { members, order, starts: starts.into(), written })
    }

    /// Bytes of the header, with the spaces that align the data.
    fn header_len(&self) -> u64 {
        (8 + self.written).next_multiple_of(ALIGNMENT) - 8
    }
}

/// What the header begins with. Some loaders insist on a format; "pt" is what all of them take.
const OPENING: &[u8] = br#"{"__metadata__":{"format":"pt"}"#;
/// What it ends with.
const CLOSING: &[u8] = b"}";

/// Digits of a number.
pub(crate) fn digits(n: u64) -> u64 {
    u64::from(n.checked_ilog10().unwrap_or(0)) + 1
}

/// Bytes of a tensor's entry in the header, but for the digits of its offsets.
pub(crate) fn entry_len(name: &str, dtype: DType, shape: &[u64]) -> u64 {
    const FIXED: &str = r#","":{"dtype":"","shape":[],"data_offsets":[,]}"#;
    let commas = (shape.len() as u64).saturating_sub(1);
    let dims = shape.iter().map(|&dim| digits(dim)).sum::<u64>() + commas;
    FIXED.len() as u64 + escaped_len(name) + dtype.name().len() as u64 + dims
}

impl Data for Plan {
    fn starts(&self) -> &[u64] {
        &self.starts
    }

    fn body(&self, i: usize) -> Body {
        let member = self.members.member(self.order[i] as usize);
        member.expect("planned with a body, and nothing changes").body
    }
}

/// The header, entry by entry: the opening with the metadata, each tensor, the end.
impl Lines for Plan {
    fn count(&self) -> u64 {
        self.order.len() as u64 + 2
    }

    fn len_of(&self, index: u64) -> Option<u64> {
        let Some(i) = index.checked_sub(1) else {
            return Some(OPENING.len() as u64);
        };
        let i = i as usize;
        let Some(&member) = self.order.get(i) else {
            return Some(CLOSING.len() as u64);
        };
        let Some(Member { name, dtype, shape, .. }) = self.members.member(member as usize) else {
            return Some(0);
        };
        let offsets = digits(self.starts[i]) + digits(self.starts[i + 1]);
        Some(entry_len(&name, dtype, &shape) + offsets)
    }

    fn write(&self, _: &Store, index: u64, out: &mut Vec<u8>) -> io::Result<()> {
        self.write_entry(index, out)
    }
}

impl Plan {
    fn write_entry(&self, index: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(i) = index.checked_sub(1) else {
            out.extend(OPENING);
            return Ok(());
        };
        let i = i as usize;
        let Some(&member) = self.order.get(i) else {
            out.extend(CLOSING);
            return Ok(());
        };
        let Some(Member { name, dtype, shape, .. }) = self.members.member(member as usize) else {
            return Ok(());
        };
        out.extend(b",\"");
        escape_into(&name, out);
        write!(out, "\":{{\"dtype\":\"{}\",\"shape\":[", dtype.name())?;
        for (at, dim) in shape.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(out, "{comma}{dim}")?;
        }
        write!(out, "],\"data_offsets\":[{},{}]}}", self.starts[i], self.starts[i + 1])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::Extent;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[derive(Debug)]
    struct Few(Vec<(String, Vec<u64>)>);

    impl Members for Few {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn member(&self, index: usize) -> Option<Member<'_>> {
            let (name, shape) = &self.0[index];
            let dtype = [DType::F32, DType::F8_E4M3FNUZ, DType::U8][index % 3];
            let len = shape.iter().product();
            let body = Body::Span(Extent { shard: 0, offset: 0, len });
            (index % 7 != 5).then(|| Member { name: name.into(), dtype, shape: shape.into(), body })
        }
    }

    proptest! {
        #[test]
        fn a_header_has_the_length_that_is_told_before_it_is_written(
            few in proptest::collection::vec(
                ("[a-z\"\\\\/\u{0}-\u{20}\u{7e}-\u{a0}\u{20ac}\u{1f600}]{0,12}",
                 proptest::collection::vec(0u64..2000, 0..4)), 0..20)
        ) {
            let plan = Plan::new(Arc::new(Few(few))).unwrap();
            let mut text = Vec::new();
            for index in 0..plan.count() {
                let before = text.len() as u64;
                plan.write_entry(index, &mut text).unwrap();
                prop_assert_eq!(plan.len_of(index), Some(text.len() as u64 - before));
            }
            prop_assert_eq!(plan.written, text.len() as u64);
            prop_assert!(plan.header_len() >= plan.written && (plan.header_len() + 8).is_multiple_of(64));
            let mut names = Vec::new();
            for (at, &i) in plan.order.iter().enumerate() {
                let member = plan.members.member(i as usize).unwrap();
                names.push(json!({ &*member.name: {
                    "dtype": member.dtype.name(), "shape": member.shape,
                    "data_offsets": [plan.starts[at], plan.starts[at + 1]],
                }}).to_string());
            }
            let entries: String =
                names.iter().map(|entry| format!(",{}", &entry[1..entry.len() - 1])).collect();
            let want = format!("{{\"__metadata__\":{{\"format\":\"pt\"}}{entries}}}");
            prop_assert_eq!(std::str::from_utf8(&text).unwrap(), &*want);
            prop_assert!(serde_json::from_slice::<Value>(&text).is_ok());
        }
    }

    #[test]
    fn digits_of_numbers() {
        for n in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            assert_eq!(digits(n), n.to_string().len() as u64);
        }
    }
}
