//! `like=REF`: the names of a second model, found by names first and shapes second: equal names;
//! what the built-in table calls them; one changed prefix, twice at most; templates that are alone
//! with their shape and their indices.
//!
//! Shapes can refuse what names say, and decide alone only where there is nothing to choose.
//! What stays unmatched on either side is told, never guessed. Knows headers only: values are
//! the business of the built-in tables, which say what they make of each tensor.

mod absent;
mod classes;
mod matching;
mod prefix;
mod report;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use report::{Likeness, Mismatch};

use super::catalog::{List, Names, index_u32};
use super::error::MapError;
use super::map_file::check_target;
use super::stage::{self, FromTable, Origin, Out, Pass, RuleId, Stage};
use super::table_pass::{self, Table, Voice};
use super::{ArchFacts, Mounted, Transform};
use crate::model::{Format, Model};
use absent::{Absence, Judge};
use matching::{Item, Matching, Partner};
use prefix::Refusal;
use std::collections::HashSet;

/// Everything renamed here has this rule.
const LIKE: RuleId = 1;

/// The second model, of which only names and shapes matter.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'r> {
    /// What messages call it: the path as given.
    pub label: &'r str,
    /// Its description.
    pub model: &'r Model,
}

/// What the derivation gave.
pub(super) struct Done {
    pub(super) list: Option<List>,
    /// Set when a built-in table had a part in it.
    pub(super) table: Option<FromTable>,
    /// Where each name came from, when there is a list and no table.
    pub(super) origins: Option<Vec<Origin>>,
    pub(super) likeness: Likeness,
}

/// Derives names from the reference for what the stages before gave.
pub(super) fn run(
    names: Names<'_>,
    facts: &ArchFacts,
    reference: Reference<'_>,
    warnings: &mut Vec<String>,
) -> Result<Done, MapError> {
    let search = Search { names, facts, reference };
    let kind = match (names.model.format, reference.model.format) {
        _ if names.list.is_some() => None,
        (Format::Gguf, Format::Safetensors) => Some(Table::Hf),
        (Format::Safetensors, Format::Gguf) => Some(Table::Gguf),
        _ => None,
    };
    let mut said = Vec::new();
    let known = search.known();
    let made = match kind {
        Some(kind) => table_pass::run(kind, names, facts, &known, Voice::Loud, &mut said)?,
        None => None,
    };
    let (kind, items) = match (kind, &made) {
        (Some(kind), Some(pass)) => (Some(kind), Names { list: Some(&pass.list), ..names }),
        _ => (None, names),
    };
    let found = search.pair(items, kind.is_some());
    let mut likeness = search.report(&found, items);
    let mut done = Done { list: None, table: None, origins: None, likeness: Likeness::default() };
    if let Some(kind) = kind {
        let (list, table) = search.behind(kind, items, &found, known, &mut likeness, warnings)?;
        done.list = Some(list);
        // GGUF names are names alone: any map file says as much.
        done.table = Some(table).filter(|_| kind == Table::Hf);
    } else {
        let renames = found.renames(items, items, &[]);
        let mut changes = renames.iter().zip(items.iter());
        if changes.any(|(to, item)| to.is_some_and(|to| to != item.name)) {
            let pass = search.rename(items, &renames, warnings)?;
            done.list = Some(pass.list);
            done.origins = Some(pass.origins);
        }
    }
    likeness.warn(warnings);
    // Why a table did not help is of interest where something has found no name.
    if !likeness.unmatched_source.is_empty() {
        said.retain(|text| !warnings.contains(text));
        likeness.notes.append(&mut said);
    }
    done.likeness = likeness;
    Ok(done)
}

/// What is searched, and where.
struct Search<'a> {
    names: Names<'a>,
    facts: &'a ArchFacts,
    reference: Reference<'a>,
}

impl<'a> Search<'a> {
    /// Which names the reference has already: they are nothing for a table.
    fn known(&self) -> Vec<bool> {
        let tensors = &self.reference.model.tensors;
        let known: HashSet<&[u8]> = tensors.iter().map(|t| &*t.name).collect();
        self.names.iter().map(|item| known.contains(item.name)).collect()
    }

