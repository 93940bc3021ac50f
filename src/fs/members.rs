//! Which tensors a virtual `model.safetensors` holds, and in which type.

use super::Parts;
use crate::content::Body;
use crate::dtype::{DType, Kind};
use crate::model::Format;
use crate::naming::Mounted;
use crate::quant::Target;
use crate::view::whole::{MAX_HEADER, Member, Members as Selection, Whole, has_dtype};
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

/// Why there is no `model.safetensors`, and which tensors it lacks; both are warnings.
pub(super) fn obstacles(parts: &Arc<Parts>) -> (bool, Vec<String>) {
    let Parts { model, catalog, store, .. } = &**parts;
    let mut left_out = 0;
    // Upper bound of the header: escapes, and twenty digits for each number.
    let mut bound = 64u64;
    for i in 0..catalog.len(model) {
        let tensor = catalog.get(model, i);
        let unfit = match std::str::from_utf8(tensor.name) {
            Err(_) => Some("is not UTF-8"),
            Ok("__metadata__") => Some("is the name of the header's own entry"),
            Ok(_) => None,
        };
        if let Some(why) = unfit {
            let name = tensor.name.escape_ascii();
            return (
                false,
                vec![format!("there is no model.safetensors: the tensor name \"{name}\" {why}")],
            );
        }
        bound += 6 * tensor.name.len() as u64 + 21 * tensor.shape.len() as u64 + 120;
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
    if bound > MAX_HEADER {
        let fits = Repr::ALL.into_iter().all(|repr| {
            let members = Arc::new(Members::new(Arc::clone(parts), Choice::One(repr)));
            Whole::new(members, model, store)
                .is_ok_and(|whole| whole.header_len() <= MAX_HEADER + 8)
        });
        if !fits {
            warnings.push("there is no model.safetensors: its header would be too long".into());
            return (false, warnings);
        }
    }
    (true, warnings)
}
