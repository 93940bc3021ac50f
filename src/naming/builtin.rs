//! `map=hf` and `map=gguf`: the tables of [`super::families`] at work.
//!
//! Only what is certain is renamed. A tensor that the table of its architecture does not
//! know keeps its name, and a warning says so; so does everything in an architecture
//! without a table.

mod hf_names;
mod joined;
mod table;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod values;

pub(super) use hf_names::Gguf;

use super::catalog::Names;
use super::error::{MapError, show, show_list};
use super::families::{FAMILIES, Op};
use super::rules::{Slots, render};
use super::stage::{KEPT, MAX_LISTED, Out, RuleId, Stage, check_split, part_bytes};
use super::{ArchFacts, Mounted, Transform};
use crate::model::elements;
use joined::Partners;
use table::{Known, Outcome, Table};

/// Everything that the table decides has this rule.
const TABLE: RuleId = 1;

/// GGUF names to Hugging Face names.
pub(super) struct Hf<'f> {
    names: Names<'f>,
    facts: &'f ArchFacts,
    architecture: &'f str,
    /// What checkpoints of the family have and their GGUF has not.
    gone: Option<&'static str>,
    table: Table,
    partners: Partners,
    unknown: Listed,
    /// Known tensors whose name would promise what cannot be shown: why.
    troubles: Vec<String>,
    trouble_count: usize,
    buffer: Vec<u8>,
}

/// The first names of a kind, and how many there are.
#[derive(Default)]
struct Listed {
    first: Vec<Box<[u8]>>,
    count: usize,
}

impl Listed {
    fn add(&mut self, name: &[u8]) {
        self.count += 1;
        if self.first.len() < MAX_LISTED {
            self.first.push(name.into());
        }
    }

    fn show(&self) -> String {
        show_list(self.first.iter().map(|n| &**n), self.count, MAX_LISTED)
    }

    /// `1 tensor`, `7 tensors`.
    fn tensors(&self) -> String {
        format!("{} {}", self.count, if self.count == 1 { "tensor" } else { "tensors" })
    }
}

