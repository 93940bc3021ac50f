//! `provenance.yaml`: where a model's bytes come from and what they should be.
//!
//! YAML and JSON hold the same values. The YAML is written so that every reader of either
//! of its versions gets them back unchanged: each value is JSON, with every string in double
//! quotes and every character escaped that some reader would refuse or fold. Entries are
//! written one by one; nothing is kept. Tensors stand there under their stored names.

use crate::bytes::hex::{crc_hex, hex};
use crate::model::Model;
use crate::store::Store;
use crate::view::document::{self, Facts};
use crate::view::json::lossy;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::io::{self, Write};

/// The version of the report's form.
const VERSION: u64 = 1;

/// Everything in front of the list of tensors, in order: a value, or a list of them.
fn head(facts: Facts<'_>) -> Vec<(&'static str, Part)> {
    let Facts { model, store, verify, .. } = facts;
    let seal = store.seal();
    let generated = seal.map(|seal| seal.created());
    let grid = seal.map(|seal| (seal.grid().chunk_bytes(), seal.grid().chunks()));
    let anchor = store.anchors().iter().find(|anchor| anchor.agrees == Some(true));
    vec![
        ("weightfs_report", Part::Value(VERSION.into())),
        ("generated", Part::Value(generated.into())),
        ("loader", Part::Value(json!({"name": "weightfs", "version": env!("CARGO_PKG_VERSION")}))),
        ("source", Part::Value(source(model, store))),
        (
            "trust",
            Part::Value(json!({
                "level": store.trust().name(),
                "anchor": anchor.map(|anchor| anchor.kind.name()),
                "repo": anchor.and_then(|anchor| anchor.repo.as_deref()),
                "commit": anchor.and_then(|anchor| anchor.commit.as_deref()),
            })),
        ),
        (
            "verification",
            Part::Value(json!({
                "policy": verify.name(),
                "chunk_bytes": grid.map(|(bytes, _)| bytes),
                "chunks_total": grid.map(|(_, chunks)| chunks),
            })),
        ),
        ("files", Part::List((0..model.shards.len()).map(|i| file(model, store, i)).collect())),
        ("anchors", Part::List(document::anchors(model, store))),
    ]
}

/// A value of the report's head.
enum Part {
    Value(Json),
    List(Vec<Json>),
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Value(value) => value.serialize(serializer),
            Part::List(list) => list.serialize(serializer),
        }
    }
}

/// The model as one thing. A model of several files has no SHA-256 of its own.
fn source(model: &Model, store: &Store) -> Json {
    let mut entry = match &model.shards[..] {
        [_] => file(model, store, 0),
        shards => json!({
            "file": shards.first().map(|shard| lossy(&shard.file)),
            "bytes": shards.iter().map(|shard| shard.len).sum::<u64>(),
            "sha256": null,
            "sha256_basis": null,
        }),
    };
    entry["format"] = model.format.name().into();
    entry["format_version"] = match model.format_version {
        0 => Json::Null,
        version => version.into(),
    };
    entry["architecture"] = model.architecture.as_deref().into();
    entry
}

/// One source file. A digest that was not computed is one that a name asserts, and says so.
fn file(model: &Model, store: &Store, shard: usize) -> Json {
    let about = &model.shards[shard];
    let computed = store.source_sha256(shard);
    let named = || {
        let mut anchors = store.anchors().iter().filter(|anchor| anchor.shard == shard);
        anchors.find_map(|anchor| anchor.sha256.filter(|_| anchor.kind.is_store()))
    };
    let (sha256, basis) = match computed {
        Some(sha256) => (Some(sha256), Some("computed")),
        None => match named() {
            Some(sha256) => (Some(sha256), Some("asserted-by-name")),
            None => (None, None),
        },
    };
    let mut entry = Map::new();
    name_into("file", &about.file, &mut entry);
    entry.insert("bytes".into(), about.len.into());
    entry.insert("sha256".into(), sha256.map(|sha256| hex(&sha256)).into());
    entry.insert("sha256_basis".into(), basis.into());
    entry.into()
}

/// One stored tensor.
#[derive(serde::Serialize)]
struct Line<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    dtype: &'static str,
    shape: &'a [u64],
    bytes: u64,
    /// In a model of several files.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Cow<'a, str>>,
    crc32: Option<String>,
    sha256: Option<String>,
}

