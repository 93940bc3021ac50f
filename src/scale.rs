//! Low-precision weights and the scales that belong to them: recognised, and computed.
//!
//! Checkpoints keep codes (FP8, FP4, INT8, INT4) in one tensor and scales in others.
//! [`Scales`] finds which belong together by names, types and shapes over all files, with
//! what a configuration beside the model adds; [`Scaled`] is one such weight as it is read.
//! What is not certain is not applied: such a weight has a [`Reason`] instead.
//!
//! Values are computed in F32, the scales combined first, then one product and at most one
//! sum, each rounded once (facts: scales 2.1). Must not know files, names in the mount or
//! views; values that decide a shape are asked for through a function.

use crate::dtype::DType;
use crate::model::{ByteOrder, Extent, Format, Model, Tensor};
use crate::quant::Target;
use panels::Panels;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub mod compute;
mod fit;
mod gguf;
mod hints;
mod names;
pub mod panels;
mod reason;
mod safetensors;

pub use compute::{Codes, Operation};
pub use fit::{Dims, Grid, Spread};
pub use hints::{Block, Family, Hints};
pub use reason::Reason;

/// How the weights of one kind and shape are decoded. Few differ in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Method {
    /// Name for people and JSON.
    pub convention: &'static str,
    /// What the codes are.
    pub codes: Codes,
    /// Bytes of the codes of one row.
    pub row_bytes: u64,
    /// The decoded weight.
    pub dims: Dims,
    /// Whether the planes are shown transposed.
    pub transposed: bool,
    /// Which scale belongs to which value.
    pub grid: Grid,
    /// Type of the scales; `None` where the codes are cast as they are.
    pub scale: Option<DType>,
    /// What the second tensor does.
    pub second: Second,
    /// End of the stored name, and what stands there in the unquantised checkpoint.
    pub rename: (&'static str, &'static str),
    /// Shape of the decoded weight from that of the codes.
    pub shape: Reshape,
}

/// What a second tensor does to the scales or the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Second {
    /// There is none.
    None,
    /// F32, one for all or one for each plane, combined with the scale first.
    Global(Operation, Grid),
    /// I8, one for each row, taken from the code.
    ZeroBytes,
    /// As the codes of compressed-tensors, but packed along the rows: for each group.
    ZeroBits(u8),
    /// The product is divided by 127, as a product with the nearest F32. No tensor.
    Over127,
    /// Added to the product; lies as the scales do.
    Offset(DType),
}

/// How the shape of the codes becomes that of the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reshape {
    /// It is the same.
    Same,
    /// The last dimension counts the codes, not their containers.
    LastDimension,
    /// The last two, blocks and their bytes, are one of values.
    Blocks,
}

/// What is known about a stored tensor of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its values are these.
    Scaled {
        /// Index into the methods.
        method: u32,
        /// The tensor with the scales.
        scale: u32,
        /// The second tensor, or the first again.
        second: u32,
    },
    /// The codes can be shown as numbers, without their scale.
    Unscaled(Reason),
    /// The codes are no numbers by themselves.
    Hidden(Reason),
}

/// What the rooms for the two formats find out about one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It is decoded so.
    Scaled(Recipe),
    /// Plain cast.
    Unscaled(Reason),
    /// Stored only.
    Hidden(Reason),
}

/// How to decode one weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    method: Method,
    scale: u32,
    second: Option<u32>,
    /// Tensors that serve only this.
    companions: Vec<u32>,
}

/// All weights of a model that are codes with scales.
#[derive(Clone, Debug, Default)]
pub struct Scales {
    /// By index of the stored tensor.
    verdicts: Vec<(u32, Verdict)>,
    methods: Vec<Method>,
    /// A companion and its weight, by companion.
    companions: Vec<(u32, u32)>,
    panels: Arc<Panels>,
    /// What the configuration says where it contradicts the tensors.
    told: Option<String>,
}

/// Reads the values of a small tensor whole; false when they cannot be had.
pub type ReadTensor<'a> = &'a dyn Fn(&Tensor, &mut [u8]) -> bool;

/// What [`Scales`] knows about a stored tensor.
#[derive(Clone, Copy, Debug)]
pub enum Known<'a> {
    /// A weight that can be decoded.
    Scaled(Weight<'a>),
    /// Codes that are shown as numbers without their scale, and why.
    Unscaled(Reason),
    /// Codes that are shown as stored only, and why.
    Hidden(Reason),
}

/// A weight that can be decoded.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// How.
    pub method: &'a Method,
    /// The tensor with the scales.
    pub scale: &'a Tensor,
    /// The second tensor.
    pub second: Option<&'a Tensor>,
    panels: &'a Arc<Panels>,
}

