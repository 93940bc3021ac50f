//! What a file of the mount is made of, and the one loop that reads it.
//!
//! A content is a few bytes in front and a body that comes from the store, as it is
//! or turned on the way. Must not know which file it is or why it looks so.

use crate::dtype::DType;
use crate::model::Extent;
use crate::quant::{self, Cover, Target};
use crate::scale::Scaled;
use crate::store::{ReadFailure, Store};
use crate::view::text::Text;
use crate::view::whole::Whole;
use remade::Remade;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

pub mod remade;
pub mod rows;
mod scaled;
pub mod transposed;
mod turn;

/// The bytes of one file.
#[derive(Clone, Debug)]
pub struct Content<'a> {
    /// Bytes made here: a whole document, or the header in front of a body.
    pub head: Cow<'a, [u8]>,
    /// What follows.
    pub body: Body,
}

/// The part of a file that is not made in advance.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "made for each read: a box would be an allocation")]
pub enum Body {
    /// Nothing.
    Empty,
    /// Stored bytes as they are.
    Span(Extent),
    /// Stored bytes of a big-endian file, each field turned little-endian.
    Swapped(Extent, Swap),
    /// Stored blocks decoded to a plain float type.
    Decoded(Decoded),
    /// Codes times their scales.
    Scaled(Box<Scaled>),
    /// Values that a converter changed, changed back.
    Remade(Box<Remade>),
    /// Many tensors, each at its place behind a header.
    Whole(Arc<Whole>),
    /// A document that is written while it is read.
    Text(Arc<Text>),
}

/// Stored values shown in another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Whole blocks of `from`.
    pub extent: Extent,
    /// Their type.
    pub from: DType,
    /// How they are turned little-endian first, in a big-endian file.
    pub swap: Option<Swap>,
    /// The type shown.
    pub to: Target,
}

impl Decoded {
    /// Bytes of the decoded form; the sizes were checked when the view was planned.
    pub fn len(&self) -> u64 {
        let block = self.from.block();
        self.extent.len / block.bytes * block.elements * self.to.size() as u64
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.extent.len == 0
    }
}

/// Which bytes of a block form multi-byte numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Bytes of a block; an extent holds whole blocks.
    pub block: usize,
    /// Offset and width, in bytes, of each field in the block.
    pub fields: &'static [(usize, usize)],
}

impl Swap {
    /// Reverses the bytes of every field; `bytes` holds whole blocks.
    pub fn apply(self, bytes: &mut [u8]) {
        if let [(0, width)] = *self.fields
            && width == self.block
        {
            // Plain elements: fixed widths let the compiler use shuffles.
            match width {
                2 => swap_all::<2>(bytes),
                4 => swap_all::<4>(bytes),
                _ => swap_all::<8>(bytes),
            }
            return;
        }
        for block in bytes.chunks_exact_mut(self.block) {
            for &(offset, width) in self.fields {
                block[offset..offset + width].reverse();
            }
        }
    }
}

fn swap_all<const N: usize>(bytes: &mut [u8]) {
    for element in bytes.as_chunks_mut::<N>().0 {
        element.reverse();
    }
}

impl Content<'_> {
    /// A document held in memory.
    pub fn document(bytes: Vec<u8>) -> Content<'static> {
        Content { head: Cow::Owned(bytes), body: Body::Empty }
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.head.len() as u64 + self.body.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from `offset` on into `out` and returns how many: fewer than asked
    /// only at the end of the file. On failure [`ReadFailure::good`] leading bytes of
    /// `out` are good.
    pub fn read(&self, store: &Store, offset: u64, out: &mut [u8]) -> Result<usize, ReadFailure> {
        let left = self.len().saturating_sub(offset);
        let wanted = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
        let out = &mut out[..wanted];
        let head_len = self.head.len() as u64;
        let mut done = 0;
        if offset < head_len {
            // Below head_len, which is a usize.
            let from = offset as usize;
            done = wanted.min(self.head.len() - from);
            out[..done].copy_from_slice(&self.head[from..from + done]);
        }
        if done < wanted {
            let from = (offset + done as u64) - head_len;
            self.body
                .read(store, from, &mut out[done..])
                .map_err(|f| ReadFailure { good: f.good + done, ..f })?;
        }
        Ok(wanted)
    }
}

impl Body {
    /// Size in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Span(extent) | Body::Swapped(extent, _) => extent.len,
            Body::Decoded(decoded) => decoded.len(),
            Body::Scaled(scaled) => scaled.len(),
            Body::Remade(remade) => remade.len(),
            Body::Text(text) => text.len(),
            Body::Whole(whole) => whole.len(),
        }
    }

    /// The one file that the bytes come from, where that is plain to see.
    pub(crate) fn shard(&self) -> Option<u32> {
        match self {
            Body::Span(extent) | Body::Swapped(extent, _) => Some(extent.shard),
            Body::Decoded(decoded) => Some(decoded.extent.shard),
            _ => None,
        }
    }

    /// Fills `out`, which lies inside the body.
    pub(crate) fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        match self {
            Body::Empty => Ok(()),
            Body::Span(extent) => store.read(*extent, from, out),
            Body::Swapped(extent, swap) => swapped(store, extent, *swap, from, out),
            Body::Decoded(Decoded { extent, from: dtype, swap, to }) => {
                decode(store, extent, *dtype, *swap, *to, from, out)
            }
            Body::Scaled(scaled) => scaled::read(store, scaled, from, out),
            Body::Remade(remade) => remade.read(store, from, out),
            Body::Whole(whole) => whole.read(store, from, out),
            Body::Text(text) => text.read(store, from, out),
        }
    }
}

