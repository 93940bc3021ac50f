//! What a reference has, this model has not, and nobody misses: tied heads, buffers that
//! follow from the configuration, and what converters leave out.

use super::super::families::GGUF_ONLY;
use super::matching::{Matching, Partner};
use std::collections::HashSet;

/// Why a name of the reference is not missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// It is the embedding again.
    Tied,
    /// Converters and exports leave it out, and nothing can bring it back.
    NotRestorable,
    /// It is missing.
    Missing,
}

/// Stems of embeddings, the last segment before `weight`.
const EMBEDDINGS: &[&str] = &[
    "embed_tokens",
    "wte",
    "word_embeddings",
    "embed_in",
    "token_embd",
    "embeddings",
    "tok_embeddings",
    "shared",
];

/// Stems that may be tied to the embedding.
const TIED: &[&str] = &["lm_head", "embed_out", "output", "embed_tokens"];

/// Last segments that are buffers or masks, no weights.
const BUFFERS: &[&str] = &["position_ids", "inv_freq", "masked_bias", "token_type_ids"];

/// Segments below which nothing reaches a GGUF: poolers, heads of pre-training, rotary
/// buffers, multi-token prediction.
const LEFT_OUT: &[&str] =
    &["pooler", "predictions", "seq_relationship", "rotary_emb", "mtp", "nextn"];

/// Segments that a layer for multi-token prediction has and no other.
const MTP_MARKS: &[&str] = &["eh_proj", "enorm", "hnorm", "nextn"];

/// Endings of tensors that only serve to decode the weight of the same stem.
const COMPANIONS: &[&str] =
    &[".weight_scale_inv", ".weight_scale", ".weight_scale_2", ".input_scale", ".scale"];

/// Judges names of the reference that found no partner.
pub(super) struct Judge<'m, 'a> {
    matching: &'m Matching<'a>,
    /// Shapes of embeddings that have a partner.
    embeddings: HashSet<&'a [u64]>,
    /// Shapes of this model's tensors without a partner.
    unmatched: HashSet<&'a [u64]>,
    /// Beginnings of all names of a layer for multi-token prediction.
    mtp: HashSet<&'a [u8]>,
    /// Names that have a partner.
    found: HashSet<&'a [u8]>,
    /// Whether zero biases are dropped on conversion.
    drops_biases: bool,
}

impl<'m, 'a> Judge<'m, 'a> {
    pub(super) fn new(
        matching: &'m Matching<'a>,
        targets: u32,
        architecture: Option<&str>,
    ) -> Judge<'m, 'a> {
        let mut judge = Judge {
            matching,
            embeddings: HashSet::new(),
            unmatched: matching.free_sources().map(|s| matching.source(s).shape).collect(),
            mtp: HashSet::new(),
            found: HashSet::new(),
            drops_biases: matches!(architecture, Some("command-r" | "cohere2")),
        };
        for target in 0..targets {
            let item = matching.target(target);
            if matching.of_target(target) != Partner::Free {
                judge.found.insert(item.name);
                if stem(item.name).is_some_and(|stem| is_one_of(stem, EMBEDDINGS)) {
                    judge.embeddings.insert(item.shape);
                }
            }
            let mut at = 0;
            for segment in item.name.split(|&b| b == b'.') {
                if is_one_of(segment, MTP_MARKS) {
                    judge.mtp.insert(&item.name[..at]);
                }
                at += segment.len() + 1;
            }
        }
        judge.mtp.remove(b"".as_slice());
        judge
    }

    /// Why a name without a partner has none.
    pub(super) fn why(&self, target: u32) -> Absence {
        let item = self.matching.target(target);
        let name = item.name;
        if stem(name).is_some_and(|stem| is_one_of(stem, TIED))
            && self.embeddings.contains(item.shape)
            && !self.unmatched.contains(item.shape)
        {
            return Absence::Tied;
        }
        let segments: Vec<&[u8]> = name.split(|&b| b == b'.').collect();
        let last = segments.last().copied().unwrap_or_default();
        let before = segments.len().checked_sub(2).map_or(b"".as_slice(), |at| segments[at]);
        let is_mask = last == b"bias"
            && matches!(before, b"attn" | b"attention" | b"self_attention")
            && item.shape.len() >= 2;
        let of_mtp = || {
            let dots = name.iter().enumerate().filter(|(_, b)| **b == b'.');
            dots.map(|(at, _)| &name[..=at]).any(|beginning| self.mtp.contains(beginning))
        };
        let is_companion = || {
            COMPANIONS.iter().any(|ending| {
                let stem = name.strip_suffix(ending.as_bytes());
                stem.is_some_and(|stem| self.found.contains([stem, b".weight"].concat().as_slice()))
            })
        };
        if is_one_of(last, BUFFERS)
            || is_mask
            || segments.iter().any(|segment| is_one_of(segment, LEFT_OUT))
            || self.drops_biases && last == b"bias"
            || of_mtp()
            || is_companion()
            || is_gguf_only(&segments)
        {
            return Absence::NotRestorable;
        }
        Absence::Missing
    }
}

