//! compressed-tensors: `P.weight_packed`.

use super::super::hints::Family;
use super::super::{
    Codes, Dims, Finding, Grid, Method, Operation, Reason, Recipe, Reshape, Second,
};
use super::{Site, bytes};
use crate::dtype::DType;

/// The decoded weight has the plain name.
const RENAME: (&str, &str) = ("weight_packed", "weight");

pub(super) fn recognise(site: &Site<'_>) -> Option<Finding> {
    let Some(scale) = site.mate("weight_scale") else {
        return Some(Finding::Hidden(Reason::NoScale));
    };
    let words = site.tensor.dtype == DType::I32;
    Some(match site.mate("weight_global_scale") {
        Some(global) if site.tensor.dtype == DType::U8 => {
            bytes::nvfp4(site, scale, global, "nvfp4-compressed-tensors", Operation::Divide, RENAME)
        }
        None if words => match integers(site, scale) {
            Ok(recipe) => Finding::Scaled(recipe),
            Err(reason) => Finding::Hidden(reason),
        },
        None if site.tensor.dtype != DType::U8 => Finding::Hidden(Reason::Type(scale)),
        None if bytes::is_grouped(site.shape(), &site.get(scale).shape, 16) => {
            bytes::mxfp4(site, scale, "mxfp4-compressed-tensors", RENAME)
        }
        None if bytes::is_grouped(site.shape(), &site.get(scale).shape, 24) => mxfp6(site, scale),
        _ => Finding::Hidden(Reason::Shape(scale)),
    })
}

/// Four codes of 6 bits in three bytes, and a power of two for every 32.
fn mxfp6(site: &Site<'_>, scale: u32) -> Finding {
    if !matches!(site.get(scale).dtype, DType::U8 | DType::F8_E8M0) {
        return Finding::Hidden(Reason::Type(scale));
    }
    if site.hints.denies(Family::Mxfp6) {
        return Finding::Hidden(Reason::Told);
    }
    let stored = Dims::of(site.shape());
    // A multiple of 24 bytes.
    let dims = Dims { columns: stored.columns / 3 * 4, ..stored };
    let method = Method {
        convention: "mxfp6-compressed-tensors",
        codes: Codes::Float(DType::F6_E2M3),
        row_bytes: stored.columns,
        dims,
        transposed: false,
        grid: Grid::groups(dims.rows, dims.columns / 32, 32),
        scale: Some(DType::F8_E8M0),
        second: Second::None,
        rename: RENAME,
        shape: Reshape::LastDimension,
    };
    Finding::Scaled(site.recipe(method, scale, None, Vec::new()))
}

/// Integers in words: the shape is told by a tensor of its own.
fn integers(site: &Site<'_>, scale: u32) -> Result<Recipe, Reason> {
    let shape = site.mate("weight_shape").ok_or(Reason::Named("integers without weight_shape"))?;
    if let Some(order) = site.mate("weight_g_idx") {
        return Err(Reason::Beside(order));
    }
    let (stored, values) = (site.shape(), site.get(scale));
    let [rows, words] = *stored else { return Err(Reason::Shape(scale)) };
    let [told_rows, columns] = told(site, shape).ok_or(Reason::Tells(shape))?;
    if told_rows != rows || columns == 0 {
        return Err(Reason::Tells(shape));
    }
    let bits = bits(site, words, columns).ok_or(Reason::Tells(shape))?;
    if !matches!(values.dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(Reason::Type(scale));
    }
    let [scale_rows, groups] = *values.shape else { return Err(Reason::Shape(scale)) };
    if scale_rows != rows {
        return Err(Reason::Shape(scale));
    }
    let group = match site.hints.group() {
        _ if groups == 1 => columns,
        Some(size) if size > 0 && columns.div_ceil(size) == groups => size,
        Some(_) => return Err(Reason::Told),
        None if columns.is_multiple_of(groups) => columns / groups,
        None => return Err(Reason::Shape(scale)),
    };
    if site.hints.denies(Family::Packed) {
        return Err(Reason::Told);
    }
    let zero = site.mate("weight_zero_point");
    let second = match zero.map(|zero| (zero, site.get(zero))) {
        None => Second::None,
        Some((zero, points)) => {
            // Whole codes in a word, or the stream of a column would cross words.
            let words = rows.div_ceil(32 / u64::from(bits));
            let fits = points.dtype == DType::I32 && *points.shape == [words, groups];
            if !fits || !matches!(bits, 2 | 4 | 8) {
                return Err(Reason::Beside(zero));
            }
            Second::ZeroBits(bits)
        }
    };
    let method = Method {
        convention: "pack-quantized",
        codes: Codes::Signed(bits),
        row_bytes: words * 4,
        dims: Dims { planes: 1, rows, columns },
        transposed: false,
        grid: Grid::groups(rows, groups, group),
        scale: Some(values.dtype),
        second,
        rename: RENAME,
        shape: Reshape::LastDimension,
    };
    Ok(site.recipe(method, scale, zero, vec![shape]))
}

/// The two numbers of `weight_shape`.
fn told(site: &Site<'_>, shape: u32) -> Option<[u64; 2]> {
    let tensor = site.get(shape);
    if *tensor.shape != [2] {
        return None;
    }
    let mut bytes = [0; 16];
    match tensor.dtype {
        DType::I64 => (site.read)(tensor, &mut bytes).then_some(())?,
        DType::I32 => {
            let mut narrow = [0; 8];
            (site.read)(tensor, &mut narrow).then_some(())?;
            let [a, b, c, d, e, f, g, h] = narrow;
            // Negative ones stay no sizes.
            let wide = |n| u64::from(u32::from_le_bytes(n)).to_le_bytes();
            bytes[..8].copy_from_slice(&wide([a, b, c, d]));
            bytes[8..].copy_from_slice(&wide([e, f, g, h]));
        }
        _ => return None,
    }
    let [low, high] = [bytes.first_chunk::<8>()?, bytes.last_chunk::<8>()?];
    Some([u64::from_le_bytes(*low), u64::from_le_bytes(*high)])
}

/// Bits of a code: those that a configuration tells, else 4 or 8, which nearly all have. They
/// must fill the words as a stream without gaps, and in no other way.
fn bits(site: &Site<'_>, words: u64, columns: u64) -> Option<u8> {
    let dense = |bits: u64| columns.checked_mul(bits).map(|n| n.div_ceil(32)) == Some(words);
    match site.hints.bits() {
        Some(bits @ 2..=8) => {
            // Older writers left the rest of a word unused.
            let gaps = !32u64.is_multiple_of(bits) && columns.div_ceil(32 / bits) == words;
            (dense(bits) && !gaps).then_some(bits as u8)
        }
        Some(_) => None,
        None => match [dense(4), dense(8)] {
            [true, false] => Some(4),
            [false, true] => Some(8),
            _ => None,
        },
    }
}
