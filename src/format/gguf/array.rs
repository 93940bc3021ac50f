//! Elements of an array that stayed in the file, one by one, from any known place on.

use super::GgufError;
use super::metadata::{Subject, Walk, fixed_value, string};
use super::types::fixed_size;
use crate::bytes::ReadAt;
use crate::format::Limits;
use crate::format::cursor::Cursor;
use crate::model::{Array, Encoding, Extent, Value, ValueType};

/// One element.
#[derive(Debug, PartialEq)]
pub enum Item<'a> {
    /// A number or a bool.
    Value(Value),
    /// A string's bytes, verbatim.
    Str(&'a [u8]),
    /// An array, with the shard of the one it lies in. It has been walked over, not read.
    Array(Array),
}

/// A place between two elements: enough to go on from there later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index of the element that comes next.
    pub index: u64,
    /// Its first byte, from the start of the file.
    pub offset: u64,
}

/// Reads the elements of an [`Array::Span`] in order. Holds one window of the file and one
/// string.
pub struct ArrayReader<'a> {
    cursor: Cursor<'a>,
    elem: ValueType,
    count: u64,
    index: u64,
    extent: Extent,
    limits: Limits,
    string: Vec<u8>,
}

impl std::fmt::Debug for ArrayReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArrayReader({} of {} {})", self.index, self.count, self.elem.name())
    }
}

impl<'a> ArrayReader<'a> {
    /// A reader at the first of `count` elements of type `elem` that fill `extent` of `file`.
    pub fn new(
        file: &'a dyn ReadAt,
        elem: ValueType,
        count: u64,
        extent: Extent,
        encoding: Encoding,
    ) -> ArrayReader<'a> {
        let end = extent.offset.saturating_add(extent.len);
        ArrayReader {
            cursor: Cursor::new(file, extent.offset, end, encoding, u64::MAX),
            elem,
            count,
            index: 0,
            extent,
            limits: Limits::default(),
            string: Vec::new(),
        }
    }

    /// The same, from somewhere in the middle: `at` came from [`ArrayReader::position`] of a
    /// reader of the same array.
    #[must_use]
    pub fn resume(mut self, at: Position) -> ArrayReader<'a> {
        self.index = at.index;
        let (file, encoding) = (self.cursor.file(), self.cursor.encoding());
        let end = self.extent.offset.saturating_add(self.extent.len);
        self.cursor = Cursor::new(file, at.offset, end, encoding, u64::MAX);
        self
    }

    /// Where the next element is.
    pub fn position(&self) -> Position {
        Position { index: self.index, offset: self.cursor.position() }
    }

    /// Bytes of each element, where all have the same size: then element `i` is at
    /// `extent.offset + i * size`, and one can resume anywhere.
    pub fn element_size(&self) -> Option<u64> {
        fixed_size(self.elem)
    }

    /// The next element; `None` after the last. Fails when the bytes cannot be read or are
    /// not what they were when the file was opened; the reader is of no use then.
    #[expect(clippy::should_implement_trait, reason = "an element borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, GgufError> {
        if self.index >= self.count {
            return Ok(None);
        }
        let index = self.index;
        let reading = |e| GgufError::reading(format_args!("array element {index}"), e);
        self.index = self.index.saturating_add(1);
        match self.elem {
            ValueType::Str => {
                let most = self.limits.element_bytes;
                string(&mut self.cursor, "length of a string in an array", most, &mut self.string)
                    .map_err(reading)?;
                Ok(Some(Item::Str(&self.string)))
            }
            ValueType::Array => {
                let mut walk = Walk::new(&mut self.cursor, &self.limits);
                let mut array = walk.array(Subject::Element(index))?;
                if let Array::Span { extent, .. } = &mut array {
                    extent.shard = self.extent.shard;
                }
                Ok(Some(Item::Array(array)))
            }
            fixed => {
                fixed_value(&mut self.cursor, fixed).map(Item::Value).map(Some).map_err(reading)
            }
        }
    }
}
