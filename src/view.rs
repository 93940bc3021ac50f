//! The contents a tensor or a model can be shown as. Plans, never reads tensors.
//!
//! Must not know inodes, or how bytes are checked.

use crate::content::{Body, Content, Decoded, Swap};
use crate::dtype::DType;
use crate::model::{ByteOrder, Extent, Model, elements};
use crate::naming::{Mounted, Transform};
use crate::quant::{self, Target};
use crate::scale::{Known, Scaled, Scales};
use std::borrow::Cow;

pub mod document;
pub mod json;
pub mod npy;
pub mod provenance;
mod remade;
pub mod scaled;
pub mod sums;
pub mod text;
pub mod whole;

/// How the stored bytes of a tensor come to be served little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// As they are: little-endian already, or without multi-byte fields.
    AsIs,
    /// Each multi-byte field turned.
    Swapped(Swap),
    /// Big-endian, and nobody defines how its blocks are laid out there: as they are, and said so.
    Undefined,
}

/// What a tensor of type `dtype` in a file of `order` needs (facts: gguf 1.7).
pub fn stored_form(dtype: DType, order: ByteOrder) -> Stored {
    if order == ByteOrder::Little {
        return Stored::AsIs;
    }
    match dtype.numbers() {
        None => Stored::Undefined,
        Some([]) => Stored::AsIs,
        Some(fields) => Stored::Swapped(Swap { block: dtype.block().bytes as usize, fields }),
    }
}

/// Stored values of type `dtype` in a file of `order`, little-endian where that is defined.
pub(crate) fn stored(dtype: DType, order: ByteOrder, extent: Extent) -> Body {
    match stored_form(dtype, order) {
        Stored::Swapped(swap) => Body::Swapped(extent, swap),
        Stored::AsIs | Stored::Undefined => Body::Span(extent),
    }
}

/// In which type a tensor's values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repr {
    /// As stored.
    Stored,
    /// Every float or quantised tensor, decoded.
    Float(Target),
}

impl Repr {
    /// All of them, in the order in which their directories are listed.
    pub const ALL: [Repr; 4] = [
        Repr::Stored,
        Repr::Float(Target::F32),
        Repr::Float(Target::F16),
        Repr::Float(Target::BF16),
    ];

    /// The directory that holds tensors shown like this.
    pub const fn directory(self) -> &'static str {
        match self {
            Repr::Stored => "tensors",
            Repr::Float(Target::F32) => "f32",
            Repr::Float(Target::F16) => "f16",
            Repr::Float(Target::BF16) => "bf16",
        }
    }
}

/// The stored model and the scales of its weights: what every view is planned from.
#[derive(Clone, Copy, Debug)]
pub struct Stock<'a> {
    /// The stored model.
    pub model: &'a Model,
    /// Its weights that are codes with scales.
    pub scales: &'a Scales,
}

/// The type in which `tensor` is shown under `repr`; `None` when it has no values there.
pub fn shown(stock: Stock<'_>, tensor: &Mounted<'_>, repr: Repr) -> Option<DType> {
    match repr {
        Repr::Stored => Some(tensor.dtype),
        Repr::Float(target) if tensor.transform != Transform::None => {
            remade::body(stock, tensor, repr).map(|_| target.dtype())
        }
        Repr::Float(target) => converted(stock, tensor, target).map(|_| target.dtype()),
    }
}

/// The name under which `tensor` is shown: a decoded weight has that of its values.
pub fn name<'a>(stock: Stock<'_>, tensor: &Mounted<'a>, repr: Repr) -> Cow<'a, [u8]> {
    match stock.scales.of(stock.model, tensor.source) {
        Some(Known::Scaled(weight)) if repr != Repr::Stored => weight.method.name(tensor.name),
        _ => tensor.name.into(),
    }
}

/// The shape under which `tensor` is shown.
pub fn shape<'a>(stock: Stock<'_>, tensor: &Mounted<'a>, repr: Repr) -> Cow<'a, [u64]> {
    let stored = &stock.model.tensors[tensor.source as usize].shape;
    match stock.scales.of(stock.model, tensor.source) {
        Some(Known::Scaled(weight)) if repr != Repr::Stored => {
            weight.method.shape(stored, tensor.shape).unwrap_or(tensor.shape.into())
        }
        _ => tensor.shape.into(),
    }
}

