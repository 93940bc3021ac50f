//! `tokenizer.json`: the model, and what happens to a text before and after it.

use super::charsmap;
use super::index::Index;
use super::json;
use super::merges;
use super::recipe::{Recipe, Scheme};
use super::special::Special;
use super::split;
use super::vocabulary::{Kind, Vocabulary};
use crate::hf::meta::Meta;
use serde_json::{Value, json};
use std::io;

/// Room that is asked for at once, more than most files need. The system's allocator maps so
/// much by itself: only pages that are written count, and the rest goes back at the end. A
/// vector that grows would leave its former places behind.
const ROOM: usize = 33 << 20;
/// A vocabulary of fewer tokens asks for no room: what it leaves behind is small, and a small
/// file must not claim memory that it does not need.
const MANY: usize = 10_000;

/// The bytes of `tokenizer.json`.
pub(super) fn write(meta: Meta<'_>, recipe: &Recipe<'_>) -> io::Result<Vec<u8>> {
    let mut vocabulary = Vocabulary::read(meta, recipe)?;
    let mut out = Vec::with_capacity(if vocabulary.len() < MANY { 0 } else { ROOM });
    let index = Index::new(&mut vocabulary);
    let special = Special::of(meta, recipe);
    let frame = Frame { meta, recipe, vocabulary: &vocabulary, index: &index, special };
    out.extend_from_slice(br#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":"#);
    frame.added_tokens(&mut out)?;
    let parts = [
        ("normalizer", frame.normalizer()?),
        ("pre_tokenizer", frame.pre_tokenizer()),
        ("post_processor", frame.post_processor()),
        ("decoder", frame.decoder()),
    ];
    for (key, part) in parts {
        out.push(b',');
        json::quote(key, &mut out);
        out.push(b':');
        json::value(&part, &mut out);
    }
    out.extend_from_slice(br#","model":"#);
    frame.model(&mut out)?;
    out.push(b'}');
    json::within(&out)?;
    out.shrink_to_fit();
    Ok(out)
}

struct Frame<'a> {
    meta: Meta<'a>,
    recipe: &'a Recipe<'a>,
    vocabulary: &'a Vocabulary,
    index: &'a Index,
    special: Special,
}

impl Frame<'_> {
    /// Tokens that are matched in the raw text. Each must be in the model's vocabulary too:
    /// otherwise the library numbers it itself.
    fn added_tokens(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let strips = Strips::of(self.meta, self.recipe.scheme)?;
        let mut first = true;
        out.push(b'[');
        for id in self.vocabulary.ids() {
            let kind = self.vocabulary.kind(id);
            if !kind.is_added() || !self.vocabulary.is_listed(id) {
                continue;
            }
            let text = self.vocabulary.text(id);
            json::within(out)?;
            json::comma(&mut first, out);
            out.extend_from_slice(format!(r#"{{"id":{id},"content":"#).as_bytes());
            json::quote(text, out);
            let (left, right) = strips.sides(text, kind);
            let special = kind != Kind::UserDefined;
            let flags = format!(
                r#","single_word":false,"lstrip":{left},"rstrip":{right},"normalized":false,"special":{special}}}"#
            );
            out.extend_from_slice(flags.as_bytes());
        }
        out.push(b']');
        Ok(())
    }

    fn normalizer(&self) -> io::Result<Value> {
        let blank =
            || json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
        let mut steps = Vec::new();
        match self.recipe.scheme {
            Scheme::SentencePiece => {
                if self.special.trim_spaces {
                    steps.extend(trimmed());
                }
                if self.special.space_prefix {
                    steps.push(json!({"type": "Prepend", "prepend": "\u{2581}"}));
                }
                steps.push(blank());
            }
            Scheme::ByteLevel(rule) => {
                let architecture = self.meta.model().architecture.as_deref();
                if rule.composes
                    || matches!(architecture, Some("gptneox" | "olmo" | "stablelm" | "mamba"))
                {
                    steps.push(json!({"type": "NFC"}));
                }
            }
            Scheme::WordPiece => steps.push(self.bert_normalizer()),
            Scheme::Unigram => {
                if let Some(array) = self.recipe.charsmap
                    && let Some(text) = charsmap::read(self.meta, array)?
                {
                    steps.push(json!({"type": "Precompiled", "precompiled_charsmap": text}));
                }
                if self.special.trim_spaces {
                    steps.extend(trimmed());
                }
            }
        }
        Ok(match steps.len() {
            0 => Value::Null,
            1 => steps.remove(0),
            _ => json!({"type": "Sequence", "normalizers": steps}),
        })
    }

    fn bert_normalizer(&self) -> Value {
        let flag = |name: &str| self.meta.flag(&format!("tokenizer.ggml.normalizer.{name}"));
        let cased = || {
            self.vocabulary.ids().any(|id| {
                let text = self.vocabulary.text(id);
                self.vocabulary.kind(id) == Kind::Normal
                    && !(text.starts_with('[') && text.ends_with(']'))
                    && text.bytes().any(|byte| byte.is_ascii_uppercase())
            })
        };
        json!({
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": flag("strip_accents"),
            "lowercase": flag("lowercase").unwrap_or_else(|| !cased()),
        })
    }

    fn metaspace(&self) -> Value {
        let scheme = if self.special.space_prefix { "always" } else { "never" };
        json!({
            "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": true,
        })
    }

    fn pre_tokenizer(&self) -> Value {
        match self.recipe.scheme {
            Scheme::SentencePiece => Value::Null,
            Scheme::ByteLevel(rule) => split::pre_tokenizer(rule),
            Scheme::WordPiece => json!({"type": "BertPreTokenizer"}),
            Scheme::Unigram => self.metaspace(),
        }
    }

    fn decoder(&self) -> Value {
        match self.recipe.scheme {
            Scheme::SentencePiece => {
                let mut steps = vec![
                    json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
                    json!({"type": "ByteFallback"}),
                    json!({"type": "Fuse"}),
                ];
                if self.special.space_prefix {
                    steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
                }
                json!({"type": "Sequence", "decoders": steps})
            }
            Scheme::ByteLevel(_) => byte_level(),
            Scheme::WordPiece => json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            Scheme::Unigram => self.metaspace(),
        }
    }

    /// What surrounds a text, and a pair of texts.
    fn post_processor(&self) -> Value {
        let Special { bos, eos, cls, sep, add_bos, add_eos, .. } = self.special;
        let (begin, end) = match self.recipe.scheme {
            Scheme::WordPiece => (cls, sep),
            _ => (bos.filter(|_| add_bos), eos.filter(|_| add_eos)),
        };
        if begin.is_none() && end.is_none() {
            return match self.recipe.scheme {
                Scheme::ByteLevel(_) => byte_level(),
                _ => Value::Null,
            };
        }
        let token = |id: u32, part: u32| json!({"SpecialToken": {"id": self.vocabulary.text(id), "type_id": part}});
        let text = |name: &str, part: u32| json!({"Sequence": {"id": name, "type_id": part}});
        let mut single = Vec::new();
        single.extend(begin.map(|id| token(id, 0)));
        single.push(text("A", 0));
        single.extend(end.map(|id| token(id, 0)));
        let mut pair = single.clone();
        match self.recipe.scheme {
            Scheme::WordPiece => {}
            // XLM-R's: the end of the first text, once more, where the second begins.
            Scheme::Unigram => pair.extend(begin.and(end).map(|id| token(id, 0))),
            _ => pair.extend(begin.map(|id| token(id, 1))),
        }
        let part = if matches!(self.recipe.scheme, Scheme::Unigram) { 0 } else { 1 };
        pair.push(text("B", part));
        pair.extend(end.map(|id| token(id, part)));
        let mut tokens = serde_json::Map::new();
        for id in begin.into_iter().chain(end) {
            let text = self.vocabulary.text(id);
            tokens.insert(text.into(), json!({"id": text, "ids": [id], "tokens": [text]}));
        }
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
    }

    fn model(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let unk = self.special.unk.map(|id| self.vocabulary.text(id));
        match self.recipe.scheme {
            Scheme::SentencePiece => {
                let head = json!({
                    "type": "BPE", "dropout": null, "unk_token": unk,
                    "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
                    "byte_fallback": self.vocabulary.has_bytes(), "ignore_merges": false,
                });
                self.bpe(&head, true, out)
            }
            Scheme::ByteLevel(rule) => {
                let head = json!({
                    "type": "BPE", "dropout": null, "unk_token": null,
                    "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
                    "byte_fallback": false, "ignore_merges": rule.takes_whole_words,
                });
                self.bpe(&head, false, out)
            }
            Scheme::WordPiece => {
                let head = json!({
                    "type": "WordPiece", "unk_token": unk.unwrap_or("[UNK]"),
                    "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                });
                open(&head, out);
                self.vocab(out)?;
                out.push(b'}');
                Ok(())
            }
            Scheme::Unigram => self.unigram(out),
        }
    }

    fn bpe(&self, head: &Value, spaced: bool, out: &mut Vec<u8>) -> io::Result<()> {
        open(head, out);
        self.vocab(out)?;
        out.extend_from_slice(br#","merges":"#);
        let (meta, vocabulary, index) = (self.meta, self.vocabulary, self.index);
        match self.recipe.merges {
            Some(list) => merges::write(out, &mut |each| {
                merges::from_list(meta, list, vocabulary, index, spaced, each)
            })?,
            None => {
                let scores = match self.recipe.scores {
                    Some(array) => merges::scores(meta, array)?,
                    None => Vec::new(),
                };
                merges::write(out, &mut |each| {
                    merges::from_scores(vocabulary, index, &scores, each)
                })?;
            }
        }
        out.push(b'}');
        Ok(())
    }

    /// `"vocab": {text: id}` in the order of ids.
    fn vocab(&self, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend_from_slice(br#","vocab":{"#);
        let mut first = true;
        for id in self.vocabulary.ids().filter(|&id| self.vocabulary.is_listed(id)) {
            json::within(out)?;
            json::comma(&mut first, out);
            json::quote(self.vocabulary.text(id), out);
            out.extend_from_slice(format!(":{id}").as_bytes());
        }
        out.push(b'}');
        Ok(())
    }

    /// The place in the list is the id; a token that repeats another gets a text of its own.
    fn unigram(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let scores = match self.recipe.scores {
            Some(array) => merges::scores(self.meta, array)?,
            None => Vec::new(),
        };
        // The library subtracts a penalty from the lowest: it must be a number.
        let lowest = scores.iter().copied().filter(|s| s.is_finite()).fold(0.0, f32::min);
        let count = self.vocabulary.ids().rev().find(|&id| !self.vocabulary.is_padding(id));
        let count = count.map_or(0, |id| id + 1);
        let unk = self.special.unk.filter(|&id| id < count);
        open(&json!({"type": "Unigram", "unk_id": unk}), out);
        out.extend_from_slice(br#","vocab":["#);
        let mut first = true;
        for id in 0..count {
            json::within(out)?;
            json::comma(&mut first, out);
            out.push(b'[');
            let mut score =
                scores.get(id as usize).copied().filter(|s| s.is_finite()).unwrap_or(lowest);
            if self.vocabulary.is_listed(id) {
                json::quote(self.vocabulary.text(id), out);
            } else {
                score = lowest;
                let mut text = format!("[REPEATED_{id}]");
                while self.index.find(self.vocabulary, &text).is_some() {
                    text.push('_');
                }
                json::quote(&text, out);
            }
            out.push(b',');
            json::value(&json!(f64::from(score)), out);
            out.push(b']');
        }
        let bytes = self.vocabulary.has_bytes();
        out.extend_from_slice(format!(r#"],"byte_fallback":{bytes}}}"#).as_bytes());
        Ok(())
    }
}

/// Appends an object without its last brace.
fn open(head: &Value, out: &mut Vec<u8>) {
    json::value(head, out);
    out.pop();
}

fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true})
}

/// Steps that take away blanks around a text and all but one of those in it.
fn trimmed() -> [Value; 2] {
    [
        json!({"type": "Replace", "pattern": {"Regex": "\\A +| +\\z"}, "content": ""}),
        json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
    ]
}

/// Which added tokens take the blanks beside them along: a GGUF does not say, llama.cpp knows
/// these.
#[derive(Debug, Default)]
struct Strips {
    mask: Option<&'static str>,
    phi3: bool,
}

impl Strips {
    fn of(meta: Meta<'_>, scheme: Scheme) -> io::Result<Strips> {
        let pre = match scheme {
            Scheme::ByteLevel(_) => meta.text("tokenizer.ggml.pre")?.unwrap_or_default(),
            _ => Vec::new(),
        };
        let architecture = meta.model().architecture.as_deref();
        let mask = match (&*pre, architecture) {
            (b"jina-v2-de" | b"jina-v2-es" | b"jina-v2-code", _)
            | (_, Some("nomic-bert-moe" | "jina-bert-v3")) => Some("<mask>"),
            (b"modern-bert", _) => Some("[MASK]"),
            _ => None,
        };
        let name = meta.model().name.as_deref().unwrap_or_default().to_ascii_lowercase();
        let phi3 = name.contains("phi-3") || name.contains("phi3");
        Ok(Strips { mask, phi3 })
    }

    /// Whether a token takes along the blanks on its left, and on its right.
    fn sides(&self, text: &str, kind: Kind) -> (bool, bool) {
        let plain = matches!(text, "<unk>" | "<s>" | "<|endoftext|>");
        (self.mask == Some(text), self.phi3 && kind == Kind::Control && !plain)
    }
}
