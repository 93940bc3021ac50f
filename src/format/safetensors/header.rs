//! The JSON header, read in one pass straight into tensors: no tree in between.

use super::json::{JsonError, Stop, Str, survey};
use super::{DTYPES, LENGTH, SafetensorsError};
use crate::dtype::DType;
use crate::format::limits::{OverLimit, within};
use crate::format::{Budget, Limits};
use crate::model::{Extent, Meta, Tensor, Text, Value};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt::{self, Formatter};

/// What the header says, unchecked.
pub(super) struct Header {
    pub(super) metadata: Vec<Meta>,
    /// In header order. An extent holds `data_offsets` as they are: the begin as its offset
    /// and the **end** as its length, until `placement` has looked at them.
    pub(super) tensors: Vec<Tensor>,
}

/// Reads the header.
pub(super) fn read(
    text: &str,
    limits: &Limits,
    budget: &mut Budget,
) -> Result<Header, SafetensorsError> {
    survey(text, limits.string_bytes)?;
    let mut reader = Reader {
        limits,
        budget,
        metadata: None,
        tensors: Vec::new(),
        shape: Vec::new(),
        current: None,
        problem: None,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = Top(&mut reader).deserialize(&mut json).and_then(|()| json.end());
    match (reader.problem, read) {
        (Some(problem), _) => Err(problem),
        (None, Err(e)) => Err(JsonError::new(&e, text, LENGTH, reader.current).into()),
        (None, Ok(())) => {
            Ok(Header { metadata: reader.metadata.unwrap_or_default(), tensors: reader.tensors })
        }
    }
}

/// What the visitors share.
struct Reader<'a> {
    limits: &'a Limits,
    budget: &'a mut Budget,
    metadata: Option<Vec<Meta>>,
    tensors: Vec<Tensor>,
    /// The shape being read, reused.
    shape: Vec<u64>,
    /// The entry being read, for messages.
    current: Option<Box<[u8]>>,
    /// Why the parse was stopped, when not by the parser itself.
    problem: Option<SafetensorsError>,
}

impl Reader<'_> {
    fn stop(&mut self, problem: impl Into<SafetensorsError>) -> Stop {
        self.problem = Some(problem.into());
        Stop
    }

    fn within(&mut self, check: Result<(), OverLimit>) -> Result<(), Stop> {
        check.map_err(|e| self.stop(e))
    }

    /// Keeps a copy of a string.
    fn keep(&mut self, s: &str) -> Result<Box<[u8]>, Stop> {
        let check = self.budget.allocation(s.len() as u64);
        self.within(check)?;
        Ok(s.as_bytes().into())
    }

    fn keep_name(&mut self, s: &str) -> Result<Box<[u8]>, Stop> {
        let check = within("length of a name, in bytes", s.len() as u64, self.limits.name_bytes);
        self.within(check)?;
        self.keep(s)
    }
}

/// The header itself.
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
        f.write_str("an object of tensors")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.0;
        loop {
            reader.current = None;
            let Some(name) = map.next_key_seed(Str(|s: &str| reader.keep_name(s)))? else {
                return Ok(());
            };
            if *name == *b"__metadata__" {
                reader.current = Some(name);
                if reader.metadata.is_some() {
                    return Err(reader.stop(SafetensorsError::DuplicateMetadata).into_error());
                }
                reader.metadata = Some(Vec::new());
                map.next_value_seed(Metadata(reader))?;
            } else {
                reader.current = Some(name);
                map.next_value_seed(Entry(reader))?;
            }
        }
    }
}

/// The value of `__metadata__`: strings by name, or null.
struct Metadata<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for Metadata<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Metadata<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.0;
        let mut metadata = Vec::new();
        while let Some(key) = map.next_key_seed(Str(|s: &str| reader.keep_name(s)))? {
            let value = map.next_value_seed(Str(|s: &str| reader.keep(s)))?;
            let check = reader.budget.items::<Meta>(1);
            reader.within(check).map_err(Stop::into_error)?;
            metadata.push(Meta { key, value: Value::Str(Text::Inline(value)) });
        }
        reader.metadata = Some(metadata);
        Ok(())
    }
}

/// The value of a tensor's name.
struct Entry<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for Entry<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

