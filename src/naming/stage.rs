//! One value of `map=` after the other: each sees the names that the one before it gave, and
//! all its results are checked before the next begins.

use super::catalog::{List, Names, index_u32};
use super::error::{Code, MapError, show, show_list};
use super::like::{self, Likeness, Reference};
use super::{ArchFacts, MapSpec, Mounted, StemIndex, Transform, builtin, map_file};
use crate::model::{Format, Model, elements};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Mounted tensors that splitting may add to those that were there.
const MAX_EXTRA: usize = 1 << 20;

/// Names that one warning lists.
pub(super) const MAX_LISTED: usize = 20;

/// Which rule of a stage gave a name: [`KEPT`] or the stage's own number.
pub(super) type RuleId = u32;

/// No rule: the name is what it was.
pub(super) const KEPT: RuleId = 0;

/// A map: decides about one name at a time.
pub(super) trait Stage {
    /// Says what becomes of `item`: calls exactly one of `out`'s methods, or
    /// [`Out::part`] for each consecutive slice.
    fn apply(&mut self, item: &Mounted<'_>, out: &mut Out<'_>);

    /// A rule as messages name it: `pairs`, `rule 2`.
    fn rule(&self, rule: RuleId) -> String;

    /// After the last name: problems that only the whole shows, and warnings.
    fn finish(&mut self, names: Names<'_>, problems: &mut MapError, warnings: &mut Vec<String>);
}

/// Where a result came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Index of the name that the stage was given.
    pub(super) item: u32,
    /// Whether it is all of that, with the same shape.
    pub(super) whole: bool,
}

/// What one pass gave.
pub(super) struct Pass {
    pub(super) list: List,
    /// One for each name of the list.
    pub(super) origins: Vec<Origin>,
}

/// What all of `map=` and `like=` gave.
#[derive(Default)]
pub(super) struct Ran {
    /// Without a stage that changes anything: none.
    pub(super) list: Option<List>,
    pub(super) warnings: Vec<String>,
    /// Set when the names began with the Hugging Face table.
    pub(super) table: Option<FromTable>,
    pub(super) likeness: Option<Likeness>,
}

/// How mounted names came from what the Hugging Face table, as the first stage, made of the
/// stored tensors: a map document needs it to promise the same values.
#[derive(Debug)]
pub(super) struct FromTable {
    /// Per stored tensor how many the table made of it; [`FromTable::AS_STORED`]: not asked.
    made: Vec<u32>,
    /// Per stored tensor whether the table gave it another shape.
    reshaped: Vec<bool>,
    /// Per mounted tensor which of those it is, and whether all of it.
    parts: Vec<Origin>,
}

impl FromTable {
    const AS_STORED: u32 = u32::MAX;

    /// `list` is what the table gave, but for the stored tensors marked in `as_stored`.
    pub(super) fn new(list: &List, model: &Model, as_stored: &[bool]) -> FromTable {
        let mut parts = Vec::with_capacity(list.len());
        let made = (0..index_u32(model.tensors.len())).map(|source| {
            let count = index_u32(list.range(source).len());
            parts.extend((0..count).map(|item| Origin { item, whole: true }));
            let kept = as_stored.get(source as usize) == Some(&true);
            if kept { FromTable::AS_STORED } else { count }
        });
        let made = made.collect();
        let reshaped = (0u32..).zip(&model.tensors).map(|(source, stored)| {
            let mut shapes = list.range(source).map(|index| list.get(model, index).shape);
            shapes.next().is_some_and(|shape| *shape != *stored.shape)
        });
        FromTable { made, reshaped: reshaped.collect(), parts }
    }

    /// Goes through one more stage.
    pub(super) fn follow(&mut self, origins: &[Origin]) {
        let through = |origin: &Origin| {
            let before = self.parts[origin.item as usize];
            Origin { item: before.item, whole: before.whole && origin.whole }
        };
        self.parts = origins.iter().map(through).collect();
    }

    /// How many tensors the table made of a stored one; `None`: it was left alone.
    pub(super) fn made(&self, source: u32) -> Option<u32> {
        Some(self.made[source as usize]).filter(|&made| made != FromTable::AS_STORED)
    }

    /// Whether the first of those has another shape than what is stored.
    pub(super) fn reshaped(&self, source: u32) -> bool {
        self.reshaped[source as usize]
    }

    /// Which of those a mounted tensor is.
    pub(super) fn part(&self, index: usize) -> Origin {
        self.parts[index]
    }
}

/// Where a stage puts its results.
pub(super) struct Out<'m> {
    model: &'m Model,
    list: List,
    /// Per result: the rule, and the name it came from.
    origins: Vec<(RuleId, Origin)>,
    /// Names that are not shown: the first few, and how many.
    dropped: Vec<Box<[u8]>>,
    dropped_count: usize,
    /// Names that became part of another.
    absorbed: usize,
    pub(super) problems: MapError,
    /// Index of the item at hand, and where its next slice begins.
    item: u32,
    from: u64,
    limit: usize,
    full: bool,
}

