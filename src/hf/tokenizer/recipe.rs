//! Which algorithm a vocabulary is for, and the arrays that it needs: from keys, counts and
//! lengths alone.

use super::special::Defaults;
use super::split::{self, Rule};
use crate::hf::meta::Meta;
use crate::model::{Array, Text, Value, ValueType};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io;

/// Most tokens: four times the largest vocabulary in use (Gemma's, 262,144).
const MAX_TOKENS: u64 = 1 << 20;

/// Most bytes of all token texts with their lengths: seven times those of Gemma.
const MAX_TOKEN_BYTES: u64 = 32 << 20;

/// Most merges: nine times those of the longest list in use (o200k's, 446,189).
pub(super) const MAX_MERGES: u64 = 4 << 20;

/// Most bytes of all merges with their lengths: six times those of that list.
const MAX_MERGE_BYTES: u64 = 64 << 20;

/// Most bytes of a table of normalisations: SentencePiece's longest has 316,720.
const MAX_CHARSMAP: u64 = 4 << 20;

/// Longest ready `tokenizer.json`, the limit of any string in a GGUF. The largest published
/// ones have some 33 MB.
const MAX_VERBATIM: u64 = 64 << 20;

/// The algorithm of a vocabulary.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scheme {
    /// SentencePiece's BPE: `llama`; merges follow from scores unless they are listed.
    SentencePiece,
    /// Byte-level BPE: `gpt2`, split into words by this rule.
    ByteLevel(&'static Rule),
    /// BERT's longest match: `bert`.
    WordPiece,
    /// SentencePiece's unigram model: `t5`.
    Unigram,
}

/// What a `tokenizer.json` is made of.
#[derive(Debug)]
pub(super) struct Recipe<'a> {
    pub(super) scheme: Scheme,
    /// Whether `tokenizer.ggml.model` was the byte-level word: its defaults differ.
    pub(super) defaults: Defaults,
    pub(super) tokens: &'a Array,
    pub(super) types: Option<&'a Array>,
    pub(super) scores: Option<&'a Array>,
    pub(super) merges: Option<&'a Array>,
    pub(super) charsmap: Option<&'a Array>,
    warnings: Vec<String>,
}

impl<'a> Recipe<'a> {
    /// What there is to do, or why there is nothing.
    pub(super) fn of(meta: Meta<'a>) -> Result<Recipe<'a>, String> {
        let word = word(meta, "tokenizer.ggml.model")?
            .ok_or_else(|| "there is no tokenizer.ggml.model".to_string())?;
        let mut warnings = Vec::new();
        let (mut scheme, defaults) = match &*word {
            "llama" => (Scheme::SentencePiece, Defaults::Llama),
            "gpt2" | "gemma4" => {
                let pre = match self::word(meta, "tokenizer.ggml.pre")? {
                    None if word == "gemma4" => Some(word.clone()),
                    pre => pre,
                };
                let found = split::rule(pre.as_deref(), meta.model().architecture.as_deref());
                let (scheme, warning) = match found? {
                    split::Found::ByteLevel(rule, warning) => (Scheme::ByteLevel(rule), warning),
                    split::Found::SentencePiece => (Scheme::SentencePiece, None),
                };
                warnings.extend(warning);
                (scheme, Defaults::ByteLevel)
            }
            "bert" => (Scheme::WordPiece, Defaults::Bert),
            "t5" => (Scheme::Unigram, Defaults::Unigram),
            other => return Err(unsupported(other)),
        };
        let tokens = strings(meta, "tokenizer.ggml.tokens", MAX_TOKENS, MAX_TOKEN_BYTES)?
            .ok_or_else(|| "there is no tokenizer.ggml.tokens".to_string())?;
        if tokens.is_empty() {
            return Err("tokenizer.ggml.tokens is empty".into());
        }
        let types = numbers(meta, "tokenizer.ggml.token_type", tokens.len())?;
        let merges = strings(meta, "tokenizer.ggml.merges", MAX_MERGES, MAX_MERGE_BYTES)?;
        let (mut scores, mut charsmap) = (None, None);
        match &mut scheme {
            Scheme::SentencePiece if merges.is_none() => {
                scores = numbers(meta, "tokenizer.ggml.scores", tokens.len())?;
                if scores.is_none() {
                    warnings.push(
                        "tokenizer.ggml.scores is missing: hf/tokenizer.json merges in the order of \
                         ids, so that its token ids may differ from the model's"
                            .into(),
                    );
                }
            }
            Scheme::ByteLevel(_) if merges.is_none() => {
                return Err("there is no tokenizer.ggml.merges".into());
            }
            Scheme::Unigram => {
                scores = numbers(meta, "tokenizer.ggml.scores", tokens.len())?;
                if scores.is_none() {
                    return Err("there is no tokenizer.ggml.scores".into());
                }
                charsmap = bytes(meta, "tokenizer.ggml.precompiled_charsmap", MAX_CHARSMAP)?;
            }
            _ => {}
        }
        Ok(Recipe { scheme, defaults, tokens, types, scores, merges, charsmap, warnings })
    }

    /// What is not certain about the files.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.warnings.iter().cloned()
    }
}

