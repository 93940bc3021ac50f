//! The contents a tensor or a model can be shown as. Plans, never reads tensors.
//!
//! Must not know inodes, or how bytes are checked.

use crate::content::{Body, Content, Decoded, Swap};
use crate::dtype::DType;
use crate::model::{ByteOrder, Extent, Model};
use crate::naming::Mounted;
use crate::quant::{self, Target};

pub mod document;
pub mod json;
pub mod npy;
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
    let fields: &'static [(usize, usize)] = match dtype {
        DType::Q4_0 | DType::Q8_0 => &[(0, 2)],
        DType::Q4_K => &[(0, 2), (2, 2)],
        DType::Q6_K => &[(208, 2)],
        DType::MXFP4 | DType::NVFP4 => return Stored::AsIs,
        _ => match (dtype.block().elements, dtype.block().bytes) {
            (1, 1) => return Stored::AsIs,
            (1, 2) => &[(0, 2)],
            (1, 4) => &[(0, 4)],
            (1, 8) => &[(0, 8)],
            _ => return Stored::Undefined,
        },
    };
    Stored::Swapped(Swap { block: dtype.block().bytes as usize, fields })
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

/// The type in which `tensor` is shown under `repr`; `None` when it has no values there.
pub fn shown(model: &Model, tensor: &Mounted<'_>, repr: Repr) -> Option<DType> {
    match repr {
        Repr::Stored => Some(tensor.dtype),
        Repr::Float(target) => decoded(model, tensor, target).map(|_| target.dtype()),
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
    // A view longer than a file can be has no file; with the header of a .npy in front too.
    const LONGEST: u64 = i64::MAX as u64 - (1 << 20);
    let elements = tensor.extent.len / tensor.dtype.block().bytes;
    let bytes =
        elements.checked_mul(tensor.dtype.block().elements)?.checked_mul(to.size() as u64)?;
    (bytes <= LONGEST).then_some(Decoded { extent: tensor.extent, from: tensor.dtype, swap, to })
}

/// The values of a tensor, little-endian, without anything in front.
pub fn body(model: &Model, tensor: &Mounted<'_>, repr: Repr) -> Option<Body> {
    match repr {
        Repr::Float(target) if tensor.dtype != target.dtype() => {
            decoded(model, tensor, target).map(Body::Decoded)
        }
        Repr::Stored | Repr::Float(_) => {
            Some(stored(tensor.dtype, model.byte_order, tensor.extent))
        }
    }
}

/// `NAME.bin`.
pub fn bin(model: &Model, tensor: &Mounted<'_>, repr: Repr) -> Option<Content<'static>> {
    Some(Content { head: (&[]).into(), body: body(model, tensor, repr)? })
}

/// `NAME.npy`, where numpy has the type.
pub fn npy(model: &Model, tensor: &Mounted<'_>, repr: Repr) -> Option<Content<'static>> {
    let descr = npy::descr(shown(model, tensor, repr)?)?;
    let header = npy::header(descr, tensor.shape)?;
    Some(Content { head: header.into(), body: body(model, tensor, repr)? })
}

/// Whether there is a `NAME.npy`; cheaper than planning it.
pub fn has_npy(model: &Model, tensor: &Mounted<'_>, repr: Repr) -> bool {
    tensor.shape.len() <= npy::MAX_DIMENSIONS
        && shown(model, tensor, repr).is_some_and(|dtype| npy::descr(dtype).is_some())
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
