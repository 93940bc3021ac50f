//! The key-value section. Strings and arrays stay in the file: a key costs its name and a
//! fixed-size value, whatever the length of what it holds.

use super::GgufError;
use super::types::{fixed_size, value_type};
use crate::format::cursor::{Cursor, ReadError};
use crate::format::limits::{OverLimit, within};
use crate::format::{Budget, Limits, Quoted, duplicate};
use crate::model::{Array, ByteOrder, Extent, Meta, Text, Value, ValueType};
use std::fmt::{self, Display, Formatter};

/// The smallest record: a length, a key of one byte, a type, a value of one byte.
const SMALLEST_RECORD: [u64; 2] = [4 + 1 + 4 + 1, 8 + 1 + 4 + 1];

/// Reads `count` records and leaves the cursor behind the last. `arrays` are begin and end of
/// some whose elements need not be walked, by begin.
pub(super) fn read(
    cursor: &mut Cursor<'_>,
    count: u64,
    arrays: &[(u64, u64)],
    limits: &Limits,
    budget: &mut Budget,
) -> Result<Vec<Meta>, GgufError> {
    let [narrow, wide] = SMALLEST_RECORD;
    let least = if cursor.encoding().wide { wide } else { narrow };
    let count = super::counted(cursor, "metadata keys", count, least, limits.keys)?;
    budget.items::<Meta>(count as u64).map_err(|e| GgufError::limit("metadata", e))?;
    let mut walk = Walk { known: arrays, ..Walk::new(cursor, limits) };
    let mut metadata: Vec<Meta> = Vec::with_capacity(count);
    let mut key = Vec::new();
    for number in 0..count {
        let meta = walk.record(number, &mut key, budget)?;
        metadata.push(meta);
    }
    if let Some((first, second)) = duplicate(metadata.len(), |i| key_of(&metadata, i)) {
        let key = key_of(&metadata, first).into();
        return Err(GgufError::DuplicateKey { key, first, second });
    }
    Ok(metadata)
}

fn key_of(metadata: &[Meta], i: usize) -> &[u8] {
    metadata.get(i).map(|m| &*m.key).unwrap_or_default()
}

/// Reads a string's bytes, bounded, without the NUL that version 1 counts in.
pub(super) fn string(
    cursor: &mut Cursor<'_>,
    what: &'static str,
    most: u64,
    out: &mut Vec<u8>,
) -> Result<(), ReadError> {
    let len = cursor.size()?;
    if len <= cursor.left() {
        within(what, len, most)?;
    }
    cursor.bytes_into(len, out)?;
    if !cursor.encoding().wide && out.last() == Some(&0) {
        out.pop();
    }
    Ok(())
}

/// Whose value is being read, for messages.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Key(&'a [u8]),
    Element(u64),
}

impl Display for Subject<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Key(key) => write!(f, "metadata key {}", Quoted(key)),
            Subject::Element(index) => write!(f, "array element {index}"),
        }
    }
}

pub(super) struct Walk<'c, 'f> {
    cursor: &'c mut Cursor<'f>,
    limits: &'c Limits,
    /// Begin and end of arrays that are jumped over.
    known: &'c [(u64, u64)],
    /// Strings and inner arrays passed so far.
    elements: u64,
    /// Elements of inner arrays passed so far.
    nested: u64,
    /// Bytes of all values passed so far.
    value_bytes: u64,
}

impl<'c, 'f> Walk<'c, 'f> {
    pub(super) fn new(cursor: &'c mut Cursor<'f>, limits: &'c Limits) -> Walk<'c, 'f> {
        Walk { cursor, limits, known: &[], elements: 0, nested: 0, value_bytes: 0 }
    }

