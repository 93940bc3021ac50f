//! Map files, `"weightfs_map": 1`.
//!
//! A map is a function of one source name: `pairs` are asked first, then `rules` in the order of
//! the file, and the first that matches decides alone. Renames happen at once, so two names may
//! change places. What nothing matches is kept, dropped or an error, as `unmapped` says. Stages
//! are several files, each a full pass over the names of the one before.
//!
//! A file is hostile input: its size, the number of its rules, the memory of their patterns
//! and the time to apply them are bounded, and everything wrong is reported together.

mod parse;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod values;

pub(super) use values::{not_first, run_values};

use super::catalog::Names;
use super::error::{Code, MapError, show, show_list};
use super::rules::{Action, Piece, Rule, Slots, render_within};
use super::stage::{MAX_LISTED, Out, RuleId, Stage, check_split, part_bytes};
use super::stem::{NAME_MAX, encoded_len};
use super::strict_json::Text;
use super::{Mounted, Transform};
use crate::bytes::line::InLine;
use crate::model::elements;
use nix::time::{ClockId, clock_gettime};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Bytes of a map file: a line of 120 bytes for each of a million tensors.
const MAX_FILE: u64 = 128 << 20;

/// The longest of the suffixes `.bin`, `.npy`, `.json` that follow a mounted name.
const LONGEST_SUFFIX: usize = 5;

/// Time for the rules to be applied: a constant and a share per name, many times what a map
/// of fifty rules needs. Only patterns made to be slow run into it.
const MATCH_TIME: Duration = Duration::from_secs(3);
const MATCH_TIME_PER_NAME: Duration = Duration::from_micros(50);

/// Bytes of names matched between two looks at the clock, each attempt counting as
/// [`ATTEMPT`] more: the slowest pattern takes milliseconds for that many.
const WORK_PER_LOOK: usize = 4096;
const ATTEMPT: usize = 32;

/// The name came from `pairs`; rule `n` (from 0) is `FIRST_RULE + n`.
const PAIRS: RuleId = 1;
const FIRST_RULE: RuleId = 2;

/// What becomes of names that neither a pair nor a rule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unmapped {
    Keep,
    Drop,
    Error,
}

/// The right side of a pair.
#[derive(Debug)]
enum Target<'t> {
    Name(Cow<'t, str>),
    /// Slices along dimension 0, in order.
    Split(Vec<Slice<'t>>),
    Drop,
}

/// One item of a list: a name (null: not shown), and a shape where it is not one index of
/// dimension 0.
///
/// Nulls and shapes are what `map --json` writes for slices that are not shown and for fused
/// tensors that are cut unevenly; each item is then `{"name": ..., "shape": [...]}`.
#[derive(Debug)]
struct Slice<'t> {
    name: Option<Cow<'t, str>>,
    shape: Option<Box<[u64]>>,
}

#[derive(Debug)]
struct Pair<'t> {
    at: u32,
    used: bool,
    target: Target<'t>,
}

/// A rule with what the messages need.
#[derive(Debug)]
struct Numbered {
    at: usize,
    fired: bool,
    rule: Rule,
}

/// A parsed and checked map file.
#[derive(Debug)]
pub(super) struct MapFile<'t> {
    text: Text<'t>,
    pairs: HashMap<Cow<'t, str>, Pair<'t>>,
    rules: Vec<Numbered>,
    unmapped: Unmapped,
    /// Whether the pairs start from what the Hugging Face table made.
    values: bool,
    /// With [`Unmapped::Error`]: the first such names, and how many.
    uncovered: Vec<Box<[u8]>>,
    uncovered_count: usize,
    clock: Clock,
    buffer: Vec<u8>,
}

