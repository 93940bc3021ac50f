//! Which family a model is of: `general.architecture`, and what its keys and tensors add.

use super::error::ConfigError;
use super::facts::Facts;
use super::families::*;
use super::field::Family;
use super::layers::WINDOW;

/// The family of this model. An architecture that has no table here has none for its names
/// either: with a config.json its weights would be made up, silently.
pub(super) fn family(facts: &Facts<'_>) -> Result<&'static Family, ConfigError> {
    Ok(match facts.arch() {
        "llama" if facts.count("expert_count")?.unwrap_or(0) > 0 => &MIXTRAL,
        "llama" if facts.has("blk.0.ffn_gate_inp.weight") => &MIXTRAL,
        "llama" => &LLAMA,
        "granite" => &GRANITE,
        "smollm3" => &SMOLLM3,
        "arcee" => &ARCEE,
        "qwen2" => &QWEN2,
        "qwen2moe" => &QWEN2_MOE,
        "qwen3" => &QWEN3,
        "qwen3moe" => &QWEN3_MOE,
        "olmoe" => &OLMOE,
        "gemma" => &GEMMA,
        "gemma2" => &GEMMA2,
        "gemma3" => &GEMMA3,
        "phi2" => &PHI2,
        "phi3" => &PHI3,
        "phimoe" => &PHIMOE,
        "gpt2" => &GPT2,
        "starcoder" => &STARCODER,
        "starcoder2" => &STARCODER2,
        "falcon" => &FALCON,
        "bloom" => &BLOOM,
        "gptneox" => &GPT_NEOX,
        "mpt" => &MPT,
        "stablelm" => &STABLELM,
        "olmo2" if facts.count(WINDOW)?.unwrap_or(0) > 0 => &OLMO3,
        "olmo2" => &OLMO2,
        "command-r" => &COHERE,
        "cohere2" => &COHERE2,
        "nemotron" => &NEMOTRON,
        "lfm2" => &LFM2,
        "gpt-oss" => &GPT_OSS,
        "deepseek2" if sigmoid_gate(facts)? => &DEEPSEEK_V3,
        "deepseek2" => &DEEPSEEK_V2,
        "mamba" if facts.flag("ssm.dt_b_c_rms")? == Some(true) => &FALCON_MAMBA,
        "mamba" => &MAMBA,
        "mamba2" => &MAMBA2,
        // Every layer has a bias by distance, not only the first.
        "t5" if facts.has("enc.blk.1.attn_rel_b.weight") => &UMT5,
        "t5" => &T5,
        "t5encoder" => &T5_ENCODER,
        "bert" => bert(facts)?,
        "nomic-bert" => &NOMIC_BERT,
        other => return Err(ConfigError::Architecture { arch: other.into() }),
    })
}

fn sigmoid_gate(facts: &Facts<'_>) -> Result<bool, ConfigError> {
    Ok(facts.count("expert_gating_func")? == Some(2)
        || facts.in_layers("exp_probs_b.bias").next().is_some())
}

/// BERT, unless the tokenizer is that of RoBERTa or XLM-R, whose first rows of positions the
/// converter cuts off.
fn bert(facts: &Facts<'_>) -> Result<&'static Family, ConfigError> {
    const KEY: &str = "tokenizer.ggml.model";
    let read = |source| ConfigError::Read { what: KEY.into(), source };
    if let Some(kind) = facts.meta().text(KEY).map_err(read)?
        && kind != b"bert"
    {
        let kind = String::from_utf8_lossy(&kind);
        return Err(ConfigError::Unsupported(format!(
            "{KEY} is {kind:?}: a RoBERTa, whose positions were shifted by a number that the \
             file does not keep"
        )));
    }
    let classifies = facts.meta().model().tensors.iter().any(|t| t.name.starts_with(b"cls."));
    Ok(if classifies { &BERT_CLASSIFIER } else { &BERT })
}