    fn record(
        &mut self,
        number: usize,
        key: &mut Vec<u8>,
        budget: &mut Budget,
    ) -> Result<Meta, GgufError> {
        let offset = self.cursor.position();
        string(self.cursor, "length of the key", self.limits.key_bytes, key)
            .map_err(|e| GgufError::reading(format_args!("metadata key {number}"), e))?;
        if key.is_empty() {
            return Err(GgufError::EmptyKey { number: number as u64, offset });
        }
        budget
            .allocation(key.len() as u64)
            .map_err(|e| GgufError::limit(format_args!("metadata key {}", Quoted(key)), e))?;
        let what = Subject::Key(key);
        let value_type = self.value_type(what, "value")?;
        let begin = self.cursor.position();
        let value = self.value(what, value_type)?;
        let len = self.cursor.position().saturating_sub(begin);
        self.value_bytes = self.value_bytes.saturating_add(len);
        within("bytes of metadata values", self.value_bytes, self.limits.value_bytes)
            .map_err(|e| GgufError::limit(what, e))?;
        Ok(Meta { key: key.as_slice().into(), value })
    }

    fn value_type(
        &mut self,
        what: Subject<'_>,
        role: &'static str,
    ) -> Result<ValueType, GgufError> {
        let offset = self.cursor.position();
        let id = self.cursor.u32().map_err(|e| reading(what, e))?;
        value_type(id).ok_or_else(|| GgufError::ValueType {
            what: what.to_string(),
            role,
            id,
            offset,
        })
    }

    fn value(&mut self, what: Subject<'_>, of: ValueType) -> Result<Value, GgufError> {
        match of {
            ValueType::Array => self.array(what).map(Value::Array),
            ValueType::Str => {
                let span = span(self.cursor).map_err(|e| reading(what, e))?;
                within("length of a string", span.len, self.limits.text_bytes)
                    .map_err(|e| GgufError::limit(what, e))?;
                Ok(Value::Str(Text::Span(span)))
            }
            fixed => fixed_value(self.cursor, fixed).map_err(|e| reading(what, e)),
        }
    }

    /// An array from its element type on: walked over, not read.
    pub(super) fn array(&mut self, what: Subject<'_>) -> Result<Array, GgufError> {
        let (elem, count) = self.array_head(what)?;
        let offset = self.cursor.position();
        match self.known_end(offset) {
            Some(end) => {
                let len = end.saturating_sub(offset);
                self.jump(elem, count, len).map_err(|e| reading(what, e))?;
            }
            None => self.skip_elements(what, elem, count, 1)?,
        }
        let len = self.cursor.position().saturating_sub(offset);
        let extent = Extent { shard: 0, offset, len };
        Ok(Array::Span { elem, count, extent, encoding: self.cursor.encoding() })
    }

    /// The end of an array that begins at `offset`, where somebody has kept it.
    fn known_end(&self, offset: u64) -> Option<u64> {
        let at = self.known.binary_search_by_key(&offset, |&(begin, _)| begin).ok()?;
        self.known.get(at).map(|&(_, end)| end)
    }

    /// Moves over `len` bytes, said to be `count` elements of varying size. What can be
    /// counted without a walk is held to the same limits.
    fn jump(&mut self, elem: ValueType, count: u64, len: u64) -> Result<(), ReadError> {
        self.elements = self.elements.saturating_add(count);
        within("strings and inner arrays", self.elements, self.limits.elements)?;
        within("elements of an array", count, self.limits.array_elements)?;
        let least = count.saturating_mul(least_size(elem, self.cursor.encoding().wide));
        self.cursor.skip(len.max(least))
    }

    fn array_head(&mut self, what: Subject<'_>) -> Result<(ValueType, u64), GgufError> {
        let elem = self.value_type(what, "array element")?;
        let offset = self.cursor.position();
        let count = self.cursor.size().map_err(|e| reading(what, e))?;
        let least = match (fixed_size(elem), self.cursor.encoding().wide) {
            (Some(size), _) => size,
            (None, wide) => least_size(elem, wide),
        };
        let need = u128::from(count).saturating_mul(u128::from(least));
        let left = self.cursor.left();
        if need > u128::from(left) {
            let what = format!("{} elements of {}", elem.name(), what);
            return Err(GgufError::Count { what, count, offset, need, left });
        }
        Ok((elem, count))
    }

