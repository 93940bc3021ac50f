//! How bytes are read, and who gets them.

use super::{FsError, Handle, WeightFs};
use crate::content::Body;
use crate::layout::{Ino, Node};
use crate::store::Store;

/// Who gets the bytes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A program. (Or a mapping of a file that is otherwise read past the page cache: its pages are
    /// thrown away when somebody maps it anew.)
    Program,
    /// The kernel's page cache, which keeps them.
    Cache,
}

impl WeightFs {
    /// Copies bytes from `offset` on into `out`; returns how many, fewer only at the end.
    /// Who answers with the good bytes in front of a failure says so: [`WeightFs::serve_short`].
    pub fn read(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, FsError> {
        self.read_for(Reader::Program, ino, handle, offset, out)
    }

    /// As [`WeightFs::read`], for a reader of either kind.
    pub fn read_for(
        &self,
        reader: Reader,
        ino: Ino,
        handle: Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, FsError> {
        let node = self.node(ino)?;
        if let Node::Live(live) = node {
            return Ok(self.snapshots.read(handle, || self.live(live), offset, out));
        }
        let content = self.content(node)?;
        let len = content.read(self.store_for(node, reader, false), offset, out)?;
        // What was made here comes from memory.
        if !matches!(content.body, Body::Empty) {
            self.parts.store.count_delivered(len as u64);
        }
        Ok(len)
    }

    /// Takes note that a read that failed was answered with the `len` good bytes in front.
    pub fn serve_short(&self, len: u64) {
        self.parts.store.count_delivered(len);
    }

    /// The store as it serves such bytes to such a reader.
    pub(super) fn store_for(&self, node: Node, reader: Reader, unasked: bool) -> &Store {
        let kept = reader == Reader::Cache && self.is_in_order(node);
        match (unasked, kept) {
            (false, false) => &self.parts.store,
            (false, true) => &self.kept,
            (true, false) => &self.foresight[0],
            (true, true) => &self.foresight[1],
        }
    }
}