impl<'f> Hf<'f> {
    /// The stage for this model, or `None` with a warning when its architecture has no table.
    pub(super) fn new(
        names: Names<'f>,
        facts: &'f ArchFacts,
        warnings: &mut Vec<String>,
    ) -> Option<Hf<'f>> {
        let Some(architecture) = &facts.architecture else {
            warnings.push(
                "map=hf: the file does not name its architecture: ALL names are kept as stored"
                    .into(),
            );
            return None;
        };
        let Some(family) = FAMILIES.iter().find(|f| f.archs.contains(&&**architecture)) else {
            let architecture = show(architecture.as_bytes());
            warnings.push(format!(
                "map=hf: no table for architecture {architecture}: ALL names are kept as stored \
                 (a map file can name them)"
            ));
            return None;
        };
        let mut table = Table::gguf_to_hf(family, names);
        let partners = Partners::new(&mut table, names);
        Some(Hf {
            names,
            facts,
            architecture,
            gone: family.gone,
            table,
            partners,
            unknown: Listed::default(),
            troubles: Vec::new(),
            trouble_count: 0,
            buffer: Vec::new(),
        })
    }

    /// Under its stored name after all.
    fn keep(&mut self, item: &Mounted<'_>, why: &str, out: &mut Out<'_>) {
        self.trouble_count += 1;
        if self.troubles.len() < MAX_LISTED {
            self.troubles.push(format!("{} {why}", show(item.name)));
        }
        out.keep(item);
    }

    fn rename(
        &mut self,
        known: &Known,
        numbers: &Slots<'_>,
        item: &Mounted<'_>,
        op: Op,
        out: &mut Out<'_>,
    ) {
        let layer = numbers.first().copied().flatten().and_then(number).unwrap_or(0);
        render(&known.target, numbers, 0, &mut self.buffer);
        let shape = values::shape(op, item.shape);
        let transform = match self.transform(op, layer, item, &shape) {
            Ok(transform) => transform,
            Err(why) => return self.keep(item, &why, out),
        };
        out.part(TABLE, item, &self.buffer, &shape, transform);
    }

    /// One tensor per index of the first dimension.
    fn split(&mut self, known: &Known, numbers: &Slots<'_>, item: &Mounted<'_>, out: &mut Out<'_>) {
        if let Err(why) = self.check_slices(known, item) {
            return self.keep(item, &why, out);
        }
        for index in 0..item.shape[0] {
            render(&known.target, numbers, index, &mut self.buffer);
            out.part(TABLE, item, &self.buffer, &item.shape[1..], Transform::None);
        }
    }

    /// Whether the first dimension counts experts (or heads) as the metadata has them.
    fn check_slices(&self, known: &Known, item: &Mounted<'_>) -> Result<(), String> {
        check_split(item)?;
        match self.facts.expert_count {
            Some(count) if known.experts && count != item.shape[0] => {
                Err(format!("has {} experts, the metadata says {count}", item.shape[0]))
            }
            _ => Ok(()),
        }
    }

    /// Gate and up of each expert, one behind the other.
    fn gate_up(
        &mut self,
        known: &Known,
        up: &Known,
        numbers: &Slots<'_>,
        item: &Mounted<'_>,
        out: &mut Out<'_>,
    ) {
        if let Err(why) = self.check_slices(known, item) {
            return self.keep(item, &why, out);
        }
        let mut half = item.shape[1..].to_vec();
        half[0] /= 2;
        let whole = elements(&item.shape[1..]);
        if !item.shape[1].is_multiple_of(2) || whole > 0 && part_bytes(item, &half).is_none() {
            return self.keep(item, "has no two halves of whole rows", out);
        }
        for index in 0..item.shape[0] {
            for known in [known, up] {
                render(&known.target, numbers, index, &mut self.buffer);
                out.part(TABLE, item, &self.buffer, &half, Transform::None);
            }
        }
    }

    /// Rows of q, then of k, then of v.
    fn qkv(
        &mut self,
        parts: &[Known; 3],
        numbers: &Slots<'_>,
        item: &Mounted<'_>,
        out: &mut Out<'_>,
    ) {
        let layer = numbers.first().copied().flatten().and_then(number).unwrap_or(0);
        let heads = self.facts.heads(layer).zip(self.facts.kv_heads(layer));
        let Some((heads, kv_heads)) = heads else {
            return self.keep(item, "cannot be cut: the metadata has no head counts", out);
        };
        let Some(&rows) = item.shape.first() else {
            return self.keep(item, "cannot be cut: it has no dimensions", out);
        };
        let groups = u64::from(heads) + 2 * u64::from(kv_heads);
        let unit = rows / groups;
        let shapes = [heads, kv_heads, kv_heads].map(|heads| {
            let mut shape = item.shape.to_vec();
            shape[..1].fill(u64::from(heads) * unit);
            shape
        });
        let whole = shapes.iter().all(|shape| part_bytes(item, shape).is_some());
        if rows == 0 || !rows.is_multiple_of(groups) || !whole || item.transform != Transform::None
        {
            let why = format!("has {rows} rows, which are not {heads} + 2*{kv_heads} heads");
            return self.keep(item, &why, out);
        }
        let transform = |known: &Known, shape: &Vec<u64>| match known.outcome {
            Outcome::Rename(op) => {
                self.transform(op, layer, &Mounted { shape: shape.as_slice(), ..*item }, shape)
            }
            _ => Ok(Transform::None),
        };
        let transforms: Result<Vec<Transform>, String> =
            parts.iter().zip(&shapes).map(|(known, shape)| transform(known, shape)).collect();
        let transforms = match transforms {
            Ok(transforms) => transforms,
            Err(why) => return self.keep(item, &why, out),
        };
        for ((known, shape), transform) in parts.iter().zip(&shapes).zip(transforms) {
            render(&known.target, numbers, 0, &mut self.buffer);
            out.part(TABLE, item, &self.buffer, shape, transform);
        }
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Stage for Hf<'_> {
    fn apply(&mut self, item: &Mounted<'_>, out: &mut Out<'_>) {
        let Some((known, numbers)) = self.table.find(item.name) else {
            self.unknown.add(item.name);
            return out.keep(item);
        };
        match &known.outcome {
            Outcome::Rename(op) => self.rename(&known, &numbers, item, *op, out),
            Outcome::Split => self.split(&known, &numbers, item, out),
            Outcome::GateUp(up) => self.gate_up(&known, up, &numbers, item, out),
            Outcome::Qkv(parts) => self.qkv(parts, &numbers, item, out),
            Outcome::Drop => out.drop(item),
            Outcome::Join(role) => self.join(*role, &known, &numbers, item, out),
            Outcome::Part | Outcome::Ambiguous => out.keep(item),
        }
    }

    fn rule(&self, rule: RuleId) -> String {
        debug_assert_ne!(rule, KEPT);
        format!("table of {}", self.architecture)
    }

    fn finish(&mut self, _: Names<'_>, _: &mut MapError, warnings: &mut Vec<String>) {
        if self.unknown.count > 0 {
            warnings.push(format!(
                "map=hf: no Hugging Face name is known for {} of architecture {}, kept as stored: {}",
                self.unknown.tensors(),
                self.architecture,
                self.unknown.show()
            ));
        }
        let more = self.trouble_count.saturating_sub(self.troubles.len());
        for trouble in &self.troubles {
            warnings.push(format!("map=hf: {trouble}; kept as stored"));
        }
        if more > 0 {
            let tensors = if more == 1 { "tensor" } else { "tensors" };
            warnings.push(format!("map=hf: {more} more {tensors} kept as stored"));
        }
        if let Some(gone) = self.gone {
            warnings.push(format!(
                "map=hf: not restorable, since a GGUF of {} does not keep it: {gone}",
                self.architecture
            ));
        }
    }
}
