//! From a name to the stored tensor that has it, over all files of a model.
//!
//! Companions begin as their weight does, so in the order of names they are its neighbours.

use crate::model::{Model, Tensor};
use std::ops::Range;

/// The tensors in the order of their names.
pub(super) struct Names<'a> {
    pub(super) model: &'a Model,
    order: Vec<u32>,
    /// Whether the files say that they hold formats of ComfyUI.
    pub(super) marked: bool,
}

impl<'a> Names<'a> {
    pub(super) fn new(model: &'a Model) -> Names<'a> {
        // A model has at most 2^20 tensors.
        let mut order: Vec<u32> = (0..model.tensors.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| {
            model.tensors[a as usize].name.cmp(&model.tensors[b as usize].name)
        });
        Names { model, order, marked: model.meta("_quantization_metadata").is_some() }
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn tensor(&self, index: u32) -> &'a Tensor {
        &self.model.tensors[index as usize]
    }

    /// Index of the tensor at a place in the order of names.
    pub(super) fn at(&self, place: usize) -> u32 {
        self.order[place]
    }

    /// The tensor called `stem` with `end` behind it.
    pub(super) fn find(&self, stem: &[u8], end: &str) -> Option<u32> {
        let wanted = stem.iter().chain(end.as_bytes());
        let at = self.order.binary_search_by(|&i| self.tensor(i).name.iter().cmp(wanted.clone()));
        at.ok().map(|at| self.order[at])
    }

    /// The places of all names that begin with `stem`, as the name at `place` does. Looks
    /// further and further away: the range is short where names are many.
    pub(super) fn around(&self, place: usize, stem: &[u8]) -> Range<usize> {
        let inside = |place: usize| self.tensor(self.order[place]).name.starts_with(stem);
        let mut step = 1;
        while place >= step && inside(place - step) {
            step *= 2;
        }
        let from = place.saturating_sub(step);
        let first = from
            + self.order[from..place].partition_point(|&i| !self.tensor(i).name.starts_with(stem));
        let mut step = 1;
        while place + step < self.order.len() && inside(place + step) {
            step *= 2;
        }
        let to = self.order.len().min(place + step);
        let last = place
            + self.order[place..to].partition_point(|&i| self.tensor(i).name.starts_with(stem));
        first..last
    }

    /// The tensor in `places`, all of whose names begin with `skip` bytes that are equal, with
    /// just `end` behind them.
    pub(super) fn among(&self, places: &Range<usize>, skip: usize, end: &str) -> Option<u32> {
        let near = &self.order[places.clone()];
        let at = near.binary_search_by(|&i| self.tensor(i).name[skip..].cmp(end.as_bytes()));
        at.ok().map(|at| near[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::model::Format;
    use crate::scale::tests::model_of;

    #[test]
    fn neighbours_are_found_wherever_they_begin_and_end() {
        let names: Vec<String> =
            (0..40).flat_map(|i| (0..i % 9).map(move |j| format!("m{i:02}.{j}"))).collect();
        let entries: Vec<(&str, DType, &[u64])> =
            names.iter().map(|n| (&**n, DType::U8, &[1u64][..])).collect();
        let model = model_of(Format::Safetensors, &entries);
        let sorted = Names::new(&model);
        for place in 0..sorted.len() {
            let name = &sorted.tensor(sorted.at(place)).name;
            for cut in 0..=name.len() {
                let stem = &name[..cut];
                let wanted: Vec<usize> = (0..sorted.len())
                    .filter(|&p| sorted.tensor(sorted.at(p)).name.starts_with(stem))
                    .collect();
                let found = sorted.around(place, stem);
                assert_eq!(found.clone().collect::<Vec<_>>(), wanted, "{place} {cut}");
                let end = std::str::from_utf8(&name[cut..]).unwrap_or_default();
                assert_eq!(sorted.among(&found, cut, end), Some(sorted.at(place)));
                assert_eq!(sorted.among(&found, cut, "?"), None);
                assert_eq!(sorted.find(stem, end), Some(sorted.at(place)));
            }
        }
    }
}
