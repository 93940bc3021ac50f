//! The list of mounted tensors: what each is called, which bytes it has and what of its
//! values is still to be undone.
//!
//! Without a map it holds nothing. With one it holds 24 bytes per mounted tensor plus the
//! new names; names, shapes and bytes that did not change are looked up in the model.

use super::stage::FromTable;
use super::{ArchFacts, Likeness, MapError, MapSpec, Reference, Transform, stage};
use crate::dtype::DType;
use crate::model::{Extent, Model, elements};
use std::collections::HashMap;
use std::ops::Range;

/// One tensor as the mount shows it.
#[derive(Clone, Copy, Debug)]
pub struct Mounted<'a> {
    /// Name in the mount.
    pub name: &'a [u8],
    /// Index of the stored tensor.
    pub source: u32,
    /// Element type, as served.
    pub dtype: DType,
    /// Shape in the mount (a slice along dimension 0 loses it; dims of 1 may come or go).
    pub shape: &'a [u64],
    /// Bytes served.
    pub nbytes: u64,
    /// Element type of the stored tensor.
    pub stored: DType,
    /// What it is made from: the stored tensor's bytes, or a contiguous slice of them.
    pub extent: Extent,
    /// What turns the stored values into those that are served.
    pub transform: Transform,
}

/// All tensors of the mount, in tensor order (slices of one tensor in order).
/// Without a map this holds nothing: the model's own list is the answer.
#[derive(Debug)]
pub struct Catalog {
    label: String,
    in_force: bool,
    warnings: Vec<String>,
    list: Option<List>,
    table: Option<FromTable>,
}

impl Catalog {
    /// Stored names, unchanged.
    pub fn identity() -> Catalog {
        Catalog {
            label: "none".into(),
            in_force: false,
            warnings: Vec::new(),
            list: None,
            table: None,
        }
    }

    /// Applies the values of `map=` in order, each a full pass over the names that the one
    /// before it gave. Fails with everything that is wrong in the first stage that fails.
    pub fn build(
        model: &Model,
        facts: &ArchFacts,
        stages: &[MapSpec],
    ) -> Result<Catalog, MapError> {
        Ok(Catalog::build_like(model, facts, stages, None)?.0)
    }

    /// As [`Catalog::build`], and then the names of the reference. That it lacks some is no
    /// error here: the caller asks [`Likeness::check`].
    pub fn build_like(
        model: &Model,
        facts: &ArchFacts,
        stages: &[MapSpec],
        like: Option<Reference<'_>>,
    ) -> Result<(Catalog, Option<Likeness>), MapError> {
        let stages: Vec<&MapSpec> = stages.iter().filter(|s| **s != MapSpec::None).collect();
        if stages.is_empty() && like.is_none() {
            return Ok((Catalog::identity(), None));
        }
        let values = stages.iter().map(ToString::to_string);
        let label = values.chain(like.map(|r| format!("like={}", r.label)));
        let label = label.collect::<Vec<_>>().join(",");
        let ran = stage::run_all(model, facts, &stages, like)?;
        let stage::Ran { list, warnings, table, likeness } = ran;
        Ok((Catalog { label, in_force: true, warnings, list, table }, likeness))
    }

    /// Whether mounted tensors are the stored ones, under their own names.
    pub fn is_identity(&self) -> bool {
        self.list.is_none()
    }

    /// Whether the user asked for a map, even one that changes nothing here.
    pub fn in_force(&self) -> bool {
        self.in_force
    }

    /// Number of mounted tensors.
    pub fn len(&self, model: &Model) -> usize {
        self.list.as_ref().map_or(model.tensors.len(), List::len)
    }

    /// The `index`th mounted tensor.
    pub fn get<'a>(&'a self, model: &'a Model, index: usize) -> Mounted<'a> {
        match &self.list {
            Some(list) => list.get(model, index),
            None => stored(model, index),
        }
    }

