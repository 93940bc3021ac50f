//! Which requests may have to wait, and for what: each source has a queue of its own for its
//! data, and another for what describes it, so that a source that hangs while it is read keeps
//! nobody waiting but its readers.

use super::WeightFs;
use super::members::Choice;
use crate::layout::{Doc, Ino, Node, View};
use crate::source::IoMode;

/// A queue of requests, by number: below [`WeightFs::lanes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(pub usize);

/// What a request has to wait for.
enum Wait {
    /// The data of a source.
    Data(u32),
    /// The data of all sources.
    All,
    /// Metadata and attributes of a source.
    About(u32),
    /// Only the processor.
    Work,
}

impl WeightFs {
    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        2 * (self.sources() + 1)
    }

    fn sources(&self) -> usize {
        self.parts.store.sources().len()
    }

    fn lane(&self, wait: Wait) -> Lane {
        let sources = self.sources();
        Lane(match wait {
            Wait::Data(shard) => shard as usize,
            Wait::All => sources,
            Wait::About(shard) => sources + 1 + shard as usize,
            Wait::Work => 2 * sources + 1,
        })
    }

    /// Where the attributes of `node` are to be waited for; `None` when they are known.
    pub fn lane_of_attr(&self, node: Node) -> Option<Lane> {
        if self.knows_size(node) {
            return None;
        }
        // Metadata lies in the first file; nothing else is read for the size of a document.
        let from_metadata =
            matches!(node, Node::Meta(_) | Node::Hf(_) | Node::Gguf | Node::Doc(Doc::Metadata));
        let wait = if from_metadata { Wait::About(0) } else { Wait::Work };
        Some(self.lane(wait))
    }

    /// Where the opening of a file is to be waited for: even the attributes of its sources may
    /// have to come from a server that is slow to answer.
    pub fn lane_of_open(&self, ino: Ino) -> Option<Lane> {
        let node = self.layout.node(self.names(), ino)?;
        let behind = match node {
            Node::Tensor(_, _, View::Json) => None,
            Node::Tensor(..) | Node::Source(_) => {
                self.shard_behind(node, |shard| self.is_slow(shard))
            }
            Node::Whole(_) | Node::Gguf | Node::HfWeights => {
                (0..self.sources() as u32).find(|&shard| self.is_slow(shard))
            }
            _ => None,
        };
        behind.map(|shard| self.lane(Wait::About(shard))).or_else(|| self.lane_of_attr(node))
    }

    /// Where a read of `ino` from `offset` on is to be waited for: `None` when its bytes are in
    /// memory, or in a local file, which is not expected to take long.
    pub fn lane_of_read(&self, ino: Ino, offset: u64) -> Option<Lane> {
        self.lane_behind(ino, offset, |shard| self.is_slow(shard))
    }

    /// Where a read is to be waited for that could be done at once but for a local file that takes
    /// long after all; `None` when its bytes are in memory.
    pub fn lane_of_wait(&self, ino: Ino, offset: u64) -> Option<Lane> {
        self.lane_behind(ino, offset, |_| true)
    }

    /// Where a read is to be waited for when sources may be slow.
    fn lane_behind(&self, ino: Ino, offset: u64, slow: impl Fn(u32) -> bool) -> Option<Lane> {
        let node = self.layout.node(self.names(), ino)?;
        let wait = match node {
            Node::Tensor(_, _, View::Json) | Node::Live(_) => return None,
            Node::Doc(Doc::Model | Doc::Sha256Sums | Doc::Sfv | Doc::Provenance) => return None,
            Node::Tensor(..) | Node::Source(_) => Wait::Data(self.shard_behind(node, slow)?),
            Node::Whole(_) | Node::Gguf | Node::HfWeights => {
                let any = (0..self.sources() as u32).any(&slow);
                any.then(|| self.place_in_whole(node, offset))?
            }
            _ if slow(0) => Wait::About(0),
            _ => return None,
        };
        Some(self.lane(wait))
    }

    /// Where a read of `ino` that has no lane is to be waited for when it is not good at the first
    /// look: a chunk that is bad is looked at again for a quarter of a second.
    pub fn lane_of_trouble(&self, ino: Ino, offset: u64) -> Option<Lane> {
        let node = self.layout.node(self.names(), ino)?;
        let wait = match node {
            Node::Tensor(_, _, View::Bin | View::Npy) | Node::Source(_) => {
                Wait::Data(self.shard(node)?)
            }
            Node::Whole(_) | Node::Gguf | Node::HfWeights => self.place_in_whole(node, offset),
            _ => return None,
        };
        Some(self.lane(wait))
    }

    /// A file of the whole model waits for the source that the bytes at `offset` come from.
    fn place_in_whole(&self, node: Node, offset: u64) -> Wait {
        let planned = match node {
            Node::Gguf => self.gguf.get(),
            Node::HfWeights => self.whole[self.hf_choice().slot()].get(),
            Node::Whole(repr) => self.whole[Choice::One(repr).slot()].get(),
            _ => None,
        };
        match planned {
            Some(whole) if offset < whole.header_len() => Wait::About(0),
            Some(whole) => whole.shard_at(offset).map_or(Wait::All, Wait::Data),
            None => Wait::All,
        }
    }

    /// The one that may have to be waited for of the sources of a file of one tensor.
    fn shard_behind(&self, node: Node, slow: impl Fn(u32) -> bool) -> Option<u32> {
        let shards = [Some(self.shard(node)?), self.other_shard(node)];
        shards.into_iter().flatten().find(|&shard| slow(shard))
    }

    /// Whether a source is not on a local file system, or the seal is not: the sums that its bytes
    /// are compared with are read when they are needed.
    fn is_slow(&self, shard: u32) -> bool {
        let store = &self.parts.store;
        let source = store.sources().get(shard as usize);
        source.is_some_and(|source| source.io() == IoMode::Pread)
            || store.seal().is_some_and(|seal| seal.is_far())
    }
}
