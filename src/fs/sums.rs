//! The lists that are a line per tensor, as files: `SHA256SUMS`, `tensors.sfv` and
//! `provenance.yaml`.

use super::Parts;
use crate::store::Store;
use crate::view::document::Facts;
use crate::view::text::Lines;
use crate::view::{provenance, sums};
use std::io;
use std::sync::Arc;

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `sha256sum -c` reads it: the source files, then the tensors.
    Sha256 = 0,
    /// Simple file verification: name and CRC32.
    Sfv = 1,
    /// The provenance report.
    Provenance = 2,
}

impl Kind {
    /// Number of lists.
    pub(super) const COUNT: usize = 3;
}

/// One list: some lines of its own, then one per tensor.
#[derive(Debug)]
pub(super) struct Sums {
    parts: Arc<Parts>,
    kind: Kind,
    first: u64,
}

impl Sums {
    pub(super) fn new(parts: Arc<Parts>, kind: Kind) -> Sums {
        let first = match kind {
            Kind::Sha256 => parts.model.shards.len() as u64,
            Kind::Sfv => 0,
            Kind::Provenance => 1,
        };
        Sums { parts, kind, first }
    }
}

impl Lines for Sums {
    fn count(&self) -> u64 {
        let Parts { model, catalog, .. } = &*self.parts;
        let tensors = match self.kind {
            Kind::Sha256 | Kind::Sfv => catalog.len(model),
            // The report is about the stored tensors.
            Kind::Provenance => model.tensors.len(),
        };
        self.first + tensors as u64
    }

    fn write(&self, store: &Store, index: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let Parts { model, catalog, verify, warnings, scales, .. } = &*self.parts;
        let facts = Facts { model, catalog, store, verify: *verify, warnings, scales };
        // Indices were counted with usize and u32.
        let tensor = index.checked_sub(self.first).map(|tensor| tensor as usize);
        match (self.kind, tensor) {
            (Kind::Sha256, None) => sums::source_line(facts, index as usize, out),
            (Kind::Sha256, Some(tensor)) => sums::tensor_line(facts, tensor, out),
            (Kind::Sfv, None) => {}
            (Kind::Sfv, Some(tensor)) => sums::sfv_line(facts, tensor, out),
            (Kind::Provenance, None) => provenance::yaml_head(facts, out),
            (Kind::Provenance, Some(tensor)) => provenance::yaml_tensor(facts, tensor, out),
        }
        Ok(())
    }
}