    /// For each stored tensor the mounted indices it became (empty: not shown).
    pub fn targets(&self, model: &Model, source: u32) -> Range<usize> {
        let at = source as usize;
        debug_assert!(at < model.tensors.len());
        match &self.list {
            Some(list) => list.range(source),
            None => at..at + 1,
        }
    }

    /// The mounted tensors that the stored tensor `source` has a share in without being the
    /// one they are listed under.
    pub fn shares(&self, source: u32) -> &[(u32, u32)] {
        let Some(list) = &self.list else {
            return &[];
        };
        let from = list.shares.partition_point(|&(part, _)| part < source);
        let len = list.shares[from..].partition_point(|&(part, _)| part == source);
        &list.shares[from..from + len]
    }

    /// How names came from the Hugging Face table, when that was the first stage.
    pub(super) fn table_origins(&self) -> Option<&FromTable> {
        self.table.as_ref()
    }

    /// What a user should know although the map is served.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Values of `map=` joined by commas, or "none".
    pub fn label(&self) -> &str {
        &self.label
    }
}

/// The `index`th stored tensor as it is.
fn stored(model: &Model, index: usize) -> Mounted<'_> {
    let tensor = &model.tensors[index];
    Mounted {
        name: &tensor.name,
        source: index_u32(index),
        dtype: tensor.dtype,
        shape: &tensor.shape,
        nbytes: tensor.extent.len,
        stored: tensor.dtype,
        extent: tensor.extent,
        transform: Transform::None,
    }
}

/// Models hold fewer than 2^32 tensors: their headers could not say more in any file we take.
pub(super) fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("tensor indices are 32 bits")
}

/// In [`Entry::name_at`]: the name is the stored one.
const STORED_NAME: u32 = u32::MAX;

/// Bytes of new names that a list takes at most: positions are 32 bits, and no honest map of
/// a million tensors comes near.
const MAX_NAME_BYTES: usize = 192 << 20;

/// One mounted tensor, compact.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where its bytes begin inside the stored tensor's.
    from: u64,
    source: u32,
    name_at: u32,
    /// Bits 31..0: below [`MAX_TAIL`] the number of leading dimensions that the stored shape
    /// loses, from there on an index into [`List::shapes`].
    shape: u32,
    name_len: u16,
    transform: u16,
}

/// Shapes up to this many leading dimensions shorter than the stored one need no space.
const MAX_TAIL: u32 = 256;

/// A list being built or finished: entries by (source, from).
#[derive(Debug, Default)]
pub(super) struct List {
    entries: Vec<Entry>,
    names: Vec<u8>,
    shapes: Vec<Box<[u64]>>,
    shape_ids: HashMap<Box<[u64]>, u32>,
    transforms: Vec<Transform>,
    transform_ids: HashMap<Transform, u16>,
    /// Per stored tensor its first entry, then the total.
    first: Vec<u32>,
    /// Second stored tensors of joined entries, with those entries, ascending.
    shares: Vec<(u32, u32)>,
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries that a stored tensor became.
    pub(super) fn range(&self, source: u32) -> Range<usize> {
        let at = source as usize;
        self.first[at] as usize..self.first[at + 1] as usize
    }

    /// Appends a mounted tensor; sources come in ascending order. False: no room for more.
    pub(super) fn push(
        &mut self,
        model: &Model,
        source: u32,
        name: &[u8],
        shape: &[u64],
        from: u64,
        transform: Transform,
    ) -> bool {
        let tensor = &model.tensors[source as usize];
        let Some(transform) = self.transform_id(transform) else {
            return false;
        };
        while self.first.len() <= source as usize {
            self.first.push(index_u32(self.entries.len()));
        }
        let (name_at, name_len) = if *tensor.name == *name {
            (STORED_NAME, 0)
        } else {
            let Ok(len) = u16::try_from(name.len()) else {
                return false;
            };
            if self.names.len() + name.len() > MAX_NAME_BYTES {
                return false;
            }
            let at = index_u32(self.names.len());
            self.names.extend_from_slice(name);
            (at, len)
        };
        let shape = self.shape_id(&tensor.shape, shape);
        self.entries.push(Entry { from, source, name_at, shape, name_len, transform });
        true
    }

