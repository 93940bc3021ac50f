//! The numbers of a model as its metadata and the shapes of its tensors tell them, checked.
//!
//! Every value here came from a stranger: a count has an upper bound, a real number is finite,
//! an array is as long as layers can be many. Must not know names of transformers.

use super::error::ConfigError;
use crate::format::gguf::array::Item;
use crate::hf::meta::Meta;
use crate::model::{Array, Tensor, Value};
use std::cell::RefCell;

/// The largest count: sums of products of two of them still fit in 64 bits.
const MAX_COUNT: u64 = i32::MAX as u64;

/// The largest number of layers; llama.cpp's limit is 512. Lists have an entry for each.
const MAX_LAYERS: u64 = 4096;

/// What may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Metadata and shapes.
    Header,
    /// Values of small tensors too.
    Tensors,
}

/// A model's metadata, as config.json needs it.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    meta: Meta<'a>,
    arch: &'a str,
    reading: Reading,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(meta: Meta<'a>, reading: Reading) -> Result<Facts<'a>, ConfigError> {
        let arch = meta.model().architecture.as_deref().ok_or(ConfigError::NoArchitecture)?;
        Ok(Facts { meta, arch, reading, warnings: RefCell::default() })
    }

    pub(super) fn meta(&self) -> Meta<'a> {
        self.meta
    }

    pub(super) fn arch(&self) -> &'a str {
        self.arch
    }

    /// Notes something a user should know; once, however often it is met.
    pub(super) fn warn(&self, text: String) {
        let mut warnings = self.warnings.borrow_mut();
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }

    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }

    /// The key with the architecture before it.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }

    pub(super) fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing { key: self.key(key) }
    }

    pub(super) fn unfit(&self, key: &str, expected: impl Into<String>) -> ConfigError {
        let found = self.meta.arch(key).map_or_else(|| "missing".into(), shown);
        ConfigError::Value { key: self.key(key), expected: expected.into(), found }
    }

    /// A count; an array that says the same for each layer is one too.
    pub(super) fn count(&self, key: &str) -> Result<Option<u64>, ConfigError> {
        let Some(list) = self.counts(key)? else {
            return Ok(None);
        };
        let Some(&first) = list.first() else {
            return Err(self.unfit(key, "a count"));
        };
        match list.iter().position(|&other| other != first) {
            None => Ok(Some(first)),
            Some(layer) => {
                let key = self.key(key);
                Err(ConfigError::PerLayer { key, layer, first, other: list[layer] })
            }
        }
    }

    /// A count for each layer, or one for all.
    pub(super) fn counts(&self, key: &str) -> Result<Option<Vec<u64>>, ConfigError> {
        let expected = || format!("a count up to {MAX_COUNT}");
        let count = |value: &Value| value.as_u64().filter(|&n| n <= MAX_COUNT);
        match self.meta.arch(key) {
            None => Ok(None),
            Some(Value::Array(array)) => self.list(key, array, &expected(), &count).map(Some),
            Some(value) => match count(value) {
                Some(number) => Ok(Some(vec![number])),
                None => Err(self.unfit(key, expected())),
            },
        }
    }

    /// A bool or a number as one, for each layer; `None` where there is no array.
    pub(super) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, ConfigError> {
        match self.meta.arch(key) {
            Some(Value::Array(array)) => self
                .list(key, array, "a bool for each layer", &|value| match value {
                    Value::Bool(flag) => Some(*flag),
                    other => other.as_u64().map(|n| n != 0),
                })
                .map(Some),
            _ => Ok(None),
        }
    }

    fn list<T>(
        &self,
        key: &str,
        array: &Array,
        expected: &str,
        convert: &dyn Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, ConfigError> {
        if array.len() > MAX_LAYERS {
            return Err(self.unfit(key, format!("at most {MAX_LAYERS} layers")));
        }
        let mut list = Vec::new();
        let mut bad = None;
        self.meta
            .each(array, &mut |index, item| {
                match &item {
                    Item::Value(value) if bad.is_none() => match convert(value) {
                        Some(value) => list.push(value),
                        None => bad = Some((index, shown(value))),
                    },
                    Item::Value(_) => {}
                    _ => bad = bad.take().or(Some((index, "no number".into()))),
                }
                Ok(())
            })
            .map_err(|source| ConfigError::Read { what: self.key(key), source })?;
        match bad {
            None => Ok(list),
            Some((index, found)) => {
                let key = format!("{}[{index}]", self.key(key));
                Err(ConfigError::Value { key, expected: expected.into(), found })
            }
        }
    }

    /// A count of at least 1.
    pub(super) fn positive(&self, key: &str) -> Result<Option<u64>, ConfigError> {
        match self.count(key)? {
            Some(0) => Err(self.unfit(key, "at least 1")),
            count => Ok(count),
        }
    }

    /// A count of at least 1 that must be there.
    pub(super) fn required(&self, key: &str) -> Result<u64, ConfigError> {
        self.positive(key)?.ok_or_else(|| self.missing(key))
    }

    /// A finite number, as the shortest decimal that is the same in the file's own precision.
    pub(super) fn real(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.meta.arch(key) else {
            return Ok(None);
        };
        let number = match value {
            Value::F32(x) => Some(shortest(*x)),
            Value::F64(x) => Some(*x),
            Value::I64(n) if n.unsigned_abs() <= MAX_COUNT => Some(*n as f64),
            Value::I8(n) => Some((*n).into()),
            Value::I16(n) => Some((*n).into()),
            Value::I32(n) => Some((*n).into()),
            other => other.as_u64().filter(|&n| n <= MAX_COUNT).map(|n| n as f64),
        };
        match number.filter(|x| x.is_finite()) {
            Some(x) => Ok(Some(x)),
            None => Err(self.unfit(key, "a finite number")),
        }
    }

    /// A finite number above 0; `None` also where the file says 0, which stands for "not set".
    pub(super) fn positive_real(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        match self.real(key)? {
            Some(x) if x < 0.0 => Err(self.unfit(key, "a positive number")),
            x => Ok(x.filter(|&x| x != 0.0)),
        }
    }

    /// A bool.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.meta.arch(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.unfit(key, "a bool")),
        }
    }

    /// A string, with what is not UTF-8 replaced.
    pub(super) fn word(&self, key: &str) -> Result<Option<String>, ConfigError> {
        match self.meta.arch(key) {
            None => Ok(None),
            Some(Value::Str(text)) => {
                let bytes = self.meta.string(text);
                let bytes =
                    bytes.map_err(|source| ConfigError::Read { what: self.key(key), source })?;
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Some(_) => Err(self.unfit(key, "a string")),
        }
    }

    pub(super) fn has(&self, tensor: &str) -> bool {
        self.meta.has(tensor)
    }

    /// Dimensions of a tensor, outermost first.
    pub(super) fn shape(&self, tensor: &str) -> Option<&'a [u64]> {
        self.meta.tensor(tensor).map(|t| &*t.shape)
    }

    /// Rows of a matrix, when there is one of this name.
    pub(super) fn rows(&self, tensor: &str) -> Option<u64> {
        match self.shape(tensor)? {
            &[rows, _] if (1..=MAX_COUNT).contains(&rows) => Some(rows),
            _ => None,
        }
    }

    /// Rows of the embedding: neither `vocab_size` nor the number of tokens in the metadata
    /// must be the same.
    pub(super) fn vocab_size(&self) -> Result<u64, ConfigError> {
        const NAME: &str = "token_embd.weight";
        self.rows(NAME).ok_or_else(|| match self.shape(NAME) {
            None => ConfigError::NoTensor { name: NAME.into() },
            Some(shape) => self.misshapen(NAME, "a row for each token", shape),
        })
    }

    pub(super) fn misshapen(&self, name: &str, expected: &str, shape: &[u64]) -> ConfigError {
        ConfigError::Shape { name: name.into(), expected: expected.into(), found: shape.into() }
    }

    /// `hidden_size`; a file that lacks the key still has rows of that length.
    pub(super) fn hidden(&self) -> Result<u64, ConfigError> {
        if let Some(hidden) = self.positive("embedding_length")? {
            return Ok(hidden);
        }
        match self.shape("token_embd.weight") {
            Some(&[_, hidden]) if (1..=MAX_COUNT).contains(&hidden) => Ok(hidden),
            _ => Err(self.missing("embedding_length")),
        }
    }

    /// `num_hidden_layers`, without those that only guess further tokens.
    pub(super) fn layers(&self) -> Result<u64, ConfigError> {
        const KEY: &str = "block_count";
        let layers = match self.count(KEY)? {
            Some(count) => count.saturating_sub(self.count("nextn_predict_layers")?.unwrap_or(0)),
            None => self.layers_by_name().ok_or_else(|| self.missing(KEY))?,
        };
        if (1..=MAX_LAYERS).contains(&layers) {
            Ok(layers)
        } else {
            Err(self.unfit(KEY, format!("1 to {MAX_LAYERS} layers")))
        }
    }

    /// One more than the highest layer that a tensor is named after.
    pub(super) fn layers_by_name(&self) -> Option<u64> {
        let layer = |t: &Tensor| {
            let name = std::str::from_utf8(&t.name).ok()?;
            let (layer, _) = name.strip_prefix("blk.")?.split_once('.')?;
            layer.parse::<u32>().ok().map(|n| u64::from(n) + 1)
        };
        self.meta.model().tensors.iter().filter_map(layer).max()
    }

    /// `max_position_embeddings`. Every file has it; without it nothing computes otherwise, it
    /// is a limit.
    pub(super) fn context(&self) -> Result<u64, ConfigError> {
        const KEY: &str = "context_length";
        const SMALL: u64 = 2048;
        if let Some(length) = self.positive(KEY)? {
            return Ok(length);
        }
        self.warn(format!("config.json: {} is missing: taken as {SMALL}", self.key(KEY)));
        Ok(SMALL)
    }

    /// `num_attention_heads`.
    pub(super) fn heads(&self) -> Result<u64, ConfigError> {
        self.required("attention.head_count")
    }

    /// `num_key_value_heads`: as many as query heads unless the file says otherwise.
    pub(super) fn kv_heads(&self) -> Result<u64, ConfigError> {
        const KEY: &str = "attention.head_count_kv";
        let heads = self.heads()?;
        match self.positive(KEY)? {
            None => Ok(heads),
            Some(kv) if heads.is_multiple_of(kv) => Ok(kv),
            Some(_) => Err(self.unfit(KEY, format!("a divisor of {heads} heads"))),
        }
    }

    /// Elements of a query head: the file's word, else what the rows of the projection say,
    /// else `hidden / heads`. Classes that compute the last would refuse a file that differs.
    pub(super) fn head_dim(&self, rope_says: bool) -> Result<u64, ConfigError> {
        const KEY: &str = "attention.key_length";
        let told = match self.positive(KEY)? {
            None if rope_says => self.positive("rope.dimension_count")?,
            told => told,
        };
        let dim = match told {
            Some(dim) => dim,
            None => self.head_dim_by_shape()?,
        };
        match self.count("attention.value_length")? {
            Some(value) if value != dim => {
                let expected =
                    format!("{dim} like the keys, which is all that config.json can say");
                Err(self.unfit("attention.value_length", expected))
            }
            _ => Ok(dim),
        }
    }

    fn head_dim_by_shape(&self) -> Result<u64, ConfigError> {
        let (heads, hidden) = (self.heads()?, self.hidden()?);
        if let Some(rows) = self.rows_in_any_layer("attn_q.weight")
            && rows.is_multiple_of(heads)
        {
            return Ok(rows / heads);
        }
        if let Some(rows) = self.rows_in_any_layer("attn_qkv.weight")
            && let groups = heads + 2 * self.kv_heads()?
            && rows.is_multiple_of(groups)
        {
            return Ok(rows / groups);
        }
        match hidden.is_multiple_of(heads) && hidden >= heads {
            true => Ok(hidden / heads),
            false => Err(self.missing("attention.key_length")),
        }
    }

    /// Rows of the first `blk.N.{stem}` that is a matrix.
    pub(super) fn rows_in_any_layer(&self, stem: &str) -> Option<u64> {
        self.shape_in_any_layer(stem)
            .and_then(|shape| <&[u64; 2]>::try_from(shape).ok())
            .map(|shape| shape[0])
            .filter(|rows| (1..=MAX_COUNT).contains(rows))
    }

    /// Shape of the first `blk.N.{stem}`.
    pub(super) fn shape_in_any_layer(&self, stem: &str) -> Option<&'a [u64]> {
        self.in_layers(stem).next().map(|t| &*t.shape)
    }

    /// The tensors called `blk.N.{stem}`.
    pub(super) fn in_layers<'s>(
        &self,
        stem: &'s str,
    ) -> impl Iterator<Item = &'a Tensor> + Clone + use<'a, 's> {
        self.meta.model().tensors.iter().filter(move |t| {
            t.name
                .strip_prefix(b"blk.")
                .and_then(|rest| rest.strip_suffix(stem.as_bytes()))
                .and_then(|rest| rest.strip_suffix(b"."))
                .is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit))
        })
    }

    /// `intermediate_size`: the key, else the rows of the projection.
    pub(super) fn feed_forward(&self) -> Result<u64, ConfigError> {
        const KEY: &str = "feed_forward_length";
        match self.positive(KEY)? {
            Some(length) => Ok(length),
            None => self.rows_in_any_layer("ffn_up.weight").ok_or_else(|| self.missing(KEY)),
        }
    }

    /// The values of a tensor of `count` positive numbers; empty where only the header may be
    /// read.
    pub(super) fn factors(&self, name: &str, count: u64) -> Result<Vec<f32>, ConfigError> {
        let tensor =
            self.meta.tensor(name).ok_or_else(|| ConfigError::NoTensor { name: name.into() })?;
        if tensor.elements() != count {
            let expected = format!("{count} numbers, one for each pair of rotated elements");
            return Err(self.misshapen(name, &expected, &tensor.shape));
        }
        if self.reading == Reading::Header {
            return Ok(Vec::new());
        }
        let values = self.meta.values(tensor);
        let values = values.map_err(|source| ConfigError::Read { what: name.into(), source })?;
        match values.iter().position(|x| !x.is_finite() || *x <= 0.0) {
            None => Ok(values),
            Some(index) => {
                Err(ConfigError::Element { name: name.into(), index, found: values[index] })
            }
        }
    }
}

/// The f64 whose shortest decimal is that of `x`: 1e-6, not 9.999999974752427e-7.
pub(super) fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or_else(|_| x.into())
}

/// A value for a message.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Str(_) => "a string".into(),
        Value::Array(array) => format!("an array of {} {}", array.len(), array.elem().name()),
        number => crate::view::json::scalar(number).unwrap_or_default(),
    }
}
