//! Small models for the tests of this room: keys, names and shapes, no bytes.

use super::{check, write};
use crate::dtype::DType;
use crate::hf::Weights;
use crate::hf::meta::Meta;
use crate::model::{
    Array, ByteOrder, Extent, Format, Meta as Pair, Model, Tensor, Text, Value, ValueType, elements,
};
use crate::store::{Store, StoreOptions};
use serde_json::Value as Json;
use std::io;

/// A model in the making. Keys are those of the architecture unless said otherwise.
#[derive(Clone, Debug)]
pub(super) struct Small {
    model: Model,
}

impl Small {
    pub(super) fn new(arch: &str) -> Small {
        let model = Model {
            format: Format::Gguf,
            format_version: 3,
            byte_order: ByteOrder::Little,
            architecture: Some(arch.into()),
            name: None,
            metadata: Vec::new(),
            shards: Vec::new(),
            tensors: Vec::new(),
            warnings: Vec::new(),
        };
        Small { model }
    }

    /// A key with nothing before it.
    pub(super) fn whole(mut self, key: &str, value: Value) -> Small {
        self.model.metadata.retain(|m| *m.key != *key.as_bytes());
        self.model.metadata.push(Pair { key: key.as_bytes().into(), value });
        self
    }

    pub(super) fn value(self, key: &str, value: Value) -> Small {
        let key = format!("{}.{key}", self.model.architecture.as_deref().unwrap());
        self.whole(&key, value)
    }

    pub(super) fn count(self, key: &str, count: u32) -> Small {
        self.value(key, Value::U32(count))
    }

    pub(super) fn real(self, key: &str, real: f32) -> Small {
        self.value(key, Value::F32(real))
    }

    pub(super) fn text_value(text: &str) -> Value {
        Value::Str(Text::Inline(text.as_bytes().into()))
    }

    pub(super) fn word(self, key: &str, word: &str) -> Small {
        self.value(key, Small::text_value(word))
    }

    pub(super) fn list(self, key: &str, items: Vec<Value>) -> Small {
        let elem = items.first().map_or(ValueType::U32, Value::value_type);
        self.value(key, Value::Array(Array::Inline { elem, items }))
    }

    pub(super) fn counts(self, key: &str, counts: &[u32]) -> Small {
        self.list(key, counts.iter().map(|&n| Value::U32(n)).collect())
    }

    pub(super) fn typed(mut self, name: &str, dtype: DType, shape: &[u64]) -> Small {
        let len = dtype.nbytes(elements(shape)).unwrap();
        let extent = Extent { shard: 0, offset: 0, len };
        let name = name.as_bytes().into();
        self.model.tensors.push(Tensor { name, dtype, shape: shape.into(), extent });
        self
    }

    pub(super) fn tensor(self, name: &str, shape: &[u64]) -> Small {
        self.typed(name, DType::F32, shape)
    }

    /// Without this tensor, or this key of the architecture.
    pub(super) fn without(mut self, name: &str) -> Small {
        let key = format!("{}.{name}", self.model.architecture.as_deref().unwrap());
        self.model.metadata.retain(|m| *m.key != *key.as_bytes());
        self.model.tensors.retain(|t| *t.name != *name.as_bytes());
        self
    }

    /// Calls `act` with the metadata. The store has no files: what is read of them fails.
    fn with<T>(&self, act: impl FnOnce(Meta<'_>) -> T) -> T {
        let mut bare = self.model.clone();
        bare.tensors.clear();
        let store = Store::new(bare, Vec::new(), None, StoreOptions::default());
        act(Meta::new(&self.model, &store))
    }

    pub(super) fn check(&self) -> Result<Vec<String>, String> {
        self.with(check)
    }

    pub(super) fn write(&self) -> io::Result<Vec<u8>> {
        self.with(|meta| write(meta, Weights::Float16))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.write().unwrap()).unwrap()
    }

    pub(super) fn config(&self) -> Json {
        serde_json::from_str(&self.text()).unwrap()
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.check().unwrap()
    }

    pub(super) fn refusal(&self) -> String {
        self.check().unwrap_err()
    }
}
