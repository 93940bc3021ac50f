//! safetensors: which tensors are codes, and which are their scales.
//!
//! facts: scales 1.1. A row of that table is a function here or in a room below; the name's
//! end and the type of the codes choose the function, and it must find every companion with
//! the type and the shape that the convention says.

use super::fit::Spread;
use super::hints::Family;
use super::names::Names;
use super::{
    Codes, Dims, Finding, Grid, Hints, Method, ReadTensor, Reason, Recipe, Reshape, Second, fit,
};
use crate::dtype::DType;
use crate::model::Tensor;

mod bytes;
mod named;
mod packed;
mod words;

/// Scales of activations: they go where the weight that they belong to is decoded.
const ACTIVATIONS: [&str; 5] =
    ["input_scale", "input_global_scale", "activation_scale", "scale_input", "qscale_act"];

/// Types whose values are a number by themselves, 8 bits wide.
pub(super) const fn is_fp8(dtype: DType) -> bool {
    matches!(dtype, DType::F8_E4M3 | DType::F8_E5M2 | DType::F8_E4M3FNUZ | DType::F8_E5M2FNUZ)
}

/// Whether `tensor` could be codes.
pub(super) fn is_candidate(tensor: &Tensor) -> bool {
    matches!(tensor.dtype, DType::I8 | DType::U8 | DType::I16 | DType::I32 | DType::U32 | DType::F4)
        || is_fp8(tensor.dtype)
}

pub(super) fn recognise(
    names: &Names<'_>,
    hints: &Hints,
    read: ReadTensor<'_>,
    index: u32,
) -> Option<Finding> {
    let tensor = names.tensor(index);
    let site = |stem| Site { names, hints, read, tensor, stem };
    let name = &*tensor.name;
    if let Some(stem) = module(name, b"weight_packed") {
        return packed::recognise(&site(stem));
    }
    if let Some(stem) = module(name, b"weight") {
        let site = site(stem);
        return match tensor.dtype {
            dtype if is_fp8(dtype) => Some(site.fp8()),
            DType::I8 => site.int8(),
            DType::U8 => bytes::recognise(&site),
            DType::U32 => words::recognise(&site),
            DType::F4 => {
                site.mate("weight_scale").map(|scale| Finding::Unscaled(Reason::Type(scale)))
            }
            _ => None,
        };
    }
    if let Some(finding) = bytes::gpt_oss(&site(name)) {
        return Some(finding);
    }
    if let Some(finding) = named::recognise(&site(name)) {
        return Some(finding);
    }
    if !is_fp8(tensor.dtype) || is_scale(name) {
        return None;
    }
    let fused = module(name, b"gate_up_proj").or_else(|| module(name, b"down_proj")).is_some();
    if fused && tensor.shape.len() == 3 {
        let suffixes = ["_scale_inv", "_scale"];
        let site = site(name);
        return Some(site.plain("fp8", Codes::Float(tensor.dtype), &suffixes));
    }
    Some(Finding::Unscaled(Reason::NoScale))
}

/// The name without `end`, when `end` is all of its last part.
fn module<'a>(name: &'a [u8], end: &[u8]) -> Option<&'a [u8]> {
    name.strip_suffix(end).filter(|stem| stem.is_empty() || stem.ends_with(b"."))
}