/// The plan of a tensor's values in a float type, whatever it is stored in.
fn converted(stock: Stock<'_>, tensor: &Mounted<'_>, to: Target) -> Option<Body> {
    let Stock { model, scales } = stock;
    let stored = &model.tensors[tensor.source as usize];
    match scales.of(model, tensor.source) {
        Some(Known::Hidden(_)) => None,
        Some(Known::Scaled(weight)) => {
            let shape = weight.method.shape(&stored.shape, tensor.shape)?;
            let count = if shape.contains(&0) {
                0
            } else {
                shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?
            };
            fits(count, to)?;
            Scaled::plan(weight, stored, tensor.extent, count, model.byte_order, to)
                .map(|scaled| Body::Scaled(Box::new(scaled)))
        }
        Some(Known::Unscaled(_)) if !quant::can_decode(tensor.dtype) => {
            fits(elements(tensor.shape), to)?;
            Scaled::cast(stored, tensor.extent, to).map(|scaled| Body::Scaled(Box::new(scaled)))
        }
        _ => decoded(model, tensor, to).map(Body::Decoded),
    }
}

fn decoded(model: &Model, tensor: &Mounted<'_>, to: Target) -> Option<Decoded> {
    if !quant::can_decode(tensor.dtype) {
        return None;
    }
    let swap = match stored_form(tensor.dtype, model.byte_order) {
        Stored::AsIs => None,
        Stored::Swapped(swap) => Some(swap),
        Stored::Undefined => return None,
    };
    let elements = tensor.extent.len / tensor.dtype.block().bytes;
    fits(elements.checked_mul(tensor.dtype.block().elements)?, to)?;
    Some(Decoded { extent: tensor.extent, from: tensor.dtype, swap, to })
}

/// A view longer than a file can be has no file; with the header of a .npy in front too.
fn fits(elements: u64, to: Target) -> Option<()> {
    const LONGEST: u64 = i64::MAX as u64 - (1 << 20);
    (elements.checked_mul(to.size() as u64)? <= LONGEST).then_some(())
}

/// The values of a tensor, little-endian, without anything in front.
pub fn body(stock: Stock<'_>, tensor: &Mounted<'_>, repr: Repr) -> Option<Body> {
    if tensor.transform != Transform::None {
        return remade::body(stock, tensor, repr);
    }
    match repr {
        Repr::Float(target) if tensor.dtype != target.dtype() => converted(stock, tensor, target),
        Repr::Stored | Repr::Float(_) => {
            Some(stored(tensor.dtype, stock.model.byte_order, tensor.extent))
        }
    }
}

/// `NAME.bin`.
pub fn bin(stock: Stock<'_>, tensor: &Mounted<'_>, repr: Repr) -> Option<Content<'static>> {
    Some(Content { head: (&[]).into(), body: body(stock, tensor, repr)? })
}

/// `NAME.npy`, where numpy has the type.
pub fn npy(stock: Stock<'_>, tensor: &Mounted<'_>, repr: Repr) -> Option<Content<'static>> {
    let descr = npy::descr(shown(stock, tensor, repr)?)?;
    let header = npy::header(descr, &shape(stock, tensor, repr))?;
    Some(Content { head: header.into(), body: body(stock, tensor, repr)? })
}

/// Whether there is a `NAME.npy`; cheaper than planning it.
pub fn has_npy(stock: Stock<'_>, tensor: &Mounted<'_>, repr: Repr) -> bool {
    tensor.shape.len() <= npy::MAX_DIMENSIONS
        && shown(stock, tensor, repr).is_some_and(|dtype| npy::descr(dtype).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_endian_forms_follow_the_reference_converter() {
        use ByteOrder::Big;
        assert_eq!(stored_form(DType::F32, ByteOrder::Little), Stored::AsIs);
        assert_eq!(stored_form(DType::I8, Big), Stored::AsIs);
        assert_eq!(stored_form(DType::MXFP4, Big), Stored::AsIs);
        assert_eq!(stored_form(DType::Q5_0, Big), Stored::Undefined);
        assert_eq!(stored_form(DType::Q4_1, Big), Stored::Undefined);
        assert_eq!(
            stored_form(DType::Q6_K, Big),
            Stored::Swapped(Swap { block: 210, fields: &[(208, 2)] })
        );
        assert_eq!(
            stored_form(DType::F64, Big),
            Stored::Swapped(Swap { block: 8, fields: &[(0, 8)] })
        );
    }
}
