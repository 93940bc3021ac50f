//! One value of `map=` after the other: each sees the names that the one before it gave, and
//! all its results are checked before the next begins.

use super::catalog::{List, Names, index_u32};
use super::error::{Code, MapError, show, show_list};
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

/// Where a stage puts its results.
pub(super) struct Out<'m> {
    model: &'m Model,
    list: List,
    /// Per result: the rule, and the index of the name it came from.
    origins: Vec<(RuleId, u32)>,
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
        self.origins.push((rule, self.item));
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

/// Runs all stages; without one that changes anything the list is `None`.
pub(super) fn run_all(
    model: &Model,
    facts: &ArchFacts,
    stages: &[&MapSpec],
) -> Result<(Option<List>, Vec<String>), MapError> {
    let mut list: Option<List> = None;
    let mut warnings = Vec::new();
    for spec in stages {
        let names = Names { model, list: list.as_ref() };
        let done = match spec {
            MapSpec::None => None,
            MapSpec::Hf if model.format == Format::Safetensors => {
                warnings.push("map=hf: a safetensors model has Hugging Face names already".into());
                None
            }
            MapSpec::Gguf if model.format == Format::Gguf => {
                warnings.push("map=gguf: a GGUF has GGUF names already".into());
                None
            }
            MapSpec::Hf => match builtin::Hf::new(names, facts, &mut warnings) {
                Some(mut stage) => Some(run(spec, &mut stage, names, &mut warnings)?),
                None => None,
            },
            MapSpec::Gguf => match builtin::Gguf::new(names, facts, &mut warnings) {
                Some(mut stage) => Some(run(spec, &mut stage, names, &mut warnings)?),
                None => None,
            },
            MapSpec::File(path) => {
                let text = map_file::read(path)?;
                let mut stage = map_file::MapFile::parse(&spec.to_string(), &text)?;
                Some(run(spec, &mut stage, names, &mut warnings)?)
            }
        };
        if done.is_some() {
            list = done;
        }
    }
    let names = Names { model, list: list.as_ref() };
    if stages.iter().any(|s| matches!(s, MapSpec::File(_))) {
        warn_case(names, &mut warnings);
    }
    Ok((list, warnings))
}

/// One pass over all names, with all checks.
fn run(
    spec: &MapSpec,
    stage: &mut dyn Stage,
    names: Names<'_>,
    warnings: &mut Vec<String>,
) -> Result<List, MapError> {
    let mut out = Out {
        model: names.model,
        list: List::default(),
        origins: Vec::with_capacity(names.len()),
        dropped: Vec::new(),
        dropped_count: 0,
        absorbed: 0,
        problems: MapError::new(spec.to_string()),
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
    let Out { list, dropped, dropped_count, mut problems, .. } = out;
    stage.finish(names, &mut problems, warnings);
    problems.into_result()?;
    if dropped_count > 0 {
        let listed = show_list(dropped.iter().map(|n| &**n), dropped_count, MAX_LISTED);
        warnings.push(format!("map={spec}: not shown: {listed}"));
    }
    Ok(list)
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
                let (rule, item) = out.origins[i as usize];
                let source = show(names.get(item as usize).name);
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