impl Scales {
    /// Finds the weights of `model`. `read` is asked for tensors of a few bytes only.
    pub fn build(model: &Model, hints: &Hints, read: ReadTensor<'_>) -> Scales {
        let mut scales = Scales::default();
        let find: &dyn Fn(&names::Names<'_>, usize) -> Option<Finding> = match model.format {
            Format::Gguf => &|names, place| gguf::recognise(names, names.at(place)),
            Format::Safetensors => {
                &|names, place| safetensors::recognise(names, hints, read, place)
            }
        };
        let candidate = match model.format {
            Format::Gguf => gguf::is_candidate,
            Format::Safetensors => safetensors::is_candidate,
        };
        if !model.tensors.iter().any(candidate) {
            return scales;
        }
        let names = names::Names::new(model);
        let mut ids = HashMap::new();
        for place in 0..names.len() {
            let i = names.at(place);
            let tensor = names.tensor(i);
            if !candidate(tensor) || tensor.elements() == 0 {
                continue;
            }
            let verdict = match find(&names, place) {
                None => continue,
                Some(Finding::Unscaled(reason)) => Verdict::Unscaled(reason),
                Some(Finding::Hidden(reason)) => Verdict::Hidden(reason),
                Some(Finding::Scaled(recipe)) => {
                    let Recipe { method, scale, second, companions } = recipe;
                    let method = *ids.entry(method).or_insert_with(|| {
                        scales.methods.push(method);
                        scales.methods.len() as u32 - 1
                    });
                    scales.companions.extend(companions.into_iter().map(|c| (c, i)));
                    Verdict::Scaled { method, scale, second: second.unwrap_or(scale) }
                }
            };
            scales.verdicts.push((i, verdict));
        }
        scales.verdicts.sort_unstable_by_key(|v| v.0);
        scales.companions.sort_unstable();
        scales.told = hints.said().map(str::to_owned);
        scales
    }

    fn verdict(&self, source: u32) -> Option<Verdict> {
        let at = self.verdicts.binary_search_by_key(&source, |v| v.0).ok()?;
        Some(self.verdicts[at].1)
    }

    /// What is known about the stored tensor number `source`.
    pub fn of<'a>(&'a self, model: &'a Model, source: u32) -> Option<Known<'a>> {
        Some(match self.verdict(source)? {
            Verdict::Unscaled(reason) => Known::Unscaled(reason),
            Verdict::Hidden(reason) => Known::Hidden(reason),
            Verdict::Scaled { method, scale, second } => {
                let method = &self.methods[method as usize];
                let alone = matches!(method.second, Second::None | Second::Over127);
                let second = (!alone).then_some(second);
                Known::Scaled(Weight {
                    method,
                    scale: &model.tensors[scale as usize],
                    second: second.map(|i| &model.tensors[i as usize]),
                    panels: &self.panels,
                })
            }
        })
    }

    /// What is kept of tensors that are shown transposed, whatever the reason.
    pub fn panels(&self) -> &Arc<Panels> {
        &self.panels
    }

    /// Whether the stored tensor number `source` serves only to decode a weight that is
    /// shown decoded.
    pub fn is_companion(&self, source: u32) -> bool {
        let from = self.companions.partition_point(|&(companion, _)| companion < source);
        self.companions[from..]
            .iter()
            .take_while(|&&(companion, _)| companion == source)
            .any(|&(_, weight)| matches!(self.verdict(weight), Some(Verdict::Scaled { .. })))
    }

    /// The stored tensors that have another name when they are decoded.
    pub fn renamed(&self) -> impl Iterator<Item = u32> + '_ {
        self.verdicts.iter().filter_map(|&(source, verdict)| match verdict {
            Verdict::Scaled { method, .. } => {
                let (from, to) = self.methods[method as usize].rename;
                (from != to).then_some(source)
            }
            _ => None,
        })
    }

    /// Shows `source` as stored only: its name would be that of another tensor.
    pub fn withhold(&mut self, source: u32) {
        if let Ok(at) = self.verdicts.binary_search_by_key(&source, |v| v.0) {
            self.verdicts[at].1 = Verdict::Hidden(Reason::Collides);
        }
    }

    /// Why a weight is not scaled, in words.
    pub fn explain(&self, model: &Model, source: u32, reason: Reason) -> String {
        reason.text(model, source, self.told.as_deref())
    }

    /// One warning for each kind of weight that is not decoded.
    pub fn warnings(&self, model: &Model) -> Vec<String> {
        let mut kinds: BTreeMap<(bool, &str, &str), (u64, u32, Reason)> = BTreeMap::new();
        for &(source, verdict) in &self.verdicts {
            let (hidden, reason) = match verdict {
                Verdict::Scaled { .. } => continue,
                Verdict::Unscaled(reason) => (false, reason),
                Verdict::Hidden(reason) => (true, reason),
            };
            let dtype = model.tensors[source as usize].dtype.name();
            let (kind, name) = reason.kind();
            let label = if name.is_empty() { dtype } else { name };
            kinds.entry((hidden, kind, label)).or_insert((0, source, reason)).0 += 1;
        }
        kinds
            .into_iter()
            .map(|((hidden, ..), (count, first, reason))| {
                let name = String::from_utf8_lossy(&model.tensors[first as usize].name);
                let why = self.explain(model, first, reason);
                let weights = if count == 1 { "weight is" } else { "weights are" };
                if hidden {
                    format!(
                        "{count} {weights} served as stored, without float views: {why} (first {name})"
                    )
                } else {
                    format!("{count} {weights} shown unscaled in the float views: {why} (first {name})")
                }
            })
            .collect()
    }
}

