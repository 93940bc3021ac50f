//! `generation_config.json`: where generation begins and ends.

use super::recipe::Recipe;
use super::special::Special;
use super::vocabulary::{Kind, Vocabulary};
use crate::hf::meta::Meta;
use crate::model;
use crate::view::json::scalar;
use serde_json::{Map, Value};
use std::io;

/// Tokens that end a turn in one of the usual chat formats.
const TURN_ENDS: &[&str] = &["<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<|end|>", "<|eom_id|>"];

/// The bytes of `generation_config.json`.
pub(super) fn write(meta: Meta<'_>) -> io::Result<Vec<u8>> {
    let mut config = Map::new();
    let recipe = Recipe::of(meta).ok();
    let special = recipe.as_ref().map(|recipe| Special::of(meta, recipe));
    let key = |name: &str| meta.number(&format!("tokenizer.ggml.{name}_token_id"));
    let tokens = recipe.as_ref().map(|recipe| recipe.tokens.len());
    let known = |id: &u64| tokens.is_none_or(|tokens| *id < tokens);
    let id = |name: &str, found: Option<Option<u32>>| match found {
        Some(found) => found.map(u64::from),
        None => key(name),
    };
    if let Some(bos) = id("bos", special.map(|s| s.bos)) {
        config.insert("bos_token_id".into(), bos.into());
    }
    let mut ends: Vec<u64> = id("eos", special.map(|s| s.eos)).into_iter().collect();
    ends.extend(["eot", "eom"].into_iter().filter_map(key).filter(known));
    if let Some(recipe) = &recipe {
        ends.extend(turn_ends(&Vocabulary::read(meta, recipe)?));
    }
    let mut distinct = Vec::new();
    for end in ends {
        if !distinct.contains(&end) {
            distinct.push(end);
        }
    }
    match *distinct {
        [] => {}
        [one] => _ = config.insert("eos_token_id".into(), one.into()),
        _ => _ = config.insert("eos_token_id".into(), distinct.into()),
    }
    if let Some(pad) = id("padding", special.map(|s| s.pad)) {
        config.insert("pad_token_id".into(), pad.into());
    }
    if meta.model().architecture.as_deref() == Some("t5")
        && let Some(start) = meta.arch("decoder_start_token_id").and_then(model::Value::as_u64)
    {
        config.insert("decoder_start_token_id".into(), start.into());
    }
    sampling(meta, &mut config);
    Ok(serde_json::to_vec(&config)?)
}

/// Ids of control tokens that end a turn. Where `<|return|>` and `<|call|>` do, `<|end|>` only
/// ends a message.
fn turn_ends(vocabulary: &Vocabulary) -> Vec<u64> {
    let controls = || vocabulary.ids().filter(|&id| vocabulary.kind(id) == Kind::Control);
    let has = |text: &str| controls().any(|id| vocabulary.text(id) == text);
    let ends_message = has("<|return|>") && has("<|call|>");
    let ends = |text: &str| TURN_ENDS.contains(&text) && !(ends_message && text == "<|end|>");
    controls().filter(|&id| ends(vocabulary.text(id))).map(u64::from).collect()
}

/// The sampling that the model's authors recommend, where the file has it.
fn sampling(meta: Meta<'_>, config: &mut Map<String, Value>) {
    let start = config.len();
    for (key, name) in [("temp", "temperature"), ("top_k", "top_k"), ("top_p", "top_p")] {
        let value = meta.get(&format!("general.sampling.{key}"));
        // The shortest digits of an F32 are the ones that were written down.
        let text = value.filter(|value| is_number(value)).and_then(scalar);
        if let Some(number) =
            text.and_then(|text| serde_json::from_str::<serde_json::Number>(&text).ok())
        {
            config.insert(name.into(), number.into());
        }
    }
    if config.len() > start {
        config.insert("do_sample".into(), true.into());
    }
}

fn is_number(value: &model::Value) -> bool {
    !matches!(value, model::Value::Bool(_) | model::Value::Str(_) | model::Value::Array(_))
}
