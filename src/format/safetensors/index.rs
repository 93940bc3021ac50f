//! `model.safetensors.index.json`: which shard holds which tensor.

use super::json::{JsonError, Stop, Str, survey};
use crate::format::limits::{OverLimit, within};
use crate::format::{Budget, Limits, Quoted, duplicate};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::HashMap;
use std::fmt::{self, Formatter};

/// The longest index that is read, in bytes. An index names each tensor once, as a header does.
pub const MAX_INDEX: u64 = super::MAX_HEADER;

/// Most shards of a set. The largest public checkpoints have a few hundred.
const MAX_SHARDS: u64 = 4096;

/// An index. Its shard names are as written: untrusted paths, relative to the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Shard names in the order of first mention.
    pub shards: Vec<Box<[u8]>>,
    /// Tensor names, and for each its place in `shards`, in the order of the file.
    pub weight_map: Vec<(Box<[u8]>, u32)>,
    /// Memory this took, as [`Limits::reserved_bytes`] counts it.
    pub reserved_bytes: u64,
}

/// Why an index was refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message beside each variant says what its fields are")]
pub enum IndexError {
    #[error("not UTF-8 at byte {offset}")]
    Utf8 { offset: usize },
    #[error("not an index of safetensors files: {0}")]
    Json(#[from] JsonError),
    #[error("not an index of safetensors files: it has no weight_map")]
    NoWeightMap,
    #[error("weight_map occurs twice")]
    DuplicateWeightMap,
    #[error("weight_map names the tensor {} twice", Quoted(name))]
    DuplicateTensor { name: Box<[u8]> },
    #[error("not supported: {0}")]
    Limit(#[from] OverLimit),
}

/// Reads an index.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Index, IndexError> {
    within("length of the index, in bytes", bytes.len() as u64, MAX_INDEX)?;
    let text = str::from_utf8(bytes).map_err(|e| IndexError::Utf8 { offset: e.valid_up_to() })?;
    survey(text, limits.string_bytes)?;
    let mut reader = Reader {
        limits,
        budget: Budget::new(limits),
        shards: HashMap::new(),
        weight_map: None,
        current: None,
        problem: None,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = Top(&mut reader).deserialize(&mut json).and_then(|()| json.end());
    if let Some(problem) = reader.problem {
        return Err(problem);
    }
    read.map_err(|e| JsonError::new(&e, text, 0, reader.current))?;
    let weight_map = reader.weight_map.ok_or(IndexError::NoWeightMap)?;
    let name = |i: usize| weight_map.get(i).map(|(name, _)| &**name).unwrap_or_default();
    if let Some((first, _)) = duplicate(weight_map.len(), name) {
        return Err(IndexError::DuplicateTensor { name: name(first).into() });
    }
    let mut shards: Vec<(Box<[u8]>, u32)> = reader.shards.into_iter().collect();
    shards.sort_unstable_by_key(|&(_, at)| at);
    let shards = shards.into_iter().map(|(name, _)| name).collect();
    Ok(Index { shards, weight_map, reserved_bytes: reader.budget.spent() })
}

struct Reader<'a> {
    limits: &'a Limits,
    budget: Budget,
    shards: HashMap<Box<[u8]>, u32>,
    weight_map: Option<Vec<(Box<[u8]>, u32)>>,
    current: Option<Box<[u8]>>,
    problem: Option<IndexError>,
}

impl Reader<'_> {
    fn stop(&mut self, problem: impl Into<IndexError>) -> Stop {
        self.problem = Some(problem.into());
        Stop
    }

    fn keep(&mut self, s: &str) -> Result<Box<[u8]>, Stop> {
        within("length of a name, in bytes", s.len() as u64, self.limits.name_bytes)
            .and_then(|()| self.budget.allocation(s.len() as u64))
            .map_err(|e| self.stop(e))?;
        Ok(s.as_bytes().into())
    }

    fn shard(&mut self, s: &str) -> Result<u32, Stop> {
        if let Some(&at) = self.shards.get(s.as_bytes()) {
            return Ok(at);
        }
        let at = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        within("shards", u64::from(at).saturating_add(1), MAX_SHARDS).map_err(|e| self.stop(e))?;
        let name = self.keep(s)?;
        self.shards.insert(name, at);
        Ok(at)
    }
}

