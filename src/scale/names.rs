//! From a name to the stored tensor that has it, over all files of a model.

use crate::model::{Model, Tensor};

/// The tensors in the order of their names.
pub(super) struct Names<'a> {
    pub(super) model: &'a Model,
    order: Vec<u32>,
}

impl<'a> Names<'a> {
    pub(super) fn new(model: &'a Model) -> Names<'a> {
        // A model has at most 2^20 tensors.
        let mut order: Vec<u32> = (0..model.tensors.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| {
            model.tensors[a as usize].name.cmp(&model.tensors[b as usize].name)
        });
        Names { model, order }
    }

    pub(super) fn tensor(&self, index: u32) -> &'a Tensor {
        &self.model.tensors[index as usize]
    }

    /// The tensor called `stem` with `end` behind it.
    pub(super) fn find(&self, stem: &[u8], end: &str) -> Option<u32> {
        let wanted = stem.iter().chain(end.as_bytes());
        let at = self.order.binary_search_by(|&i| self.tensor(i).name.iter().cmp(wanted.clone()));
        at.ok().map(|at| self.order[at])
    }
}
