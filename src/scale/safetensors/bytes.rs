//! FP4 codes in bytes: NVFP4 and MXFP4 under a plain name, and gpt-oss.

use super::super::hints::Family;
use super::super::{Codes, Dims, Finding, Grid, Method, Operation, Reason, Reshape, Second};
use super::Site;
use crate::dtype::DType;
use crate::model::elements;

/// Whether each of `scale` is for `bytes` of the last dimension of `codes`, the other
/// dimensions being equal.
pub(super) fn is_grouped(codes: &[u64], scale: &[u64], bytes: u64) -> bool {
    match (codes, scale) {
        ([lead @ .., last], [lead_of_scale @ .., groups]) => {
            !lead.is_empty() && lead == lead_of_scale && groups.checked_mul(bytes) == Some(*last)
        }
        _ => false,
    }
}

/// `P.weight` U8.
pub(super) fn recognise(site: &Site<'_>) -> Option<Finding> {
    let marks = [
        "weight.quant_state.bitsandbytes__nf4",
        "weight.quant_state.bitsandbytes__fp4",
        "weight.absmax",
    ];
    if site.any(&marks).is_some() {
        return Some(Finding::Hidden(Reason::Named("bitsandbytes 4-bit")));
    }
    let scale = site.mate("weight_scale");
    if site.mate("comfy_quant").is_some() || scale.is_some() && site.names.marked {
        return Some(Finding::Hidden(Reason::Named(super::COMFY)));
    }
    let scale = scale?;
    if let Some(convention) = named(site, scale) {
        return Some(Finding::Hidden(Reason::Named(convention)));
    }
    if let Some(other) = site.any(&["weight_zero_point", "weight_global_scale"]) {
        return Some(Finding::Hidden(Reason::Beside(other)));
    }
    Some(match site.mate("weight_scale_2") {
        Some(global) => nvfp4(site, scale, global, "nvfp4-modelopt", Operation::Multiply, ("", "")),
        None if is_grouped(site.shape(), &site.get(scale).shape, 16) => {
            mxfp4(site, scale, "mxfp4", ("", ""))
        }
        None => Finding::Hidden(Reason::Shape(scale)),
    })
}

