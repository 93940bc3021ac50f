//! Values that take more than looking up: one function for each.

use super::error::ConfigError;
use super::facts::{Facts, shortest};
use super::field::Object;
use super::layers::{self, WINDOW, Window};
use crate::dtype::DType;
use crate::format::gguf::array::Item;
use crate::model::Value;
use serde_json::{Value as Json, json};

type Made = Result<Json, ConfigError>;

/// In llama.cpp too this is a constant of the architecture.
pub(super) const NO_ROPE_INTERVAL: u64 = 4;

/// smollm3: 1 where a layer rotates.
pub(super) fn no_rope_layers(facts: &Facts<'_>) -> Made {
    let layers = 1..=facts.layers()?;
    Ok(layers.map(|n| u64::from(!n.is_multiple_of(NO_ROPE_INTERVAL))).collect::<Vec<_>>().into())
}

/// granite: without a scale of its own attention has the usual one.
pub(super) fn attention_multiplier(facts: &Facts<'_>) -> Made {
    Ok(match facts.positive_real("attention.scale")? {
        Some(scale) => scale.into(),
        None => shortest(1.0 / (facts.head_dim(true)? as f32).sqrt()).into(),
    })
}

/// Rows of each expert.
pub(super) fn expert_feed_forward(facts: &Facts<'_>) -> Made {
    const KEY: &str = "expert_feed_forward_length";
    if let Some(length) = facts.positive(KEY)? {
        return Ok(length.into());
    }
    if let Some(&[_, rows, _]) = facts.shape_in_any_layer("ffn_up_exps.weight") {
        return Ok(rows.into());
    }
    match facts.positive("feed_forward_length")? {
        Some(length) => Ok(length.into()),
        None => Err(facts.missing(KEY)),
    }
}

/// Rows of a layer without experts; where none is, nothing uses the number.
pub(super) fn dense_feed_forward(facts: &Facts<'_>) -> Made {
    match facts.feed_forward() {
        Ok(length) => Ok(length.into()),
        Err(ConfigError::Missing { .. }) => expert_feed_forward(facts),
        Err(error) => Err(error),
    }
}

/// Rows of the expert that every token passes.
pub(super) fn shared_expert_feed_forward(facts: &Facts<'_>) -> Made {
    const KEY: &str = "expert_shared_feed_forward_length";
    match facts.positive(KEY)? {
        Some(length) => Ok(length.into()),
        None => match facts.rows_in_any_layer("ffn_gate_shexp.weight") {
            Some(rows) => Ok(rows.into()),
            None => Err(facts.missing(KEY)),
        },
    }
}

/// The file does not keep it; llama.cpp tells the published exception by its depth.
fn query_scalar(facts: &Facts<'_>, exception: u64) -> Made {
    let (heads, hidden) = (facts.heads()?, facts.hidden()?);
    let by_width = facts.layers()? == exception && hidden.is_multiple_of(heads);
    Ok(if by_width { (hidden / heads).into() } else { facts.head_dim(false)?.into() })
}

/// `query_pre_attn_scalar` of gemma2, whose 27B is the exception.
pub(super) fn gemma2_scalar(facts: &Facts<'_>) -> Made {
    query_scalar(facts, 46)
}

/// `query_pre_attn_scalar` of gemma3, likewise.
pub(super) fn gemma3_scalar(facts: &Facts<'_>) -> Made {
    query_scalar(facts, 62)
}

/// gemma3: without a window no layer slides.
pub(super) fn gemma3_window(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    const EVERY_6TH: Window = Window { period: 6 };
    let window = facts.count(WINDOW)?.filter(|&n| n > 0);
    // The class insists on a number, also where no layer uses it.
    object.insert("sliding_window".into(), window.unwrap_or(4096).into());
    let (types, period) = match window {
        None => (vec!["full_attention"; facts.layers()? as usize], Some(1)),
        Some(_) => {
            let types = layers::types(facts, EVERY_6TH)?;
            let listed = facts.flags("attention.sliding_window_pattern")?.is_some();
            let period = if listed { None } else { Some(layers::period(facts, EVERY_6TH)?) };
            (types, period.filter(|&n| n > 0))
        }
    };
    object.insert("layer_types".into(), types.into());
    if let Some(period) = period {
        // Version 4 knows the pattern by this.
        object.insert("sliding_window_pattern".into(), period.into());
    }
    Ok(())
}

/// Rows of the table of positions, else the context.
pub(super) fn positions(facts: &Facts<'_>) -> Made {
    match facts.rows("position_embd.weight") {
        Some(rows) => Ok(rows.into()),
        None => facts.context().map(Json::from),
    }
}