/// Bytes that can be read from any place on.
trait Bytes {
    /// Fills `out`, which lies inside them. On failure tells how much of it is good.
    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure>;
}

impl Bytes for Extent {
    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        store.read(*self, from, out)
    }
}

thread_local! {
    /// Source bytes of one request on their way to being turned.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads the whole blocks that cover the request, once (each read is checked chunk by chunk,
/// so small pieces would check the same chunk again and again), turns them, and copies out
/// what was asked for.
fn swapped(
    store: &Store,
    source: &impl Bytes,
    swap: Swap,
    from: u64,
    out: &mut [u8],
) -> Result<(), ReadFailure> {
    let block = swap.block as u64;
    let start = from / block * block;
    // Less than one block.
    let skip = (from - start) as usize;
    let needed = (skip + out.len()).next_multiple_of(swap.block);
    if skip == 0 && needed == out.len() {
        let read = source.read(store, start, out);
        let good = read.as_ref().map_or_else(|f| f.good / swap.block * swap.block, |()| needed);
        swap.apply(&mut out[..good]);
        return read.map_err(|failure| ReadFailure { good, ..failure });
    }
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < needed {
            scratch.resize(needed, 0);
        }
        let blocks = &mut scratch[..needed];
        let read = source.read(store, start, blocks);
        // Only whole blocks can be turned.
        let whole = read.as_ref().map_or_else(|f| f.good / swap.block * swap.block, |()| needed);
        swap.apply(&mut blocks[..whole]);
        let good = whole.saturating_sub(skip).min(out.len());
        out[..good].copy_from_slice(&blocks[skip.min(whole)..][..good]);
        read.map_err(|failure| ReadFailure { good, ..failure })
    })
}

/// Stored bytes held at a time while they are decoded, a whole number of chunks of most grids: a
/// view that is narrower than what is stored would need several times the request otherwise.
const PIECE: u64 = 1 << 20;

/// Decodes the request into `out`, piece by piece.
fn decode(
    store: &Store,
    source: &impl Bytes,
    dtype: DType,
    swap: Option<Swap>,
    to: Target,
    from: u64,
    out: &mut [u8],
) -> Result<(), ReadFailure> {
    let block = dtype.block();
    // No block is larger than a piece.
    let piece = PIECE / block.bytes * block.elements * to.size() as u64;
    let mut done = 0;
    while done < out.len() {
        let at = from + done as u64;
        let take = (piece - at % piece).min((out.len() - done) as u64) as usize;
        decode_piece(store, source, dtype, swap, to, at, &mut out[done..done + take])
            .map_err(|f| ReadFailure { good: f.good + done, ..f })?;
        done += take;
    }
    Ok(())
}

/// Reads the blocks that cover a piece, once, and decodes them into `out`.
fn decode_piece(
    store: &Store,
    source: &impl Bytes,
    dtype: DType,
    swap: Option<Swap>,
    to: Target,
    from: u64,
    out: &mut [u8],
) -> Result<(), ReadFailure> {
    let cover = Cover::new(dtype, to, from..from + out.len() as u64)
        .expect("the range lies inside a view whose size was checked");
    let block = dtype.block().bytes;
    SCRATCH.with_borrow_mut(|scratch| {
        // Covers `out`, which is a slice in memory.
        let needed = (cover.source.end - cover.source.start) as usize;
        if scratch.len() < needed {
            scratch.resize(needed, 0);
        }
        let blocks = &mut scratch[..needed];
        let read = source.read(store, cover.source.start, blocks);
        let whole =
            read.as_ref().map_or_else(|f| f.good as u64 / block * block, |()| needed as u64);
        let blocks = &mut blocks[..whole as usize];
        if let Some(swap) = swap {
            swap.apply(blocks);
        }
        let values = whole / block * dtype.block().elements * to.size() as u64;
        let good = (values.saturating_sub(cover.skip) as usize).min(out.len());
        if good > 0 {
            quant::decode_part(dtype, blocks, to, cover.skip, &mut out[..good])
                .expect("whole blocks of a type with values, and as much room as they give");
        }
        read.map_err(|failure| ReadFailure { good, ..failure })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_block_are_turned_and_the_rest_is_not() {
        let swap = Swap { block: 5, fields: &[(0, 2), (3, 2)] };
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        swap.apply(&mut bytes);
        assert_eq!(bytes, [2, 1, 3, 5, 4, 7, 6, 8, 10, 9]);
    }

    #[test]
    fn plain_elements_are_reversed_whole() {
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        Swap { block: 4, fields: &[(0, 4)] }.apply(&mut bytes);
        assert_eq!(bytes, [4, 3, 2, 1, 8, 7, 6, 5]);
    }
}