    /// Moves behind `count` elements. Recursion ends at the limit on depth.
    fn skip_elements(
        &mut self,
        what: Subject<'_>,
        elem: ValueType,
        count: u64,
        depth: u32,
    ) -> Result<(), GgufError> {
        if let Some(size) = fixed_size(elem) {
            // `array_head` has seen that they fit.
            let bytes = count.saturating_mul(size);
            self.count_numbers(count, depth).map_err(|e| GgufError::limit(what, e))?;
            return self.cursor.skip(bytes).map_err(|e| reading(what, e));
        }
        self.elements = self.elements.saturating_add(count);
        within("strings and inner arrays", self.elements, self.limits.elements)
            .map_err(|e| GgufError::limit(what, e))?;
        self.count_numbers(count, depth).map_err(|e| GgufError::limit(what, e))?;
        if elem == ValueType::Str {
            return self.skip_strings(count).map_err(|e| reading(what, e));
        }
        let (limit, offset) = (self.limits.array_depth, self.cursor.position());
        if depth >= limit {
            return Err(GgufError::Depth { what: what.to_string(), limit, offset });
        }
        for _ in 0..count {
            let (elem, count) = self.array_head(what)?;
            self.skip_elements(what, elem, count, depth.saturating_add(1))?;
        }
        Ok(())
    }

    fn count_numbers(&mut self, count: u64, depth: u32) -> Result<(), OverLimit> {
        within("elements of an array", count, self.limits.array_elements)?;
        if depth > 1 {
            self.nested = self.nested.saturating_add(count);
            within("elements of arrays in arrays", self.nested, self.limits.nested_elements)?;
        }
        Ok(())
    }

    fn skip_strings(&mut self, count: u64) -> Result<(), ReadError> {
        for _ in 0..count {
            let len = self.cursor.size()?;
            if len > self.limits.element_bytes && len <= self.cursor.left() {
                within("length of a string in an array", len, self.limits.element_bytes)?;
            }
            self.cursor.skip(len)?;
        }
        Ok(())
    }
}

/// The least bytes an element of varying size takes.
fn least_size(elem: ValueType, wide: bool) -> u64 {
    match (elem, wide) {
        (ValueType::Array, true) => 4 + 8,
        (ValueType::Array, false) => 4 + 4,
        (_, true) => 8,
        (_, false) => 4,
    }
}

/// Where a string's bytes lie, without the NUL that version 1 counts in.
pub(super) fn span(cursor: &mut Cursor<'_>) -> Result<Extent, ReadError> {
    let mut len = cursor.size()?;
    let offset = cursor.position();
    if cursor.encoding().wide || len == 0 {
        cursor.skip(len)?;
    } else {
        cursor.skip(len.saturating_sub(1))?;
        if cursor.array()? == [0u8] {
            len = len.saturating_sub(1);
        }
    }
    Ok(Extent { shard: 0, offset, len })
}

/// Reads a value of fixed size. Any bool byte but 0 is true, as for ggml.
pub(super) fn fixed_value(cursor: &mut Cursor<'_>, of: ValueType) -> Result<Value, ReadError> {
    let big = cursor.encoding().order == ByteOrder::Big;
    macro_rules! number {
        ($variant:ident, $type:ty) => {{
            let bytes = cursor.array()?;
            let n = if big { <$type>::from_be_bytes(bytes) } else { <$type>::from_le_bytes(bytes) };
            Value::$variant(n)
        }};
    }
    Ok(match of {
        ValueType::U8 => number!(U8, u8),
        ValueType::I8 => number!(I8, i8),
        ValueType::U16 => number!(U16, u16),
        ValueType::I16 => number!(I16, i16),
        ValueType::U32 => number!(U32, u32),
        ValueType::I32 => number!(I32, i32),
        ValueType::U64 => number!(U64, u64),
        ValueType::I64 => number!(I64, i64),
        ValueType::F32 => number!(F32, f32),
        ValueType::F64 => number!(F64, f64),
        ValueType::Bool => Value::Bool(cursor.array()? != [0u8]),
        ValueType::Str | ValueType::Array => unreachable!("the caller takes these apart"),
    })
}

#[cold]
fn reading(what: Subject<'_>, error: ReadError) -> GgufError {
    GgufError::reading(format_args!("the value of {what}"), error)
}