impl<'m> Out<'m> {
    /// The name stays, and with it everything else.
    pub(super) fn keep(&mut self, item: &Mounted<'_>) {
        self.part(KEPT, item, item.name, item.shape, Transform::None);
    }

    /// Not shown.
    pub(super) fn drop(&mut self, item: &Mounted<'_>) {
        self.dropped_count += 1;
        if self.dropped.len() < MAX_LISTED {
            self.dropped.push(item.name.into());
        }
    }

    /// Shown as part of another, which [`Transform::other`] says.
    pub(super) fn absorb(&mut self) {
        self.absorbed += 1;
    }

    /// The next bytes of `item`, as many as `shape` needs. The caller has checked with
    /// [`part_bytes`] that all parts are whole and together fit the item.
    pub(super) fn part(
        &mut self,
        rule: RuleId,
        item: &Mounted<'_>,
        name: &[u8],
        shape: &[u64],
        transform: Transform,
    ) {
        if self.full {
            return;
        }
        // What a former stage has to undo concerns the stored bytes: nothing replaces it.
        let transform = match item.transform {
            Transform::None => transform,
            earlier => earlier,
        };
        let at = item.extent.offset - self.model.tensors[item.source as usize].extent.offset;
        let from = if transform.is_joined() { 0 } else { at + self.from };
        let pushed = self.list.len() < self.limit
            && self.list.push(self.model, item.source, name, shape, from, transform);
        if !pushed {
            self.full = true;
            let text = format!(
                "{}: the map gives more than {} names, or over 192 MiB of them",
                show(item.name),
                self.limit
            );
            self.problems.push(Code::Limit, text);
            return;
        }
        let whole = *shape == *item.shape;
        self.origins.push((rule, Origin { item: self.item, whole }));
        if !transform.is_joined() {
            self.skip(item, shape);
        }
    }

    /// Passes over the bytes that a part of this shape has.
    pub(super) fn skip(&mut self, item: &Mounted<'_>, shape: &[u64]) {
        self.from += part_bytes(item, shape).unwrap_or(0);
    }
}

/// Bytes that a part of `item` with this shape has; `None` when they are not whole blocks.
pub(super) fn part_bytes(item: &Mounted<'_>, shape: &[u64]) -> Option<u64> {
    item.stored.nbytes(elements(shape))
}

/// Whether `item` can be cut along its first dimension, and why not.
pub(super) fn check_split(item: &Mounted<'_>) -> Result<(), String> {
    let [count, rest @ ..] = item.shape else {
        return Err("needs >= 2 dims, has none".into());
    };
    if rest.is_empty() {
        return Err(format!("needs >= 2 dims, has shape [{count}]"));
    }
    if *count > MAX_EXTRA as u64 {
        return Err(format!("would give {count} tensors, more than {MAX_EXTRA}"));
    }
    if *count > 0 && part_bytes(item, rest).is_none() {
        return Err(format!(
            "a slice of {} elements of {} is not whole bytes",
            elements(rest),
            item.stored
        ));
    }
    if !item.transform.is_elementwise() {
        let name = item.transform.name().unwrap_or_default();
        return Err(format!("its rows are not yet in order ({name}): a slice would mix them"));
    }
    Ok(())
}

/// Runs all stages.
pub(super) fn run_all(
    model: &Model,
    facts: &ArchFacts,
    stages: &[&MapSpec],
    like: Option<Reference<'_>>,
) -> Result<Ran, MapError> {
    let mut ran = Ran::default();
    for (number, spec) in stages.iter().enumerate() {
        let Ran { list, warnings, table, .. } = &mut ran;
        let names = Names { model, list: list.as_ref() };
        let label = spec.to_string();
        let pass = match spec {
            MapSpec::None => None,
            MapSpec::Hf if model.format == Format::Safetensors => {
                warnings.push("map=hf: a safetensors model has Hugging Face names already".into());
                None
            }
            MapSpec::Gguf if model.format == Format::Gguf => {
                warnings.push("map=gguf: a GGUF has GGUF names already".into());
                None
            }
            MapSpec::Hf => match builtin::Hf::new(names, facts, warnings) {
                Some(mut stage) => Some(run(&label, &mut stage, names, warnings)?),
                None => None,
            },
            MapSpec::Gguf => match builtin::Gguf::new(names, facts, warnings) {
                Some(mut stage) => Some(run(&label, &mut stage, names, warnings)?),
                None => None,
            },
            MapSpec::File(path) => {
                let text = map_file::read(path)?;
                let mut file = map_file::MapFile::parse(&label, &text)?;
                if file.has_values() {
                    if number > 0 {
                        return Err(map_file::not_first(&label));
                    }
                    let (pass, begun) = map_file::run_values(file, &label, names, facts, warnings)?;
                    (*list, *table) = (Some(pass.list), Some(begun));
                    continue;
                }
                Some(run(&label, &mut file, names, warnings)?)
            }
        };
        let Some(Pass { list: done, origins }) = pass else {
            continue;
        };
        match table {
            Some(table) => table.follow(&origins),
            None if **spec == MapSpec::Hf && list.is_none() => {
                *table = Some(FromTable::new(&done, model, &[]));
            }
            None => {}
        }
        *list = Some(done);
    }
    if let Some(reference) = like {
        let names = Names { model, list: ran.list.as_ref() };
        let done = like::run(names, facts, reference, &mut ran.warnings)?;
        if let (Some(table), Some(origins)) = (&mut ran.table, &done.origins) {
            table.follow(origins);
        }
        ran.table = done.table.or(ran.table);
        ran.list = done.list.or(ran.list);
        ran.likeness = Some(done.likeness);
    }
    let names = Names { model, list: ran.list.as_ref() };
    if like.is_some() || stages.iter().any(|s| matches!(s, MapSpec::File(_))) {
        warn_case(names, &mut ran.warnings);
    }
    Ok(ran)
}

