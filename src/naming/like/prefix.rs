//! Step 3 of `like=`: one change of prefix, `P` for `Q`, for what still has no partner.
//!
//! A change is judged by the number of names that it brings together; shapes can only refuse
//! it. What stands behind the prefix begins at a segment, so that `model.x` never becomes
//! `mo` and `del.x`.

use super::matching::Matching;
use std::collections::HashMap;

/// Names on the other side that one ending may have before it says nothing: a handful of
/// towers have the same layers, thousands of tensors are called `weight`.
const MAX_SHARED: usize = 16;

/// Segments of a name that are looked at: real names have ten, hostile ones ten thousand.
const MAX_SEGMENTS: usize = 48;

/// A change of prefix: what goes and what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Change<'a> {
    pub(super) strip: &'a [u8],
    pub(super) add: &'a [u8],
}

/// Why no change was taken.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// No two names differ in their prefix alone.
    Nothing,
    /// Several changes bring as many names together.
    Tie,
    /// Names agree, but not the shapes of these (source, target).
    Shapes(Vec<(u32, u32)>),
}

/// Where the endings of a name begin, longest first.
fn endings(name: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let dots = name.iter().enumerate().filter(|(_, b)| **b == b'.').map(|(at, _)| at + 1);
    std::iter::once(0).chain(dots).filter(|&at| at < name.len()).take(MAX_SEGMENTS)
}

/// Whether two prefixes end in the same segment: then a shorter change says the same.
fn same_last_segment(a: &[u8], b: &[u8]) -> bool {
    let last = |prefix: &[u8]| {
        let body = &prefix[..prefix.len().saturating_sub(1)];
        body.iter().rposition(|&b| b == b'.').map_or(0, |dot| dot + 1)
    };
    !a.is_empty() && !b.is_empty() && a[last(a)..] == b[last(b)..]
}

/// Whether an ending is evidence: `weight` behind two unlike prefixes is none.
fn tells(change: Change<'_>, ending: &[u8]) -> bool {
    change.strip.is_empty() || change.add.is_empty() || ending.contains(&b'.')
}

/// The one change that brings most names together, with those names (source, target).
/// `fits` says whether a source may have a target's name, for its shape.
pub(super) fn best<'a>(
    matching: &Matching<'a>,
    fits: impl Fn(u32, u32) -> bool,
) -> Result<(Change<'a>, Vec<(u32, u32)>), Refusal> {
    let mut by_ending: HashMap<&'a [u8], Vec<u32>> = HashMap::new();
    for target in matching.open_targets() {
        let name = matching.target(target).name;
        for at in endings(name) {
            let list = by_ending.entry(&name[at..]).or_default();
            if list.len() <= MAX_SHARED {
                list.push(target);
            }
        }
    }
    let mut counts: HashMap<Change<'a>, usize> = HashMap::new();
    each_pair(matching, &by_ending, |change, _, _| *counts.entry(change).or_default() += 1);
    let most = counts.values().copied().max().ok_or(Refusal::Nothing)?;
    let mut first = counts.iter().filter(|(_, count)| **count == most).map(|(change, _)| *change);
    let (Some(best), None) = (first.next(), first.next()) else {
        return Err(Refusal::Tie);
    };
    let mut pairs = Vec::with_capacity(most);
    each_pair(matching, &by_ending, |change, source, target| {
        if change == best {
            pairs.push((source, target));
        }
    });
    let wrong: Vec<_> = pairs.iter().copied().filter(|&(s, t)| !fits(s, t)).collect();
    if wrong.is_empty() { Ok((best, pairs)) } else { Err(Refusal::Shapes(wrong)) }
}

