//! The map as a document: which stored tensor became what.
//!
//! `weightfs map --json` is a map file that `map=FILE` reads back to the same
//! names and slices: its pairs lead from every stored name to its mounted name, to a list of names
//! or to null. Names that are not UTF-8 cannot stand in JSON: they are left out, and
//! the file's `"unmapped": "keep"` keeps them. Where values change, `"values": "hf"` says that
//! the pairs name what the built-in table makes of each stored tensor. A list may hold null for a
//! slice that is not shown, and fused tensors that were cut unevenly have a list of
//! `{"name", "shape"}`.

use super::stage::FromTable;
use super::{Catalog, Likeness, Mismatch, Mounted, Transform};
use crate::model::{Model, Tensor, elements};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::borrow::Cow;
use std::io;
use std::ops::Range;

/// One line of the table that `weightfs map` prints.
#[derive(Clone, Copy, Debug)]
pub struct MapRow<'a> {
    /// The stored tensor.
    pub stored: &'a Tensor,
    /// What it became; `None`: not shown.
    pub mounted: Option<Mounted<'a>>,
    /// Which of the tensors it became, and how many those are.
    pub part: (usize, usize),
}

/// The map in tensor order, a line for each mounted tensor and for each that is not shown.
pub fn map_rows<'a>(model: &'a Model, catalog: &'a Catalog) -> impl Iterator<Item = MapRow<'a>> {
    (0u32..).zip(&model.tensors).flat_map(move |(source, stored)| {
        let targets = catalog.targets(model, source);
        let shares = catalog.shares(source);
        let (own, count) = (targets.len(), targets.len() + shares.len());
        (0..count.max(1)).map(move |i| MapRow {
            stored,
            mounted: (count > 0).then(|| {
                let at = if i < own { targets.start + i } else { shares[i - own].1 as usize };
                catalog.get(model, at)
            }),
            part: (i, count),
        })
    })
}

/// A map that no map file can say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Values change, but not by the Hugging Face table alone on the stored names.
    #[error(
        "tensor {name:?} has the values of a checkpoint by a map=hf that is not the first stage: one map file cannot say that"
    )]
    Values {
        /// The first tensor of which that is true.
        name: String,
    },
    /// What the table made of a stored tensor was changed further than names can say.
    #[error("tensor {name:?} was renamed or cut again behind map=hf: one map file cannot say that")]
    Stages {
        /// The first such stored tensor.
        name: String,
    },
}

/// The map as a document: `map=FILE` reads it back to the same names, slices and values.
#[derive(Clone, Copy, Debug)]
pub struct MapDocument<'a> {
    model: &'a Model,
    catalog: &'a Catalog,
    likeness: Option<&'a Likeness>,
    /// Set when the pairs start from what the Hugging Face table makes.
    table: Option<&'a FromTable>,
}

