//! Map files with `"values": "hf"`: the built-in Hugging Face table first, with the values that
//! its names promise, then the pairs.
//!
//! A map file alone names bytes and changes none, so a printed map would put a checkpoint's
//! names on permuted rows. Here a pair says what becomes of everything that the table made of
//! one stored tensor: a name for one, a list of as many for several, null for not shown. A pair
//! that gives a tensor its own stored name leaves it as it is stored.

use super::super::catalog::{List, Names};
use super::super::error::{Code, MapError, show};
use super::super::stage::{self, FromTable, Out, Pass, RuleId, Stage};
use super::super::table_pass::{self, Table, Voice};
use super::super::{ArchFacts, Mounted, Transform};
use super::{MapFile, PAIRS, Pair, Target, split_pair};
use crate::model::{Format, Model, Tensor};

/// The error of such a file behind another stage.
pub(in super::super) fn not_first(label: &str) -> MapError {
    let text = "\"values\": \"hf\" starts from the stored names: it must be the first map=";
    one(label, text.into())
}

fn one(label: &str, text: String) -> MapError {
    let mut error = MapError::new(label);
    error.push(Code::Values, text);
    error
}

/// Runs the table and then the pairs of a file with `"values": "hf"`.
pub(in super::super) fn run_values(
    mut file: MapFile<'_>,
    label: &str,
    names: Names<'_>,
    facts: &ArchFacts,
    warnings: &mut Vec<String>,
) -> Result<(Pass, FromTable), MapError> {
    let model = names.model;
    if model.format != Format::Gguf {
        return Err(one(label, "\"values\": \"hf\" is for a GGUF, and this is none".into()));
    }
    let table = |as_stored: &[bool], said: &mut Vec<String>| {
        table_pass::run(Table::Hf, names, facts, as_stored, Voice::Quiet, said)
    };
    let mut said = Vec::new();
    let Some(mut pass) = table(&[], &mut said)? else {
        let why = said.first().map_or("there is no table", |text| text.as_str());
        return Err(one(label, format!("\"values\": \"hf\" has nothing to start from: {why}")));
    };
    let mut as_stored = file.as_stored(model, &pass.list);
    if as_stored.contains(&true) {
        table_pass::mark_partners(names, &pass.list, &mut as_stored);
        said.clear();
        pass = table(&as_stored, &mut said)?.unwrap_or(pass);
    }
    warnings.append(&mut said);
    let mut problems = MapError::new(label);
    file.check_counts(model, &pass.list, &as_stored, &mut problems);
    problems.into_result()?;
    let mut table = FromTable::new(&pass.list, model, &as_stored);
    let made = Names { model, list: Some(&pass.list) };
    let mut stage = Values { file, model, list: &pass.list, at: (0, 0) };
    let done = stage::run(label, &mut stage, made, warnings)?;
    table.follow(&done.origins);
    Ok((done, table))
}

impl MapFile<'_> {
    /// The stored tensors whose pair is their own name although the table would change them.
    fn as_stored(&self, model: &Model, list: &List) -> Vec<bool> {
        let keeps = |(source, tensor): (u32, &Tensor)| {
            let range = list.range(source);
            let kept = range.len() == 1 && *list.get(model, range.start).name == *tensor.name;
            let pair = std::str::from_utf8(&tensor.name).ok().and_then(|n| self.pairs.get(n));
            let own = matches!(pair, Some(Pair { target: Target::Name(name), .. })
                if name.as_bytes() == &*tensor.name);
            own && !kept
        };
        (0u32..).zip(&model.tensors).map(keeps).collect()
    }

    /// Whether each pair speaks of as many tensors as the table made.
    fn check_counts(
        &mut self,
        model: &Model,
        list: &List,
        as_stored: &[bool],
        problems: &mut MapError,
    ) {
        let text = self.text;
        for (source, tensor) in (0u32..).zip(&model.tensors) {
            let made = list.range(source).len();
            let name = std::str::from_utf8(&tensor.name).ok();
            let Some(pair) = name.and_then(|name| self.pairs.get_mut(name)) else {
                continue;
            };
            pair.used = true;
            let given = match &pair.target {
                Target::Drop => continue,
                Target::Name(name)
                    if name.as_bytes() == &*tensor.name && as_stored[source as usize] =>
                {
                    continue;
                }
                Target::Name(_) => 1,
                // One tensor may be cut as any other.
                Target::Split(_) if made == 1 => 1,
                Target::Split(slices) => slices.len(),
            };
            if as_stored[source as usize] {
                let at = pair.at as usize;
                let words = format!(
                    "{} (pairs): the table makes one of it and another tensor, which is left as stored",
                    show(&tensor.name)
                );
                problems.push_at(Code::Values, || Some(text.place(at)), words);
                continue;
            }
            let shaped = match &pair.target {
                Target::Split(slices) => made != 1 && slices.iter().any(|s| s.shape.is_some()),
                _ => false,
            };
            if given != made || shaped {
                let at = pair.at as usize;
                let words = format!(
                    "{} (pairs): the table makes {made} of it, the pair names {given}{}",
                    show(&tensor.name),
                    if shaped { " with shapes" } else { "" }
                );
                problems.push_at(Code::Values, || Some(text.place(at)), words);
            }
        }
    }
}

/// The pairs at work on what the table made.
struct Values<'t, 'm> {
    file: MapFile<'t>,
    model: &'m Model,
    list: &'m List,
    /// The stored tensor at hand, and how many of its parts have come.
    at: (u32, usize),
}

impl Stage for Values<'_, '_> {
    fn apply(&mut self, item: &Mounted<'_>, out: &mut Out<'_>) {
        if self.at.0 != item.source {
            self.at = (item.source, 0);
        }
        let nth = self.at.1;
        self.at.1 += 1;
        let made = self.list.range(item.source).len();
        let name = std::str::from_utf8(&self.model.tensors[item.source as usize].name).ok();
        let Some(pair) = name.and_then(|name| self.file.pairs.get(name)) else {
            return self.file.unmapped(item, out);
        };
        match &pair.target {
            Target::Drop => out.drop(item),
            Target::Name(name) => {
                out.part(PAIRS, item, name.as_bytes(), item.shape, Transform::None);
            }
            Target::Split(slices) if made == 1 => {
                if let Err(why) = split_pair(item, slices, out) {
                    let (text, at) = (self.file.text, pair.at as usize);
                    let words = format!("{} (pairs): {why}", show(item.name));
                    out.problems.push_at(Code::Split, || Some(text.place(at)), words);
                }
            }
            Target::Split(slices) => match slices.get(nth).and_then(|s| s.name.as_deref()) {
                Some(name) => {
                    out.part(PAIRS, item, name.as_bytes(), item.shape, Transform::None);
                }
                None => out.drop(item),
            },
        }
    }

    fn rule(&self, rule: RuleId) -> String {
        self.file.rule(rule)
    }

    fn finish(&mut self, names: Names<'_>, problems: &mut MapError, warnings: &mut Vec<String>) {
        self.file.finish(names, problems, warnings);
    }
}
