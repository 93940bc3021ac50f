//! safetensors: which tensors are codes, and which are their scales.
//!
//! facts: scales 1.1. A row of that table is a function here or in a room below; the name's
//! end and the type of the codes choose the function, and it must find every companion with
//! the type and the shape that the convention says.

use super::fit::Spread;
use super::hints::{Block, Family};
use super::names::Names;
use super::{
    Codes, Dims, Finding, Grid, Hints, Method, ReadTensor, Reason, Recipe, Reshape, Second, fit,
};
use crate::dtype::DType;
use crate::model::Tensor;
use std::ops::Range;

mod bytes;
mod named;
mod packed;
mod words;

/// Scales of activations: they go where the weight that they belong to is decoded.
const ACTIVATIONS: [&str; 5] =
    ["input_scale", "input_global_scale", "activation_scale", "scale_input", "qscale_act"];

/// What ComfyUI's own formats are called.
const COMFY: &str = "ComfyUI";

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
    place: usize,
) -> Option<Finding> {
    let tensor = names.tensor(names.at(place));
    let site =
        |stem| Site { names, hints, read, tensor, stem, place, near: names.around(place, stem) };
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
    let whole = site(name);
    if let Some(finding) = bytes::gpt_oss(&whole).or_else(|| named::recognise(&whole)) {
        return Some(finding);
    }
    if !is_fp8(tensor.dtype) || is_scale(name) {
        return None;
    }
    let fused = module(name, b"gate_up_proj").or_else(|| module(name, b"down_proj")).is_some();
    if fused && tensor.shape.len() == 3 {
        let suffixes = ["_scale_inv", "_scale"];
        return Some(whole.plain("fp8", Codes::Float(tensor.dtype), &suffixes));
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
    /// Where it is in the order of names.
    place: usize,
    /// Where the names are that begin with the stem.
    near: Range<usize>,
}

impl<'a> Site<'a> {
    /// The tensor beside this one whose name ends with `end`.
    fn mate(&self, end: &str) -> Option<u32> {
        self.names.among(&self.near, self.stem.len(), end)
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

    /// Whether it, or the whole file, has a mark of ComfyUI.
    fn is_comfy(&self) -> bool {
        self.names.marked || self.mate("comfy_quant").is_some()
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
        // A power of two scales FP4 codes, two in a byte; INT8 has floats.
        let scales = ["weight_scale_inv", "weight_scale", "scale_weight", "scale"];
        let power = scales.iter().filter_map(|suffix| self.mate(suffix));
        if let Some(scale) = { power }.find(|&i| self.get(i).dtype == DType::F8_E8M0) {
            return Some(Finding::Hidden(Reason::Shape(scale)));
        }
        if self.mate("weight_scales").is_some() {
            return Some(Finding::Hidden(Reason::Named("EETQ")));
        }
        if let Some(scale) = self.mate("SCB") {
            return Some(self.bitsandbytes(scale));
        }
        self.any(&scales)?;
        if self.is_comfy() {
            // Its values may be rotated.
            return Some(Finding::Unscaled(Reason::Named(COMFY)));
        }
        if let Some(other) = self.any(&["weight_scale_2", "weight_global_scale", "pre_quant_scale"])
        {
            return Some(Finding::Unscaled(Reason::Beside(other)));
        }
        Some(self.plain("int8", Codes::Int8, &scales))
    }

    /// bitsandbytes 8-bit: `scale` is the greatest magnitude of each row.
    fn bitsandbytes(&self, scale: u32) -> Finding {
        const ROW: u8 = 0;
        let rows = self.get(scale);
        let mut order = [u8::MAX];
        let format = self.mate("weight_format").filter(|&i| {
            let format = self.get(i);
            format.dtype == DType::U8 && format.elements() == 1 && (self.read)(format, &mut order)
        });
        // Other orders of the codes are those of some processors.
        let Some(format) = format.filter(|_| order == [ROW]) else {
            return Finding::Unscaled(Reason::Named("bitsandbytes 8-bit"));
        };
        let [count, columns] = *self.shape() else {
            return Finding::Unscaled(Reason::Shape(scale));
        };
        if rows.dtype != DType::F32 {
            return Finding::Unscaled(Reason::Type(scale));
        }
        if *rows.shape != [count] {
            return Finding::Unscaled(Reason::Shape(scale));
        }
        let method = Method {
            convention: "int8-bitsandbytes",
            codes: Codes::Int8,
            row_bytes: columns,
            dims: Dims::of(self.shape()),
            transposed: false,
            grid: Grid::groups(count, 1, columns),
            scale: Some(DType::F32),
            second: Second::Over127,
            rename: ("", ""),
            shape: Reshape::Same,
        };
        Finding::Scaled(self.recipe(method, scale, None, vec![format]))
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
            if !matches!(self.hints.block(), Block::Untold | Block::Given([1, 32])) {
                return Err(Reason::Told);
            }
            (Grid::groups(dims.rows, dims.columns / 32, 32), "mxfp8")
        } else {
            let told = self.hints.block();
            let given = if let Block::Given(block) = told { Some(block) } else { None };
            let fitting = fit::fit(self.shape(), &values.shape, given, self.hints.group());
            let grid = fitting.ok_or(Reason::Shape(scale))?;
            if let Some([down, across]) = given
                && !fit::is_covered(dims, [down, across], &values.shape)
            {
                return Err(Reason::Told);
            }
            if told == Block::Denied && matches!(grid.spread, Spread::Group | Spread::Block) {
                return Err(Reason::Told);
            }
            (grid, named_after(kind, grid.spread))
        };
        let family = match (mx, codes) {
            (true, _) => Family::Mxfp8,
            (_, Codes::Int8) => Family::Int8,
            _ => Family::Fp8,
        };
        if self.hints.denies(family) {
            return Err(Reason::Told);
        }
        if self.is_comfy() && grid != Grid::TENSOR {
            // Its scales may be tiled.
            return Err(Reason::Named(COMFY));
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
        Ok(self.recipe(method, scale, zero, self.mate("comfy_quant").into_iter().collect()))
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
        // Deeper ones are not known.
        const DEPTH: usize = 8;
        let ends = (0..=self.stem.len()).filter(|&n| n == 0 || self.stem[n - 1] == b'.');
        ends.take(DEPTH)
            .map(|n| &self.stem[..n])
            .find_map(|stem| self.names.find(stem, "scaled_fp8"))
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
