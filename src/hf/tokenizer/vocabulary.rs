//! Token texts and types, one after the other in one piece of memory.

use super::recipe::{Recipe, Scheme};
use crate::format::gguf::array::Item;
use crate::hf::meta::Meta;
use crate::model::{Array, Value};
use crate::view::json;
use std::fmt::Write;
use std::io;

/// Longest token, in bytes. The longest in use are runs of 512 blanks, in two bytes each. The
/// library's trie of a unigram model is as deep as its longest token, and is freed by recursion.
const MAX_TOKEN: usize = 4096;

/// SentencePiece's sign for a space.
const BLANK: &str = "\u{2581}";

/// `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// 1, and whatever has no meaning.
    Normal,
    /// 2.
    Unknown,
    /// 3.
    Control,
    /// 4.
    UserDefined,
    /// 5, and tokens whose text is not the model's.
    Unused,
    /// 6.
    Byte,
}

impl Kind {
    fn of(value: &Value) -> Kind {
        match value.as_u64() {
            Some(2) => Kind::Unknown,
            Some(3) => Kind::Control,
            Some(4) => Kind::UserDefined,
            Some(5) => Kind::Unused,
            Some(6) => Kind::Byte,
            _ => Kind::Normal,
        }
    }

    /// Whether it is matched in a text before anything else is done to it.
    pub(super) fn is_added(self) -> bool {
        matches!(self, Kind::Unknown | Kind::Control | Kind::UserDefined)
    }
}

/// The tokens in the order of their ids.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    texts: String,
    ends: Vec<u32>,
    kinds: Vec<Kind>,
    listed: Vec<bool>,
}

impl Vocabulary {
    /// The tokens of a recipe, spelt as `tokenizer.json` spells them.
    pub(super) fn read(meta: Meta<'_>, recipe: &Recipe<'_>) -> io::Result<Vocabulary> {
        let mut raw = Vocabulary::default();
        if let Some(types) = recipe.types {
            raw.kinds.reserve(usize::try_from(types.len()).unwrap_or(0));
            meta.each(types, &mut |_, item| {
                raw.kinds.push(match item {
                    Item::Value(value) => Kind::of(&value),
                    _ => Kind::Normal,
                });
                Ok(())
            })?;
        }
        raw.read_texts(meta, recipe.tokens)?;
        let mut vocabulary = match recipe.scheme {
            Scheme::WordPiece => raw.respelt(),
            _ => raw,
        };
        if meta.model().architecture.as_deref() == Some("t5") {
            vocabulary = vocabulary.with_sentinels();
        }
        vocabulary.unlist_padding(recipe.scheme);
        Ok(vocabulary)
    }

    fn read_texts(&mut self, meta: Meta<'_>, tokens: &Array) -> io::Result<()> {
        let kinds = std::mem::take(&mut self.kinds);
        let count = usize::try_from(tokens.len()).unwrap_or(0);
        self.ends.reserve_exact(count);
        self.kinds.reserve_exact(count);
        if let Array::Span { extent, .. } = tokens {
            // Each text is preceded by its length; the room is only a first guess.
            self.texts.reserve(usize::try_from(extent.len).unwrap_or(0).saturating_sub(8 * count));
        }
        let mut bad = 0u32;
        meta.each(tokens, &mut |_, item| {
            let Item::Str(bytes) = item else { return Ok(()) };
            let kind = kinds.get(self.len()).copied().unwrap_or(Kind::Normal);
            let text = json::lossy(bytes);
            bad += u32::from(matches!(text, std::borrow::Cow::Owned(_)));
            self.push(&text, kind);
            Ok(())
        })?;
        if bad > 0 {
            log::warn!("hf/: {bad} tokens are not UTF-8; their bad bytes are U+FFFD");
        }
        Ok(())
    }

