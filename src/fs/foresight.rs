//! Bytes for somebody who is likely to ask for them soon, and what is done when they are asked.
//!
//! Nobody waits for such bytes, so they are made only where the source answers at once and where
//! part of a file costs no more than its share of the whole.

use super::members::Choice;
use super::{FsError, Reader, WeightFs};
use crate::layout::{Ino, Node, View};
use crate::naming::Transform;

impl WeightFs {
    /// The size of the file `ino`, if it is worth reading ahead of somebody who reads it from
    /// front to back.
    pub fn foreseeable(&self, ino: Ino) -> Option<u64> {
        let node = self.node(ino).ok()?;
        if !self.is_in_order(node) || self.lane_of_read(ino, 0).is_some() || !self.knows_size(node)
        {
            return None;
        }
        Some(self.content(node).ok()?.len())
    }

    /// Fills `out` with the bytes of `ino` from `offset` on; whether that went well at the first
    /// look. See [`crate::store::Store::unasked`].
    pub fn foresee(&self, ino: Ino, offset: u64, out: &mut [u8], reader: Reader) -> bool {
        let Ok(node) = self.node(ino) else { return false };
        let store = self.store_for(node, reader, true);
        self.content(node)
            .is_ok_and(|content| content.read(store, offset, out).is_ok_and(|len| len == out.len()))
    }

    /// Reads into `out` what is good at the first look, all that there is of it, and takes note
    /// that it was asked for; `None` where it is not, and nothing was told or remembered.
    pub fn read_at_once(
        &self,
        ino: Ino,
        offset: u64,
        out: &mut [u8],
        reader: Reader,
    ) -> Option<usize> {
        let node = self.node(ino).ok()?;
        let store = self.store_for(node, reader, true);
        let len = self.content(node).ok()?.read(store, offset, out).ok()?;
        self.parts.store.count_served(len as u64);
        Some(len)
    }

    /// Takes note that `len` foreseen bytes from `offset` on are asked for now. Fails when what
    /// lies behind them is no longer what was mounted.
    pub fn serve_foreseen(&self, ino: Ino, offset: u64, len: u64) -> Result<(), FsError> {
        let node = self.node(ino)?;
        let planned = match node {
            Node::Gguf => self.gguf.get(),
            Node::HfWeights => self.whole[self.hf_choice().slot()].get(),
            Node::Whole(repr) => self.whole[Choice::One(repr).slot()].get(),
            _ => None,
        };
        let sources = self.parts.store.sources();
        // One tensor, and so one source, as a rule.
        let only = planned.and_then(|whole| {
            let first = whole.shard_at(offset)?;
            (whole.shard_at(offset + len.saturating_sub(1)) == Some(first)).then_some(first)
        });
        match only.and_then(|shard| sources.get(shard as usize)) {
            Some(source) if sources.len() > 2 => {
                source.check_unchanged().map_err(|e| FsError::Read { good: 0, error: e.into() })?;
            }
            _ => self.check_source(node)?,
        }
        self.parts.store.count_served(len);
        Ok(())
    }

    /// Whether a part of the file comes from a part of its sources, which nobody needs again for
    /// the rest of it.
    pub(super) fn is_in_order(&self, node: Node) -> bool {
        let parts = &*self.parts;
        match node {
            Node::Tensor(_, _, View::Json) => false,
            Node::Tensor(i, ..) => in_order(parts.catalog.get(&parts.model, i as usize).transform),
            Node::Source(_) | Node::Gguf => true,
            Node::Whole(_) | Node::HfWeights => self.all_in_order(),
            _ => false,
        }
    }

    fn all_in_order(&self) -> bool {
        *self.in_order.get_or_init(|| {
            let (catalog, model) = (&self.parts.catalog, &*self.parts.model);
            !catalog.in_force()
                || (0..catalog.len(model)).all(|i| in_order(catalog.get(model, i).transform))
        })
    }
}

/// Whether a part of the shown tensor comes from a part of the stored one.
fn in_order(transform: Transform) -> bool {
    match transform {
        Transform::None
        | Transform::RopeRows { .. }
        | Transform::Qkv3 { .. }
        | Transform::Falcon { .. }
        | Transform::SubtractOne
        | Transform::LogNegated => true,
        // Made in panels, which are kept for whoever comes next.
        Transform::Transpose
        | Transform::Interleave { .. }
        | Transform::InterleaveTranspose { .. }
        | Transform::HeadsJoined { .. }
        | Transform::Mxfp4Blocks { .. }
        | Transform::Mxfp4Scales { .. } => false,
    }
}