struct Top<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for Top<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a weight_map")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.0;
        while let Some(is_map) = map.next_key_seed(Str(|s: &str| Ok(s == "weight_map")))? {
            if !is_map {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if reader.weight_map.is_some() {
                return Err(reader.stop(IndexError::DuplicateWeightMap).into_error());
            }
            reader.weight_map = Some(Vec::new());
            map.next_value_seed(WeightMap(reader))?;
            reader.current = None;
        }
        Ok(())
    }
}

struct WeightMap<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for WeightMap<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMap<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a weight_map, an object of file names by tensor name")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.0;
        let mut entries: Vec<(Box<[u8]>, u32)> = Vec::new();
        while let Some(name) = map.next_key_seed(Str(|s: &str| reader.keep(s)))? {
            let count = (entries.len() as u64).saturating_add(1);
            let check = within("tensors", count, reader.limits.tensors)
                .and_then(|()| reader.budget.items::<(Box<[u8]>, u32)>(1));
            if let Err(e) = check {
                return Err(reader.stop(e).into_error());
            }
            reader.current = Some(name);
            let shard = map.next_value_seed(Str(|s: &str| reader.shard(s)))?;
            entries.push((reader.current.take().unwrap_or_default(), shard));
        }
        reader.weight_map = Some(entries);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Index, String> {
        parse(text.as_bytes(), &Limits::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn an_index_gives_shards_in_order_of_mention() {
        let text = r#" {"metadata": {"total_size": 1.5e9, "x": [{}]},
            "weight_map": {"b": "2.safetensors", "a": "1.safetensors", "": "2.safetensors"},
            "other": null}
        "#;
        let index = of(text).unwrap();
        let shards: Vec<_> = index.shards.iter().map(|s| s.escape_ascii().to_string()).collect();
        assert_eq!(shards, ["2.safetensors", "1.safetensors"]);
        let map: Vec<(&[u8], u32)> = index.weight_map.iter().map(|(n, s)| (&**n, *s)).collect();
        assert_eq!(map, [(&b"b"[..], 0), (b"a", 1), (b"", 0)]);
    }

    #[test]
    fn an_empty_map_is_an_index() {
        assert_eq!(of(r#"{"weight_map":{}}"#).unwrap().shards.len(), 0);
    }

    #[test]
    fn what_is_no_index_is_refused_with_the_place() {
        let cases = [
            (r#"{"metadata":{}}"#, "it has no weight_map"),
            ("[]", "invalid type: sequence, expected an object with a weight_map"),
            (r#"{"weight_map":{"a":"x"}"#, "EOF while parsing an object (byte 22 of the file)"),
            (r#"{"weight_map":{"a":1}}"#, "at \"a\": invalid type: integer `1`, expected a string"),
            (r#"{"weight_map":[["a","x"]]}"#, "expected a weight_map"),
            (r#"{"weight_map":{},"weight_map":{}}"#, "weight_map occurs twice"),
            (r#"{"weight_map":{"a":"x","\u0061":"y"}}"#, "names the tensor \"a\" twice"),
            (r#"{"weight_map":{}} x"#, "trailing characters (byte 18 of the file)"),
        ];
        for (text, want) in cases {
            let e = of(text).unwrap_err();
            assert!(e.contains(want), "{text}: {e}");
        }
        let e = parse(b"{\"\xff\":1}", &Limits::default()).unwrap_err().to_string();
        assert_eq!(e, "not UTF-8 at byte 2");
    }

    #[test]
    fn counts_are_bounded() {
        let limits = Limits { tensors: 2, ..Limits::default() };
        let e = parse(br#"{"weight_map":{"a":"x","b":"x","c":"x"}}"#, &limits).unwrap_err();
        assert_eq!(e.to_string(), "not supported: tensors: 3 is over the limit of 2");
        let map: Vec<String> = (0..5000).map(|i| format!("\"{i}\":\"{i}\"")).collect();
        let e = of(&format!("{{\"weight_map\":{{{}}}}}", map.join(","))).unwrap_err();
        assert_eq!(e, "not supported: shards: 4097 is over the limit of 4096");
        let limits = Limits { reserved_bytes: 100, ..Limits::default() };
        assert!(parse(br#"{"weight_map":{"a":"x","b":"x","c":"x"}}"#, &limits).is_err());
    }
}
