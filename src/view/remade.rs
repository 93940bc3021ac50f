//! How the values of a checkpoint are made from those that a converter stored.

use super::{Repr, Stock, Stored, body as plain, fits, stored_form};
use crate::content::Body;
use crate::content::remade::{Adjusted, Arithmetic, Heads, Moved, Mxfp4, Remade};
use crate::content::rows::{Order, Part, Rows};
use crate::content::transposed::{Planes, Transposed};
use crate::dtype::DType;
use crate::model::elements;
use crate::naming::{Mounted, Transform};
use crate::quant::{self, Target};
use std::sync::Arc;

/// The values of a tensor that has a transform; `None` when it has none in that type.
pub(super) fn body(stock: Stock<'_>, tensor: &Mounted<'_>, repr: Repr) -> Option<Body> {
    let target = match repr {
        Repr::Stored => None,
        Repr::Float(_) if !quant::can_decode(tensor.dtype) => return None,
        Repr::Float(target) => {
            fits(elements(tensor.shape), target)?;
            Some(target)
        }
    };
    if tensor.nbytes == 0 {
        return Some(Body::Empty);
    }
    let remade = match tensor.transform {
        Transform::None => return plain(stock, tensor, repr),
        Transform::RopeRows { heads } => {
            let rows = first(tensor);
            moved(stock, tensor, rows, Order::Rope { rows: rows / u64::from(heads) }, target)?
        }
        Transform::Qkv3 { heads } => {
            let (rows, heads) = (first(tensor), u64::from(heads));
            moved(stock, tensor, rows, Order::Qkv3 { heads, rows: rows / (3 * heads) }, target)?
        }
        Transform::Falcon { heads, kv_heads } => {
            let (heads, kv_heads) = (u64::from(heads), u64::from(kv_heads));
            let rows = first(tensor);
            let per_head = rows / (heads + 2 * kv_heads);
            moved(stock, tensor, rows, Order::Falcon { heads, kv_heads, rows: per_head }, target)?
        }
        Transform::Interleave { .. } => {
            moved(stock, tensor, elements(tensor.shape), Order::Interleave, target)?
        }
        Transform::SubtractOne => adjusted(stock, tensor, Arithmetic::SubtractOne, target)?,
        Transform::LogNegated => adjusted(stock, tensor, Arithmetic::LogNegated, target)?,
        Transform::Transpose | Transform::InterleaveTranspose { .. } => {
            Remade::Transposed(transposed(stock, tensor, tensor.shape, target)?)
        }
        Transform::HeadsJoined { other } => heads(stock, tensor, other, target)?,
        Transform::Mxfp4Blocks { .. } => Remade::Mxfp4(mxfp4(stock, tensor, false)?),
        Transform::Mxfp4Scales { .. } => Remade::Mxfp4(mxfp4(stock, tensor, true)?),
    };
    Some(Body::Remade(Box::new(remade)))
}

/// The first dimension.
fn first(tensor: &Mounted<'_>) -> u64 {
    tensor.shape.first().copied().unwrap_or(0)
}

/// The stored tensor that `tensor` is made from, or the other one: as it would be shown if
/// nothing had to be undone.
fn source<'a>(stock: Stock<'a>, tensor: &Mounted<'_>, other: Option<u32>) -> Mounted<'a> {
    let source = other.unwrap_or(tensor.source);
    let stored = &stock.model.tensors[source as usize];
    Mounted {
        name: &stored.name,
        source,
        dtype: stored.dtype,
        shape: &stored.shape,
        nbytes: stored.extent.len,
        stored: stored.dtype,
        extent: if other.is_some() { stored.extent } else { tensor.extent },
        transform: Transform::None,
    }
}

/// A slice of a stored tensor as it would be shown if nothing had to be undone.
fn untouched<'a>(stock: Stock<'a>, tensor: &Mounted<'a>) -> Mounted<'a> {
    Mounted { shape: tensor.shape, ..source(stock, tensor, None) }
}

fn is_scaled(stock: Stock<'_>, source: u32) -> bool {
    stock.scales.of(stock.model, source).is_some()
}

