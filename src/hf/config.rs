//! `config.json`: the architecture's numbers under the names that transformers gives them.
//!
//! A class of transformers takes its default for a field that is missing, without a word, and
//! the defaults are some published model's sizes. So each family has a table of every field
//! that matters ([`families`]), where it comes from ([`field`]), and what no table says: how
//! positions are rotated ([`rope`]) and which layers see a window ([`layers`]). What the file
//! cannot tell is a warning; what would make a wrong model is no `config.json` at all.

mod agree;
mod choose;
mod error;
mod facts;
mod families;
mod field;
mod finish;
mod layers;
mod llama3;
mod rope;

use super::Weights;
use super::meta::Meta;
use error::ConfigError;
use facts::{Facts, Reading};
use field::{Family, Object};
use serde_json::Value as Json;
use std::io;

/// Whether a `config.json` can be written, with what is not certain about it; else why not.
/// Reads metadata alone, no tensor.
pub(super) fn check(meta: Meta<'_>) -> Result<Vec<String>, String> {
    let facts = Facts::new(meta, Reading::Header).map_err(|e| e.to_string())?;
    object(&facts, Weights::Bfloat16).map_err(|e| e.to_string())?;
    Ok(facts.into_warnings())
}

/// The bytes of `config.json`.
pub(super) fn write(meta: Meta<'_>, weights: Weights) -> io::Result<Vec<u8>> {
    let object = Facts::new(meta, Reading::Tensors).and_then(|facts| object(&facts, weights))?;
    serde_json::to_vec(&object).map_err(io::Error::other)
}

/// All fields, in the order in which they are written.
fn object(facts: &Facts<'_>, weights: Weights) -> Result<Object, ConfigError> {
    let family = choose::family(facts)?;
    let mut object = Object::new();
    let mut put = |name: &str, value: Json| {
        object.insert(name.into(), value);
    };
    put("architectures", vec![family.class].into());
    put("model_type", family.model_type.into());
    put("torch_dtype", weights.name().into());
    put("vocab_size", facts.vocab_size()?.into());
    for (name, source) in family.fields.iter().copied().flatten() {
        put(name, source.value(facts)?);
    }
    special_tokens(facts, family, &mut object)?;
    rope::add(facts, family.rope, &mut object)?;
    if let Some(finish) = family.finish {
        finish(facts, &mut object)?;
    }
    for note in family.notes {
        facts.warn(format!("config.json: {note}"));
    }
    agree::warn(facts, &object)?;
    Ok(object)
}

/// `tie_word_embeddings` and the ids of the special tokens. An id that is absent is null: the
/// class would put its own there.
fn special_tokens(
    facts: &Facts<'_>,
    family: &Family,
    object: &mut Object,
) -> Result<(), ConfigError> {
    let tied = family.always_tied || !facts.has("output.weight");
    object.insert("tie_word_embeddings".into(), tied.into());
    let vocab = facts.vocab_size()?;
    for (field, key) in [
        ("bos_token_id", "tokenizer.ggml.bos_token_id"),
        ("eos_token_id", "tokenizer.ggml.eos_token_id"),
        ("pad_token_id", "tokenizer.ggml.padding_token_id"),
    ] {
        let id = match facts.meta().get(key) {
            None => None,
            Some(value) => match value.as_u64() {
                Some(id) if id < vocab => Some(id),
                _ => {
                    let found = facts::shown(value);
                    facts.warn(format!(
                        "config.json: {key} is {found}, which is none of the {vocab} tokens: \
                         {field} is left empty"
                    ));
                    None
                }
            },
        };
        object.insert(field.into(), id.into());
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