/// Reads the whole file, if it is not too large.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, MapError> {
    let mut problems = MapError::new(path.in_line().to_string());
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text));
    match read {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => problems.push(
            Code::Read,
            "cannot read the map file: there is none; map= takes none, hf, gguf or the FILE of a map".into(),
        ),
        Err(e) => problems.push(Code::Read, format!("cannot read the map file: {e}")),
        Ok(_) if text.len() as u64 > MAX_FILE => {
            problems.push(Code::Limit, format!("the map file has more than {MAX_FILE} bytes"));
        }
        Ok(_) => return Ok(text),
    }
    Err(problems)
}

/// Why a name cannot be a mounted name (rule 8).
pub(super) fn check_target(name: &[u8]) -> Result<(), String> {
    let Ok(text) = std::str::from_utf8(name) else {
        return Err("is not UTF-8".into());
    };
    if text.is_empty() {
        return Err("is empty".into());
    }
    if matches!(text, "." | ".." | "__metadata__") {
        return Err("is reserved".into());
    }
    if let Some(c) = text.chars().find(|&c| matches!(c, '/' | '\\' | '\0'..='\x1f' | '\x7f')) {
        return Err(format!("contains {c:?}"));
    }
    let len = encoded_len(name) + LONGEST_SUFFIX;
    if len > NAME_MAX {
        return Err(format!("makes a file name of {len} bytes, more than {NAME_MAX}"));
    }
    Ok(())
}

impl MapFile<'_> {
    /// Whether the Hugging Face table comes first, with the values that its names promise.
    pub(super) fn has_values(&self) -> bool {
        self.values
    }

    /// The first pair or rule that takes the name gives the outcome.
    fn decide(&mut self, item: &Mounted<'_>, out: &mut Out<'_>) {
        let pair = std::str::from_utf8(item.name).ok().and_then(|name| self.pairs.get_mut(name));
        if let Some(pair) = pair {
            pair.used = true;
            match &pair.target {
                Target::Name(name) => {
                    out.part(PAIRS, item, name.as_bytes(), item.shape, Transform::None);
                }
                Target::Drop => out.drop(item),
                Target::Split(slices) => {
                    if let Err(why) = split_pair(item, slices, out) {
                        let (text, at) = (self.text, pair.at as usize);
                        let words = format!("{} (pairs): {why}", show(item.name));
                        out.problems.push_at(Code::Split, || Some(text.place(at)), words);
                    }
                }
            }
            return;
        }
        for number in 0..self.rules.len() {
            let Some(slots) = self.attempt(number, item.name, &mut out.problems) else {
                continue;
            };
            self.rules[number].fired = true;
            let at = self.rules[number].at;
            let buffer = &mut self.buffer;
            let id = FIRST_RULE + u32::try_from(number).expect("rules are few");
            let wrong = match &self.rules[number].rule.action {
                Action::Drop => {
                    out.drop(item);
                    return;
                }
                Action::Name(pieces) => {
                    self.clock.work += pieces.len();
                    rendered(item, pieces, &slots, 0, buffer).map(|()| {
                        out.part(id, item, buffer, item.shape, Transform::None);
                    })
                }
                Action::Split(pieces) => check_split(item)
                    .map_err(|why| (Code::Split, format!("{}: {why}", show(item.name))))
                    .and_then(|()| {
                        for index in 0..item.shape[0] {
                            self.clock.names = self.clock.names.saturating_add(1);
                            if self.clock.is_over(pieces.len(), &mut out.problems) {
                                break;
                            }
                            rendered(item, pieces, &slots, index, buffer)?;
                            out.part(id, item, buffer, &item.shape[1..], Transform::None);
                        }
                        Ok(())
                    }),
            };
            if let Err((code, text)) = wrong {
                let text = format!("rule {}: {text}", number + 1);
                out.problems.push_at(code, || Some(self.text.place(at)), text);
            }
            return;
        }
        self.unmapped(item, out);
    }

    /// What becomes of a name that nothing takes.
    fn unmapped(&mut self, item: &Mounted<'_>, out: &mut Out<'_>) {
        match self.unmapped {
            Unmapped::Keep => out.keep(item),
            Unmapped::Drop => out.drop(item),
            Unmapped::Error => {
                self.uncovered_count += 1;
                if self.uncovered.len() < 1000 {
                    self.uncovered.push(item.name.into());
                }
            }
        }
    }

    /// Tries one rule on one name; no answer when the time for all is up.
    fn attempt<'n>(
        &mut self,
        number: usize,
        name: &'n [u8],
        problems: &mut MapError,
    ) -> Option<Slots<'n>> {
        if self.clock.is_over(name.len(), problems) {
            return None;
        }
        match self.rules[number].rule.matches(name) {
            Ok(slots) => slots,
            Err(_) => {
                let (text, at) = (self.text, self.rules[number].at);
                let words =
                    format!("rule {}: too ambiguous for the name {}", number + 1, show(name));
                problems.push_at(Code::Limit, || Some(text.place(at)), words);
                None
            }
        }
    }

    /// Rules that took no name: whether an earlier one took all that they would have.
    fn warn_idle(&mut self, names: Names<'_>, problems: &mut MapError, warnings: &mut Vec<String>) {
        let idle: Vec<usize> = (0..self.rules.len()).filter(|&n| !self.rules[n].fired).collect();
        for number in idle {
            let taken =
                names.iter().find(|item| self.attempt(number, item.name, problems).is_some());
            let rule = number + 1;
            warnings.push(match taken {
                Some(item) => {
                    let before = self.first_taker(item.name, problems);
                    format!("rule {rule} is shadowed: {before} took {} before it", show(item.name))
                }
                None => format!("rule {rule} matched nothing"),
            });
        }
        let mut unused: Vec<(u32, &str)> =
            self.pairs.iter().filter(|(_, p)| !p.used).map(|(n, p)| (p.at, &**n)).collect();
        unused.sort_unstable();
        if !unused.is_empty() {
            let listed = unused.iter().map(|(_, name)| name.as_bytes());
            let listed = show_list(listed, unused.len(), MAX_LISTED);
            warnings.push(format!("pairs name no tensor: {listed}"));
        }
    }

    fn first_taker(&mut self, name: &[u8], problems: &mut MapError) -> String {
        if std::str::from_utf8(name).is_ok_and(|name| self.pairs.contains_key(name)) {
            return "pairs".into();
        }
        let taker = (0..self.rules.len())
            .find(|&n| self.rules[n].fired && self.attempt(n, name, problems).is_some());
        taker.map_or_else(|| "another".into(), |n| format!("rule {}", n + 1))
    }
}