/// `rows` rows in `order`. The rows of a scaled weight are decoded first, all others last.
fn moved(
    stock: Stock<'_>,
    tensor: &Mounted<'_>,
    rows: u64,
    order: Order,
    target: Option<Target>,
) -> Option<Remade> {
    let other = tensor.transform.other();
    let own = untouched(stock, tensor);
    let second = other.map(|_| source(stock, tensor, other));
    let scaled = is_scaled(stock, own.source)
        || second.as_ref().is_some_and(|second| is_scaled(stock, second.source));
    let mixed = tensor.dtype != own.dtype || second.as_ref().is_some_and(|s| s.dtype != own.dtype);
    if mixed || scaled && target.is_some() {
        let to = target.unwrap_or(Target::F32);
        // Read in the order that is stored, as rows of the type shown.
        let part = |part: &Mounted<'_>| {
            plain(stock, part, Repr::Float(to)).map(|body| Part::Body(Box::new(body)))
        };
        let row_bytes = elements(tensor.shape).checked_div(rows)? * to.size() as u64;
        let part_of_other = match &second {
            Some(second) => Some(part(second)?),
            None => None,
        };
        let rows = Rows { part: part(&own)?, other: part_of_other, row_bytes, rows, order };
        return Some(Remade::Moved(Moved { rows, from: to.dtype(), swap: None, to: None }));
    }
    let swap = match stored_form(own.dtype, stock.model.byte_order) {
        Stored::Swapped(swap) => Some(swap),
        Stored::AsIs => None,
        Stored::Undefined if target.is_some() => return None,
        Stored::Undefined => None,
    };
    let rows = Rows {
        part: Part::Span(own.extent),
        other: second.map(|second| Part::Span(second.extent)),
        row_bytes: tensor.nbytes.checked_div(rows)?,
        rows,
        order,
    };
    let to = target.filter(|to| to.dtype() != own.dtype);
    Some(Remade::Moved(Moved { rows, from: own.dtype, swap, to }))
}

fn adjusted(
    stock: Stock<'_>,
    tensor: &Mounted<'_>,
    arithmetic: Arithmetic,
    target: Option<Target>,
) -> Option<Remade> {
    let values = plain(stock, &untouched(stock, tensor), Repr::Float(Target::F32))?;
    let to = target.unwrap_or(Target::F32);
    Some(Remade::Adjusted(Adjusted { values: Box::new(values), arithmetic, to }))
}

/// Stored planes, to be shown as values of type `values`.
fn planes(stock: Stock<'_>, stored: &Mounted<'_>, values: DType) -> Option<Planes> {
    let extent = stored.extent;
    if is_scaled(stock, stored.source) && values != stored.dtype {
        let body = plain(stock, stored, Repr::Float(Target::F32))?;
        let part = Part::Body(Box::new(body));
        return Some(Planes { part, extent, dtype: DType::F32, swap: None });
    }
    let swap = match stored_form(stored.dtype, stock.model.byte_order) {
        Stored::Swapped(swap) => Some(swap),
        Stored::AsIs => None,
        Stored::Undefined => return None,
    };
    if stored.dtype != values && !quant::can_decode(stored.dtype) {
        return None;
    }
    Some(Planes { part: Part::Span(extent), extent, dtype: stored.dtype, swap })
}

/// The last two dimensions of `shape` exchanged, as it is shown.
fn transposed(
    stock: Stock<'_>,
    tensor: &Mounted<'_>,
    shape: &[u64],
    target: Option<Target>,
) -> Option<Transposed> {
    let other = match tensor.transform {
        Transform::InterleaveTranspose { other } => Some(other),
        _ => None,
    };
    let mut all = vec![planes(stock, &source(stock, tensor, None), tensor.dtype)?];
    if other.is_some() {
        all.push(planes(stock, &source(stock, tensor, other), tensor.dtype)?);
    }
    let [lead @ .., columns, row] = shape else {
        return None;
    };
    Some(Transposed {
        rows: row / all.len() as u64,
        planes: all,
        count: elements(lead),
        columns: *columns,
        values: tensor.dtype,
        to: target.filter(|to| to.dtype() != tensor.dtype),
        panels: Arc::clone(stock.scales.panels()),
    })
}

/// Per head the transposed plane of this tensor, then that of the other as it is.
fn heads(
    stock: Stock<'_>,
    tensor: &Mounted<'_>,
    other: u32,
    target: Option<Target>,
) -> Option<Remade> {
    let [heads, rank, width] = *stock.model.tensors[tensor.source as usize].shape else {
        return None;
    };
    let first = transposed(stock, tensor, &[heads, width, rank], target)?;
    let values = source(stock, tensor, Some(other));
    let repr = match target {
        None if values.dtype == tensor.dtype => Repr::Stored,
        None => Repr::Float(Target::F32),
        Some(target) => Repr::Float(target),
    };
    let second = Box::new(plain(stock, &values, repr)?);
    Some(Remade::Heads(Heads { first, second, heads }))
}

fn mxfp4(stock: Stock<'_>, tensor: &Mounted<'_>, scales: bool) -> Option<Mxfp4> {
    let own = source(stock, tensor, None);
    let other = tensor.transform.other();
    let blocks = match other {
        None => Body::Span(own.extent),
        Some(_) => {
            let second = source(stock, tensor, other);
            let row = *own.shape.last()?;
            let row_bytes = own.dtype.nbytes(row)?;
            let rows = 2 * elements(own.shape).checked_div(row)?;
            let rows = Rows {
                part: Part::Span(own.extent),
                other: Some(Part::Span(second.extent)),
                row_bytes,
                rows,
                order: Order::Interleave,
            };
            Body::Remade(Box::new(Remade::Moved(Moved {
                rows,
                from: own.dtype,
                swap: None,
                to: None,
            })))
        }
    };
    Some(Mxfp4 { blocks: Box::new(blocks), scales })
}
