//! The map as a document: which stored tensor became what.
//!
//! `weightfs map --json` is a map file (contract 3.4) that `map=FILE` reads back to the same
//! names and slices. Names that are not UTF-8 cannot stand in JSON: they are left out, and
//! the file's `"unmapped": "keep"` keeps them. Beyond contract 3.4, a list may hold null for a
//! slice that is not shown, and fused tensors that were cut unevenly have a list of
//! `{"name", "shape"}`. A map file cannot join tensors: what `map=hf` joins stands there under
//! the names that are stored.

use super::{Catalog, Mounted};
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

/// Writes the map as a map file, indented, with a line break at the end.
pub fn write_map_document(
    model: &Model,
    catalog: &Catalog,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::pretty(&mut *out);
    let mut document = serializer.serialize_map(Some(3))?;
    document.serialize_entry("weightfs_map", &1)?;
    document.serialize_entry("unmapped", "keep")?;
    document.serialize_entry("pairs", &Pairs { model, catalog })?;
    SerializeMap::end(document)?;
    out.write_all(b"\n")
}

struct Pairs<'a> {
    model: &'a Model,
    catalog: &'a Catalog,
}

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (source, stored) in (0u32..).zip(&self.model.tensors) {
            let Ok(name) = std::str::from_utf8(&stored.name) else {
                continue;
            };
            let range = self.catalog.targets(self.model, source);
            let is_joined = |i| self.catalog.get(self.model, i).transform.is_joined();
            if !self.catalog.shares(source).is_empty() || range.clone().any(is_joined) {
                map.serialize_entry(name, name)?;
                continue;
            }
            let parts = Parts { model: self.model, catalog: self.catalog, stored, range };
            map.serialize_entry(name, &parts)?;
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
        if let Some(bytes) = self.plain_slice() {
            return self.plain(bytes, serializer);
        }
        let mut parts = self.iter();
        match (parts.next(), parts.next()) {
            (Some(only), None) if only.extent.len == self.stored.extent.len => {
                serializer.serialize_str(&text(only.name))
            }
            _ => self.shaped(serializer),
        }
    }
}