/// Every two free names that a change of prefix brings together.
fn each_pair<'a>(
    matching: &Matching<'a>,
    by_ending: &HashMap<&'a [u8], Vec<u32>>,
    mut each: impl FnMut(Change<'a>, u32, u32),
) {
    for source in matching.free_sources() {
        let name = matching.source(source).name;
        for at in endings(name) {
            let (strip, ending) = name.split_at(at);
            let Some(targets) = by_ending.get(ending) else {
                continue;
            };
            if targets.len() > MAX_SHARED {
                break;
            }
            for &target in targets {
                let whole = matching.target(target).name;
                let change = Change { strip, add: &whole[..whole.len() - ending.len()] };
                if !same_last_segment(change.strip, change.add) && tells(change, ending) {
                    each(change, source, target);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::testing::assert_not_quadratic;
    use super::super::matching::Item;
    use super::*;

    fn run(sources: &[&str], targets: &[&str]) -> Result<(String, String, usize), Refusal> {
        let item = |name: &'static [u8]| Item { name, shape: &[4] };
        let leak = |names: &[&str]| -> Vec<Item<'static>> {
            names.iter().map(|n| item((*n).to_owned().leak().as_bytes())).collect()
        };
        let matching = Matching::new(leak(sources), leak(targets));
        let (change, pairs) = best(&matching, |s, t| matching.same_shape(s, t))?;
        let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
        Ok((text(change.strip), text(change.add), pairs.len()))
    }

    #[test]
    fn a_prefix_goes_comes_or_changes() {
        let found = run(&["_orig_mod.a.w", "_orig_mod.b.w"], &["a.w", "b.w", "c.w"]);
        assert_eq!(found, Ok(("_orig_mod.".into(), String::new(), 2)));
        let found = run(&["a.w", "b.w"], &["model.a.w", "model.b.w"]);
        assert_eq!(found, Ok((String::new(), "model.".into(), 2)));
        let found = run(
            &["model.layers.0.a.w", "model.layers.1.a.w", "model.norm.w"],
            &["model.lm.layers.0.a.w", "model.lm.layers.1.a.w", "model.lm.norm.w"],
        );
        // The shared beginning is not part of the change.
        assert_eq!(found, Ok(("model.".into(), "model.lm.".into(), 3)));
    }

    #[test]
    fn two_changes_that_fit_as_well_are_none() {
        let found = run(&["layers.0.a.w"], &["text.layers.0.a.w", "vision.layers.0.a.w"]);
        assert_eq!(found, Err(Refusal::Tie));
        // One name more decides.
        let found = run(
            &["layers.0.a.w", "norm.w"],
            &["text.layers.0.a.w", "text.norm.w", "vision.layers.0.a.w"],
        );
        assert_eq!(found, Ok((String::new(), "text.".into(), 2)));
    }

    #[test]
    fn segments_are_not_torn() {
        assert_eq!(run(&["xa.w"], &["a.w"]), Err(Refusal::Nothing));
        assert_eq!(run(&["x.a_proj.w"], &["y.proj.w"]), Err(Refusal::Nothing));
    }

    #[test]
    fn weight_alone_is_no_evidence() {
        assert_eq!(run(&["norm.weight"], &["lm_head.weight"]), Err(Refusal::Nothing));
        assert!(run(&["weight"], &["model.weight"]).is_ok());
    }

    #[test]
    fn a_shape_refuses_the_whole_change() {
        let sources = vec![Item { name: b"a.w", shape: &[4] }, Item { name: b"b.w", shape: &[4] }];
        let targets =
            vec![Item { name: b"m.a.w", shape: &[4] }, Item { name: b"m.b.w", shape: &[5] }];
        let matching = Matching::new(sources, targets);
        assert_eq!(
            best(&matching, |s, t| matching.same_shape(s, t)).unwrap_err(),
            Refusal::Shapes(vec![(1, 1)])
        );
    }

    #[test]
    fn hostile_names_take_no_quadratic_time() {
        assert_not_quadratic(5000, |count| {
            let dots = ".".repeat(count);
            let sources: Vec<String> = (0..count).map(|i| format!("s{i}.weight")).collect();
            let targets: Vec<String> = (0..count).map(|i| format!("t{i}.weight")).collect();
            let mut sources: Vec<&str> = sources.iter().map(String::as_str).collect();
            sources.push(&dots);
            let mut targets: Vec<&str> = targets.iter().map(String::as_str).collect();
            targets.push(&dots[1..]);
            let _ = run(&sources, &targets);
        });
    }
}
