//! The values of one tensor: how they are read, piece by piece.

use super::SurveyError;
use super::lane::Lane;
use crate::content::Content;
use crate::dtype::DType;
use crate::naming::Mounted;
use crate::quant::Target;
use crate::scale::Known;
use crate::store::{ReadFailure, Store};
use crate::view::json::lossy;
use crate::view::{self, Repr, Stock};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

/// Elements of a piece. Fixed: where pieces end decides how sums are rounded. A multiple of the
/// elements of every block.
pub(super) const PIECE: u64 = 1 << 18;

/// The values that a tensor has.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) lane: Lane,
    content: Content<'static>,
}

/// A tensor as it is surveyed.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    /// The name of its values: a decoded weight may be called otherwise than its codes.
    pub(super) name: Cow<'a, [u8]>,
    /// The type as served in `tensors/`.
    pub(super) dtype: DType,
    /// The shape of its values.
    pub(super) shape: Cow<'a, [u64]>,
    /// Bytes in the source.
    pub(super) nbytes: u64,
    /// Whether its values are codes times scales.
    pub(super) scaled: bool,
    /// `None`: it has no values.
    pub(super) values: Option<Values>,
}

impl<'a> Subject<'a> {
    /// Plans the values of `tensor`.
    pub(super) fn new(stock: Stock<'_>, tensor: &Mounted<'a>) -> Subject<'a> {
        const FLOAT: Repr = Repr::Float(Target::F32);
        let content = |repr| view::bin(stock, tensor, repr);
        let stored = || {
            let lane = Lane::of(tensor.dtype)?;
            Some(Values { lane, content: content(Repr::Stored)? })
        };
        let float = || Some(Values { lane: Lane::F32, content: content(FLOAT)? });
        let known = stock.scales.of(stock.model, tensor.source);
        let decoded = match known {
            Some(Known::Scaled(_)) => float(),
            _ => None,
        };
        let scaled = decoded.is_some();
        let repr = if scaled { FLOAT } else { Repr::Stored };
        Subject {
            name: view::name(stock, tensor, repr),
            dtype: tensor.dtype,
            shape: view::shape(stock, tensor, repr),
            nbytes: tensor.extent.len,
            scaled,
            values: decoded.or_else(stored).or_else(float),
        }
    }

    /// The error of a read, with the tensor's name.
    pub(super) fn failed(&self, source: ReadFailure) -> SurveyError {
        SurveyError { name: lossy(&self.name).into_owned(), source }
    }

    /// Bytes of the source that pieces up to `piece` stand for, of `pieces` in all.
    pub(super) fn share(&self, piece: u64, pieces: u64) -> u64 {
        let part = u128::from(self.nbytes) * u128::from(piece) / u128::from(pieces.max(1));
        u64::try_from(part).unwrap_or(self.nbytes)
    }
}

impl Values {
    /// The values as they are compared: complex numbers by their parts.
    pub(super) fn parts(&self) -> (Lane, &Content<'static>) {
        let lane = if self.lane == Lane::Complex { Lane::F32 } else { self.lane };
        (lane, &self.content)
    }

    /// Number of elements.
    pub(super) fn elements(&self) -> u64 {
        self.content.len() / self.lane.width() as u64
    }

    /// Number of pieces.
    pub(super) fn pieces(&self) -> u64 {
        self.elements().div_ceil(PIECE)
    }

    /// Bytes of one piece.
    fn range(&self, piece: u64) -> Range<u64> {
        let bytes = PIECE * self.lane.width() as u64;
        let start = piece.saturating_mul(bytes);
        start..start.saturating_add(bytes).min(self.content.len())
    }

    /// Reads a piece and gives it to `work`.
    pub(super) fn piece<R>(
        &self,
        store: &Store,
        piece: u64,
        work: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, ReadFailure> {
        BUFFER.with_borrow_mut(|buffer| {
            read_range(&self.content, store, self.range(piece), buffer).map(work)
        })
    }
}

/// Reads a range of a content into a buffer that grows to the longest one.
pub(super) fn read_range<'b>(
    content: &Content<'_>,
    store: &Store,
    range: Range<u64>,
    buffer: &'b mut Vec<u8>,
) -> Result<&'b [u8], ReadFailure> {
    // At most a piece of the widest elements.
    let len = (range.end - range.start) as usize;
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    content.read(store, range.start, &mut buffer[..len])?;
    Ok(&buffer[..len])
}

thread_local! {
    /// The piece that a thread works on.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