/// Fields of an entry; others are passed over, as the reference does.
enum Field {
    DType,
    Shape,
    DataOffsets,
    Other,
}

impl<'de> Visitor<'de> for Entry<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reader = self.0;
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        let field = |s: &str| {
            Ok(match s {
                "dtype" => Field::DType,
                "shape" => Field::Shape,
                "data_offsets" => Field::DataOffsets,
                _ => Field::Other,
            })
        };
        while let Some(field) = map.next_key_seed(Str(field))? {
            let twice = match field {
                Field::DType => {
                    dtype.replace(map.next_value_seed(Str(|s: &str| known(reader, s)))?).is_some()
                }
                Field::Shape => shape.replace(map.next_value_seed(Shape(reader))?).is_some(),
                Field::DataOffsets => offsets.replace(map.next_value_seed(Offsets)?).is_some(),
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if twice {
                let (name, field) = (current(reader), field.name());
                return Err(reader
                    .stop(SafetensorsError::DuplicateField { name, field })
                    .into_error());
            }
        }
        let (dtype, shape, (begin, end)) = match (dtype, shape, offsets) {
            (Some(dtype), Some(shape), Some(offsets)) => (dtype, shape, offsets),
            (dtype, shape, _) => {
                let missing = match (dtype, shape) {
                    (None, _) => Field::DType,
                    (_, None) => Field::Shape,
                    _ => Field::DataOffsets,
                };
                let (name, field) = (current(reader), missing.name());
                return Err(reader
                    .stop(SafetensorsError::MissingField { name, field })
                    .into_error());
            }
        };
        let count = (reader.tensors.len() as u64).saturating_add(1);
        let check = within("tensors", count, reader.limits.tensors)
            .and_then(|()| reader.budget.items::<Tensor>(1));
        reader.within(check).map_err(Stop::into_error)?;
        let extent = Extent { shard: 0, offset: begin, len: end };
        let name = current(reader);
        reader.tensors.push(Tensor { name, dtype, shape, extent });
        Ok(())
    }
}

impl Field {
    fn name(&self) -> &'static str {
        match self {
            Field::DType => "dtype",
            Field::Shape => "shape",
            Field::DataOffsets => "data_offsets",
            Field::Other => "a field",
        }
    }
}

/// The name of the entry being read; it is not needed a second time.
fn current(reader: &mut Reader<'_>) -> Box<[u8]> {
    reader.current.take().unwrap_or_default()
}

fn known(reader: &mut Reader<'_>, s: &str) -> Result<DType, Stop> {
    DTYPES.into_iter().find(|d| d.name() == s).ok_or_else(|| {
        let (name, dtype) = (current(reader), s.as_bytes().into());
        reader.stop(SafetensorsError::UnknownDType { name, dtype })
    })
}

/// An array of dimensions.
struct Shape<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for Shape<'_, '_> {
    type Value = Box<[u64]>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Box<[u64]>, D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Shape<'_, '_> {
    type Value = Box<[u64]>;
    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an array of dimensions")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Box<[u64]>, A::Error> {
        let reader = self.0;
        reader.shape.clear();
        while let Some(dim) = seq.next_element::<u64>()? {
            reader.shape.push(dim);
            let check = within("dimensions", reader.shape.len() as u64, reader.limits.dimensions);
            reader.within(check).map_err(Stop::into_error)?;
        }
        let bytes = (reader.shape.len() as u64).saturating_mul(8);
        let check = reader.budget.allocation(bytes);
        reader.within(check).map_err(Stop::into_error)?;
        Ok(reader.shape.as_slice().into())
    }
}

/// Begin and end.
struct Offsets;

impl<'de> DeserializeSeed<'de> for Offsets {
    type Value = (u64, u64);
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(u64, u64), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Offsets {
    type Value = (u64, u64);
    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("data_offsets, an array of two offsets")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(u64, u64), A::Error> {
        let begin = seq.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))?;
        let end = seq.next_element()?.ok_or_else(|| de::Error::invalid_length(1, &self))?;
        if seq.next_element::<u64>()?.is_some() {
            return Err(de::Error::invalid_length(3, &self));
        }
        Ok((begin, end))
    }
}
