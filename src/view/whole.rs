//! The whole model as one virtual file: a header, then each tensor's bytes at its place.
//!
//! Here is the reading, and the safetensors file; [`gguf`] is the other one. The header is text that is written while it is read, the data one body per tensor;
//! kept are an order and an offset per tensor. safetensors is laid out as the reference
//! writer does: by type (widest first), then by name, without holes, data aligned to 64 bytes.

use crate::content::Body;
use crate::dtype::DType;
use crate::format::safetensors::DTYPES;
use crate::model::Model;
use crate::store::{ReadFailure, Store};
use crate::view::text::{Builder, Lines, Text};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::io;
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
}

impl Whole {
    /// Plans `model.safetensors`. Fails when the sum of sizes is more than a file can have.
    pub fn new(members: Arc<dyn Members>, model: &Arc<Model>, store: &Store) -> io::Result<Whole> {
        let plan = Arc::new(Plan::new(members)?);
        let mut measure = Builder::new(model, store);
        measure.lines(Arc::clone(&plan) as Arc<dyn Lines>)?;
        let written = measure.finish().len();
        let padded = (8 + written).next_multiple_of(ALIGNMENT) - 8;
        let mut header = Builder::new(model, store);
        header.bytes(&padded.to_le_bytes());
        header.lines(Arc::clone(&plan) as Arc<dyn Lines>)?;
        header.bytes(&vec![b' '; (padded - written) as usize]);
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
                // A model has at most 2^20 tensors, and fewer than 2^32 slices of them.
                Some((Reverse(rank(member.dtype)), member.name, i as u32, member.body.len()))
            })
            .collect();
        sorted.sort_unstable();
        let mut starts = Vec::with_capacity(sorted.len() + 1);
        let mut end = 0u64;
        starts.push(end);
        for (.., len) in &sorted {
            end = end
                .checked_add(*len)
                .filter(|&end| end < i64::MAX as u64 - 2 * MAX_HEADER)
                .ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
            starts.push(end);
        }
        let order: Box<[u32]> = sorted.into_iter().map(|(_, _, i, _)| i).collect();
        Ok(Plan { members, order, starts: starts.into() })
    }
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

    fn write(&self, _: &Store, index: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(i) = index.checked_sub(1) else {
            // Some loaders insist on a format; "pt" is what all of them take.
            out.extend(br#"{"__metadata__":{"format":"pt"}"#);
            return Ok(());
        };
        let i = i as usize;
        let Some(&member) = self.order.get(i) else {
            out.push(b'}');
            return Ok(());
        };
        let Some(Member { name, dtype, shape, .. }) = self.members.member(member as usize) else {
            return Ok(());
        };
        let entry = serde_json::json!({
            "dtype": dtype.name(),
            "shape": shape,
            "data_offsets": [self.starts[i], self.starts[i + 1]],
        });
        out.push(b',');
        out.extend(serde_json::Value::from(&*name).to_string().as_bytes());
        out.push(b':');
        out.extend(entry.to_string().as_bytes());
        Ok(())
    }
}
