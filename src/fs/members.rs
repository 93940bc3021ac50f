//! Which tensors a virtual `model.safetensors` holds, and in which type.

use super::Parts;
use crate::content::Body;
use crate::dtype::{DType, Kind};
use crate::model::{Format, elements};
use crate::naming::Mounted;
use crate::quant::Target;
use crate::view::whole::{
    MAX_HEADER, Member, Members as Selection, digits, entry_len, has_dtype, header_len,
};
use crate::view::{self, Repr, Stored};
use std::borrow::Cow;
use std::sync::Arc;

/// How each tensor is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// All alike.
    One(Repr),
    /// As a checkpoint would be: what is quantised as BF16, the rest as it is stored.
    Checkpoint,
}

impl Choice {
    /// How many there are.
    pub(super) const COUNT: usize = Repr::ALL.len() + 1;

    /// A number of its own, below [`Choice::COUNT`].
    pub(super) fn slot(self) -> usize {
        match self {
            Choice::One(repr) => Repr::ALL.iter().position(|&r| r == repr).unwrap_or(0),
            Choice::Checkpoint => Repr::ALL.len(),
        }
    }
}

/// The mounted tensors under one choice.
#[derive(Debug)]
pub(super) struct Members {
    parts: Arc<Parts>,
    choice: Choice,
}

impl Members {
    pub(super) fn new(parts: Arc<Parts>, choice: Choice) -> Members {
        Members { parts, choice }
    }

    /// What is tried first for the stored tensor `source`.
    fn wanted(&self, source: u32) -> Repr {
        match self.choice {
            Choice::One(repr) => repr,
            Choice::Checkpoint => match self.parts.model.tensors[source as usize].dtype.kind() {
                Kind::Quantised => Repr::Float(Target::BF16),
                _ => Repr::Stored,
            },
        }
    }

    /// The type a tensor has in the file and its bytes: as asked, else as stored, and what
    /// safetensors has no type for as F32.
    fn shown(&self, tensor: &Mounted<'_>) -> Option<(Repr, DType, Body)> {
        let stock = self.parts.stock();
        let choices = [self.wanted(tensor.source), Repr::Stored, Repr::Float(Target::F32)];
        let repr = choices.into_iter().find(|&r| {
            let undefined =
                view::stored_form(tensor.dtype, stock.model.byte_order) == Stored::Undefined;
            view::shown(stock, tensor, r).is_some_and(|d| has_dtype(d) && !undefined)
        })?;
        Some((repr, view::shown(stock, tensor, repr)?, view::body(stock, tensor, repr)?))
    }
}

impl Members {
    /// Whether the stored tensor `source` only serves to decode a weight that this file holds
    /// decoded: in the root's, that is one that safetensors has no type for.
    fn leaves_out(&self, source: u32) -> bool {
        let Parts { model, scales, .. } = &*self.parts;
        scales.is_companion(source)
            && (self.choice != Choice::One(Repr::Stored) || model.format == Format::Gguf)
    }
}

impl Selection for Members {
    fn count(&self) -> usize {
        self.parts.catalog.len(&self.parts.model)
    }

    fn member(&self, index: usize) -> Option<Member<'_>> {
        let tensor = self.parts.catalog.get(&self.parts.model, index);
        if self.leaves_out(tensor.source) {
            return None;
        }
        let (repr, dtype, body) = self.shown(&tensor)?;
        let stock = self.parts.stock();
        let name = match view::name(stock, &tensor, repr) {
            Cow::Borrowed(name) => std::str::from_utf8(name).ok()?.into(),
            Cow::Owned(name) => String::from_utf8(name).ok()?.into(),
        };
        Some(Member { name, dtype, shape: view::shape(stock, &tensor, repr), body })
    }
}

/// Digits that a shape may gain when what is packed into it is unpacked.
const UNPACKED: u64 = 4;

/// Why there is no `model.safetensors`, and which tensors it lacks; both are warnings.
pub(super) fn obstacles(parts: &Arc<Parts>) -> (bool, Vec<String>) {
    let Parts { model, catalog, .. } = &**parts;
    let mut left_out = 0;
    // Upper bound of the header, whatever type each tensor is shown in: near enough that only
    // a header of nearly that length has to be planned to know.
    let (mut text, mut data) = (128u64, 0u64);
    for i in 0..catalog.len(model) {
        let tensor = catalog.get(model, i);
        let name = match std::str::from_utf8(tensor.name) {
            Err(_) => Err("is not UTF-8"),
            Ok("__metadata__") => Err("is the name of the header's own entry"),
            Ok(name) => Ok(name),
        };
        let name = match name {
            Ok(name) => name,
            Err(why) => {
                let name = tensor.name.escape_ascii();
                let what = format!("the tensor name \"{name}\" {why}");
                return (false, vec![format!("there is no model.safetensors: {what}")]);
            }
        };
        let dtype = match tensor.dtype.name().len() {
            0..4 => DType::BF16,
            _ => tensor.dtype,
        };
        text += entry_len(name, dtype, tensor.shape) + UNPACKED;
        data = data.saturating_add(tensor.nbytes.max(elements(tensor.shape).saturating_mul(64)));
        if tensor.dtype.kind() == Kind::Quantised
            && view::stored_form(tensor.dtype, model.byte_order) == Stored::Undefined
        {
            left_out += 1;
        }
    }
    let mut warnings = Vec::new();
    if left_out > 0 {
        warnings.push(format!(
            "model.safetensors lacks {left_out} quantised tensors whose big-endian layout nobody defines"
        ));
    }
    let offsets = 2 * digits(data) * catalog.len(model) as u64;
    if text + offsets > MAX_HEADER {
        let fits = Repr::ALL.into_iter().all(|repr| {
            let members = Arc::new(Members::new(Arc::clone(parts), Choice::One(repr)));
            header_len(members).is_ok_and(|len| len <= MAX_HEADER)
        });
        if !fits {
            warnings.push("there is no model.safetensors: its header would be too long".into());
            return (false, warnings);
        }
    }
    (true, warnings)
}
