//! Putting the files of a set together into one model.

use super::error::shown_name;
use super::{LoadError, Loaded};
use crate::bytes::read_vec;
use crate::format::{Quoted, duplicate};
use crate::model::{Array, ByteOrder, Extent, Format, Meta, Model, Shard, Tensor, Text, Value};
use crate::source::Source;
use std::path::PathBuf;

/// One parsed file. Its extents already have its place in the set as their shard.
#[derive(Debug)]
pub(super) struct Parsed {
    /// How it was found: for messages.
    pub(super) path: PathBuf,
    /// Its name beside its siblings.
    pub(super) name: Box<[u8]>,
    pub(super) source: Source,
    pub(super) metadata: Vec<Meta>,
    pub(super) tensors: Vec<Tensor>,
    pub(super) data_start: u64,
    pub(super) tensor_infos: u64,
    pub(super) warnings: Vec<String>,
}

/// What the files have in common.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) format: Format,
    pub(super) version: u32,
    pub(super) byte_order: ByteOrder,
    pub(super) entry: PathBuf,
    /// About the set as a whole.
    pub(super) warnings: Vec<String>,
    /// At least one, in the order of the set.
    pub(super) files: Vec<Parsed>,
    /// Appended to the refusal of a name in two files.
    pub(super) why_not_twice: &'static str,
}

impl Set {
    /// Makes the model: tensors of all files in order, metadata merged.
    pub(super) fn into_model(mut self) -> Result<Loaded, LoadError> {
        debug_assert!(
            Format::ALL.contains(&self.format),
            "{:?} is not in Format::ALL",
            self.format
        );
        self.no_name_twice()?;
        let several = self.files.len() > 1;
        let mut warnings = Vec::new();
        for file in &mut self.files {
            let own = std::mem::take(&mut file.warnings);
            let named = |w| {
                if several { format!("{}: {w}", shown_name(&file.name)) } else { w }
            };
            warnings.extend(own.into_iter().map(named));
        }
        warnings.append(&mut self.warnings);
        let metadata = self.merge_metadata(&mut warnings);

        // The tensors of a model of one file are its list as it is.
        let more = self.files[1..].iter().map(|f| f.tensors.len()).sum();
        let mut tensors = std::mem::take(&mut self.files[0].tensors);
        tensors.reserve_exact(more);
        let mut shards = Vec::with_capacity(self.files.len());
        let mut sources = Vec::with_capacity(self.files.len());
        for mut file in self.files {
            tensors.append(&mut file.tensors);
            shards.push(Shard {
                file: file.name,
                len: file.source.len(),
                data_start: file.data_start,
                tensor_infos: file.tensor_infos,
            });
            sources.push(file.source);
        }
        let mut model = Model {
            format: self.format,
            format_version: self.version,
            byte_order: self.byte_order,
            architecture: None,
            name: None,
            metadata,
            shards,
            tensors,
            warnings,
        };
        if self.format == Format::Gguf {
            model.architecture = short_string(model.meta("general.architecture"), &sources);
            model.name = short_string(model.meta("general.name"), &sources);
        }
        Ok(Loaded { model, sources, entry: self.entry })
    }

    fn no_name_twice(&self) -> Result<(), LoadError> {
        if self.files.len() < 2 {
            // One file was checked by its reader.
            return Ok(());
        }
        let all: Vec<(&[u8], &Parsed)> =
            self.files.iter().flat_map(|f| f.tensors.iter().map(move |t| (&*t.name, f))).collect();
        let Some((first, second)) = duplicate(all.len(), |i| all[i].0) else {
            return Ok(());
        };
        Err(LoadError::DuplicateTensor {
            name: all[first].0.into(),
            first: all[first].1.path.clone(),
            second: all[second].1.path.clone(),
            why: self.why_not_twice,
        })
    }

    /// The first file's value of a key holds; a different one in a later file is worth a warning.
    fn merge_metadata(&mut self, warnings: &mut Vec<String>) -> Vec<Meta> {
        let mut merged = std::mem::take(&mut self.files[0].metadata);
        for at in 1..self.files.len() {
            for meta in std::mem::take(&mut self.files[at].metadata) {
                if self.format == Format::Gguf && is_of_one_part(&meta.key) {
                    continue;
                }
                match merged.iter().find(|m| m.key == meta.key) {
                    None => merged.push(meta),
                    Some(held) if self.same(&held.value, &meta.value) => {}
                    Some(_) => warnings.push(format!(
                        "metadata key {} of {} differs from that of a file before; the first holds",
                        Quoted(&meta.key),
                        shown_name(&self.files[at].name)
                    )),
                }
            }
        }
        merged
    }

    fn same(&self, a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Str(Text::Span(a)), Value::Str(Text::Span(b))) => self.same_bytes(*a, *b),
            (
                Value::Array(Array::Span { elem, count, extent, encoding }),
                Value::Array(Array::Span { elem: e, count: c, extent: x, encoding: n }),
            ) => (elem, count, encoding) == (e, c, n) && self.same_bytes(*extent, *x),
            _ => a == b,
        }
    }

    /// Compares what lies in the files, up to a megabyte; longer ones count as different.
    fn same_bytes(&self, a: Extent, b: Extent) -> bool {
        const LONGEST: u64 = 1 << 20;
        let read = |e: Extent| {
            let source = &self.files[e.shard as usize].source;
            read_vec(source, e.offset, e.len as usize).ok()
        };
        a.len == b.len && a.len <= LONGEST && read(a).is_some_and(|bytes| read(b) == Some(bytes))
    }
}

/// Keys that tell of the part they are in, not of the model.
fn is_of_one_part(key: &[u8]) -> bool {
    key.starts_with(b"split.") || key == b"general.alignment"
}

/// A string of the metadata that is short enough to be a name.
fn short_string(value: Option<&Value>, sources: &[Source]) -> Option<String> {
    const LONGEST: u64 = 4096;
    let bytes = match value? {
        Value::Str(Text::Span(e)) if e.len <= LONGEST => {
            read_vec(&sources[e.shard as usize], e.offset, e.len as usize).ok()?
        }
        Value::Str(Text::Inline(bytes)) if bytes.len() as u64 <= LONGEST => bytes.to_vec(),
        _ => return None,
    };
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
