//! a
#![allow(missing_docs)]
use crate::bytes::ReadAt;
use crate::model::*;
pub struct ArrayReader<'a>(&'a dyn ReadAt);
pub enum Item<'a> {
    Value(Value),
    Str(Vec<u8>),
    Array { reader: ArrayReader<'a>, count: u64 },
}
impl<'a> ArrayReader<'a> {
    pub fn new(f: &'a dyn ReadAt, _e: ValueType, _c: u64, _x: Extent, _n: Encoding) -> Self {
        Self(f)
    }
    pub fn resume(&mut self, _i: u64, _o: u64) {}
    pub fn next(&mut self) -> std::io::Result<Option<Item<'a>>> {
        Ok(None)
    }
    pub fn position(&self) -> u64 {
        0
    }
}
