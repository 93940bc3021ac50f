//! A model of metadata alone, for tests: keys and arrays held in memory.

use crate::hf::meta::Meta;
use crate::model::{self, Array, ByteOrder, Format, Model, Text, Value, ValueType};
use crate::store::{Store, StoreOptions};

/// Keys by name.
#[derive(Clone, Debug)]
pub(super) struct Keys(Model);

/// A string value.
pub(super) fn text(text: &str) -> Value {
    Value::Str(Text::Inline(text.as_bytes().into()))
}

/// An array of strings, which need not be UTF-8.
pub(super) fn strings<T: AsRef<[u8]>>(items: &[T]) -> Value {
    let items = items.iter().map(|item| Value::Str(Text::Inline(item.as_ref().into()))).collect();
    Value::Array(Array::Inline { elem: ValueType::Str, items })
}

/// An array of F32.
pub(super) fn floats(items: &[f32]) -> Value {
    let items = items.iter().map(|&item| Value::F32(item)).collect();
    Value::Array(Array::Inline { elem: ValueType::F32, items })
}

/// An array of I32.
pub(super) fn ints(items: &[i32]) -> Value {
    let items = items.iter().map(|&item| Value::I32(item)).collect();
    Value::Array(Array::Inline { elem: ValueType::I32, items })
}

impl Keys {
    /// A model of this architecture whose vocabulary is of this kind.
    pub(super) fn new(architecture: &str, tokenizer: &str) -> Keys {
        let model = Model {
            format: Format::Gguf,
            format_version: 3,
            byte_order: ByteOrder::Little,
            architecture: Some(architecture.into()),
            name: None,
            metadata: Vec::new(),
            shards: Vec::new(),
            tensors: Vec::new(),
            warnings: Vec::new(),
        };
        Keys(model).with("tokenizer.ggml.model", text(tokenizer))
    }

    /// The same with one more key.
    pub(super) fn with(mut self, key: &str, value: Value) -> Keys {
        self.0.metadata.retain(|entry| *entry.key != *key.as_bytes());
        self.0.metadata.push(model::Meta { key: key.as_bytes().into(), value });
        self
    }

    /// The same without a key.
    pub(super) fn without(mut self, key: &str) -> Keys {
        self.0.metadata.retain(|entry| *entry.key != *key.as_bytes());
        self
    }

    /// The same with another name.
    pub(super) fn named(mut self, name: &str) -> Keys {
        self.0.name = Some(name.into());
        self
    }

    /// Calls `look` with the metadata.
    pub(super) fn look<T>(&self, look: impl FnOnce(Meta<'_>) -> T) -> T {
        let store = Store::new(self.0.clone(), Vec::new(), None, StoreOptions::default());
        look(Meta::new(&self.0, &store))
    }

    /// The named tokens, with scores from 0 downwards, and types.
    pub(super) fn tokens<T: AsRef<[u8]>>(self, tokens: &[(T, i32)]) -> Keys {
        let texts: Vec<&[u8]> = tokens.iter().map(|(text, _)| text.as_ref()).collect();
        let types: Vec<i32> = tokens.iter().map(|(_, kind)| *kind).collect();
        let scores: Vec<f32> = (0..tokens.len()).map(|i| -(i as f32)).collect();
        self.with("tokenizer.ggml.tokens", strings(&texts))
            .with("tokenizer.ggml.token_type", ints(&types))
            .with("tokenizer.ggml.scores", floats(&scores))
    }
}
