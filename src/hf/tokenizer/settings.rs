//! `tokenizer_config.json` and `special_tokens_map.json`: what transformers wants to know
//! beside the tokenizer.

use super::recipe::{self, Recipe, Scheme};
use super::special::Special;
use super::templates;
use super::vocabulary::Vocabulary;
use crate::hf::meta::Meta;
use crate::view::json::lossy;
use serde_json::{Map, Value, json};
use std::io;

/// Which tokens are special, and in what kind of vocabulary.
type Roles = Option<(Special, Scheme)>;

/// The texts of the special tokens by role: those that a key names, or that hold by default.
fn special_tokens(meta: Meta<'_>) -> io::Result<(Map<String, Value>, Roles)> {
    let mut map = Map::new();
    // Beside a ready tokenizer.json the vocabulary may be missing.
    let Ok(recipe) = Recipe::of(meta) else { return Ok((map, None)) };
    let special = Special::of(meta, &recipe);
    let vocabulary = Vocabulary::read(meta, &recipe)?;
    let roles = [
        ("bos_token", special.bos),
        ("eos_token", special.eos),
        ("unk_token", special.unk),
        ("sep_token", special.sep),
        ("pad_token", special.pad),
        ("cls_token", special.cls),
        ("mask_token", special.mask),
    ];
    for (role, id) in roles {
        if let Some(id) = id {
            map.insert(role.into(), vocabulary.text(id).into());
        }
    }
    Ok((map, Some((special, recipe.scheme))))
}

/// The bytes of `special_tokens_map.json`.
pub(super) fn write_special_tokens(meta: Meta<'_>) -> io::Result<Vec<u8>> {
    let (map, _) = special_tokens(meta)?;
    Ok(serde_json::to_vec(&map)?)
}

/// The bytes of `tokenizer_config.json`.
pub(super) fn write(meta: Meta<'_>) -> io::Result<Vec<u8>> {
    let (mut config, special) = special_tokens(meta)?;
    let bert = matches!(special, Some((_, Scheme::WordPiece)));
    // A family's own class would take the vocabulary alone and build the rest itself.
    config.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
    if let Some((special, scheme)) = special
        && recipe::verbatim(meta).is_none()
        && says_itself(&special, scheme, &config)
    {
        config.insert("add_bos_token".into(), (special.add_bos && special.bos.is_some()).into());
        config.insert("add_eos_token".into(), (special.add_eos && special.eos.is_some()).into());
    }
    config.insert("clean_up_tokenization_spaces".into(), bert.into());
    if let Some(length) = meta.arch("context_length").and_then(|value| value.as_u64()) {
        config.insert("model_max_length".into(), length.into());
    }
    let inputs = if bert {
        json!(["input_ids", "token_type_ids", "attention_mask"])
    } else {
        json!(["input_ids", "attention_mask"])
    };
    config.insert("model_input_names".into(), inputs);
    if let Some(template) = chat_template(meta)? {
        config.insert("chat_template".into(), template);
    }
    Ok(serde_json::to_vec(&config)?)
}

/// Whether transformers, which builds the template around a text anew from these two flags,
/// comes to the same: it writes the tokens into a text that it takes apart at spaces and
/// colons, and it knows no pairs but BOS and EOS around both texts.
fn says_itself(special: &Special, scheme: Scheme, config: &Map<String, Value>) -> bool {
    let plain = |role: &str, used: bool| match config.get(role).and_then(Value::as_str) {
        Some(text) if used => !text.contains([' ', ':']) && !text.starts_with('$'),
        _ => true,
    };
    match scheme {
        Scheme::WordPiece => return false,
        Scheme::Unigram if special.add_bos => return false,
        _ => {}
    }
    plain("bos_token", special.add_bos) && plain("eos_token", special.add_eos)
}

/// One template as a string, several as a list with names.
fn chat_template(meta: Meta<'_>) -> io::Result<Option<Value>> {
    let main = match templates::main(meta) {
        Some(text) => Some(lossy(&meta.string(text)?).into_owned()),
        None => None,
    };
    let mut list = Vec::new();
    for (_, name, text) in templates::all_named(meta) {
        let template = meta.string(text)?;
        list.push(json!({"name": lossy(name), "template": lossy(&template)}));
    }
    if list.is_empty() {
        return Ok(main.map(Value::String));
    }
    if let Some(main) = main {
        list.insert(0, json!({"name": "default", "template": main}));
    }
    Ok(Some(list.into()))
}