    /// Names behind a table. What it renamed in vain goes back to what is stored, so it runs
    /// again without that, and what is left is renamed.
    fn behind(
        &self,
        kind: Table,
        items: Names<'_>,
        found: &Found<'a>,
        known: Vec<bool>,
        likeness: &mut Likeness,
        warnings: &mut Vec<String>,
    ) -> Result<(List, FromTable), MapError> {
        let (names, mut as_stored) = (self.names, known.clone());
        for &source in &found.in_vain {
            as_stored[source as usize] = true;
        }
        if let Some(list) = items.list {
            table_pass::mark_partners(names, list, &mut as_stored);
        }
        let mut back = vec![false; as_stored.len()];
        for (source, back) in (0u32..).zip(&mut back) {
            *back = as_stored[source as usize] && !known[source as usize];
            // The other half of what the table joined in vain.
            if *back && !found.in_vain.contains(&source) {
                likeness.unmatched_source.push(names.get(source as usize).name.into());
            }
        }
        let made = table_pass::run(kind, names, self.facts, &as_stored, Voice::Quiet, warnings)?;
        let made = made.map(|pass| pass.list).unwrap_or_default();
        let mut table = FromTable::new(&made, names.model, &as_stored);
        let middle = Names { list: Some(&made), ..names };
        let pass = self.rename(middle, &found.renames(middle, items, &back), warnings)?;
        table.follow(&pass.origins);
        Ok((pass.list, table))
    }

    /// One pass that renames, with the checks that every pass has.
    fn rename(
        &self,
        names: Names<'_>,
        renames: &[Option<&[u8]>],
        warnings: &mut Vec<String>,
    ) -> Result<Pass, MapError> {
        let mut stage = Renames { renames, at: 0 };
        stage::run(&format!("like={}", self.reference.label), &mut stage, names, warnings)
    }

    /// The converter's name for what it made.
    fn architecture(&self) -> Option<&'a str> {
        let made = self.names.model.format == Format::Gguf;
        self.facts.architecture.as_deref().filter(|_| made)
    }

    /// Judges names of the reference.
    fn judge<'m>(&self, matching: &'m Matching<'a>) -> Judge<'m, 'a> {
        let count = index_u32(self.reference.model.tensors.len());
        Judge::new(matching, count, self.architecture())
    }

    /// Steps 1 to 4. `by_table`: the items are what a table made of stored tensors, and all that
    /// it made of one must find partners, or none.
    fn pair(&self, items: Names<'a>, by_table: bool) -> Found<'a> {
        let sources =
            items.iter().map(|item| Item { name: item.name, shape: item.shape }).collect();
        let targets = self
            .reference
            .model
            .tensors
            .iter()
            .map(|t| Item { name: &t.name, shape: &t.shape })
            .collect();
        let mut matching = Matching::new(sources, targets);
        let architecture = self.architecture();
        let is_cut = |source: u32, ours: &[u64], theirs: &[u64]| {
            let stored = items.get(source as usize).source;
            absent::is_cut(&items.model.tensors[stored as usize].name, architecture, ours, theirs)
        };
        matching.join_equal();
        matching.bar(|name| check_target(name).is_err());
        let mut disagreeing = Vec::new();
        for _ in 0..2 {
            let fits = |source, target| {
                let (ours, theirs) = (matching.source(source).shape, matching.target(target).shape);
                ours == theirs || is_cut(source, ours, theirs)
            };
            match prefix::best(&matching, fits) {
                Ok((_, pairs)) => pairs.iter().for_each(|&(s, t)| matching.join(s, t)),
                Err(Refusal::Shapes(found)) => {
                    disagreeing = found;
                    break;
                }
                Err(Refusal::Nothing | Refusal::Tie) => break,
            }
        }
        let mut cut = Vec::new();
        for source in 0..index_u32(items.len()) {
            if let Partner::Mismatch(target) = matching.of_source(source)
                && is_cut(source, matching.source(source).shape, matching.target(target).shape)
            {
                matching.join_anyway(source, target);
                cut.push(target);
            }
        }
        let judge = self.judge(&matching);
        let missing = |target| judge.why(target) != Absence::NotRestorable;
        let (pairs, open) = classes::pair(&matching, missing);
        for (source, target) in pairs {
            matching.join(source, target);
        }
        let in_vain = if by_table { release_halves(&mut matching, items) } else { HashSet::new() };
        Found { matching, in_vain, disagreeing, cut, open }
    }

    /// What was found and what was not.
    fn report(&self, found: &Found<'_>, items: Names<'_>) -> Likeness {
        let mut likeness = Likeness::new(self.reference.label);
        let of_table = items.list.is_some() && self.names.list.is_none();
        // A table's result is called what the tensor was called before.
        let called = |index: u32| {
            let item = items.get(index as usize);
            if of_table { &*items.model.tensors[item.source as usize].name } else { item.name }
        };
        let mismatch = |source: u32, target: u32| Mismatch {
            source: called(source).into(),
            reference: found.matching.target(target).name.into(),
            source_shape: found.matching.source(source).shape.into(),
            reference_shape: found.matching.target(target).shape.into(),
        };
        for source in 0..index_u32(items.len()) {
            match found.matching.of_source(source) {
                Partner::Match(t) => likeness.matched.push(found.matching.target(t).name.into()),
                Partner::Mismatch(t) => likeness.shape_mismatch.push(mismatch(source, t)),
                Partner::Free => {
                    let name = called(source);
                    if likeness.unmatched_source.last().is_none_or(|last| **last != *name) {
                        likeness.unmatched_source.push(name.into());
                    }
                }
            }
        }
        likeness.shape_mismatch.extend(found.disagreeing.iter().map(|&(s, t)| mismatch(s, t)));
        let judge = self.judge(&found.matching);
        for target in found.matching.free_targets() {
            let list = match judge.why(target) {
                Absence::Tied => &mut likeness.tied,
                Absence::NotRestorable => &mut likeness.not_restorable,
                Absence::Missing => &mut likeness.unmatched_reference,
            };
            list.push(found.matching.target(target).name.into());
        }
        let served = |t: &&u32| found.matching.of_target(**t) != Partner::Free;
        likeness
            .cut
            .extend(found.cut.iter().filter(served).map(|&t| found.matching.target(t).name.into()));
        for open in &found.open {
            likeness.note_ambiguous(&open.sources, &open.targets);
        }
        likeness
    }
}

