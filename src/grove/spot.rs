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
    /// A directory: the root is 0, its `.weightfs` 1, others follow.
    Dir(u32),
    /// `models.json`.
    Models,
    /// A live document of all models.
    Live(Live),
}

impl Place {
    pub(super) const ROOT: Place = Place::Dir(0);
    pub(super) const LIVE: Place = Place::Dir(1);

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
            Spot::In(number, node) => Ino(node.ino().0 | u64::from(number) << SHIFT),
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

/// The model's number in an inode number, and the rest.
pub(super) fn apart(ino: Ino) -> Option<(u16, Ino)> {
    let all = ino.0.get();
    let local = NonZeroU64::new(all & ((1 << SHIFT) - 1))?;
    // Sixteen bits are left.
    Some(((all >> SHIFT) as u16, Ino(local)))
}
