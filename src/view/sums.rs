//! `SHA256SUMS` and `tensors.sfv`: what the seal says, in the form stock tools check.
//!
//! A line per source file (SHA-256 only), then one per tensor whose served bytes are one
//! stored tensor unchanged; the others add nothing.

use crate::naming::file_stem;
use crate::store::{Checksum, hex};
use crate::view::document::{Facts, LONGEST_SUFFIX, is_stored_tensor};

/// The line of a source file in `SHA256SUMS`.
pub fn source_line(facts: Facts<'_>, shard: usize, out: &mut Vec<u8>) {
    if let Some(digest) = facts.store.source_sha256(shard) {
        let name = [b"source/", &*file_stem(&facts.model.shards[shard].file, 0)].concat();
        sha256_line(&digest, &name, out);
    }
}

/// The line of a mounted tensor in `SHA256SUMS`.
pub fn tensor_line(facts: Facts<'_>, index: usize, out: &mut Vec<u8>) {
    if let Some((name, sum)) = tensor(facts, index)
        && let Some(digest) = sum.sha256
    {
        sha256_line(&digest, &name, out);
    }
}

/// The line of a mounted tensor in `tensors.sfv`.
pub fn sfv_line(facts: Facts<'_>, index: usize, out: &mut Vec<u8>) {
    if let Some((name, sum)) = tensor(facts, index) {
        out.extend(&name);
        out.extend(format!(" {:08X}\n", sum.crc32).as_bytes());
    }
}

/// The file of a mounted tensor, and the checksums of its bytes.
fn tensor(facts: Facts<'_>, index: usize) -> Option<(Vec<u8>, Checksum)> {
    let Facts { model, catalog, store, .. } = facts;
    let mounted = catalog.get(model, index);
    if !is_stored_tensor(model, &mounted) {
        return None;
    }
    let sum = store.tensor_checksum(mounted.source as usize)?;
    let name = [b"tensors/", &*file_stem(mounted.name, LONGEST_SUFFIX), b".bin"].concat();
    Some((name, sum))
}

/// A line of `sha256sum`: a backslash or a line break in the name is escaped, which a
/// backslash in front announces.
pub fn sha256_line(digest: &[u8], name: &[u8], out: &mut Vec<u8>) {
    if name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r')) {
        out.push(b'\\');
    }
    out.extend(hex(digest).as_bytes());
    out.extend(b"  ");
    for &byte in name {
        match byte {
            b'\\' => out.extend(b"\\\\"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            _ => out.push(byte),
        }
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
        sha256_line(&[1], b"a\nb\rc", &mut out);
        assert_eq!(out, b"\\01  a\\nb\\rc\n");
        out.clear();
        sha256_line(&[1], b"x", &mut out);
        assert_eq!(out, b"01  x\n");
    }
}