impl<'a> MapDocument<'a> {
    /// Checks that the map can be said; `likeness` adds what `like=` found.
    pub fn new(
        model: &'a Model,
        catalog: &'a Catalog,
        likeness: Option<&'a Likeness>,
    ) -> Result<MapDocument<'a>, DocumentError> {
        let show = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let items = || (0..catalog.len(model)).map(|index| catalog.get(model, index));
        let changed = items().find(|item| item.transform != Transform::None);
        let table = catalog.table_origins().filter(|table| {
            let reshaped = |(index, item): (usize, Mounted<'_>)| {
                let whole = table.made(item.source) == Some(1) && table.part(index).whole;
                whole && *item.shape != *model.tensors[item.source as usize].shape
            };
            changed.is_some() || items().enumerate().any(reshaped)
        });
        let document = MapDocument { model, catalog, likeness, table };
        match (table, changed) {
            (None, Some(item)) => return Err(DocumentError::Values { name: show(item.name) }),
            (None, None) => return Ok(document),
            (Some(_), _) => {}
        }
        for (source, stored) in (0u32..).zip(&model.tensors) {
            if document.made_names(source).is_none() {
                return Err(DocumentError::Stages { name: show(&stored.name) });
            }
        }
        Ok(document)
    }

    /// Writes the document, indented, with a line break at the end.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut serializer = serde_json::Serializer::pretty(&mut *out);
        let mut document = serializer.serialize_map(None)?;
        document.serialize_entry("weightfs_map", &1)?;
        document.serialize_entry("unmapped", "keep")?;
        if self.table.is_some() {
            document.serialize_entry("values", "hf")?;
        }
        document.serialize_entry("pairs", &Pairs { document: self })?;
        if let Some(likeness) = self.likeness {
            let lists = [
                ("matched", &likeness.matched),
                ("unmatched_source", &likeness.unmatched_source),
                ("unmatched_reference", &likeness.unmatched_reference),
            ];
            for (key, names) in lists {
                document.serialize_entry(key, &Texts(names))?;
            }
            let mismatch: Vec<_> = likeness.shape_mismatch.iter().map(shapes).collect();
            document.serialize_entry("shape_mismatch", &mismatch)?;
            let others = [
                ("tied", &likeness.tied),
                ("not_restorable", &likeness.not_restorable),
                ("cut", &likeness.cut),
            ];
            for (key, names) in others.into_iter().filter(|(_, names)| !names.is_empty()) {
                document.serialize_entry(key, &Texts(names))?;
            }
        }
        SerializeMap::end(document)?;
        out.write_all(b"\n")
    }

    /// Behind the table: the names of what it made of a stored tensor, in order, `None` where
    /// one is not shown. No answer when that is not all there is to say.
    fn made_names(&self, source: u32) -> Option<Made<'a>> {
        let range = self.catalog.targets(self.model, source);
        let get = |index| self.catalog.get(self.model, index);
        let table = self.table?;
        let Some(made) = table.made(source) else {
            // Left as stored; whoever touches it afterwards says what no pair can.
            let stored = &*self.model.tensors[source as usize].name;
            let mut parts = range.map(get);
            let kept = parts.next().is_some_and(|item| item.name == stored);
            return (kept && parts.next().is_none()).then_some(Made::Cut);
        };
        let whole = range.clone().all(|index| table.part(index).whole);
        match made {
            1 if !whole && table.reshaped(source) => return Some(Made::Reshaped),
            1 if !whole => return Some(Made::Cut),
            _ if !whole => return None,
            _ => {}
        }
        let mut names = vec![None; made as usize];
        for index in range {
            *names.get_mut(table.part(index).item as usize)? = Some(text(get(index).name));
        }
        Some(Made::Whole(names))
    }
}

/// What became of what the table made.
enum Made<'a> {
    /// Renamed, or not shown.
    Whole(Vec<Option<Cow<'a, str>>>),
    /// As without the table: one tensor, or slices of it.
    Cut,
    /// Slices of what has another shape than what is stored: each needs its own.
    Reshaped,
}

/// A shape mismatch as it is written.
fn shapes(mismatch: &Mismatch) -> impl Serialize + use<'_> {
    #[derive(serde::Serialize)]
    struct Shapes<'a> {
        source: Cow<'a, str>,
        reference: Cow<'a, str>,
        source_shape: &'a [u64],
        reference_shape: &'a [u64],
    }
    Shapes {
        source: text(&mismatch.source),
        reference: text(&mismatch.reference),
        source_shape: &mismatch.source_shape,
        reference_shape: &mismatch.reference_shape,
    }
}

/// Names as a list of strings.
struct Texts<'a>(&'a [Box<[u8]>]);

impl Serialize for Texts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|name| text(name)))
    }
}

