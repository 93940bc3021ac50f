//! The JSON documents that describe a model and its tensors: `model.json`, `tensors/NAME.json`, and
//! the listing of `ls --json`.
//!
//! Made on demand from what is known; nothing is kept.

use crate::model::{Array, ByteOrder, Format, Model, Value, elements};
use crate::naming::{Catalog, Mounted, Transform, file_stem};
use crate::quant::Target;
use crate::scale::Scales;
use crate::store::{Store, Verify, hex};
use crate::view::json::lossy;
use crate::view::{self, Repr, Stock, Stored, scaled};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest suffix put behind a stem in the mount (`.json`).
pub const LONGEST_SUFFIX: usize = 5;

/// All that the documents draw on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The stored model.
    pub model: &'a Model,
    /// The mounted names.
    pub catalog: &'a Catalog,
    /// The bytes, for trust and checksums.
    pub store: &'a Store,
    /// When bytes are checked.
    pub verify: Verify,
    /// Warnings that neither the model nor the catalog gave.
    pub warnings: &'a [String],
    /// The weights that are codes with scales.
    pub scales: &'a Scales,
}

impl<'a> Facts<'a> {
    fn stock(self) -> Stock<'a> {
        Stock { model: self.model, scales: self.scales }
    }
}

/// `model.json`.
pub fn model(facts: Facts<'_>) -> Json {
    let Facts { model, catalog, store, verify, warnings, .. } = facts;
    let count = catalog.len(model);
    let mut dtypes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let (mut parameters, mut nbytes) = (0u64, 0u64);
    let mut undefined: BTreeMap<&str, (u64, &[u8])> = BTreeMap::new();
    for i in 0..count {
        let tensor = catalog.get(model, i);
        let entry = dtypes.entry(tensor.dtype.name()).or_default();
        entry.0 += 1;
        entry.1 = entry.1.saturating_add(tensor.nbytes);
        // Saturating: a dimension of 0 elsewhere lets shapes be absurd without bytes behind them.
        parameters = parameters.saturating_add(elements(tensor.shape));
        nbytes = nbytes.saturating_add(tensor.nbytes);
        if view::stored_form(tensor.dtype, model.byte_order) == Stored::Undefined {
            undefined.entry(tensor.dtype.name()).or_insert((0, tensor.name)).0 += 1;
        }
    }
    let sources: Vec<Json> = model
        .shards
        .iter()
        .zip(store.sources())
        .enumerate()
        .map(|(i, (shard, source))| {
            json!({
                "file": lossy(&shard.file),
                "nbytes": shard.len,
                "mtime": timestamp(source.mtime()),
                "sha256": store.source_sha256(i).map(|d| hex(&d)),
            })
        })
        .collect();
    let mut all: Vec<Json> = Vec::new();
    all.extend(
        model.warnings.iter().chain(catalog.warnings()).chain(warnings).map(|w| w.as_str().into()),
    );
    for (dtype, (n, first)) in undefined {
        all.push(Json::String(format!(
            "tensors of type {dtype} are served big-endian, as stored, since nobody defines how this \
             type is laid out in a big-endian file: {n}, the first is \"{}\"",
            lossy(first)
        )));
    }
    let version = (model.format == Format::Gguf).then_some(model.format_version);
    let dtypes: Map<String, Json> = dtypes
        .into_iter()
        .map(|(name, (tensors, nbytes))| {
            (name.into(), json!({"tensors": tensors, "nbytes": nbytes}))
        })
        .collect();
    json!({
        "format": model.format.name(),
        "format_version": version,
        "byte_order": model.byte_order.name(),
        "architecture": model.architecture,
        "name": model.name,
        "tensor_count": count,
        "parameter_count": parameters,
        "nbytes": nbytes,
        "dtypes": dtypes,
        "sources": sources,
        "map": catalog.label(),
        "sealed": store.is_sealed(),
        "trust": store.trust().name(),
        "verify": verify.name(),
        "weightfs": env!("CARGO_PKG_VERSION"),
        "warnings": all,
        "anchors": anchors(model, store),
    })
}

/// What is written down elsewhere about the files, and whether what was sealed is that.
pub fn anchors(model: &Model, store: &Store) -> Vec<Json> {
    let told = store.anchors().iter().map(|anchor| {
        json!({
            "file": model.shards.get(anchor.shard).map(|shard| lossy(&shard.file)),
            "kind": anchor.kind.name(),
            "sha256": anchor.sha256.map(|sha256| hex(&sha256)),
            "agrees": anchor.agrees,
            "repo": anchor.repo,
            "commit": anchor.commit,
        })
    });
    told.collect()
}

/// `tensors/NAME.json`, `f32/NAME.json` and the like; `None` when the tensor has no values there.
pub fn tensor(facts: Facts<'_>, index: usize, repr: Repr) -> Option<Json> {
    let Facts { model, catalog, store, .. } = facts;
    let mounted = catalog.get(model, index);
    let stored = &model.tensors[mounted.source as usize];
    let form = view::stored_form(mounted.dtype, model.byte_order);
    let stock = facts.stock();
    let dtype = view::shown(stock, &mounted, repr)?;
    let shape = view::shape(stock, &mounted, repr);
    let block = dtype.block();
    let byte_order = if form == Stored::Undefined { ByteOrder::Big } else { ByteOrder::Little };
    let mut document = json!({
        "name": lossy(&view::name(stock, &mounted, repr)),
        "source_name": lossy(&stored.name),
        "dtype": dtype.name(),
        "shape": shape,
        "nbytes": view::bin(stock, &mounted, repr)?.len(),
        "elements": elements(&shape),
        "block": {"elements": block.elements, "bytes": block.bytes},
        "byte_order": byte_order.name(),
        "stored_byte_order": model.byte_order.name(),
        "source": {
            "file": lossy(&model.shards[mounted.extent.shard as usize].file),
            "offset": mounted.extent.offset,
        },
        "checksum": match repr {
            Repr::Stored => checksum(facts, &mounted),
            Repr::Float(_) => Json::Null,
        },
        "files": files(stock, &mounted, repr),
    });
    if dtype != mounted.stored || repr != Repr::Stored {
        document["converted_from"] = mounted.stored.name().into();
    }
    if catalog.in_force() {
        let transforms: Vec<&str> = mounted.transform.name().into_iter().collect();
        document["transforms"] = transforms.into();
        if let Some(other) = mounted.transform.other() {
            let names = [&stored.name, &model.tensors[other as usize].name];
            document["source_names"] = names.map(|name| Json::from(lossy(name))).to_vec().into();
        }
    }
    scaled::describe(stock, &mounted, repr, &mut document);
    if let Some(shape) = original_shape(model, store, &stored.name) {
        document["orig_shape"] = shape;
    }
    Some(document)
}