/// gpt2: null stands for four times the width.
pub(super) fn gpt2_inner(facts: &Facts<'_>) -> Made {
    let inner = match facts.rows_in_any_layer("ffn_up.weight") {
        Some(rows) => rows,
        None => facts.feed_forward()?,
    };
    Ok(if inner == 4 * facts.hidden()? { Json::Null } else { inner.into() })
}

/// For classes that know no other heads than `hidden / heads`, all with keys of their own.
pub(super) fn undivided_heads(facts: &Facts<'_>, _: &mut Object) -> Result<(), ConfigError> {
    let (heads, kv, hidden) = (facts.heads()?, facts.kv_heads()?, facts.hidden()?);
    if kv != heads {
        return Err(facts.unfit("attention.head_count_kv", format!("{heads}, one for each head")));
    }
    whole_heads(facts, heads, hidden)
}

fn whole_heads(facts: &Facts<'_>, heads: u64, hidden: u64) -> Result<(), ConfigError> {
    if !hidden.is_multiple_of(heads) {
        return Err(facts.unfit("attention.head_count", format!("a divisor of {hidden}")));
    }
    match facts.positive("attention.key_length")? {
        Some(length) if length != hidden / heads => {
            let expected = format!("{}, which is {hidden} / {heads}", hidden / heads);
            Err(facts.unfit("attention.key_length", expected))
        }
        _ => Ok(()),
    }
}

/// starcoder: one head of keys for all.
pub(super) fn one_kv_head(facts: &Facts<'_>, _: &mut Object) -> Result<(), ConfigError> {
    if facts.kv_heads()? != 1 {
        return Err(facts.unfit("attention.head_count_kv", "1, for all heads"));
    }
    whole_heads(facts, facts.heads()?, facts.hidden()?)
}

/// falcon: the two generations are told by their norms and heads.
pub(super) fn falcon(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    let (heads, kv) = (facts.heads()?, facts.kv_heads()?);
    whole_heads(facts, heads, facts.hidden()?)?;
    let two_norms = facts.has("blk.0.attn_norm_2.weight");
    let new = two_norms || kv != 1 && kv != heads;
    object.insert("new_decoder_architecture".into(), new.into());
    object.insert("multi_query".into(), (new || kv == 1).into());
    let norms = if two_norms {
        json!(2)
    } else if new {
        json!(1)
    } else {
        Json::Null
    };
    object.insert("num_ln_in_parallel_attn".into(), norms);
    Ok(())
}

/// mpt: a whole number of widths.
pub(super) fn mpt_expansion(facts: &Facts<'_>) -> Made {
    let (inner, hidden) = (facts.feed_forward()?, facts.hidden()?);
    match inner.is_multiple_of(hidden) {
        true => Ok((inner / hidden).into()),
        false => Err(facts.unfit("feed_forward_length", format!("a multiple of {hidden}"))),
    }
}

/// mpt: the class has no biases, no table of positions, no norms of queries, and always ALiBi.
pub(super) fn mpt_attention(facts: &Facts<'_>) -> Made {
    for tensor in ["position_embd.weight", "blk.0.attn_qkv.bias", "blk.0.attn_q_norm.weight"] {
        if facts.has(tensor) {
            let why = format!("tensor {tensor:?}: transformers' MPT has no place for it");
            return Err(ConfigError::Unsupported(why));
        }
    }
    const ALIBI: &str = "attention.max_alibi_bias";
    let most = facts.positive_real(ALIBI)?;
    let most = most.filter(|m| m.fract() == 0.0 && *m <= 1024.0);
    let most = most.ok_or_else(|| facts.unfit(ALIBI, "a whole number from 1"))?;
    Ok(json!({
        "attn_type": "multihead_attention",
        "alibi": true,
        "alibi_bias_max": most as u64,
        "clip_qkv": facts.positive_real("attention.clamp_kqv")?,
        "qk_ln": false,
        "prefix_lm": false,
        "softmax_scale": null,
    }))
}

/// lfm2: whether convolutions have a bias.
pub(super) fn conv_bias(facts: &Facts<'_>) -> Made {
    Ok(facts.in_layers("shortconv.conv.bias").next().is_some().into())
}

