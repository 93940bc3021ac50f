//! Who has found whom: names and shapes of both sides, and the state of each.

use std::collections::HashMap;

/// A name and the shape behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Item<'a> {
    pub(super) name: &'a [u8],
    pub(super) shape: &'a [u64],
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partner {
    /// Nothing yet.
    Free,
    /// It belongs to this name of the other side.
    Match(u32),
    /// Its name belongs to this one, but the shapes disagree.
    Mismatch(u32),
}

/// Both sides.
#[derive(Debug)]
pub(super) struct Matching<'a> {
    sources: Vec<Item<'a>>,
    targets: Vec<Item<'a>>,
    of_source: Vec<Partner>,
    of_target: Vec<Partner>,
    /// Targets that nothing can be renamed to.
    barred: Vec<bool>,
}

impl<'a> Matching<'a> {
    /// Nobody has found anybody.
    pub(super) fn new(sources: Vec<Item<'a>>, targets: Vec<Item<'a>>) -> Matching<'a> {
        let of_source = vec![Partner::Free; sources.len()];
        let of_target = vec![Partner::Free; targets.len()];
        let barred = vec![false; targets.len()];
        Matching { sources, targets, of_source, of_target, barred }
    }

    pub(super) fn source(&self, index: u32) -> Item<'a> {
        self.sources[index as usize]
    }

    pub(super) fn target(&self, index: u32) -> Item<'a> {
        self.targets[index as usize]
    }

    pub(super) fn same_shape(&self, source: u32, target: u32) -> bool {
        self.source(source).shape == self.target(target).shape
    }

    pub(super) fn of_source(&self, index: u32) -> Partner {
        self.of_source[index as usize]
    }

    pub(super) fn of_target(&self, index: u32) -> Partner {
        self.of_target[index as usize]
    }

    /// Sources without a partner, in order.
    pub(super) fn free_sources(&self) -> impl Iterator<Item = u32> + '_ {
        free(&self.of_source)
    }

    /// Targets without a partner, in order.
    pub(super) fn free_targets(&self) -> impl Iterator<Item = u32> + '_ {
        free(&self.of_target)
    }

    /// Free targets that something may be renamed to, in order.
    pub(super) fn open_targets(&self) -> impl Iterator<Item = u32> + '_ {
        self.free_targets().filter(|&t| !self.barred[t as usize])
    }

    /// Nothing may be renamed to these any more.
    pub(super) fn bar(&mut self, wrong: impl Fn(&[u8]) -> bool) {
        for (target, barred) in self.targets.iter().zip(&mut self.barred) {
            *barred = wrong(target.name);
        }
    }

    /// Brings two free names together, by name: shapes may still disagree.
    pub(super) fn join(&mut self, source: u32, target: u32) {
        let agree = self.same_shape(source, target);
        let kind = if agree { Partner::Match } else { Partner::Mismatch };
        self.of_source[source as usize] = kind(target);
        self.of_target[target as usize] = kind(source);
    }

    /// Brings two names together although the shapes disagree, as they are known to.
    pub(super) fn join_anyway(&mut self, source: u32, target: u32) {
        self.of_source[source as usize] = Partner::Match(target);
        self.of_target[target as usize] = Partner::Match(source);
    }

    /// Separates a source from its partner.
    pub(super) fn release(&mut self, source: u32) {
        if let Partner::Match(target) | Partner::Mismatch(target) = self.of_source(source) {
            self.of_target[target as usize] = Partner::Free;
        }
        self.of_source[source as usize] = Partner::Free;
    }

    /// Brings names together that are equal.
    pub(super) fn join_equal(&mut self) {
        let by_name: HashMap<&[u8], u32> =
            self.free_targets().map(|t| (self.target(t).name, t)).collect();
        let partner = |s| Some((s, *by_name.get(self.source(s).name)?));
        let found: Vec<(u32, u32)> = self.free_sources().filter_map(partner).collect();
        for (source, target) in found {
            if self.of_target(target) == Partner::Free {
                self.join(source, target);
            }
        }
    }
}

fn free(side: &[Partner]) -> impl Iterator<Item = u32> + '_ {
    (0u32..).zip(side).filter(|(_, partner)| **partner == Partner::Free).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_meet_and_shapes_are_compared() {
        let item =
            |name: &'static str, shape: &'static [u64]| Item { name: name.as_bytes(), shape };
        let mut m = Matching::new(
            vec![item("a", &[1]), item("b", &[2]), item("c", &[3])],
            vec![item("b", &[9]), item("a", &[1])],
        );
        m.join_equal();
        assert_eq!(m.of_source(0), Partner::Match(1));
        assert_eq!(m.of_source(1), Partner::Mismatch(0));
        assert_eq!(m.of_target(0), Partner::Mismatch(1));
        assert_eq!(m.free_sources().collect::<Vec<_>>(), [2]);
        assert_eq!(m.free_targets().count(), 0);
        m.release(1);
        assert_eq!((m.of_source(1), m.of_target(0)), (Partner::Free, Partner::Free));
    }
}
