//! A built-in table over stored names, but for some tensors that are to stay as they are.
//!
//! `like=` and map files with values begin so: they want what a table makes of some tensors,
//! and its silence about the rest.

use super::catalog::{List, Names};
use super::error::MapError;
use super::stage::{self, Out, Pass, RuleId, Stage};
use super::{ArchFacts, Mounted, builtin};

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// Hugging Face names for a GGUF.
    Hf,
    /// GGUF names for a checkpoint.
    Gguf,
}

/// What a table that runs says of what it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// All that it would say as a stage of its own.
    Loud,
    /// Only what is not shown: the rest may still find a name.
    Quiet,
}

/// Runs a table; `None`, with a warning, when there is none for this model. `as_stored` marks
/// stored tensors to leave out; a shorter list leaves out nothing more.
pub(super) fn run(
    table: Table,
    names: Names<'_>,
    facts: &ArchFacts,
    as_stored: &[bool],
    voice: Voice,
    warnings: &mut Vec<String>,
) -> Result<Option<Pass>, MapError> {
    let pass = |label, inner: &mut dyn Stage, warnings: &mut Vec<String>| {
        let mut except = Except { inner, as_stored, voice };
        stage::run(label, &mut except, names, warnings).map(Some)
    };
    match table {
        Table::Hf => match builtin::Hf::new(names, facts, warnings) {
            Some(mut stage) => pass("hf", &mut stage, warnings),
            None => Ok(None),
        },
        Table::Gguf => match builtin::Gguf::new(names, facts, warnings) {
            Some(mut stage) => pass("gguf", &mut stage, warnings),
            None => Ok(None),
        },
    }
}

/// Marks the other half of what a table made of two stored tensors, where one is marked: to
/// leave out one is to leave out both.
pub(super) fn mark_partners(names: Names<'_>, list: &List, as_stored: &mut [bool]) {
    let made = Names { model: names.model, list: Some(list) };
    for item in made.iter() {
        let Some(other) = item.transform.other() else {
            continue;
        };
        let (one, other) = (item.source as usize, other as usize);
        let either = as_stored[one] || as_stored[other];
        as_stored[one] = either;
        as_stored[other] = either;
    }
}

/// A stage but for some stored tensors.
struct Except<'s> {
    inner: &'s mut dyn Stage,
    as_stored: &'s [bool],
    voice: Voice,
}

impl Stage for Except<'_> {
    fn apply(&mut self, item: &Mounted<'_>, out: &mut Out<'_>) {
        if self.as_stored.get(item.source as usize) == Some(&true) {
            out.keep(item);
        } else {
            self.inner.apply(item, out);
        }
    }

    fn rule(&self, rule: RuleId) -> String {
        self.inner.rule(rule)
    }

    fn finish(&mut self, names: Names<'_>, problems: &mut MapError, warnings: &mut Vec<String>) {
        if self.voice == Voice::Loud {
            self.inner.finish(names, problems, warnings);
        }
    }
}