impl Method {
    /// The name of the decoded weight; `name` may have been mapped and end otherwise.
    pub fn name<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        let (from, to) = self.rename;
        match name.strip_suffix(from.as_bytes()) {
            Some(stem) if from != to => [stem, to.as_bytes()].concat().into(),
            _ => name.into(),
        }
    }

    /// The shape of the decoded form of the part of `stored` that has the shape `part`.
    pub fn shape<'a>(&self, stored: &[u64], part: &'a [u64]) -> Option<Cow<'a, [u64]>> {
        let kept = match self.shape {
            Reshape::Same => return Some(part.into()),
            Reshape::LastDimension => 1,
            Reshape::Blocks => 3,
        };
        let lead = part.len().checked_sub(kept)?;
        if stored.len() < kept || part[lead..] != stored[stored.len() - kept..] {
            return None;
        }
        let Dims { rows, columns, .. } = self.dims;
        let mut shape = part[..lead].to_vec();
        match (self.shape, self.transposed) {
            (Reshape::Blocks, true) => shape.extend([columns, rows]),
            (Reshape::Blocks, false) => shape.extend([rows, columns]),
            _ => shape.push(columns),
        }
        Some(shape.into())
    }
}

/// A weight, or a part of one, on its way to be shown in a float type.
#[derive(Clone, Debug)]
pub struct Scaled {
    /// How it is decoded.
    pub method: Method,
    /// All of the codes.
    pub codes: Extent,
    /// All of the scales.
    pub scale: Option<Extent>,
    /// All of the second tensor.
    pub second: Option<Extent>,
    /// Order of bytes in the file.
    pub order: ByteOrder,
    /// The first value shown, counted over the whole weight as it is shown.
    pub first: u64,
    /// How many values are shown.
    pub elements: u64,
    /// The type shown.
    pub to: Target,
    /// What is kept of weights that are shown transposed.
    pub panels: Option<Arc<Panels>>,
}

impl Scaled {
    /// Bytes shown; the sizes were checked when this was planned.
    pub fn len(&self) -> u64 {
        self.elements * self.to.size() as u64
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// The part `part` of the codes `stored`, which holds `elements` values.
    pub fn plan(
        weight: Weight<'_>,
        stored: &Tensor,
        part: Extent,
        elements: u64,
        order: ByteOrder,
        to: Target,
    ) -> Option<Scaled> {
        let method = *weight.method;
        let Dims { rows, columns, .. } = method.dims;
        let before = part.offset.checked_sub(stored.extent.offset)?;
        let (step, values) = match (method.shape, method.transposed) {
            (_, true) => (method.row_bytes.checked_mul(rows)?, rows.checked_mul(columns)?),
            (Reshape::Same, _) => method.codes.unit(),
            _ => (method.row_bytes, columns),
        };
        let first = before.is_multiple_of(step).then(|| (before / step).checked_mul(values))??;
        Some(Scaled {
            method,
            codes: stored.extent,
            scale: method.scale.map(|_| weight.scale.extent),
            second: weight.second.map(|second| second.extent),
            order,
            first,
            elements,
            to,
            panels: Some(Arc::clone(weight.panels)),
        })
    }

    /// The codes of `stored` cast to numbers, without any scale.
    pub fn cast(stored: &Tensor, part: Extent, to: Target) -> Option<Scaled> {
        let codes = Codes::of(stored.dtype)?;
        let dims = Dims::of(&stored.shape);
        let (bytes, values) = codes.unit();
        let method = Method {
            convention: "",
            codes,
            row_bytes: dims.columns / values * bytes,
            dims,
            transposed: false,
            grid: Grid::TENSOR,
            scale: None,
            second: Second::None,
            rename: ("", ""),
            shape: Reshape::Same,
        };
        Some(Scaled {
            method,
            codes: stored.extent,
            scale: None,
            second: None,
            order: ByteOrder::Little,
            first: (part.offset - stored.extent.offset) / bytes * values,
            elements: part.len / bytes * values,
            to,
            panels: None,
        })
    }
}

#[cfg(test)]
#[path = "scale/tests.rs"]
mod tests;