/// One pass over all names, with all checks.
pub(super) fn run(
    label: &str,
    stage: &mut dyn Stage,
    names: Names<'_>,
    warnings: &mut Vec<String>,
) -> Result<Pass, MapError> {
    let mut out = Out {
        model: names.model,
        list: List::default(),
        origins: Vec::with_capacity(names.len()),
        dropped: Vec::new(),
        dropped_count: 0,
        absorbed: 0,
        problems: MapError::new(label),
        item: 0,
        from: 0,
        limit: names.len().saturating_add(MAX_EXTRA),
        full: false,
    };
    for (index, item) in names.iter().enumerate() {
        out.item = index_u32(index);
        out.from = 0;
        let before = (out.list.len(), out.dropped_count, out.absorbed);
        stage.apply(&item, &mut out);
        if (out.list.len(), out.dropped_count, out.absorbed) == before {
            // Cut into no slices at all, since its first dimension is 0.
            out.drop(&item);
        }
        if out.full {
            break;
        }
    }
    out.list.finish(names.model);
    if !out.full {
        report_collisions(stage, names, &mut out);
    }
    let Out { list, origins, dropped, dropped_count, mut problems, .. } = out;
    stage.finish(names, &mut problems, warnings);
    problems.into_result()?;
    if dropped_count > 0 {
        let listed = show_list(dropped.iter().map(|n| &**n), dropped_count, MAX_LISTED);
        warnings.push(format!("map={label}: not shown: {listed}"));
    }
    let origins = origins.into_iter().map(|(_, origin)| origin).collect();
    Ok(Pass { list, origins })
}

/// Two names that became one, with where each came from.
fn report_collisions(stage: &dyn Stage, names: Names<'_>, out: &mut Out<'_>) {
    const MAX_FOUND: usize = 10_000;
    let list = &out.list;
    let name = |i: u32| Cow::Borrowed(list.get(names.model, i as usize).name);
    let mut met: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut found = 0;
    StemIndex::build_all(index_u32(list.len()), name, |collision| {
        met.entry(collision.a).or_default().push(collision.b);
        found += 1;
        found < MAX_FOUND
    });
    for (first, others) in met {
        const MAX_SOURCES: usize = 8;
        // What a rule brought here before what was here: the message reads as cause and effect.
        let mut all: Vec<u32> = std::iter::once(first).chain(others.iter().copied()).collect();
        all.sort_by_key(|&i| out.origins[i as usize].0 == KEPT);
        let sources: Vec<String> = all
            .iter()
            .take(MAX_SOURCES)
            .map(|&i| {
                let (rule, origin) = out.origins[i as usize];
                let source = show(names.get(origin.item as usize).name);
                match rule {
                    KEPT => format!("{source} (kept)"),
                    rule => format!("{source} ({})", stage.rule(rule)),
                }
            })
            .collect();
        let more = match all.len().saturating_sub(MAX_SOURCES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{} <- {}{more}", show(&name(first)), sources.join(", "));
        out.problems.push(Code::Collision, text);
    }
}

/// Mounted names that differ only in case: legal here, lost on other systems.
fn warn_case(names: Names<'_>, warnings: &mut Vec<String>) {
    let lower = |i: u32| -> Cow<'_, [u8]> {
        let name = names.get(i as usize).name;
        match std::str::from_utf8(name) {
            Ok(text) => Cow::Owned(text.to_lowercase().into_bytes()),
            Err(_) => Cow::Owned(name.to_ascii_lowercase()),
        }
    };
    let mut count = 0;
    let mut first = None;
    StemIndex::build_all(index_u32(names.len()), lower, |collision| {
        count += 1;
        first = first.or(Some((collision.a, collision.b)));
        count < 1000
    });
    if let Some((a, b)) = first {
        let name = |i: u32| show(names.get(i as usize).name);
        let more = if count > 1 { format!(" ({count} such pairs)") } else { String::new() };
        warnings.push(format!("map: {} and {} differ only in case{more}", name(a), name(b)));
    }
}