/// Whether a tensor of a GGUF is shorter than the reference's because the converter cuts rows.
pub(super) fn is_cut(
    stored: &[u8],
    architecture: Option<&str>,
    ours: &[u64],
    theirs: &[u64],
) -> bool {
    let cut = match architecture {
        Some("gemma3") => stored == b"token_embd.weight",
        Some("bert") => stored == b"position_embd.weight",
        _ => false,
    };
    let ([rows, rest @ ..], [more, others @ ..]) = (ours, theirs) else {
        return false;
    };
    cut && rest == others && rows < more
}

/// The last segment before `weight`.
fn stem(name: &[u8]) -> Option<&[u8]> {
    name.strip_suffix(b".weight")?.rsplit(|&b| b == b'.').next()
}

fn is_one_of(segment: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| word.as_bytes() == segment)
}

/// Whether a name is one of those that only a GGUF has.
fn is_gguf_only(segments: &[&[u8]]) -> bool {
    GGUF_ONLY.iter().any(|name| {
        let mut known = name.split('.');
        let all = segments.iter().all(|segment| match known.next() {
            Some("{}") => segment.iter().all(u8::is_ascii_digit),
            Some(word) => word.as_bytes() == *segment,
            None => false,
        });
        all && known.next().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::super::matching::Item;
    use super::*;

    /// Why `name` of that shape is absent when the model has an embedding of [9, 4].
    fn why(name: &'static str, shape: &'static [u64]) -> Absence {
        why_with(&[], name, shape, None)
    }

    fn why_with(
        unmatched: &[(&'static str, &'static [u64])],
        name: &'static str,
        shape: &'static [u64],
        architecture: Option<&str>,
    ) -> Absence {
        let item =
            |name: &'static str, shape: &'static [u64]| Item { name: name.as_bytes(), shape };
        let mut sources = vec![item("model.embed_tokens.weight", &[9, 4]), item("a.weight", &[4])];
        sources.extend(unmatched.iter().map(|(name, shape)| item(name, shape)));
        let targets = vec![
            item("model.embed_tokens.weight", &[9, 4]),
            item("a.weight", &[4]),
            item("model.layers.7.eh_proj.weight", &[4]),
            item(name, shape),
        ];
        let mut matching = Matching::new(sources, targets);
        matching.join_equal();
        Judge::new(&matching, 4, architecture).why(3)
    }

    #[test]
    fn a_head_like_the_embedding_is_tied() {
        assert_eq!(why("lm_head.weight", &[9, 4]), Absence::Tied);
        assert_eq!(why("decoder.embed_tokens.weight", &[9, 4]), Absence::Tied);
        assert_eq!(why("lm_head.weight", &[9, 5]), Absence::Missing);
        assert_eq!(why("score.weight", &[9, 4]), Absence::Missing);
        // A tensor here that may be the head makes the tie uncertain.
        let found = why_with(&[("x", &[9, 4])], "lm_head.weight", &[9, 4], None);
        assert_eq!(found, Absence::Missing);
    }

    #[test]
    fn what_converters_leave_out_is_not_missing() {
        for name in [
            "pooler.dense.weight",
            "bert.pooler.dense.bias",
            "cls.predictions.transform.dense.weight",
            "cls.seq_relationship.weight",
            "embeddings.position_ids",
            "h.0.attn.masked_bias",
            "model.layers.0.self_attn.rotary_emb.inv_freq",
            "mtp.fc.weight",
            "model.layers.7.mlp.up_proj.weight",
            "a.weight_scale_inv",
            "a.input_scale",
            "rope_freqs.weight",
            "blk.3.attn_rot_embd.weight",
        ] {
            assert_eq!(why(name, &[4]), Absence::NotRestorable, "{name}");
        }
        assert_eq!(why("h.0.attn.bias", &[1, 1, 8, 8]), Absence::NotRestorable);
    }

    #[test]
    fn weights_are_missing() {
        for name in [
            "h.0.attn.bias",
            "model.layers.0.self_attn.q_proj.weight",
            "model.layers.77.mlp.up_proj.weight",
            "model.layers.0.self_attn.q_proj.bias",
            "b.weight_scale_inv",
            "rope_freqs.weight.x",
            "x.rope_freqs.weight",
            "poolers.weight",
        ] {
            assert_eq!(why(name, &[4]), Absence::Missing, "{name}");
        }
        let bias = "model.layers.0.self_attn.q_proj.bias";
        assert_eq!(why_with(&[], bias, &[4], Some("cohere2")), Absence::NotRestorable);
    }

    #[test]
    fn only_known_tables_are_cut() {
        let cut = |name: &str, arch, a, b| is_cut(name.as_bytes(), Some(arch), a, b);
        assert!(cut("token_embd.weight", "gemma3", &[8, 4], &[9, 4]));
        assert!(!cut("token_embd.weight", "gemma3", &[9, 4], &[8, 4]), "longer");
        assert!(!cut("token_embd.weight", "gemma3", &[8, 4], &[9, 5]));
        assert!(!cut("token_embd.weight", "llama", &[8, 4], &[9, 4]));
        assert!(cut("position_embd.weight", "bert", &[512, 4], &[514, 4]));
    }
}
