//! What an inode number of a mount stands for.

use crate::fs::is_live;
use crate::layout::{FileKind, Ino, Layout, Live, Node};
use std::num::NonZeroU64;

/// From this bit on an inode number is the model's; those of a model's own files stay below.
const SHIFT: u32 = 48;
/// Where the kind of a place stands.
const CLASS: u32 = 40;

/// A file or directory of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// Of no model.
    Own(Place),
    /// Of the model with this number.
    In(u16, Node),
}

/// What lies around models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A directory: the root is 0, its `.weightfs` 1, the numbers of others come from their paths.
    Dir(u32),
    /// `models.json`.
    Models,
    /// A live document of all models.
    Live(Live),
}

impl Place {
    pub(super) const ROOT: Place = Place::Dir(0);
    pub(super) const LIVE_NUMBER: u32 = 1;
    pub(super) const LIVE: Place = Place::Dir(Place::LIVE_NUMBER);

    /// In a mount of several models, and among its own numbers.
    fn ino(self) -> Ino {
        let (class, index) = match self {
            Place::Dir(number) => (0, number),
            Place::Models => (1, 0),
            Place::Live(Live::Status) => (2, 0),
            Place::Live(Live::Metrics) => (2, 1),
        };
        Ino(NonZeroU64::MIN.saturating_add(class << CLASS | u64::from(index)))
    }

    pub(super) fn from_ino(local: Ino) -> Option<Place> {
        let number = local.0.get() - 1;
        let index = u32::try_from(number & ((1 << CLASS) - 1)).ok()?;
        Some(match (number >> CLASS, index) {
            (0, number) => Place::Dir(number),
            (1, 0) => Place::Models,
            (2, 0) => Place::Live(Live::Status),
            (2, 1) => Place::Live(Live::Metrics),
            _ => return None,
        })
    }
}

impl Spot {
    /// The inode number.
    pub fn ino(self) -> Ino {
        match self {
            Spot::Own(place) => place.ino(),
            Spot::In(number, node) => {
                let local = node.ino().0.get();
                let all = local ^ spread(number) | u64::from(number) << SHIFT;
                // Of the number 0 the local one stays as it is; others have a bit in front.
                Ino(NonZeroU64::new(all).unwrap_or(node.ino().0))
            }
        }
    }

    /// The kind of file.
    pub fn kind(self) -> FileKind {
        match self {
            Spot::Own(Place::Dir(_)) => FileKind::Directory,
            Spot::Own(_) => FileKind::File,
            Spot::In(_, node) => Layout::kind(node),
        }
    }

    /// Whether what is known of it is old at once.
    pub fn is_live(self) -> bool {
        match self {
            Spot::Own(place) => matches!(place, Place::Live(_) | Place::LIVE),
            Spot::In(_, node) => is_live(node),
        }
    }
}

/// What the lower bits of a model's inode numbers are changed by. The kernel's table of inodes
/// goes by these bits alone: with the same ones in every model, each step would pass through the
/// files of all the others.
const fn spread(number: u16) -> u64 {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    (number as u64).wrapping_mul(GOLDEN) >> (u64::BITS - CLASS)
}

/// The model's number in an inode number, and what that model calls it.
pub(super) fn apart(ino: Ino) -> Option<(u16, Ino)> {
    let all = ino.0.get();
    // Sixteen bits are left.
    let number = (all >> SHIFT) as u16;
    let local = NonZeroU64::new((all & ((1 << SHIFT) - 1)) ^ spread(number))?;
    Some((number, Ino(local)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::layout::Dir;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_put_together_and_taken_apart() {
        let nodes = [Node::Dir(Dir::Root), Node::Source(u32::MAX), Node::Meta(0), Node::HfWeights];
        for number in [0, 1, 2, 4096, u16::MAX] {
            for node in nodes {
                assert_eq!(apart(Spot::In(number, node).ino()), Some((number, node.ino())));
            }
        }
        assert_eq!(Spot::In(0, nodes[1]).ino(), nodes[1].ino());
        for place in [Place::ROOT, Place::Dir(7), Place::Models, Place::Live(Live::Metrics)] {
            let (number, local) = apart(Spot::Own(place).ino()).unwrap();
            assert_eq!((number, Place::from_ino(local)), (0, Some(place)));
        }
    }

    #[test]
    fn the_lower_bits_tell_models_apart() {
        let low: HashSet<u64> =
            (1..=4096).map(|n| Spot::In(n, Node::Source(0)).ino().0.get() & 0xf_ffff).collect();
        assert!(low.len() > 4000, "{}", low.len());
    }
}
