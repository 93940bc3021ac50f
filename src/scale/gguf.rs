//! GGUF: NVFP4 weights with a companion `.scale` (facts: scales 5).

use super::names::Names;
use super::{Codes, Dims, Finding, Grid, Method, Reason, Recipe, Reshape, Second};
use crate::dtype::{DType, Kind};
use crate::model::Tensor;

/// Whether `tensor` could be a weight with a companion.
pub(super) fn is_candidate(tensor: &Tensor) -> bool {
    tensor.dtype.kind() == Kind::Quantised && tensor.name.ends_with(b".weight")
}

pub(super) fn recognise(names: &Names<'_>, index: u32) -> Option<Finding> {
    let tensor = names.tensor(index);
    let stem = tensor.name.strip_suffix(b"weight")?;
    let scale = match (names.find(stem, "scale"), names.find(&tensor.name, ".scale")) {
        (None, None) => return None,
        (Some(a), Some(b)) => return Some(Finding::Unscaled(Reason::Several(a, b))),
        (Some(one), None) | (None, Some(one)) => one,
    };
    if tensor.dtype != DType::NVFP4 {
        return Some(Finding::Unscaled(Reason::Beside(scale)));
    }
    let values = names.tensor(scale);
    if values.dtype != DType::F32 {
        return Some(Finding::Unscaled(Reason::Type(scale)));
    }
    let dims = Dims::of(&tensor.shape);
    let grid = match (values.elements(), &*tensor.shape) {
        (1, _) => Grid::TENSOR,
        (_, [experts, _, _]) if *values.shape == [*experts] => Grid::PLANE,
        _ => return Some(Finding::Unscaled(Reason::Shape(scale))),
    };
    let mut companions = vec![scale];
    companions.extend(names.find(stem, "input_scale"));
    companions.extend(names.find(&tensor.name, ".input_scale"));
    let codes = Codes::Float(DType::NVFP4);
    let (bytes, elements) = codes.unit();
    Some(Finding::Scaled(Recipe {
        method: Method {
            convention: "nvfp4-gguf",
            codes,
            row_bytes: dims.columns / elements * bytes,
            dims,
            transposed: false,
            grid,
            scale: Some(DType::F32),
            second: Second::None,
            rename: ("", ""),
            shape: Reshape::Same,
        },
        scale,
        second: None,
        companions,
    }))
}
