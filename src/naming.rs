//! Names: from stored to mounted tensor names, and from names to file names.
//!
//! Must not know FUSE, bytes or directories other than as path parts.

use crate::dtype::DType;
use crate::model::{Extent, Model};
use std::borrow::Cow;

/// Turns a tensor name, metadata key or source name into a file-name stem (contract
/// section 2, file names). One-to-one except for the hash of names over 250 bytes.
/// `longest_suffix` is the byte length of the longest suffix that is put behind it.
pub fn file_stem(_name: &[u8], _longest_suffix: usize) -> Cow<'_, [u8]> {
    unimplemented!()
}

/// One tensor as the mount shows it.
#[derive(Clone, Copy, Debug)]
pub struct Mounted<'a> {
    /// Name in the mount.
    pub name: &'a [u8],
    /// Index of the stored tensor.
    pub source: u32,
    /// Element type.
    pub dtype: DType,
    /// Shape in the mount (a slice along dimension 0 loses it; dims of 1 may come or go).
    pub shape: &'a [u64],
    /// Its bytes: the stored tensor's, or a contiguous slice of them.
    pub extent: Extent,
}

/// All tensors of the mount, in tensor order (slices of one tensor in order).
/// Without a map this holds nothing: the model's own list is the answer.
#[derive(Debug)]
pub struct Catalog {}

#[allow(unused_variables, missing_docs, reason = "stub")]
impl Catalog {
    /// Stored names, unchanged.
    pub fn identity() -> Catalog {
        unimplemented!()
    }
    pub fn is_identity(&self) -> bool {
        unimplemented!()
    }
    pub fn len(&self, model: &Model) -> usize {
        unimplemented!()
    }
    /// The `index`th mounted tensor.
    pub fn get<'a>(&'a self, model: &'a Model, index: usize) -> Mounted<'a> {
        unimplemented!()
    }
    /// For each stored tensor the mounted indices it became (empty: not shown).
    pub fn targets(&self, model: &Model, source: u32) -> std::ops::Range<usize> {
        unimplemented!()
    }
    pub fn warnings(&self) -> &[String] {
        unimplemented!()
    }
    /// Values of `map=` joined by commas, or "none".
    pub fn label(&self) -> &str {
        unimplemented!()
    }
}

#[allow(missing_docs)]
#[derive(Debug)]
pub struct StemIndex;
#[allow(missing_docs)]
#[derive(Debug)]
pub struct Collision {
    pub stem: Vec<u8>,
    pub a: u32,
    pub b: u32,
}
#[allow(missing_docs)]
impl StemIndex {
    pub fn build<'a>(
        _n: usize,
        _f: impl Fn(usize) -> &'a [u8],
        _l: usize,
    ) -> Result<StemIndex, Collision> {
        unimplemented!()
    }
    pub fn find<'a>(&self, _s: &[u8], _f: impl Fn(usize) -> &'a [u8]) -> Option<u32> {
        None
    }
}
