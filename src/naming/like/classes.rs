//! Step 4 of `like=`: names with their numbers taken out, compared by what shapes they have at
//! which numbers.
//!
//! Two templates of one class belong together only when there is no other on either side:
//! q and o of a square attention have the same shapes, and nothing here tells them apart.

use super::matching::Matching;
use std::collections::{BTreeMap, HashMap};

/// The numbers of one name and its shape.
type Instance<'a> = (Vec<&'a [u8]>, &'a [u64], u32);

/// What two templates must have in common: all numbers, with the shape at each, and whether
/// they are weights or biases.
type Class<'a> = (&'static str, Vec<(Vec<&'a [u8]>, &'a [u64])>);

/// A template and its instances.
type Template<'s, 'a> = (&'s Vec<u8>, &'s Vec<Instance<'a>>);

/// Templates of one class, on each side, that nothing tells apart.
#[derive(Debug, PartialEq)]
pub(super) struct Ambiguous {
    pub(super) sources: Vec<String>,
    pub(super) targets: Vec<String>,
}

/// The pairs (source, target) that are certain, and the classes that stay open.
pub(super) fn pair(
    matching: &Matching<'_>,
    takes_part: impl Fn(u32) -> bool,
) -> (Vec<(u32, u32)>, Vec<Ambiguous>) {
    let sources = templates(matching.free_sources().map(|s| (s, matching.source(s))));
    let targets =
        matching.open_targets().filter(|&t| takes_part(t)).map(|t| (t, matching.target(t)));
    let targets = templates(targets);
    let mut classes: BTreeMap<Class<'_>, [Vec<Template<'_, '_>>; 2]> = BTreeMap::new();
    for (side, all) in [&sources, &targets].into_iter().enumerate() {
        for (template, instances) in all {
            let signature = instances.iter().map(|(numbers, shape, _)| (numbers.clone(), *shape));
            let class = (ending(template), signature.collect());
            classes.entry(class).or_default()[side].push((template, instances));
        }
    }
    let mut pairs = Vec::new();
    let mut open = Vec::new();
    for [mine, theirs] in classes.into_values() {
        match (&*mine, &*theirs) {
            ([], _) | (_, []) => {}
            ([(_, mine)], [(_, theirs)]) => {
                pairs.extend(mine.iter().zip(*theirs).map(|(a, b)| (a.2, b.2)));
            }
            _ => {
                let show = |side: &[Template<'_, '_>]| {
                    let mut names: Vec<String> = side
                        .iter()
                        .map(|(template, _)| String::from_utf8_lossy(template).into_owned())
                        .collect();
                    names.sort_unstable();
                    names
                };
                open.push(Ambiguous { sources: show(&mine), targets: show(&theirs) });
            }
        }
    }
    (pairs, open)
}

/// A bias never is a weight, whatever their shapes.
fn ending(template: &[u8]) -> &'static str {
    match template.rsplit(|&b| b == b'.').next() {
        Some(b"bias") => "bias",
        _ => "",
    }
}

/// The names by template, the instances of each in the order of their numbers.
fn templates<'a>(
    names: impl Iterator<Item = (u32, super::matching::Item<'a>)>,
) -> HashMap<Vec<u8>, Vec<Instance<'a>>> {
    let mut all: HashMap<Vec<u8>, Vec<Instance<'a>>> = HashMap::new();
    for (index, item) in names {
        let mut template = Vec::with_capacity(item.name.len());
        let mut numbers = Vec::new();
        for (i, segment) in item.name.split(|&b| b == b'.').enumerate() {
            if i > 0 {
                template.push(b'.');
            }
            let digits = !segment.is_empty() && segment.iter().all(u8::is_ascii_digit);
            if digits && (segment == b"0" || segment[0] != b'0') {
                template.extend_from_slice(b"{}");
                numbers.push(segment);
            } else {
                template.extend_from_slice(segment);
            }
        }
        all.entry(template).or_default().push((numbers, item.shape, index));
    }
    for instances in all.values_mut() {
        instances.sort_unstable();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::matching::{Item, Matching};
    use super::*;

    type Side = &'static [(&'static str, &'static [u64])];

    fn run(sources: Side, targets: Side) -> (Vec<(u32, u32)>, Vec<Ambiguous>) {
        let items = |side: Side| {
            side.iter().map(|(name, shape)| Item { name: name.as_bytes(), shape }).collect()
        };
        pair(&Matching::new(items(sources), items(targets)), |_| true)
    }

    #[test]
    fn one_template_on_each_side_of_a_class() {
        let (pairs, open) = run(
            &[("l.1.up", &[8, 4]), ("l.0.up", &[8, 4]), ("emb", &[9, 4])],
            &[("b.0.fc", &[8, 4]), ("b.1.fc", &[8, 4]), ("wte", &[9, 4])],
        );
        let mut pairs = pairs;
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 1), (1, 0), (2, 2)]);
        assert_eq!(open, []);
    }

    #[test]
    fn shape_alone_never_decides() {
        let (pairs, open) = run(
            &[("l.0.q", &[4, 4]), ("l.0.o", &[4, 4])],
            &[("b.0.query", &[4, 4]), ("b.0.dense", &[4, 4])],
        );
        assert_eq!(pairs, []);
        assert_eq!(
            open,
            [Ambiguous {
                sources: vec!["l.{}.o".into(), "l.{}.q".into()],
                targets: vec!["b.{}.dense".into(), "b.{}.query".into()]
            }]
        );
        // Nor does it between one and two.
        let (pairs, open) = run(&[("q", &[4, 4])], &[("x", &[4, 4]), ("y", &[4, 4])]);
        assert_eq!((pairs.len(), open.len()), (0, 1));
    }

    #[test]
    fn numbers_must_be_the_same_and_shapes_at_each() {
        let (pairs, _) = run(&[("l.0.a", &[4]), ("l.1.a", &[4])], &[("b.0.c", &[4])]);
        assert_eq!(pairs, [], "another number of layers");
        let (pairs, _) =
            run(&[("l.0.a", &[4]), ("l.1.a", &[4])], &[("b.0.c", &[4]), ("b.2.c", &[4])]);
        assert_eq!(pairs, [], "other layers");
        let (pairs, _) =
            run(&[("l.0.a", &[4]), ("l.1.a", &[8])], &[("b.0.c", &[4]), ("b.1.c", &[8])]);
        assert_eq!(pairs, [(0, 0), (1, 1)]);
        let (pairs, _) =
            run(&[("l.0.a", &[4]), ("l.1.a", &[8])], &[("b.0.c", &[8]), ("b.1.c", &[4])]);
        assert_eq!(pairs, []);
    }

    #[test]
    fn a_bias_is_no_weight() {
        let (pairs, _) = run(&[("norm.weight", &[4])], &[("proj.bias", &[4])]);
        assert_eq!(pairs, []);
    }

    #[test]
    fn numbers_with_leading_zeros_are_text() {
        let (pairs, _) = run(&[("l.01.a", &[4])], &[("l.1.b", &[4])]);
        assert_eq!(pairs, []);
    }
}
