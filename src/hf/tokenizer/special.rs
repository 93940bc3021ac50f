//! Tokens with a part to play: which ids they have, and whether they are added to a text.

use super::recipe::{Recipe, Scheme};
use crate::hf::meta::Meta;

/// Whose values hold where a key is missing: llama.cpp's, by `tokenizer.ggml.model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defaults {
    /// `llama`.
    Llama,
    /// `gpt2`.
    ByteLevel,
    /// `bert`.
    Bert,
    /// `t5`.
    Unigram,
}

/// Ids of special tokens, each that of a token which there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Special {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unk: Option<u32>,
    pub(super) sep: Option<u32>,
    pub(super) pad: Option<u32>,
    pub(super) mask: Option<u32>,
    pub(super) cls: Option<u32>,
    pub(super) add_bos: bool,
    pub(super) add_eos: bool,
    pub(super) space_prefix: bool,
    pub(super) trim_spaces: bool,
}

impl Special {
    /// What the keys of a model with `tokens` tokens say.
    pub(super) fn of(meta: Meta<'_>, recipe: &Recipe<'_>) -> Special {
        let tokens = recipe.tokens.len();
        let key = |name: &str, default: Option<u32>| {
            let key = format!("tokenizer.ggml.{name}_token_id");
            let id = match meta.get(&key) {
                Some(value) => value.as_u64(),
                None => default.map(u64::from),
            };
            id.filter(|&id| id < tokens).and_then(|id| u32::try_from(id).ok())
        };
        let falcon = meta.model().architecture.as_deref() == Some("falcon");
        let [bos, eos, unk, sep, mask] = match recipe.defaults {
            Defaults::Llama => [Some(1), Some(2), Some(0), None, None],
            Defaults::ByteLevel if falcon => [Some(11), Some(11), None, None, None],
            Defaults::ByteLevel => [None; 5],
            Defaults::Bert => [None, None, Some(100), Some(102), Some(103)],
            Defaults::Unigram => [None, Some(1), Some(2), None, None],
        };
        let flag = |name: &str, default: bool| {
            meta.flag(&format!("tokenizer.ggml.{name}")).unwrap_or(default)
        };
        let begins = match (recipe.defaults, recipe.scheme) {
            (Defaults::Llama, _) => true,
            (Defaults::ByteLevel, Scheme::ByteLevel(rule)) => rule.adds_bos,
            _ => false,
        };
        let bos = key("bos", bos);
        let cls = match recipe.defaults {
            Defaults::Bert => key("cls", None).or(bos).or_else(|| key("cls", Some(101))),
            _ => key("cls", None),
        };
        Special {
            bos,
            eos: key("eos", eos),
            unk: key("unknown", unk),
            sep: key("seperator", sep),
            pad: key("padding", None),
            mask: key("mask", mask),
            cls,
            add_bos: flag("add_bos_token", begins),
            add_eos: flag("add_eos_token", recipe.defaults == Defaults::Unigram),
            space_prefix: flag(
                "add_space_prefix",
                matches!(recipe.defaults, Defaults::Llama | Defaults::Unigram),
            ),
            trim_spaces: flag("remove_extra_whitespaces", recipe.defaults == Defaults::Unigram),
        }
    }
}
