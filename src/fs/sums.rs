//! `SHA256SUMS` and `tensors.sfv`: what the seal says, in the form stock tools check.

use super::Parts;
use crate::naming::file_stem;
use crate::store::Store;
use crate::store::hex;
use crate::view::document::{LONGEST_SUFFIX, is_stored_tensor};
use crate::view::text::Lines;
use std::io;
use std::sync::Arc;

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `sha256sum -c` reads it: the source files, then the tensors.
    Sha256 = 0,
    /// Simple file verification: name and CRC32.
    Sfv = 1,
}

/// One list. A line per source file (SHA-256 only), then one per tensor whose served bytes
/// are one stored tensor unchanged; the others add nothing.
#[derive(Debug)]
pub(super) struct Sums {
    parts: Arc<Parts>,
    kind: Kind,
    shards: u64,
}

impl Sums {
    pub(super) fn new(parts: Arc<Parts>, kind: Kind) -> Sums {
        let shards = match kind {
            Kind::Sha256 => parts.model.shards.len() as u64,
            Kind::Sfv => 0,
        };
        Sums { parts, kind, shards }
    }
}

impl Lines for Sums {
    fn count(&self) -> u64 {
        self.shards + self.parts.catalog.len(&self.parts.model) as u64
    }

    fn write(&self, store: &Store, index: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let Parts { model, catalog, .. } = &*self.parts;
        // Both indices were counted with usize and u32.
        if index < self.shards {
            if let Some(digest) = store.source_sha256(index as usize) {
                let name =
                    [b"source/", &*file_stem(&model.shards[index as usize].file, 0)].concat();
                sha256_line(&digest, &name, out);
            }
            return Ok(());
        }
        let mounted = catalog.get(model, (index - self.shards) as usize);
        if !is_stored_tensor(model, &mounted) {
            return Ok(());
        }
        let Some(sum) = store.tensor_checksum(mounted.source as usize) else {
            return Ok(());
        };
        let name = [b"tensors/", &*file_stem(mounted.name, LONGEST_SUFFIX), b".bin"].concat();
        match (self.kind, sum.sha256) {
            (Kind::Sha256, Some(digest)) => sha256_line(&digest, &name, out),
            (Kind::Sha256, None) => {}
            (Kind::Sfv, _) => {
                out.extend(&name);
                out.extend(format!(" {:08X}\n", sum.crc32).as_bytes());
            }
        }
        Ok(())
    }
}

/// A line of `sha256sum`: a backslash in the name is doubled and announced in front.
/// Encoded names hold no line breaks.
fn sha256_line(digest: &[u8], name: &[u8], out: &mut Vec<u8>) {
    if name.contains(&b'\\') {
        out.push(b'\\');
    }
    out.extend(hex(digest).as_bytes());
    out.extend(b"  ");
    for &byte in name {
        if byte == b'\\' {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_is_doubled_and_announced() {
        let mut out = Vec::new();
        sha256_line(&[0xab], b"tensors/a\\b.bin", &mut out);
        assert_eq!(out, b"\\ab  tensors/a\\\\b.bin\n");
        out.clear();
        sha256_line(&[1], b"x", &mut out);
        assert_eq!(out, b"01  x\n");
    }
}
