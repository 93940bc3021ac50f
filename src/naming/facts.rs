//! What the built-in tables must know of a model beyond names: its architecture, head counts
//! and, for safetensors, the `config.json` beside it.
//!
//! Must not read bytes: arrays that lie in the file are fetched through a closure.

use crate::model::{Array, Model, Value};

/// Numbers per layer: one for all, or one for each.
pub type PerLayer = Vec<u64>;

/// The facts; everything is optional, a missing one makes fewer names or values certain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchFacts {
    /// `general.architecture` of a GGUF.
    pub architecture: Option<String>,
    /// `{arch}.attention.head_count`.
    pub head_count: PerLayer,
    /// `{arch}.attention.head_count_kv`; as `head_count` where the key is absent.
    pub head_count_kv: PerLayer,
    /// `{arch}.attention.key_length`: rows of a head of q and of k, where the file says it.
    pub key_length: Option<u64>,
    /// `{arch}.expert_count`.
    pub expert_count: Option<u64>,
    /// The parsed `config.json` beside a safetensors model.
    pub config: Option<serde_json::Value>,
}

impl ArchFacts {
    /// Reads the facts from a model's metadata. `arrays` gives the integers of a metadata
    /// array (per-layer head counts are arrays in some files), or `None`.
    pub fn read(model: &Model, arrays: &dyn Fn(&Array) -> Option<Vec<u64>>) -> ArchFacts {
        let Some(arch) = &model.architecture else {
            return ArchFacts::default();
        };
        let numbers = |key: &str| match model.meta(&format!("{arch}.{key}")) {
            Some(Value::Array(Array::Inline { items, .. })) => {
                items.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()
            }
            Some(Value::Array(array)) => arrays(array),
            Some(value) => value.as_u64().map(|n| vec![n]),
            None => Some(Vec::new()),
        };
        let head_count = numbers("attention.head_count").unwrap_or_default();
        let head_count_kv = match numbers("attention.head_count_kv") {
            Some(list) if list.is_empty() => head_count.clone(),
            list => list.unwrap_or_default(),
        };
        ArchFacts {
            architecture: Some(arch.clone()),
            head_count,
            head_count_kv,
            key_length: model.meta(&format!("{arch}.attention.key_length")).and_then(Value::as_u64),
            expert_count: model.meta(&format!("{arch}.expert_count")).and_then(Value::as_u64),
            config: None,
        }
    }

    /// As [`ArchFacts::read`] where arrays cannot be read: values that need them are
    /// unknown, and their tensors keep their GGUF names.
    pub fn of(model: &Model) -> ArchFacts {
        ArchFacts::read(model, &|_| None)
    }

    /// Adds the `config.json` beside the model.
    pub fn with_config(mut self, config: Option<serde_json::Value>) -> ArchFacts {
        self.config = config;
        self
    }

    /// Query heads of layer `layer`, at least 1.
    pub fn heads(&self, layer: u64) -> Option<u32> {
        at(&self.head_count, layer)
    }

    /// Key and value heads of layer `layer`, at least 1.
    pub fn kv_heads(&self, layer: u64) -> Option<u32> {
        at(&self.head_count_kv, layer)
    }
}

fn at(list: &PerLayer, layer: u64) -> Option<u32> {
    let number = match list.as_slice() {
        [one] => *one,
        many => *many.get(usize::try_from(layer).ok()?)?,
    };
    u32::try_from(number).ok().filter(|&n| n > 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::{ByteOrder, Format, Meta, ValueType};

    fn model(metadata: &[(&str, Value)]) -> Model {
        Model {
            format: Format::Gguf,
            format_version: 3,
            byte_order: ByteOrder::Little,
            architecture: Some("llama".into()),
            name: None,
            metadata: metadata
                .iter()
                .map(|(key, value)| Meta { key: key.as_bytes().into(), value: value.clone() })
                .collect(),
            shards: Vec::new(),
            tensors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn missing_kv_heads_are_the_query_heads() {
        let facts = ArchFacts::of(&model(&[("llama.attention.head_count", Value::U32(8))]));
        assert_eq!((facts.heads(3), facts.kv_heads(3)), (Some(8), Some(8)));
        assert_eq!(ArchFacts::of(&model(&[])).heads(0), None);
    }

    #[test]
    fn arrays_give_a_number_per_layer() {
        let heads = Array::Inline {
            elem: ValueType::U32,
            items: vec![Value::U32(8), Value::U32(0), Value::I64(4)],
        };
        let facts = ArchFacts::of(&model(&[
            ("llama.attention.head_count", Value::Array(heads)),
            ("llama.attention.head_count_kv", Value::U64(2)),
            ("llama.expert_count", Value::U16(3)),
        ]));
        assert_eq!(facts.heads(0), Some(8));
        assert_eq!(facts.heads(1), None, "no heads at all");
        assert_eq!(facts.heads(2), Some(4));
        assert_eq!(facts.heads(3), None, "past the end");
        assert_eq!(facts.kv_heads(7), Some(2));
        assert_eq!(facts.expert_count, Some(3));
    }

    #[test]
    fn an_unreadable_kv_count_is_not_taken_for_the_query_heads() {
        let facts = ArchFacts::of(&model(&[
            ("llama.attention.head_count", Value::U32(8)),
            ("llama.attention.head_count_kv", Value::F32(2.0)),
        ]));
        assert_eq!(facts.kv_heads(0), None);
    }
}