/// lfm2: layers without heads of keys are convolutions.
pub(super) fn lfm2(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    const KEY: &str = "attention.head_count_kv";
    let layers = facts.layers()? as usize;
    let mut counts = facts.counts(KEY)?.ok_or_else(|| facts.missing(KEY))?;
    match *counts {
        [all] => counts = vec![all; layers],
        ref list if list.len() < layers => return Err(facts.unfit(KEY, format!("{layers} layers"))),
        _ => counts.truncate(layers),
    }
    let kv = counts.iter().copied().find(|&n| n > 0);
    let kv = kv.ok_or_else(|| facts.unfit(KEY, "heads in at least one layer"))?;
    if let Some(layer) = counts.iter().position(|&n| n != 0 && n != kv) {
        let key = facts.key(KEY);
        return Err(ConfigError::PerLayer { key, layer, first: kv, other: counts[layer] });
    }
    let heads = facts.heads()?;
    if !heads.is_multiple_of(kv) {
        return Err(facts.unfit(KEY, format!("a divisor of {heads} heads")));
    }
    let (mut full, mut types) = (Vec::new(), Vec::new());
    for (layer, &count) in counts.iter().enumerate() {
        types.push(if count > 0 { "full_attention" } else { "conv" });
        if count > 0 {
            full.push(layer);
        }
    }
    let tied = object.get("tie_word_embeddings").cloned().unwrap_or(Json::Null);
    for (name, value) in [
        ("num_key_value_heads", kv.into()),
        ("layer_types", types.into()),
        ("full_attn_idxs", full.into()),
        // The class takes its word for it from this.
        ("tie_embedding", tied),
    ] {
        object.insert(name.into(), value);
    }
    Ok(())
}

/// gpt-oss: that experts are served in the packed layout, where all are stored in its blocks.
pub(super) fn mxfp4(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    let stems = ["ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"];
    let mut experts = stems.iter().flat_map(|stem| facts.in_layers(stem));
    let some = experts.clone().any(|t| t.dtype == DType::MXFP4);
    let packed = some && experts.all(|t| t.dtype == DType::MXFP4);
    if some && !packed {
        facts.warn(
            "config.json: some experts are MXFP4 and some are not: transformers loads them only \
             when all are or none is"
                .into(),
        );
    }
    if packed {
        object.insert(
            "quantization_config".into(),
            json!({
                "quant_method": "mxfp4",
                "modules_to_not_convert": [
                    "model.layers.*.self_attn",
                    "model.layers.*.mlp.router",
                    "model.embed_tokens",
                    "lm_head",
                ],
            }),
        );
    }
    Ok(())
}

/// deepseek: lengths of heads, which old files have under the usual keys.
fn deepseek_heads(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    let rope = facts.required("rope.dimension_count")?;
    let latent = facts.positive("attention.key_length_mla")?;
    let (key, value) = if latent.is_some() {
        ("attention.key_length_mla", "attention.value_length_mla")
    } else {
        ("attention.key_length", "attention.value_length")
    };
    let length = facts.required(key)?;
    if length <= rope {
        return Err(facts.unfit(key, format!("more than the {rope} that turn")));
    }
    object.insert("qk_nope_head_dim".into(), (length - rope).into());
    object.insert("v_head_dim".into(), facts.required(value)?.into());
    Ok(())
}

/// deepseek: groups of experts; `None` where the file is older than their keys.
fn deepseek_groups(facts: &Facts<'_>) -> Result<Option<(u64, u64)>, ConfigError> {
    let groups = facts.positive("expert_group_count")?;
    let used = facts.positive("expert_group_used_count")?;
    Ok(groups.map(|groups| (groups, used.unwrap_or(1))))
}

/// deepseek_v2: how experts are picked.
pub(super) fn deepseek_v2(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    deepseek_heads(facts, object)?;
    let (groups, used) = deepseek_groups(facts)?.unwrap_or((1, 1));
    let method = if groups > 1 { "group_limited_greedy" } else { "greedy" };
    object.insert("n_group".into(), groups.into());
    object.insert("topk_group".into(), used.into());
    object.insert("topk_method".into(), method.into());
    Ok(())
}

/// deepseek_v3: the published sizes have groups that old files do not name.
pub(super) fn deepseek_v3(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    deepseek_heads(facts, object)?;
    let (groups, used) = match deepseek_groups(facts)? {
        Some(told) => told,
        None if facts.required("expert_count")? == 256 && facts.layers()? == 61 => {
            facts.warn(
                "config.json: the file does not name its groups of experts: n_group 8 and \
                 topk_group 4, as published for this size"
                    .into(),
            );
            (8, 4)
        }
        None => (1, 1),
    };
    object.insert("n_group".into(), groups.into());
    object.insert("topk_group".into(), used.into());
    Ok(())
}

