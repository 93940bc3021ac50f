//! A GGUF's metadata by key, as the type that is wanted.
//!
//! What lies in the file is read through the store, so it is checked like any other byte.

use crate::content::{Body, Content, Decoded};
use crate::format::gguf::GgufError;
use crate::format::gguf::array::{ArrayReader, Item};
use crate::model::{Array, Model, Tensor, Text, Value};
use crate::quant::{self, Target};
use crate::store::Store;
use crate::view::{self, Stored};
use std::io;

/// Longest string that is read from the file, in bytes: chat templates are some kilobytes.
pub(super) const MAX_STRING: u64 = 16 << 20;

/// A model's metadata and small tensors.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    model: &'a Model,
    store: &'a Store,
}

impl<'a> Meta<'a> {
    /// The metadata of `model`, whose bytes `store` has.
    pub fn new(model: &'a Model, store: &'a Store) -> Meta<'a> {
        Meta { model, store }
    }

    /// The model.
    pub fn model(self) -> &'a Model {
        self.model
    }

    /// The value of `key`.
    pub fn get(self, key: &str) -> Option<&'a Value> {
        self.model.meta(key)
    }

    /// The value of `{architecture}.{key}`.
    pub fn arch(self, key: &str) -> Option<&'a Value> {
        self.get(&format!("{}.{key}", self.model.architecture.as_deref()?))
    }

    /// A non-negative integer of any width.
    pub fn number(self, key: &str) -> Option<u64> {
        self.get(key).and_then(Value::as_u64)
    }

    /// A bool.
    pub fn flag(self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// A string's bytes; `None` where there is no such key or it is no string.
    pub fn text(self, key: &str) -> io::Result<Option<Vec<u8>>> {
        match self.get(key) {
            Some(Value::Str(text)) => self.string(text).map(Some),
            _ => Ok(None),
        }
    }

    /// The bytes of a string value.
    pub fn string(self, text: &Text) -> io::Result<Vec<u8>> {
        self.string_within(text, MAX_STRING)
    }

    /// The bytes of a string value that may have `most` bytes.
    pub fn string_within(self, text: &Text, most: u64) -> io::Result<Vec<u8>> {
        match text {
            Text::Inline(bytes) => Ok(bytes.to_vec()),
            Text::Span(extent) if extent.len > most => {
                let text = format!("a string of {} bytes is longer than {most}", extent.len);
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
            Text::Span(extent) => {
                let mut bytes = vec![0; extent.len as usize];
                self.store.read(*extent, 0, &mut bytes).map_err(|f| io::Error::other(f.error))?;
                Ok(bytes)
            }
        }
    }

    /// The array under `key`.
    pub fn array(self, key: &str) -> Option<&'a Array> {
        match self.get(key)? {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Calls `each` with every element of `array` and its index, in order.
    pub fn each(
        self,
        array: &Array,
        each: &mut dyn FnMut(u64, Item<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        match array {
            Array::Inline { items, .. } => {
                for (i, item) in (0..).zip(items) {
                    match item {
                        Value::Str(text) => each(i, Item::Str(&self.string(text)?))?,
                        other => each(i, Item::Value(other.clone()))?,
                    }
                }
            }
            Array::Span { elem, count, extent, encoding } => {
                let shard = self.store.shard(extent.shard as usize);
                let mut reader = ArrayReader::new(&shard, *elem, *count, *extent, *encoding);
                for i in 0..*count {
                    match reader.next().map_err(failed)? {
                        Some(item) => each(i, item)?,
                        None => break,
                    }
                }
            }
        }
        Ok(())
    }

    /// The stored tensor called `name`. A search: not for loops over all tensors.
    pub fn tensor(self, name: &str) -> Option<&'a Tensor> {
        self.model.tensors.iter().find(|t| *t.name == *name.as_bytes())
    }

    /// Whether there is a stored tensor called `name`.
    pub fn has(self, name: &str) -> bool {
        self.tensor(name).is_some()
    }

    /// The values of a small tensor, decoded to F32.
    pub fn values(self, tensor: &Tensor) -> io::Result<Vec<f32>> {
        const MOST: u64 = 1 << 16;
        let unfit = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        if tensor.elements() > MOST {
            let count = tensor.elements();
            return Err(unfit(format!("a tensor of {count} elements where a few are expected")));
        }
        let swap = match view::stored_form(tensor.dtype, self.model.byte_order) {
            Stored::AsIs => None,
            Stored::Swapped(swap) => Some(swap),
            Stored::Undefined => return Err(unfit("a type without a big-endian form".into())),
        };
        if !quant::can_decode(tensor.dtype) {
            return Err(unfit(format!("{} has no float values", tensor.dtype)));
        }
        let decoded = Decoded { extent: tensor.extent, from: tensor.dtype, swap, to: Target::F32 };
        let mut bytes = vec![0; decoded.len() as usize];
        let content = Content { head: (&[]).into(), body: Body::Decoded(decoded) };
        content.read(self.store, 0, &mut bytes).map_err(|f| io::Error::other(f.error))?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }
}

fn failed(error: GgufError) -> io::Error {
    io::Error::other(error)
}