impl Stage for MapFile<'_> {
    fn apply(&mut self, item: &Mounted<'_>, out: &mut Out<'_>) {
        self.clock.names = self.clock.names.saturating_add(1);
        self.decide(item, out);
    }

    fn rule(&self, rule: RuleId) -> String {
        match rule.checked_sub(FIRST_RULE) {
            None => "pairs".into(),
            Some(number) => format!("rule {}", number + 1),
        }
    }

    fn finish(&mut self, names: Names<'_>, problems: &mut MapError, warnings: &mut Vec<String>) {
        if self.uncovered_count > 0 {
            let listed = self.uncovered.iter().map(|n| &**n);
            let listed = show_list(listed, self.uncovered_count, usize::MAX);
            problems.push(Code::Unmapped, format!("no pair or rule for {listed}"));
        }
        let mut found = Vec::new();
        self.warn_idle(names, problems, &mut found);
        const MAX_WARNINGS: usize = 50;
        let more = found.len().saturating_sub(MAX_WARNINGS);
        found.truncate(MAX_WARNINGS);
        if more > 0 {
            found.push(format!("{more} more such warnings"));
        }
        let label = problems.map().to_owned();
        warnings.extend(found.into_iter().map(|w| format!("map={label}: {w}")));
    }
}

/// Puts a rule's result together and checks it.
fn rendered(
    item: &Mounted<'_>,
    pieces: &[Piece],
    slots: &Slots<'_>,
    index: u64,
    out: &mut Vec<u8>,
) -> Result<(), (Code, String)> {
    // The source's own name is good however long it is.
    if render_within(item.name.len().max(NAME_MAX), pieces, slots, index, out) {
        return target(item, out);
    }
    let text = format!(
        "{} -> {}...: the target makes a file name of more than {NAME_MAX} bytes",
        show(item.name),
        show(out)
    );
    Err((Code::Target, text))
}

