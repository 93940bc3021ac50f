//! How positions turn: `rope_theta`, `rope_scaling` and what stands beside them.
//!
//! The top-level form is written: version 4 of transformers knows no other, version 5 moves
//! it into `rope_parameters` itself.

use super::error::ConfigError;
use super::facts::{Facts, shortest};
use super::field::{Object, decimals, ratio};
use super::llama3::{self, Scaling};
use serde_json::{Value as Json, json};

/// The forms that families have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rope {
    /// No rotation.
    None,
    /// Whole heads.
    Whole,
    /// Part of each head: `partial_rotary_factor`.
    Part,
    /// gpt_neox, which has its own words.
    Neox,
    /// gemma3: layers with a window have a base of their own.
    Gemma3,
    /// phi3: part of each head, and a top-level original length.
    Phi3,
    /// phimoe: longrope with the scale of attention spelt out.
    PhiMoe,
    /// gpt-oss: yarn with untruncated bounds.
    GptOss,
    /// deepseek: heads have a part that turns, of its own length.
    DeepSeek,
    /// olmo3: the class gives windowed layers its default base, whatever the file says.
    Olmo3,
}

const DIMENSIONS: &str = "rope.dimension_count";
const BASE: &str = "rope.freq_base";
const TYPE: &str = "rope.scaling.type";
const FACTOR: &str = "rope.scaling.factor";
const ORIGINAL: &str = "rope.scaling.original_context_length";
const FREQS: &str = "rope_freqs.weight";
const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";

/// Adds what the model says of rotation.
pub(super) fn add(facts: &Facts<'_>, rope: Rope, object: &mut Object) -> Result<(), ConfigError> {
    if rope == Rope::None {
        return Ok(());
    }
    let default_base = if rope == Rope::Gemma3 { 1e6 } else { 1e4 };
    let base = facts.positive_real(BASE)?.unwrap_or(default_base);
    let head_dim = match object.get("head_dim").and_then(Json::as_u64) {
        Some(dim) => dim,
        // Keys and values differ in length there, and neither bears on rotation.
        None if rope == Rope::DeepSeek => facts.required(DIMENSIONS)?,
        None => facts.head_dim(false)?,
    };
    let turned = match facts.count(DIMENSIONS)?.filter(|&n| n > 0) {
        Some(turned) if turned <= head_dim || rope == Rope::DeepSeek => turned,
        Some(_) => return Err(facts.unfit(DIMENSIONS, format!("at most {head_dim}, a head"))),
        None => head_dim,
    };
    let mut put = |name: &str, value: Json| {
        object.insert(name.into(), value);
    };
    let scaling = scaling(facts, rope, base, turned)?;
    if rope == Rope::Neox {
        put("rotary_emb_base", base.into());
        put("rotary_pct", ratio(turned, head_dim).into());
    } else {
        put("rope_theta", base.into());
    }
    match rope {
        Rope::Part | Rope::Phi3 => {
            put("partial_rotary_factor", ratio(turned, head_dim).into());
        }
        Rope::Gemma3 => {
            let local = facts.positive_real("rope.freq_base_swa")?.unwrap_or(1e4);
            put("rope_local_base_freq", local.into());
        }
        Rope::Olmo3 if base != 500_000.0 => {
            let windowed = json!({"rope_type": "default", "rope_theta": base});
            let mut full = scaling.clone().unwrap_or_else(|| json!({"rope_type": "default"}));
            full["rope_theta"] = base.into();
            let both = json!({"full_attention": full, "sliding_attention": windowed});
            put("rope_parameters", both);
        }
        Rope::Whole | Rope::PhiMoe | Rope::GptOss if turned != head_dim => {
            put("partial_rotary_factor", ratio(turned, head_dim).into());
            facts.warn(format!(
                "config.json: {turned} of the {head_dim} elements of a head turn with the \
                 position; not every class of this family can do that"
            ));
        }
        _ => {}
    }
    if rope == Rope::Phi3 || has_factors(facts) {
        let original = original(facts)?;
        put("original_max_position_embeddings", original.into());
    }
    put("rope_scaling", scaling.unwrap_or(Json::Null));
    Ok(())
}

fn has_factors(facts: &Facts<'_>) -> bool {
    facts.has(LONG) || facts.has(SHORT)
}

fn original(facts: &Facts<'_>) -> Result<u64, ConfigError> {
    match facts.positive(ORIGINAL)? {
        Some(original) => Ok(original),
        None => facts.context(),
    }
}