    /// Adds a token. A text that nothing could match gets one that says so.
    pub(super) fn push(&mut self, text: &str, kind: Kind) {
        let id = self.len();
        let kind = match text.len() {
            0 => {
                write!(self.texts, "[EMPTY_{id}]").expect("memory takes all");
                Kind::Unused
            }
            1..=MAX_TOKEN => {
                self.texts.push_str(text);
                kind
            }
            _ => {
                write!(self.texts, "[LONG_{id}]").expect("memory takes all");
                Kind::Unused
            }
        };
        let end = self.texts.len();
        self.ends.push(u32::try_from(end).expect("a recipe's tokens have far less than 4 GiB"));
        self.kinds.push(kind);
        self.listed.push(true);
    }

    /// WordPiece's spelling. The converter writes `##x` as `x` and `x` as BLANK `x`, control
    /// tokens excepted; files older than that have the plain vocabulary.
    fn respelt(self) -> Vocabulary {
        let starts = |with: &str| self.ids().any(|id| self.text(id).starts_with(with));
        if starts("##") && !starts(BLANK) {
            return self;
        }
        let mut new = Vocabulary::default();
        let mut text = String::new();
        for id in self.ids() {
            let (old, kind) = (self.text(id), self.kind(id));
            text.clear();
            match old.strip_prefix(BLANK) {
                _ if kind == Kind::Control || self.is_made_up(id) => text.push_str(old),
                Some(word) if !word.is_empty() => text.push_str(word),
                _ => {
                    text.push_str("##");
                    text.push_str(old);
                }
            }
            new.push(&text, kind);
        }
        new
    }

    /// Whether the text is one of [`Vocabulary::push`]'s.
    fn is_made_up(&self, id: u32) -> bool {
        let number = |name: &str| {
            let text = self.text(id).strip_prefix(name)?.strip_suffix(']')?;
            text.parse::<u32>().ok()
        };
        self.kind(id) == Kind::Unused
            && (number("[EMPTY_") == Some(id) || number("[LONG_") == Some(id))
    }

    /// T5's hundred sentinels, which older converters took for padding.
    fn with_sentinels(self) -> Vocabulary {
        const FIRST: u32 = 32_000;
        if !matches!(self.len(), 32_100 | 32_128) {
            return self;
        }
        let mut new = Vocabulary::default();
        for id in self.ids() {
            match id.checked_sub(FIRST).filter(|k| *k < 100) {
                Some(k) if self.is_padding(id) => {
                    new.push(&format!("<extra_id_{}>", 99 - k), Kind::Control);
                }
                _ => new.push(self.text(id), self.kind(id)),
            }
        }
        new
    }

    /// Whether a token only fills the embedding up: it was not in the original vocabulary.
    pub(super) fn is_padding(&self, id: u32) -> bool {
        let number = self.text(id).strip_prefix("[PAD").and_then(|text| text.strip_suffix(']'));
        self.kind(id) == Kind::Unused && number.and_then(|n| n.parse().ok()) == Some(id)
    }

    fn unlist_padding(&mut self, scheme: Scheme) {
        let last = self.ids().rev().find(|&id| !self.is_padding(id));
        for id in self.ids() {
            self.listed[id as usize] = match scheme {
                Scheme::SentencePiece => true,
                Scheme::ByteLevel(_) | Scheme::WordPiece => !self.is_padding(id),
                // The place in the list is the id: only the end can go.
                Scheme::Unigram => Some(id) <= last,
            };
        }
    }

    /// Number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All ids.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        0..u32::try_from(self.len()).expect("a recipe has at most a million tokens")
    }

    /// The text of a token.
    pub(super) fn text(&self, id: u32) -> &str {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        &self.texts[start..self.ends[id] as usize]
    }

    /// The type of a token.
    pub(super) fn kind(&self, id: u32) -> Kind {
        self.kinds[id as usize]
    }

    /// Whether a token stands under its own text in the written vocabulary.
    pub(super) fn is_listed(&self, id: u32) -> bool {
        self.listed[id as usize]
    }

    /// Takes a token out of the written vocabulary.
    pub(super) fn unlist(&mut self, id: u32) {
        self.listed[id as usize] = false;
    }

    /// Whether characters without a token are spelt in bytes.
    pub(super) fn has_bytes(&self) -> bool {
        self.kinds.contains(&Kind::Byte)
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.ids().map(|id| self.text(id).len()).max().unwrap_or(0)
    }
}
