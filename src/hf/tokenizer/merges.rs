//! The pairs that BPE joins, first ones first.

use super::index::Index;
use super::json;
use super::recipe::MAX_MERGES;
use super::vocabulary::{Kind, Vocabulary};
use crate::format::gguf::array::Item;
use crate::hf::meta::Meta;
use crate::model::{Array, Value};
use std::io;

/// The scores of a SentencePiece vocabulary; no number is the lowest.
pub(super) fn scores(meta: Meta<'_>, array: &Array) -> io::Result<Vec<f32>> {
    let mut scores = Vec::with_capacity(usize::try_from(array.len()).unwrap_or(0));
    meta.each(array, &mut |_, item| {
        let score = match item {
            Item::Value(Value::F32(x)) => x,
            Item::Value(Value::F64(x)) => x as f32,
            Item::Value(value) => value.as_u64().map_or(f32::NAN, |n| n as f32),
            _ => f32::NAN,
        };
        scores.push(score);
        Ok(())
    })?;
    Ok(scores)
}

/// Where merges go.
pub(super) type Sink<'a> = dyn FnMut(&str, &str) -> io::Result<()> + 'a;

/// The merges that a SentencePiece BPE model does implicitly: it joins the pair whose result
/// has the highest score. Only normal tokens take part, as parts and as results. Equal scores
/// go by id; of one result's pairs, those with the longer left part go first.
pub(super) fn from_scores(
    vocabulary: &Vocabulary,
    index: &Index,
    scores: &[f32],
    each: &mut Sink<'_>,
) -> io::Result<()> {
    let takes_part = |id: u32| vocabulary.kind(id) == Kind::Normal && vocabulary.is_listed(id);
    // Adding zero makes one zero of the two.
    let score = |id: u32| {
        scores
            .get(id as usize)
            .map_or(0.0, |s| if s.is_nan() { f32::NEG_INFINITY } else { s + 0.0 })
    };
    let mut order: Vec<u32> = vocabulary.ids().filter(|&id| takes_part(id)).collect();
    order.sort_unstable_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
    let factors = index.factors(vocabulary.longest());
    let mut beginnings = Vec::new();
    for id in order {
        let text = vocabulary.text(id);
        index.beginnings(text.as_bytes(), &mut beginnings);
        for at in (1..text.len()).rev().filter(|&at| text.is_char_boundary(at)) {
            let left = beginnings[at];
            if !index.may_have(left) {
                continue;
            }
            let right = Index::rest(beginnings[text.len()], left, factors[text.len() - at]);
            if !index.may_have(right) {
                continue;
            }
            let (first, second) = text.split_at(at);
            let is_part = |hash, part: &str| {
                index.find_hashed(vocabulary, hash, part.as_bytes()).is_some_and(takes_part)
            };
            if is_part(left, first) && is_part(right, second) {
                each(first, second)?;
            }
        }
    }
    Ok(())
}

/// The merges that a file lists, without those whose parts or result are no tokens. `spaced`:
/// tokens may hold spaces, which the converter writes as U+0120 in this list.
pub(super) fn from_list(
    meta: Meta<'_>,
    list: &Array,
    vocabulary: &Vocabulary,
    index: &Index,
    spaced: bool,
    each: &mut Sink<'_>,
) -> io::Result<()> {
    let mut joined = String::new();
    let mut lost = 0u32;
    meta.each(list, &mut |_, item| {
        let Item::Str(bytes) = item else { return Ok(()) };
        let text = crate::view::json::lossy(bytes);
        // A part may begin with a space, but is not empty.
        let space = text.bytes().skip(1).position(|byte| byte == b' ');
        let Some((left, right)) = space.map(|at| (&text[..at + 1], &text[at + 2..])) else {
            lost += 1;
            return Ok(());
        };
        let mut has = |left: &str, right: &str| {
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            [left, right, &joined].iter().all(|text| index.find(vocabulary, text).is_some())
        };
        if has(left, right) {
            return each(left, right);
        }
        if spaced && text.contains('\u{120}') {
            let (left, right) = (left.replace('\u{120}', " "), right.replace('\u{120}', " "));
            if has(&left, &right) {
                return each(&left, &right);
            }
        }
        lost += 1;
        Ok(())
    })?;
    if lost > 0 {
        log::warn!("hf/tokenizer.json: {lost} merges name no tokens and are left out");
    }
    Ok(())
}

/// Appends all merges that `of` gives as a JSON array: of strings with a space in between, or
/// of pairs where a part has a space itself.
pub(super) fn write(
    out: &mut Vec<u8>,
    of: &mut dyn FnMut(&mut Sink<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let start = out.len();
    for pairs in [false, true] {
        let (mut first, mut count, mut unfit) = (true, 0u64, false);
        let mut text = String::new();
        out.push(b'[');
        of(&mut |left, right| {
            // The library takes a line that begins with this word for a comment.
            unfit |= !pairs
                && (left.contains(' ') || right.contains(' ') || left.starts_with("#version"));
            if unfit {
                return Ok(());
            }
            count += 1;
            if count > MAX_MERGES {
                let text = format!("hf/tokenizer.json would have more than {MAX_MERGES} merges");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            json::within(out)?;
            json::comma(&mut first, out);
            if pairs {
                out.push(b'[');
                json::quote(left, out);
                out.push(b',');
                json::quote(right, out);
                out.push(b']');
            } else {
                text.clear();
                text.extend([left, " ", right]);
                json::quote(&text, out);
            }
            Ok(())
        })?;
        out.push(b']');
        if !unfit {
            break;
        }
        out.truncate(start);
    }
    Ok(())
}