/// Conventions in bytes that are known by name only.
fn named(site: &Site<'_>, scale: u32) -> Option<&'static str> {
    if site.mate("pre_quant_scale").is_some() {
        return Some("ModelOpt AWQ");
    }
    match (site.shape(), &*site.get(scale).shape, site.hints.method()) {
        (_, _, Some("bitnet")) => Some("BitNet"),
        (_, _, Some("gemma")) => Some("Gemma"),
        // Two rows in a byte.
        ([rows, _], [scale_rows, _], _) if rows.checked_mul(2) == Some(*scale_rows) => {
            Some("ModelOpt INT4")
        }
        _ => None,
    }
}

/// FP4 codes, an E4M3 for every 16 of them, and an F32 for all or for each plane.
pub(super) fn nvfp4(
    site: &Site<'_>,
    scale: u32,
    global: u32,
    convention: &'static str,
    operation: Operation,
    rename: (&'static str, &'static str),
) -> Finding {
    let (blocks, all) = (site.get(scale), site.get(global));
    if blocks.dtype != DType::F8_E4M3 {
        return Finding::Hidden(Reason::Type(scale));
    }
    if all.dtype != DType::F32 {
        return Finding::Hidden(Reason::Type(global));
    }
    if !is_grouped(site.shape(), &blocks.shape, 8) {
        return Finding::Hidden(Reason::Shape(scale));
    }
    let Some(dims) = pairs(site.shape()) else {
        return Finding::Hidden(Reason::Shape(scale));
    };
    let over = match (elements(&all.shape), site.shape()) {
        (1, _) => Grid::TENSOR,
        (n, [planes, _, _]) if n == *planes && all.shape.first() == Some(planes) => Grid::PLANE,
        _ => return Finding::Hidden(Reason::Shape(global)),
    };
    if site.hints.denies(Family::Nvfp4) {
        return Finding::Hidden(Reason::Told);
    }
    let method = Method {
        convention,
        codes: Codes::Float(DType::F4),
        row_bytes: dims.columns / 2,
        dims,
        transposed: false,
        grid: Grid::groups(dims.rows, dims.columns / 16, 16),
        scale: Some(DType::F8_E4M3),
        second: Second::Global(operation, over),
        rename,
        shape: Reshape::LastDimension,
    };
    Finding::Scaled(site.recipe(method, scale, Some(global), Vec::new()))
}

/// FP4 codes and a power of two for every 32 of them; the shapes were compared.
pub(super) fn mxfp4(
    site: &Site<'_>,
    scale: u32,
    convention: &'static str,
    rename: (&'static str, &'static str),
) -> Finding {
    if !matches!(site.get(scale).dtype, DType::U8 | DType::F8_E8M0) {
        return Finding::Hidden(Reason::Type(scale));
    }
    if site.hints.denies(Family::Mxfp4) {
        return Finding::Hidden(Reason::Told);
    }
    let Some(dims) = pairs(site.shape()) else {
        return Finding::Hidden(Reason::Shape(scale));
    };
    let method = Method {
        convention,
        codes: Codes::Float(DType::F4),
        row_bytes: dims.columns / 2,
        dims,
        transposed: false,
        grid: Grid::groups(dims.rows, dims.columns / 32, 32),
        scale: Some(DType::F8_E8M0),
        second: Second::None,
        rename,
        shape: Reshape::LastDimension,
    };
    Finding::Scaled(site.recipe(method, scale, None, Vec::new()))
}

/// The weight whose rows are stored as pairs of codes.
fn pairs(codes: &[u64]) -> Option<Dims> {
    let dims = Dims::of(codes);
    Some(Dims { columns: dims.columns.checked_mul(2)?, ..dims })
}

/// gpt-oss: blocks of 32 codes `[experts, rows, blocks, 16]`. Under its Hugging Face names the
/// unquantised checkpoint has each expert transposed.
pub(super) fn gpt_oss(site: &Site<'_>) -> Option<Finding> {
    let name = &*site.tensor.name;
    let forms = [
        (&b"gate_up_proj_blocks"[..], "_blocks", "_scales", true),
        (b"down_proj_blocks", "_blocks", "_scales", true),
        (b"mlp1_weight.blocks", ".blocks", ".scales", false),
        (b"mlp2_weight.blocks", ".blocks", ".scales", false),
    ];
    let (_, blocks, scales, transposed) =
        *forms.iter().find(|(end, ..)| super::module(name, end).is_some())?;
    if site.tensor.dtype != DType::U8 {
        return None;
    }
    let stem = name.strip_suffix(blocks.as_bytes())?;
    let Some(scale) = site.names.find(stem, scales) else {
        return Some(Finding::Hidden(Reason::NoScale));
    };
    let values = site.get(scale);
    let ([experts, rows, groups, 16], [scale_shape @ .., 16]) = (site.shape(), site.shape()) else {
        return Some(Finding::Hidden(Reason::Shape(scale)));
    };
    if *values.shape != *scale_shape {
        return Some(Finding::Hidden(Reason::Shape(scale)));
    }
    if !matches!(values.dtype, DType::U8 | DType::F8_E8M0) {
        return Some(Finding::Hidden(Reason::Type(scale)));
    }
    if site.hints.denies(Family::Mxfp4) {
        return Some(Finding::Hidden(Reason::Told));
    }
    // Sixteen bytes of each group are in the file.
    let dims = Dims { planes: *experts, rows: *rows, columns: groups * 32 };
    let method = Method {
        convention: "mxfp4-gpt-oss",
        codes: Codes::Float(DType::F4),
        row_bytes: groups * 16,
        dims,
        transposed,
        grid: Grid::groups(*rows, *groups, 32),
        scale: Some(DType::F8_E8M0),
        second: Second::None,
        rename: (blocks, ""),
        shape: Reshape::Blocks,
    };
    Some(Finding::Scaled(site.recipe(method, scale, None, Vec::new())))
}
