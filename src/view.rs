//! The contents a tensor or a model can be shown as. Plans, never reads tensors.
//!
//! Must not know inodes, or how bytes are checked.

use crate::content::{Body, Content, Swap};
use crate::dtype::DType;
use crate::model::{ByteOrder, Model};
use crate::naming::Mounted;

pub mod document;
pub mod json;
pub mod npy;
pub mod text;

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

/// The stored bytes of a tensor, little-endian where that is defined.
pub fn raw(model: &Model, tensor: &Mounted<'_>) -> Content<'static> {
    Content { head: (&[]).into(), body: raw_body(model, tensor) }
}

fn raw_body(model: &Model, tensor: &Mounted<'_>) -> Body {
    match stored_form(tensor.dtype, model.byte_order) {
        Stored::Swapped(swap) => Body::Swapped(tensor.extent, swap),
        Stored::AsIs | Stored::Undefined => Body::Span(tensor.extent),
    }
}

/// The stored bytes behind a numpy header, where numpy has the type.
pub fn npy(model: &Model, tensor: &Mounted<'_>) -> Option<Content<'static>> {
    let header = npy::header(npy::descr(tensor.dtype)?, tensor.shape)?;
    Some(Content { head: header.into(), body: raw_body(model, tensor) })
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