impl<'a> Line<'a> {
    fn new(facts: Facts<'a>, index: usize) -> Line<'a> {
        let Facts { model, store, .. } = facts;
        let tensor = &model.tensors[index];
        let sum = store.tensor_checksum(index);
        let file = &model.shards[tensor.extent.shard as usize].file;
        Line {
            name: lossy(&tensor.name),
            name_hex: exact(&tensor.name),
            dtype: tensor.dtype.name(),
            shape: &tensor.shape,
            bytes: tensor.extent.len,
            file: (model.shards.len() > 1).then(|| lossy(file)),
            crc32: sum.map(|sum| crc_hex(sum.crc32)),
            sha256: sum.and_then(|sum| sum.sha256).map(|digest| hex(&digest)),
        }
    }
}

/// The bytes of a name that is not UTF-8.
fn exact(name: &[u8]) -> Option<String> {
    std::str::from_utf8(name).is_err().then(|| hex(name))
}

/// A name, with its exact bytes as well where it is not UTF-8.
fn name_into(key: &str, name: &[u8], entry: &mut Map<String, Json>) {
    entry.insert(key.into(), lossy(name).into());
    if let Some(exact) = exact(name) {
        entry.insert(format!("{key}_hex"), exact.into());
    }
}

/// The head of the YAML, up to the list of tensors.
pub fn yaml_head(facts: Facts<'_>, out: &mut Vec<u8>) {
    for (key, part) in head(facts) {
        out.extend(key.as_bytes());
        match part {
            Part::Value(value) => {
                out.extend(b": ");
                flow(&value, out);
                out.push(b'\n');
            }
            Part::List(list) => yaml_list(&list, out),
        }
    }
    let none: &[u8] = if facts.model.tensors.is_empty() { b" []" } else { b"" };
    out.extend([b"tensors:", none, b"\n"].concat());
}

/// The line of a stored tensor in the YAML.
pub fn yaml_tensor(facts: Facts<'_>, index: usize, out: &mut Vec<u8>) {
    out.extend(b"  - ");
    flow(&Line::new(facts, index), out);
    out.push(b'\n');
}

fn yaml_list(list: &[Json], out: &mut Vec<u8>) {
    out.extend(if list.is_empty() { &b": []\n"[..] } else { b":\n" });
    for value in list {
        out.extend(b"  - ");
        flow(value, out);
        out.push(b'\n');
    }
}

/// Writes the whole report as YAML.
pub fn write_yaml(facts: Facts<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::new();
    yaml_head(facts, &mut text);
    for index in 0..facts.model.tensors.len() {
        yaml_tensor(facts, index, &mut text);
        if text.len() > 1 << 16 {
            out.write_all(&text)?;
            text.clear();
        }
    }
    out.write_all(&text)
}

/// Writes the whole report as JSON.
pub fn write_json(facts: Facts<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::pretty(&mut *out);
    let mut document = serializer.serialize_map(None)?;
    for (key, part) in head(facts) {
        document.serialize_entry(key, &part)?;
    }
    document.serialize_entry("tensors", &Tensors(facts))?;
    SerializeMap::end(document)?;
    out.write_all(b"\n")
}

/// The list of tensors.
struct Tensors<'a>(Facts<'a>);

impl Serialize for Tensors<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let count = self.0.model.tensors.len();
        let mut list = serializer.serialize_seq(Some(count))?;
        for index in 0..count {
            list.serialize_element(&Line::new(self.0, index))?;
        }
        list.end()
    }
}

/// A value on one line that is both JSON and YAML.
fn flow(value: &impl Serialize, out: &mut Vec<u8>) {
    let mut serializer = serde_json::Serializer::with_formatter(out, OneLine);
    value.serialize(&mut serializer).expect("writing to memory succeeds");
}

/// JSON with a space behind `:` and `,`, and without the characters that YAML does not take
/// as they are.
struct OneLine;

impl serde_json::ser::Formatter for OneLine {
    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        w: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(must_be_escaped) {
            w.write_all(&rest.as_bytes()[..at])?;
            let mut characters = rest[at..].chars();
            let character = characters.next().map_or(0, u32::from);
            write!(w, "\\u{character:04x}")?;
            rest = characters.as_str();
        }
        w.write_all(rest.as_bytes())
    }
}

/// What YAML counts as not printable (1.2, production 1) or as a line break (1.1), and the byte
/// order mark. All of them are in the basic plane.
fn must_be_escaped(character: char) -> bool {
    matches!(u32::from(character), 0x7f..=0x9f | 0x2028 | 0x2029 | 0xfeff | 0xfffe | 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: &Json) -> String {
        let mut out = Vec::new();
        flow(value, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn a_line_is_json_with_every_string_quoted() {
        let value = json!({"name": "y", "n": [1, 2], "none": null, "crc32": "12345678"});
        assert_eq!(
            line(&value),
            r#"{"name": "y", "n": [1, 2], "none": null, "crc32": "12345678"}"#
        );
    }

    #[test]
    fn what_yaml_does_not_take_is_escaped_and_still_json() {
        let text = "a\u{7f}\u{85}\u{2028}\u{feff}\u{ffff}b\"\\\n\u{1}\u{1f600}\u{e9}: #";
        let written = line(&json!(text));
        assert_eq!(
            written,
            "\"a\\u007f\\u0085\\u2028\\ufeff\\uffffb\\\"\\\\\\n\\u0001\u{1f600}\u{e9}: #\""
        );
        assert_eq!(serde_json::from_str::<String>(&written).ok().as_deref(), Some(text));
    }

    #[test]
    fn a_name_that_is_no_text_keeps_its_bytes() {
        let mut entry = Map::new();
        name_into("name", b"a\xff", &mut entry);
        assert_eq!(Json::from(entry), json!({"name": "a\u{fffd}", "name_hex": "61ff"}));
    }
}