fn unsupported(word: &str) -> String {
    match word {
        "none" | "no_vocab" => {
            format!("the file has no vocabulary (tokenizer.ggml.model {word:?})")
        }
        _ => format!("tokenizer.ggml.model {word:?} is unsupported"),
    }
}

/// A short string: words that choose between algorithms.
fn word(meta: Meta<'_>, key: &str) -> Result<Option<String>, String> {
    const LONGEST: u64 = 256;
    let length = match meta.get(key) {
        None => return Ok(None),
        Some(Value::Str(Text::Span(extent))) => extent.len,
        Some(Value::Str(Text::Inline(bytes))) => bytes.len() as u64,
        Some(other) => return Err(format!("{key} is of type {}", other.value_type().name())),
    };
    if length > LONGEST {
        return Err(format!("{key} has {length} bytes, at most {LONGEST} are read"));
    }
    let bytes = meta.text(key).map_err(|error| format!("{key} cannot be read: {error}"))?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn array<'a>(meta: Meta<'a>, key: &str) -> Result<Option<&'a Array>, String> {
    match meta.get(key) {
        None => Ok(None),
        Some(Value::Array(array)) => Ok(Some(array)),
        Some(other) => Err(format!("{key} is of type {}, no array", other.value_type().name())),
    }
}

/// Bytes that an array takes in its file, about.
fn size(array: &Array) -> u64 {
    match array {
        Array::Span { extent, .. } => extent.len,
        Array::Inline { items, .. } => items
            .iter()
            .map(|item| match item {
                Value::Str(Text::Inline(bytes)) => bytes.len() as u64,
                Value::Str(Text::Span(extent)) => extent.len,
                _ => 8,
            })
            .sum(),
    }
}

fn strings<'a>(
    meta: Meta<'a>,
    key: &str,
    most: u64,
    bytes: u64,
) -> Result<Option<&'a Array>, String> {
    let Some(array) = array(meta, key)? else { return Ok(None) };
    if array.elem() != ValueType::Str {
        return Err(format!("{key} is an array of {}, not of str", array.elem().name()));
    }
    within(key, "elements", array.len(), most)?;
    within(key, "bytes", size(array), bytes)?;
    Ok(Some(array))
}

/// An array of `count` numbers.
fn numbers<'a>(meta: Meta<'a>, key: &str, count: u64) -> Result<Option<&'a Array>, String> {
    let Some(array) = array(meta, key)? else { return Ok(None) };
    if matches!(array.elem(), ValueType::Str | ValueType::Array) {
        return Err(format!("{key} is an array of {}, not of numbers", array.elem().name()));
    }
    if array.len() != count {
        let found = array.len();
        return Err(format!("{key} has {found} elements where there are {count} tokens"));
    }
    Ok(Some(array))
}

fn bytes<'a>(meta: Meta<'a>, key: &str, most: u64) -> Result<Option<&'a Array>, String> {
    let Some(array) = array(meta, key)? else { return Ok(None) };
    if !matches!(array.elem(), ValueType::U8 | ValueType::I8) {
        return Err(format!("{key} is an array of {}, not of u8", array.elem().name()));
    }
    within(key, "bytes", array.len(), most)?;
    Ok(Some(array).filter(|array| !array.is_empty()))
}

fn within(key: &str, what: &str, found: u64, most: u64) -> Result<(), String> {
    if found > most {
        Err(format!("{key} has {found} {what}, over the limit of {most}"))
    } else {
        Ok(())
    }
}

/// The key of a ready `tokenizer.json`.
const VERBATIM: &str = "tokenizer.huggingface.json";

/// A ready `tokenizer.json` in the file, by its length alone.
pub(super) fn verbatim(meta: Meta<'_>) -> Option<&Text> {
    match meta.get(VERBATIM)? {
        Value::Str(text @ Text::Inline(_)) => Some(text),
        Value::Str(text @ Text::Span(extent)) if extent.len <= MAX_VERBATIM => Some(text),
        _ => None,
    }
}

/// The same, read; `None` where it is no tokenizer: then one is made.
pub(super) fn read_verbatim(meta: Meta<'_>) -> io::Result<Option<Vec<u8>>> {
    #[derive(Deserialize)]
    struct Tokenizer {
        #[serde(rename = "model")]
        _model: IgnoredAny,
    }
    let Some(text) = verbatim(meta) else { return Ok(None) };
    let bytes = meta.string_within(text, MAX_VERBATIM)?;
    // An array is no tokenizer, though serde reads a struct from one.
    let object = bytes.trim_ascii_start().first() == Some(&b'{');
    match serde_json::from_slice::<Tokenizer>(&bytes) {
        Ok(_) if object => Ok(Some(bytes)),
        Ok(_) => {
            log::warn!("{VERBATIM} is no object; hf/tokenizer.json is made from the vocabulary");
            Ok(None)
        }
        Err(error) => {
            log::warn!(
                "{VERBATIM} is no tokenizer ({error}); hf/tokenizer.json is made from the vocabulary"
            );
            Ok(None)
        }
    }
}