struct Pairs<'a> {
    document: &'a MapDocument<'a>,
}

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let MapDocument { model, catalog, table, .. } = *self.document;
        let mut map = serializer.serialize_map(None)?;
        for (source, stored) in (0u32..).zip(&model.tensors) {
            let Ok(name) = std::str::from_utf8(&stored.name) else {
                continue;
            };
            let made = table.and_then(|_| self.document.made_names(source));
            match made {
                Some(Made::Whole(names)) => match &*names {
                    [] => map.serialize_entry(name, &())?,
                    [only] => map.serialize_entry(name, only)?,
                    all if all.iter().all(Option::is_none) => map.serialize_entry(name, &())?,
                    all => map.serialize_entry(name, all)?,
                },
                Some(Made::Cut | Made::Reshaped) | None => {
                    let range = catalog.targets(model, source);
                    let shapes = matches!(made, Some(Made::Reshaped));
                    map.serialize_entry(name, &Parts { model, catalog, stored, range, shapes })?;
                }
            }
        }
        map.end()
    }
}

/// What one stored tensor became: null, a name or a list.
struct Parts<'a> {
    model: &'a Model,
    catalog: &'a Catalog,
    stored: &'a Tensor,
    range: Range<usize>,
    /// Whether each needs its shape, whatever they look like.
    shapes: bool,
}

/// A slice with its shape; without a name it is not shown.
#[derive(serde::Serialize)]
struct Shaped<'a> {
    name: Option<Cow<'a, str>>,
    shape: &'a [u64],
}

impl Parts<'_> {
    fn iter(&self) -> impl Iterator<Item = Mounted<'_>> {
        self.range.clone().map(|i| self.catalog.get(self.model, i))
    }

    /// Bytes of one index of the first dimension, when each part is one such index.
    fn plain_slice(&self) -> Option<u64> {
        let [count, rest @ ..] = &*self.stored.shape else {
            return None;
        };
        let bytes = self.stored.dtype.nbytes(elements(rest))?;
        let complete = self.range.len() as u64 == *count;
        let plain = !rest.is_empty()
            && (complete || bytes > 0)
            && self.iter().all(|part| part.shape == rest && part.extent.len == bytes);
        plain.then_some(bytes)
    }

    /// Names in the order of the slices, null where one is not shown.
    fn plain<S: Serializer>(&self, bytes: u64, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut next = 0;
        for part in self.iter() {
            let from = part.extent.offset - self.stored.extent.offset;
            while next < from {
                list.serialize_element(&())?;
                next += bytes;
            }
            list.serialize_element(&text(part.name))?;
            next += bytes;
        }
        while next < self.stored.extent.len {
            list.serialize_element(&())?;
            next += bytes;
        }
        list.end()
    }

    /// Slices with their shapes; what is not shown between them as rows of elements.
    fn shaped<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut next = 0;
        let block = self.stored.dtype.block();
        let hidden = |from: u64, to: u64| (to - from) / block.bytes * block.elements;
        for part in self.iter() {
            let from = part.extent.offset - self.stored.extent.offset;
            if next < from {
                let shape = &[hidden(next, from)];
                list.serialize_element(&Shaped { name: None, shape })?;
            }
            list.serialize_element(&Shaped { name: Some(text(part.name)), shape: part.shape })?;
            next = from + part.extent.len;
        }
        if next < self.stored.extent.len {
            let shape = &[hidden(next, self.stored.extent.len)];
            list.serialize_element(&Shaped { name: None, shape })?;
        }
        list.end()
    }
}

/// Mounted names differ from UTF-8 only where they are stored names, which are left out.
fn text(name: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(name)
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.range.is_empty() {
            return serializer.serialize_none();
        }
        if self.shapes {
            return self.shaped(serializer);
        }
        if let Some(bytes) = self.plain_slice() {
            return self.plain(bytes, serializer);
        }
        let mut parts = self.iter();
        match (parts.next(), parts.next()) {
            (Some(only), None) if *only.shape == *self.stored.shape => {
                serializer.serialize_str(&text(only.name))
            }
            _ => self.shaped(serializer),
        }
    }
}
