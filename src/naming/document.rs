//! The map as a document: which stored tensor became what.
//!
//! `weightfs map --json` is a map file (contract 3.4) that `map=FILE` reads back to the same
//! names and slices. Names that are not UTF-8 cannot stand in JSON: they are left out, and
//! the file's `"unmapped": "keep"` keeps them. Fused tensors that were cut unevenly have a list
//! of `{"name", "shape"}`.

use super::{Catalog, Mounted};
use crate::model::{Model, Tensor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use std::io;
use std::ops::Range;

/// One line of the table that `weightfs map` prints.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The stored tensor.
    pub stored: &'a Tensor,
    /// What it became; `None`: not shown.
    pub mounted: Option<Mounted<'a>>,
    /// Which of the tensors it became, and how many those are.
    pub part: (usize, usize),
}

/// The map in tensor order, a line for each mounted tensor and for each that is not shown.
pub fn map_rows<'a>(model: &'a Model, catalog: &'a Catalog) -> impl Iterator<Item = Row<'a>> {
    (0u32..).zip(&model.tensors).flat_map(move |(source, stored)| {
        let targets = catalog.targets(model, source);
        let (from, count) = (targets.start, targets.len());
        (0..count.max(1)).map(move |i| Row {
            stored,
            mounted: (count > 0).then(|| catalog.get(model, from + i)),
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

impl Parts<'_> {
    fn name(mounted: &Mounted<'_>) -> String {
        String::from_utf8_lossy(mounted.name).into_owned()
    }

    /// Whether each part is one index of the first dimension.
    fn is_plain_split(&self) -> bool {
        self.stored.shape.first() == Some(&(self.range.len() as u64))
            && self.range.clone().all(|i| {
                let part = self.catalog.get(self.model, i);
                part.shape == &self.stored.shape[1..]
            })
    }
}

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plain = self.stored.shape.len() > 1 && self.is_plain_split();
        match self.range.len() {
            0 => return serializer.serialize_none(),
            1 if !plain => {
                let only = self.catalog.get(self.model, self.range.start);
                return serializer.serialize_str(&Self::name(&only));
            }
            _ => {}
        }
        let mut list = serializer.serialize_seq(Some(self.range.len()))?;
        for i in self.range.clone() {
            let part = self.catalog.get(self.model, i);
            if plain {
                list.serialize_element(&Self::name(&part))?;
            } else {
                list.serialize_element(&Shaped { name: Self::name(&part), shape: part.shape })?;
            }
        }
        list.end()
    }
}

#[derive(serde::Serialize)]
struct Shaped<'a> {
    name: String,
    shape: &'a [u64],
}