/// Whether a name is that of a scale, which is no weight of its own.
fn is_scale(name: &[u8]) -> bool {
    [&b"scale"[..], b"scales", b"scale_inv", b"scale_2", b"scaled_fp8", b"scale_weight"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// One tensor that may be codes, and where its companions are looked for.
struct Site<'a> {
    names: &'a Names<'a>,
    hints: &'a Hints,
    read: ReadTensor<'a>,
    tensor: &'a Tensor,
    /// The name before the part that says what it is.
    stem: &'a [u8],
}

impl<'a> Site<'a> {
    /// The tensor beside this one whose name ends with `end`.
    fn mate(&self, end: &str) -> Option<u32> {
        self.names.find(self.stem, end)
    }

    fn get(&self, index: u32) -> &'a Tensor {
        self.names.tensor(index)
    }

    /// The first of `ends` that is there.
    fn any(&self, ends: &[&str]) -> Option<u32> {
        ends.iter().find_map(|end| self.mate(end))
    }

    fn shape(&self) -> &'a [u64] {
        &self.tensor.shape
    }

    fn fp8(&self) -> Finding {
        // The last two are what smoothed or corrected weights have.
        let beside =
            ["weight_zero_point", "weight_scale_2", "weight_global_scale", "pre_quant_scale"];
        if let Some(other) = self.any(&beside) {
            return Finding::Unscaled(Reason::Beside(other));
        }
        let suffixes =
            ["weight_scale_inv", "weight_scale", "scale_weight", "qscale_weight", "scale"];
        self.plain("fp8", Codes::Float(self.tensor.dtype), &suffixes)
    }

    fn int8(&self) -> Option<Finding> {
        if let Some(scale) = self.mate("scale")
            && self.get(scale).dtype == DType::F8_E8M0
            && bytes::is_grouped(self.shape(), &self.get(scale).shape, 16)
        {
            return Some(if self.hints.experts() == Some("fp8") {
                Finding::Hidden(Reason::Told)
            } else {
                bytes::mxfp4(self, scale, "mxfp4-deepseek", ("", ""))
            });
        }
        if self.mate("weight_scales").is_some() {
            return Some(Finding::Hidden(Reason::Named("EETQ")));
        }
        if self.mate("SCB").is_some() {
            return Some(Finding::Unscaled(Reason::Named("bitsandbytes 8-bit")));
        }
        let suffixes = ["weight_scale_inv", "weight_scale", "scale_weight", "scale"];
        self.any(&suffixes)?;
        if let Some(other) =
            self.any(&["comfy_quant", "weight_scale_2", "weight_global_scale", "pre_quant_scale"])
        {
            return Some(Finding::Unscaled(Reason::Beside(other)));
        }
        Some(self.plain("int8", Codes::Int8, &suffixes))
    }

    /// Codes that are one number each, times a scale called by one of `suffixes`.
    fn plain(&self, kind: &'static str, codes: Codes, suffixes: &[&str]) -> Finding {
        let mut found = suffixes.iter().filter_map(|suffix| self.mate(suffix));
        let scale = match (found.next(), found.next()) {
            (None, _) => return Finding::Unscaled(Reason::NoScale),
            (Some(a), Some(b)) => return Finding::Unscaled(Reason::Several(a, b)),
            (Some(scale), None) => scale,
        };
        match self.multiplied(kind, codes, scale) {
            Ok(recipe) => Finding::Scaled(recipe),
            Err(reason) => Finding::Unscaled(reason),
        }
    }

    fn multiplied(&self, kind: &'static str, codes: Codes, scale: u32) -> Result<Recipe, Reason> {
        let values = self.get(scale);
        let dims = Dims::of(self.shape());
        let groups = bytes::is_grouped(self.shape(), &values.shape, 32);
        let dtype = match values.dtype {
            DType::F32 | DType::F16 | DType::BF16 | DType::F8_E8M0 => values.dtype,
            // A byte is an exponent where there is one for 32, or where that is said.
            DType::U8 if groups || self.hints.byte_scales_are_exponents() => DType::F8_E8M0,
            _ => return Err(Reason::Type(scale)),
        };
        let mx = groups && dtype == DType::F8_E8M0 && codes == Codes::Float(DType::F8_E4M3);
        let (grid, convention) = if mx {
            (Grid::groups(dims.rows, dims.columns / 32, 32), "mxfp8")
        } else {
            let given = self.hints.block();
            let fitting = fit::fit(self.shape(), &values.shape, given.unwrap_or(None));
            let grid = fitting.ok_or(Reason::Shape(scale))?;
            if given.is_err() && matches!(grid.spread, Spread::Group | Spread::Block) {
                return Err(Reason::Told);
            }
            (grid, named_after(kind, grid.spread))
        };
        let family = match (mx, codes) {
            (true, _) => Family::Mxfp8,
            (_, Codes::Int8) => Family::Int8,
            _ => Family::Fp8,
        };
        if self.hints.denies(family).is_some() {
            return Err(Reason::Told);
        }
        let mark = self.mate("comfy_quant");
        if let Some(mark) = mark
            && grid != Grid::TENSOR
        {
            // Its scales may be tiled.
            return Err(Reason::Beside(mark));
        }
        let zero = self.mate("weight_zero_point");
        let second = match zero {
            None => Second::None,
            Some(zero) => {
                let points = self.get(zero);
                let each = matches!(*points.shape, [n] | [n, 1] if n == dims.rows);
                if points.dtype != DType::I8 || !each || self.shape().len() != 2 {
                    return Err(Reason::Beside(zero));
                }
                Second::ZeroBytes
            }
        };
        let method = Method {
            convention,
            codes,
            row_bytes: dims.columns,
            dims,
            transposed: false,
            grid,
            scale: Some(dtype),
            second,
            rename: ("", ""),
            shape: Reshape::Same,
        };
        Ok(self.recipe(method, scale, zero, mark.into_iter().collect()))
    }

    /// With the scales of activations that belong to the weight.
    fn recipe(
        &self,
        method: Method,
        scale: u32,
        second: Option<u32>,
        mut companions: Vec<u32>,
    ) -> Recipe {
        companions.push(scale);
        companions.extend(second);
        companions.extend(ACTIVATIONS.iter().filter_map(|end| self.mate(end)));
        // The mark of a whole file of ComfyUI: nothing is scaled any more.
        companions.extend(self.mate("scale_weight").and_then(|_| self.file_mark()));
        Recipe { method, scale, second, companions }
    }

    /// `scaled_fp8`, behind the part of the name that is before some dot.
    fn file_mark(&self) -> Option<u32> {
        let ends = (0..=self.stem.len()).filter(|&n| n == 0 || self.stem[n - 1] == b'.');
        ends.map(|n| &self.stem[..n]).find_map(|stem| self.names.find(stem, "scaled_fp8"))
    }
}

fn named_after(kind: &str, spread: Spread) -> &'static str {
    match (kind, spread) {
        ("int8", Spread::Tensor) => "int8-tensor",
        ("int8", Spread::Expert) => "int8-expert",
        ("int8", Spread::Channel) => "int8-channel",
        ("int8", Spread::Group) => "int8-group",
        ("int8", Spread::Block) => "int8-block",
        (_, Spread::Tensor) => "fp8-tensor",
        (_, Spread::Expert) => "fp8-expert",
        (_, Spread::Channel) => "fp8-channel",
        (_, Spread::Group) => "fp8-group",
        (_, Spread::Block) => "fp8-block",
    }
}