/// `rope_scaling`, if there is any.
fn scaling(
    facts: &Facts<'_>,
    rope: Rope,
    base: f64,
    turned: u64,
) -> Result<Option<Json>, ConfigError> {
    let kind = facts.word(TYPE)?;
    let factor = match facts.positive_real(FACTOR)? {
        // The name of old files.
        None => facts.positive_real("rope.scale_linear")?,
        factor => factor,
    };
    if has_factors(facts) {
        return match kind.as_deref() {
            None | Some("none" | "longrope") => longrope(facts, rope, turned).map(Some),
            Some(_) => Err(facts.unfit(TYPE, "longrope, since there are factors of it")),
        };
    }
    let stated = match kind.as_deref() {
        Some("none") => None,
        None if factor.is_none_or(|f| f == 1.0) => None,
        // Without a type the factor is linear, as llama.cpp takes it.
        None | Some("linear") => {
            let factor = factor.ok_or_else(|| facts.missing(FACTOR))?;
            Some(json!({"rope_type": "linear", "factor": factor}))
        }
        Some("yarn") => Some(yarn(facts, rope, factor)?),
        Some("longrope") => return Err(ConfigError::NoTensor { name: LONG.into() }),
        Some(other) => {
            let (key, found) = (facts.key(TYPE), format!("{other:?}"));
            let expected = "none, linear, yarn or longrope".into();
            return Err(ConfigError::Value { key, expected, found });
        }
    };
    if !facts.has(FREQS) {
        return Ok(stated);
    }
    if stated.is_some() {
        let key = facts.key(TYPE);
        let why = format!("{key} and {FREQS} both scale: config.json has one scaling");
        return Err(ConfigError::Unsupported(why));
    }
    freqs(facts, base, turned)
}

/// From `rope_freqs.weight`, of which no key says what it is.
fn freqs(facts: &Facts<'_>, base: f64, turned: u64) -> Result<Option<Json>, ConfigError> {
    let factors = match facts.factors(FREQS, turned / 2) {
        Err(error @ ConfigError::Shape { .. }) => {
            facts.warn(format!("config.json: {error}: no rope scaling is written"));
            return Ok(None);
        }
        factors => factors?,
    };
    Ok(match llama3::invert(&factors, base) {
        Scaling::None => None,
        Scaling::Llama3 { factor, low, high } => Some(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": llama3::ORIGINAL as u64,
        })),
        // Not Llama's rule. Longrope with the same factors at every length says just that.
        Scaling::Other => Some(json!({
            "rope_type": "longrope",
            "factor": 1.0,
            "attention_factor": 1.0,
            "long_factor": decimals(&factors),
            "short_factor": decimals(&factors),
            "original_max_position_embeddings": facts.context()?,
        })),
    })
}

fn longrope(facts: &Facts<'_>, rope: Rope, turned: u64) -> Result<Json, ConfigError> {
    let long = facts.factors(LONG, turned / 2)?;
    let short = facts.factors(SHORT, turned / 2)?;
    let mut scaling = json!({
        // The one word for version 5, the other for version 4.
        "rope_type": "longrope",
        "type": "longrope",
        "long_factor": decimals(&long),
        "short_factor": decimals(&short),
    });
    let original = facts.required(ORIGINAL)?;
    if rope != Rope::Phi3 {
        scaling["original_max_position_embeddings"] = original.into();
    }
    if rope == Rope::PhiMoe {
        let scale = match facts.positive_real("rope.scaling.attn_factor")? {
            Some(scale) => scale,
            None => {
                let (original, context) = (original as f64, facts.context()? as f64);
                let scale = (1.0 + (context / original).ln() / original.ln()).sqrt();
                if scale.is_finite() { shortest(scale as f32) } else { 1.0 }
            }
        };
        scaling["long_mscale"] = scale.into();
        scaling["short_mscale"] = scale.into();
        facts.warn(
            "config.json: short_mscale and long_mscale are llama.cpp's: the file does not keep \
             the published ones"
                .into(),
        );
    }
    Ok(scaling)
}

fn yarn(facts: &Facts<'_>, rope: Rope, factor: Option<f64>) -> Result<Json, ConfigError> {
    let mut scaling = json!({
        "rope_type": "yarn",
        "factor": factor.ok_or_else(|| facts.missing(FACTOR))?,
        "original_max_position_embeddings": original(facts)?,
    });
    if let Some(factor) = facts.positive_real("rope.scaling.yarn_attn_factor")? {
        scaling["attention_factor"] = factor.into();
    }
    // The defaults are those of llama.cpp and of transformers.
    for (name, key, default) in [
        ("beta_fast", "rope.scaling.yarn_beta_fast", 32.0),
        ("beta_slow", "rope.scaling.yarn_beta_slow", 1.0),
    ] {
        scaling[name] = facts.positive_real(key)?.unwrap_or(default).into();
    }
    if rope == Rope::GptOss {
        scaling["truncate"] = false.into();
    }
    if rope == Rope::DeepSeek
        && let Some(multiplier) = facts.positive_real("rope.scaling.yarn_log_multiplier")?
    {
        // The converter keeps a tenth of it.
        let mscale = shortest((multiplier * 10.0) as f32);
        scaling["mscale"] = mscale.into();
        scaling["mscale_all_dim"] = mscale.into();
    }
    Ok(scaling)
}