/// mamba: the class multiplies, so it must come out even.
pub(super) fn expand(facts: &Facts<'_>) -> Made {
    let (inner, hidden) = (facts.required("ssm.inner_size")?, facts.hidden()?);
    match inner.is_multiple_of(hidden) {
        true => Ok((inner / hidden).into()),
        false => Err(facts.unfit("ssm.inner_size", format!("a multiple of {hidden}"))),
    }
}

/// mamba2: elements of a head.
pub(super) fn mamba2_head_dim(facts: &Facts<'_>) -> Made {
    let (inner, heads) = (facts.required("ssm.inner_size")?, facts.required("ssm.time_step_rank")?);
    match inner.is_multiple_of(heads) {
        true => Ok((inner / heads).into()),
        false => Err(facts.unfit("ssm.time_step_rank", format!("a divisor of {inner}"))),
    }
}

/// t5: elements of a head, which need not be `d_model / heads`.
pub(super) fn t5_head_dim(facts: &Facts<'_>) -> Made {
    if let Some(length) = facts.positive("attention.key_length")? {
        return Ok(length.into());
    }
    let heads = facts.heads()?;
    match facts.rows("enc.blk.0.attn_q.weight") {
        Some(rows) if rows.is_multiple_of(heads) => Ok((rows / heads).into()),
        _ => Err(facts.missing("attention.key_length")),
    }
}

/// t5: as many layers on both sides unless the file says otherwise.
pub(super) fn decoder_layers(facts: &Facts<'_>) -> Made {
    Ok(match facts.positive("decoder_block_count")? {
        Some(layers) => layers.into(),
        None => facts.layers()?.into(),
    })
}

/// t5: the first version has no gate.
pub(super) fn t5_feed_forward(facts: &Facts<'_>) -> Made {
    let gated = facts.has("enc.blk.0.ffn_gate.weight");
    Ok(if gated { "gated-gelu" } else { "relu" }.into())
}

/// bert: rows of the table of sentence types.
pub(super) fn token_types(facts: &Facts<'_>) -> Made {
    match facts.rows("token_types.weight") {
        Some(rows) => Ok(rows.into()),
        None => match facts.meta().number("tokenizer.ggml.token_type_count") {
            Some(count @ 1..=65_536) => Ok(count.into()),
            _ => Err(ConfigError::NoTensor { name: "token_types.weight".into() }),
        },
    }
}

/// bert: names of the classes that a classifier tells.
pub(super) fn labels(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    const KEY: &str = "classifier.output_labels";
    const MOST: u64 = 65_536;
    undivided_heads(facts, object)?;
    let (mut names, mut numbers) = (Object::new(), Object::new());
    let mut add = |index: u64, label: String| {
        names.insert(index.to_string(), label.clone().into());
        numbers.insert(label, index.into());
    };
    match facts.meta().arch(KEY) {
        // Converters leave out the names that every classifier begins with.
        None => {
            let rows = facts.rows("cls.output.weight").or_else(|| facts.rows("cls.weight"));
            let count = rows.filter(|&n| n <= MOST).ok_or_else(|| facts.missing(KEY))?;
            (0..count).for_each(|index| add(index, format!("LABEL_{index}")));
        }
        Some(Value::Array(array)) if array.len() <= MOST => {
            let mut strings = true;
            let read = facts.meta().each(array, &mut |index, item| {
                match item {
                    Item::Str(label) => add(index, String::from_utf8_lossy(label).into_owned()),
                    _ => strings = false,
                }
                Ok(())
            });
            read.map_err(|source| ConfigError::Read { what: facts.key(KEY), source })?;
            if !strings {
                return Err(facts.unfit(KEY, "an array of strings"));
            }
        }
        Some(_) => return Err(facts.unfit(KEY, format!("an array of at most {MOST} strings"))),
    }
    object.insert("id2label".into(), names.into());
    object.insert("label2id".into(), numbers.into());
    Ok(())
}

/// nomic-bert: the class has gates everywhere and biases nowhere; its pad id is a number.
pub(super) fn nomic_bert(facts: &Facts<'_>, object: &mut Object) -> Result<(), ConfigError> {
    undivided_heads(facts, object)?;
    let bias = ["blk.0.attn_qkv.bias", "blk.0.ffn_up.bias"].into_iter().find(|t| facts.has(t));
    if let Some(tensor) = bias {
        let why = format!("tensor {tensor:?}: transformers' Nomic BERT has no biases");
        return Err(ConfigError::Unsupported(why));
    }
    if !facts.has("blk.0.ffn_gate.weight") {
        return Err(ConfigError::NoTensor { name: "blk.0.ffn_gate.weight".into() });
    }
    if object.get("pad_token_id").is_some_and(Json::is_null) {
        object.remove("pad_token_id");
    }
    Ok(())
}