/// Where the tensor is to be had: stored, in each dtype, and as `.npy` beside this description.
fn files(stock: Stock<'_>, mounted: &Mounted<'_>, beside: Repr) -> Map<String, Json> {
    let path = |repr: Repr, suffix| {
        let name = view::name(stock, mounted, repr);
        let stem = file_stem(&name, LONGEST_SUFFIX);
        format!("{}/{}{suffix}", repr.directory(), lossy(&stem))
    };
    let mut files = Map::new();
    for repr in Repr::ALL {
        if view::shown(stock, mounted, repr).is_some() {
            let key = if repr == Repr::Stored { "stored" } else { repr.directory() };
            files.insert(key.into(), path(repr, ".bin").into());
        }
    }
    let npy =
        [beside, Repr::Float(Target::F32)].into_iter().find(|&r| view::has_npy(stock, mounted, r));
    if let Some(repr) = npy {
        files.insert("npy".into(), path(repr, ".npy").into());
    }
    files
}

/// Whether the served bytes are exactly those of one stored tensor.
pub fn is_stored_tensor(model: &Model, mounted: &Mounted<'_>) -> bool {
    let stored = &model.tensors[mounted.source as usize];
    mounted.transform == Transform::None
        && mounted.extent == stored.extent
        && !matches!(view::stored_form(mounted.dtype, model.byte_order), Stored::Swapped(_))
}

fn checksum(facts: Facts<'_>, mounted: &Mounted<'_>) -> Json {
    if !is_stored_tensor(facts.model, mounted) {
        return Json::Null;
    }
    facts.store.tensor_checksum(mounted.source as usize).map_or(Json::Null, |sum| {
        json!({
            "crc32": format!("{:08x}", sum.crc32),
            "sha256": sum.sha256.map(|d| hex(&d)),
            "chunk_bytes": sum.chunk_bytes,
        })
    })
}

/// What a converter recorded under `comfy.gguf.orig_shape.NAME` when it flattened a tensor.
fn original_shape(model: &Model, store: &Store, name: &[u8]) -> Option<Json> {
    const PREFIX: &[u8] = b"comfy.gguf.orig_shape.";
    const MAX_DIMENSIONS: u64 = 16;
    let meta = model.metadata.iter().find(|m| m.key.strip_prefix(PREFIX) == Some(name))?;
    let Value::Array(Array::Span { elem, count, extent, encoding }) = &meta.value else {
        return None;
    };
    if *count > MAX_DIMENSIONS {
        return None;
    }
    let shard = store.shard(extent.shard as usize);
    let mut reader =
        crate::format::gguf::array::ArrayReader::new(&shard, *elem, *count, *extent, *encoding);
    let mut shape = Vec::new();
    while let Ok(Some(crate::format::gguf::array::Item::Value(value))) = reader.next() {
        shape.push(Json::from(value.as_u64()?));
    }
    Some(Json::Array(shape))
}

/// Writes `ls --json`, tensor by tensor: a model may have a million of them.
pub fn write_listing(facts: Facts<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::pretty(&mut *out);
    let mut document = serializer.serialize_map(Some(2))?;
    document.serialize_entry("model", &model(facts))?;
    document.serialize_entry("tensors", &Listed(facts))?;
    SerializeMap::end(document)?;
    out.write_all(b"\n")
}

/// The tensors of a listing.
struct Listed<'a>(Facts<'a>);

/// One of them.
#[derive(serde::Serialize)]
struct Line<'a> {
    name: Cow<'a, str>,
    source_name: Cow<'a, str>,
    dtype: &'static str,
    shape: &'a [u64],
    nbytes: u64,
    source: Place<'a>,
}

/// Where its bytes are.
#[derive(serde::Serialize)]
struct Place<'a> {
    file: Cow<'a, str>,
    offset: u64,
}

impl Serialize for Listed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Facts { model: m, catalog, .. } = self.0;
        serializer.collect_seq((0..catalog.len(m)).map(|i| {
            let mounted = catalog.get(m, i);
            Line {
                name: lossy(mounted.name),
                source_name: lossy(&m.tensors[mounted.source as usize].name),
                dtype: mounted.dtype.name(),
                shape: mounted.shape,
                nbytes: mounted.nbytes,
                source: Place {
                    file: lossy(&m.shards[mounted.extent.shard as usize].file),
                    offset: mounted.extent.offset,
                },
            }
        }))
    }
}

/// Seconds and nanoseconds since 1970: exact, unlike a JSON number.
fn timestamp(time: SystemTime) -> String {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => format!("{}.{:09}", after.as_secs(), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            format!("-{}.{:09}", before.as_secs(), before.subsec_nanos())
        }
    }
}