/// Whether a rule's result can be a mounted name; the source's own name always can.
fn target(item: &Mounted<'_>, name: &[u8]) -> Result<(), (Code, String)> {
    if name == item.name {
        return Ok(());
    }
    check_target(name).map_err(|why| {
        (Code::Target, format!("{} -> {}: the target {why}", show(item.name), show(name)))
    })
}

/// Cuts a tensor into the slices of a pair.
fn split_pair(item: &Mounted<'_>, slices: &[Slice<'_>], out: &mut Out<'_>) -> Result<(), String> {
    if slices.iter().any(|slice| slice.shape.is_some()) {
        return split_by_shapes(item, slices, out);
    }
    check_split(item)?;
    if item.shape[0] != slices.len() as u64 {
        return Err(format!(
            "{} names, but the first dimension is {}",
            slices.len(),
            item.shape[0]
        ));
    }
    for slice in slices {
        place_slice(item, slice, &item.shape[1..], out);
    }
    Ok(())
}

/// Cuts a tensor into consecutive pieces of given shapes, which must fill it.
fn split_by_shapes(
    item: &Mounted<'_>,
    slices: &[Slice<'_>],
    out: &mut Out<'_>,
) -> Result<(), String> {
    if !item.transform.is_elementwise() {
        let name = item.transform.name().unwrap_or_default();
        return Err(format!("its rows are not yet in order ({name}): a slice would mix them"));
    }
    let mut total = 0u64;
    let mut bytes = 0u64;
    for slice in slices {
        let shape = slice.shape.as_deref().unwrap_or_default();
        let count = shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let count = if shape.contains(&0) { Some(0) } else { count };
        let (Some(count), Some(len)) = (count, count.and_then(|_| part_bytes(item, shape))) else {
            return Err(format!(
                "a slice of shape {shape:?} of {} is not whole bytes",
                item.stored
            ));
        };
        total = total.saturating_add(count);
        bytes = bytes.saturating_add(len);
    }
    let whole = elements(item.shape);
    if total != whole || bytes != item.extent.len {
        return Err(format!("slices of {total} elements in all, the tensor has {whole}"));
    }
    for slice in slices {
        let shape = slice.shape.as_deref().unwrap_or_default();
        place_slice(item, slice, shape, out);
    }
    Ok(())
}

/// The next slice of a list: shown or passed over.
fn place_slice(item: &Mounted<'_>, slice: &Slice<'_>, shape: &[u64], out: &mut Out<'_>) {
    match &slice.name {
        Some(name) => out.part(PAIRS, item, name.as_bytes(), shape, Transform::None),
        None => out.skip(item, shape),
    }
}

/// What this thread has had of its processor so far: on a busy machine others take what time there
/// is, and that is no fault of a map.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// The time that matching may take, of the processor.
#[derive(Debug)]
struct Clock {
    start: Duration,
    names: u32,
    work: usize,
    over: bool,
}

impl Clock {
    fn new() -> Clock {
        Clock { start: spent(), names: 0, work: 0, over: false }
    }

    /// Whether the time is up before a name of `len` bytes is tried; says so once.
    fn is_over(&mut self, len: usize, problems: &mut MapError) -> bool {
        self.work += len.saturating_add(ATTEMPT);
        if self.over || self.work < WORK_PER_LOOK {
            return self.over;
        }
        self.work = 0;
        let limit = MATCH_TIME + MATCH_TIME_PER_NAME * self.names;
        if spent().saturating_sub(self.start) > limit {
            self.over = true;
            let text = format!("the rules took more than {} seconds", limit.as_secs());
            problems.push(Code::Limit, text);
        }
        self.over
    }
}
