//! MLX: `P.weight` U32 with `P.scales`, and `P.biases` unless the codes are floats.

use super::super::{
    Codes, Dims, Finding, Grid, Method, Operation, Reason, Recipe, Reshape, Second,
};
use super::Site;
use crate::dtype::DType;

pub(super) fn recognise(site: &Site<'_>) -> Option<Finding> {
    let scale = site.mate("scales")?;
    let found = match site.get(scale).dtype {
        DType::U8 => floats(site, scale),
        _ => integers(site, scale),
    };
    Some(match found {
        Ok(recipe) => Finding::Scaled(recipe),
        Err(reason) => Finding::Hidden(reason),
    })
}

/// The path of the module, as its configuration calls it.
fn told<'a>(site: &Site<'a>) -> Option<(u64, u64, &'a str)> {
    let path = site.stem.strip_suffix(b".").unwrap_or(site.stem);
    site.hints.mlx(std::str::from_utf8(path).ok()?)
}

/// The rows of codes, and how many scales each has.
fn groups(site: &Site<'_>, scale: u32) -> Result<(Dims, u64), Reason> {
    match (site.shape(), &*site.get(scale).shape) {
        ([lead @ .., _], [other @ .., groups])
            if !lead.is_empty() && lead == other && *groups > 0 =>
        {
            Ok((Dims::of(site.shape()), *groups))
        }
        _ => Err(Reason::Shape(scale)),
    }
}

fn integers(site: &Site<'_>, scale: u32) -> Result<Recipe, Reason> {
    let bias = site.any(&["biases", "qbiases"]).ok_or(Reason::NoScale)?;
    let (values, offsets) = (site.get(scale), site.get(bias));
    for (index, dtype) in [(scale, values.dtype), (bias, offsets.dtype)] {
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Reason::Type(index));
        }
    }
    if values.shape != offsets.shape {
        return Err(Reason::Shape(bias));
    }
    let (stored, groups) = groups(site, scale)?;
    let (group, bits, mode) = told(site).ok_or(Reason::NotTold)?;
    let columns = groups.checked_mul(group).ok_or(Reason::Told)?;
    let fits = columns.checked_mul(bits) == stored.columns.checked_mul(32);
    if mode != "affine" || !fits || !matches!(bits, 2 | 3 | 4 | 5 | 6 | 8) {
        return Err(Reason::Told);
    }
    let method = Method {
        convention: "mlx-affine",
        // At most 8.
        codes: Codes::Unsigned(bits as u8),
        row_bytes: stored.columns * 4,
        dims: Dims { columns, ..stored },
        transposed: false,
        grid: Grid::groups(stored.rows, groups, group),
        scale: Some(values.dtype),
        second: Second::Offset(offsets.dtype),
        rename: ("", ""),
        shape: Reshape::LastDimension,
    };
    Ok(site.recipe(method, scale, Some(bias), Vec::new()))
}

/// Bits for one scale tell the format: 16 or 32 codes of 4 bits, or 32 of 8.
fn floats(site: &Site<'_>, scale: u32) -> Result<Recipe, Reason> {
    if let Some(bias) = site.mate("biases") {
        return Err(Reason::Beside(bias));
    }
    let (stored, groups) = groups(site, scale)?;
    let bits = stored.columns.checked_mul(32).ok_or(Reason::Shape(scale))?;
    let (convention, mode, codes, group, dtype) = match bits / groups {
        _ if !bits.is_multiple_of(groups) => return Err(Reason::Shape(scale)),
        64 => ("mlx-nvfp4", "nvfp4", Codes::Float(DType::F4), 16, DType::F8_E4M3),
        128 => ("mlx-mxfp4", "mxfp4", Codes::Float(DType::F4), 32, DType::F8_E8M0),
        256 => ("mlx-mxfp8", "mxfp8", Codes::Float(DType::F8_E4M3), 32, DType::F8_E8M0),
        _ => return Err(Reason::Shape(scale)),
    };
    if told(site).is_some_and(|(size, _, told)| told != mode || size != group) {
        return Err(Reason::Told);
    }
    let global = site.mate("global_scale");
    let second = match global.map(|index| (index, site.get(index))) {
        None => Second::None,
        Some((_, all)) if mode == "nvfp4" && all.dtype == DType::F32 && all.elements() == 1 => {
            Second::Global(Operation::MultiplyMaximum, Grid::TENSOR)
        }
        Some((index, _)) => return Err(Reason::Beside(index)),
    };
    let columns = groups.checked_mul(group).ok_or(Reason::Shape(scale))?;
    let method = Method {
        convention,
        codes,
        row_bytes: stored.columns * 4,
        dims: Dims { columns, ..stored },
        transposed: false,
        grid: Grid::groups(stored.rows, groups, group),
        scale: Some(dtype),
        second,
        rename: ("", ""),
        shape: Reshape::LastDimension,
    };
    Ok(site.recipe(method, scale, global, Vec::new()))
}
