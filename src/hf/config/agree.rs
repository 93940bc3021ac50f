//! Where the numbers of a file and its tensors contradict each other.
//!
//! Neither can be told to be the wrong one, so config.json says what the metadata says. But
//! transformers makes up a layer that is missing, or stops at a shape that differs with a message
//! that names no cause: the mount says it first.

use super::error::ConfigError;
use super::facts::Facts;
use super::field::Object;
use serde_json::Value as Json;

/// Warns of each size in `object` that the tensors deny. Fields and tensors that are not there
/// say nothing.
pub(super) fn warn(facts: &Facts<'_>, object: &Object) -> Result<(), ConfigError> {
    layers(facts)?;
    let field = |name: &str| object.get(name).and_then(Json::as_u64);
    let width = facts.count("embedding_length")?;
    let row = |shape: Option<&[u64]>| shape.and_then(|shape| shape.last().copied());
    let embedding = "token_embd.weight";
    differ(facts, "embedding_length", width, embedding, row(facts.shape(embedding)));
    let inner = "ffn_down.weight";
    let columns = row(facts.shape_in_any_layer(inner));
    differ(facts, "feed_forward_length", field("intermediate_size"), inner, columns);
    // Of latent attention head_dim is the part that turns.
    if object.contains_key("qk_rope_head_dim") {
        return Ok(());
    }
    for (key, heads, tensor) in [
        ("attention.head_count", field("num_attention_heads"), "attn_q.weight"),
        ("attention.head_count_kv", field("num_key_value_heads"), "attn_k.weight"),
    ] {
        let told = heads.zip(field("head_dim")).and_then(|(heads, dim)| heads.checked_mul(dim));
        differ(facts, key, told, tensor, facts.rows_in_any_layer(tensor));
    }
    Ok(())
}

fn differ(facts: &Facts<'_>, key: &str, told: Option<u64>, tensor: &str, found: Option<u64>) {
    if let (Some(told), Some(found)) = (told, found)
        && told != found
    {
        let key = facts.key(key);
        facts.warn(format!(
            "config.json: {key} stands for {told}, {tensor} has {found}: transformers cannot \
             load the two together"
        ));
    }
}

fn layers(facts: &Facts<'_>) -> Result<(), ConfigError> {
    const KEY: &str = "block_count";
    let (Some(most), Some(found)) = (facts.count(KEY)?, facts.layers_by_name()) else {
        return Ok(());
    };
    // Those that only guess further tokens may be stored or not.
    let least = facts.layers()?;
    let effect = match () {
        () if found < least => "transformers makes up the others",
        () if found > most => "transformers leaves out the last",
        () => return Ok(()),
    };
    let key = facts.key(KEY);
    facts.warn(format!("config.json: {key} is {most}, there are tensors of {found}: {effect}"));
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::Small;

    fn llama() -> Small {
        Small::new("llama")
            .count("block_count", 2)
            .count("context_length", 8)
            .count("embedding_length", 64)
            .count("feed_forward_length", 160)
            .count("attention.head_count", 4)
            .count("attention.head_count_kv", 2)
            .count("attention.key_length", 32)
            .real("attention.layer_norm_rms_epsilon", 1e-5)
            .tensor("token_embd.weight", &[96, 64])
            .tensor("blk.1.ffn_down.weight", &[64, 160])
            .tensor("blk.1.attn_q.weight", &[128, 64])
            .tensor("blk.1.attn_k.weight", &[64, 64])
    }

    #[test]
    fn a_whole_model_and_one_that_lacks_the_tensors_say_nothing() {
        assert_eq!(llama().warnings(), Vec::<String>::new());
        let mut bare = llama();
        for name in ["ffn_down", "attn_q", "attn_k"] {
            bare = bare.without(&format!("blk.1.{name}.weight"));
        }
        assert_eq!(bare.warnings(), Vec::<String>::new());
    }

    #[test]
    fn each_contradiction_is_told_and_the_key_stands() {
        for (key, count, said, field) in [
            (
                "block_count",
                5,
                "is 5, there are tensors of 2: transformers makes",
                "num_hidden_layers",
            ),
            (
                "block_count",
                1,
                "is 1, there are tensors of 2: transformers leaves",
                "num_hidden_layers",
            ),
            ("embedding_length", 99, "stands for 99, token_embd.weight has 64", "hidden_size"),
            (
                "feed_forward_length",
                77,
                "stands for 77, ffn_down.weight has 160",
                "intermediate_size",
            ),
            (
                "attention.head_count",
                8,
                "stands for 256, attn_q.weight has 128",
                "num_attention_heads",
            ),
            (
                "attention.head_count_kv",
                1,
                "stands for 32, attn_k.weight has 64",
                "num_key_value_heads",
            ),
        ] {
            let small = llama().without(key).count(key, count);
            let warnings = small.warnings();
            let [warning] = &*warnings else { panic!("{key}: {warnings:?}") };
            assert!(warning.contains(&format!("llama.{key} {said}")), "{warning}");
            assert_eq!(small.config()[field], count);
        }
    }

    #[test]
    fn layers_that_only_guess_may_be_stored_or_not() {
        for stored in [2, 3] {
            let small = llama()
                .count("block_count", 3)
                .count("nextn_predict_layers", 1)
                .tensor(&format!("blk.{}.attn_norm.weight", stored - 1), &[64]);
            assert_eq!(small.warnings(), Vec::<String>::new(), "{stored}");
        }
    }
}