    /// Ends the list: sources that follow the last entry are not shown.
    pub(super) fn finish(&mut self, model: &Model) {
        while self.first.len() <= model.tensors.len() {
            self.first.push(index_u32(self.entries.len()));
        }
        let other = |entry: &Entry| self.transforms[usize::from(entry.transform)].other();
        self.shares =
            (0..).zip(&self.entries).filter_map(|(i, entry)| Some((other(entry)?, i))).collect();
        self.shares.sort_unstable();
        self.entries.shrink_to_fit();
        self.names.shrink_to_fit();
        self.shape_ids = HashMap::new();
        self.transform_ids = HashMap::new();
    }

    pub(super) fn get<'a>(&'a self, model: &'a Model, index: usize) -> Mounted<'a> {
        let entry = self.entries[index];
        let tensor = &model.tensors[entry.source as usize];
        let name = match entry.name_at {
            STORED_NAME => &*tensor.name,
            at => &self.names[at as usize..at as usize + usize::from(entry.name_len)],
        };
        let shape = match entry.shape.checked_sub(MAX_TAIL) {
            None => &tensor.shape[entry.shape as usize..],
            Some(id) => &self.shapes[id as usize],
        };
        let transform = self.transforms[usize::from(entry.transform)];
        let bytes = |dtype: DType| {
            dtype
                .nbytes(elements(shape))
                .expect("a slice has whole blocks, and a view fits a file: checked before")
        };
        let dtype = transform.served(model, tensor);
        let extent = if transform.is_joined() {
            tensor.extent
        } else {
            tensor.extent.slice(entry.from, bytes(tensor.dtype))
        };
        Mounted {
            name,
            source: entry.source,
            dtype,
            shape,
            nbytes: bytes(dtype),
            stored: tensor.dtype,
            extent,
            transform,
        }
    }

    fn shape_id(&mut self, stored: &[u64], shape: &[u64]) -> u32 {
        let tail = stored.len().checked_sub(shape.len()).filter(|&n| stored[n..] == *shape);
        if let Some(tail) = tail.and_then(|n| u32::try_from(n).ok()).filter(|&n| n < MAX_TAIL) {
            return tail;
        }
        if let Some(&id) = self.shape_ids.get(shape) {
            return id;
        }
        let id = MAX_TAIL + index_u32(self.shapes.len());
        self.shapes.push(shape.into());
        self.shape_ids.insert(shape.into(), id);
        id
    }

    /// Distinct transforms are few (kinds, times head counts per layer or pairs of tensors);
    /// `None` where a file brings more than can be numbered.
    fn transform_id(&mut self, transform: Transform) -> Option<u16> {
        if let Some(at) = self.transforms.iter().take(4).position(|t| *t == transform) {
            return u16::try_from(at).ok();
        }
        if let Some(&id) = self.transform_ids.get(&transform) {
            return Some(id);
        }
        let id = u16::try_from(self.transforms.len()).ok()?;
        self.transforms.push(transform);
        self.transform_ids.insert(transform, id);
        Some(id)
    }
}

/// The names that a stage starts from: the model's, or those of the stage before.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) model: &'a Model,
    pub(super) list: Option<&'a List>,
}

impl<'a> Names<'a> {
    pub(super) fn len(self) -> usize {
        self.list.map_or(self.model.tensors.len(), List::len)
    }

    pub(super) fn get(self, index: usize) -> Mounted<'a> {
        match self.list {
            Some(list) => list.get(self.model, index),
            None => stored(self.model, index),
        }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Mounted<'a>> {
        (0..self.len()).map(move |i| self.get(i))
    }
}