/// Frees what a table made of stored tensors of which not all parts have found partners;
/// returns those stored tensors.
fn release_halves(matching: &mut Matching<'_>, items: Names<'_>) -> HashSet<u32> {
    let mut in_vain = HashSet::new();
    let mut at = 0;
    while at < items.len() {
        let source = items.get(at).source;
        let count = (at..items.len()).take_while(|&i| items.get(i).source == source).count();
        let parts = index_u32(at)..index_u32(at + count);
        if parts.clone().any(|i| matching.of_source(i) == Partner::Free) {
            parts.for_each(|i| matching.release(i));
            in_vain.insert(source);
        }
        at += count;
    }
    in_vain
}

/// New names, one for each name that comes.
struct Renames<'s> {
    renames: &'s [Option<&'s [u8]>],
    at: usize,
}

impl Stage for Renames<'_> {
    fn apply(&mut self, item: &Mounted<'_>, out: &mut Out<'_>) {
        match self.renames.get(self.at).copied().flatten() {
            Some(name) if name != item.name => {
                out.part(LIKE, item, name, item.shape, Transform::None);
            }
            _ => out.keep(item),
        }
        self.at += 1;
    }

    fn rule(&self, _: RuleId) -> String {
        "like".into()
    }

    fn finish(&mut self, _: Names<'_>, _: &mut MapError, _: &mut Vec<String>) {}
}

/// Who belongs to whom.
struct Found<'a> {
    matching: Matching<'a>,
    /// Stored tensors that a table renamed in vain.
    in_vain: HashSet<u32>,
    /// Names that one change of prefix would bring together, but for these shapes.
    disagreeing: Vec<(u32, u32)>,
    /// Matched although rows were cut.
    cut: Vec<u32>,
    open: Vec<classes::Ambiguous>,
}

impl<'a> Found<'a> {
    /// The new name of each of `names`, which are `items` but for stored tensors that went
    /// `back` to what they were.
    fn renames(&self, names: Names<'_>, items: Names<'_>, back: &[bool]) -> Vec<Option<&'a [u8]>> {
        let is_back = |source: u32| back.get(source as usize) == Some(&true);
        let mut partners = (0..items.len()).filter(|&i| !is_back(items.get(i).source)).map(|i| {
            match self.matching.of_source(index_u32(i)) {
                Partner::Free => None,
                Partner::Match(t) | Partner::Mismatch(t) => Some(self.matching.target(t).name),
            }
        });
        let partner = |item: Mounted<'_>| {
            if is_back(item.source) { None } else { partners.next().flatten() }
        };
        names.iter().map(partner).collect()
    }
}
