//! `map=gguf`: Hugging Face names to GGUF names, by the same tables from right to left.
//!
//! Names only: what a converter does to values and shapes is not done.

use super::super::catalog::Names;
use super::super::error::{MapError, show};
use super::super::families::{FAMILIES, Family, Op};
use super::super::rules::render;
use super::super::stage::{Out, RuleId, Stage};
use super::super::{ArchFacts, Mounted, Transform};
use super::table::{Known, Outcome, Table};
use super::{Listed, TABLE};
use crate::naming::rules::Slots;
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Hugging Face names to GGUF names.
pub(in super::super) struct Gguf {
    table: Table,
    bases: &'static [&'static str],
    renamed: usize,
    /// What a converter would also do, and to how many of the renamed tensors.
    not_done: BTreeMap<&'static str, usize>,
    unknown: Listed,
    joined: Listed,
    ambiguous: Listed,
    buffer: Vec<u8>,
}

impl Gguf {
    /// The stage, or `None` with a warning when nothing is certain.
    pub(in super::super) fn new(
        names: Names<'_>,
        facts: &ArchFacts,
        warnings: &mut Vec<String>,
    ) -> Option<Gguf> {
        let families = match &facts.config {
            Some(config) => match family_of(config) {
                Ok(family) => vec![family],
                Err(found) => {
                    warnings.push(format!(
                        "map=gguf: no table for {found} of config.json: ALL names are kept as stored"
                    ));
                    return None;
                }
            },
            None => {
                let families = families_that_fit(names);
                if families.is_empty() {
                    warnings.push(
                        "map=gguf: there is no config.json beside the model to name its \
                         architecture, and the names alone fit none: ALL names are kept as stored"
                            .into(),
                    );
                    return None;
                }
                families
            }
        };
        Some(Gguf {
            table: Table::hf_to_gguf(&families),
            bases: families[0].bases,
            renamed: 0,
            not_done: BTreeMap::new(),
            unknown: Listed::default(),
            joined: Listed::default(),
            ambiguous: Listed::default(),
            buffer: Vec::new(),
        })
    }
}

/// Looks a name up as it is, then without and then with each prefix that some files lack.
fn find(
    table: &mut Table,
    bases: &[&str],
    name: &[u8],
    mut use_it: impl FnMut(&Rc<Known>, &Slots<'_>),
) -> bool {
    if let Some((known, numbers)) = table.find(name) {
        use_it(&known, &numbers);
        return true;
    }
    for base in bases {
        if let Some((known, numbers)) =
            name.strip_prefix(base.as_bytes()).and_then(|n| table.find(n))
        {
            use_it(&known, &numbers);
            return true;
        }
        let longer = [base.as_bytes(), name].concat();
        if let Some((known, numbers)) = table.find(&longer) {
            use_it(&known, &numbers);
            return true;
        }
    }
    false
}

/// The family that a config.json names, or what it names.
fn family_of(config: &Value) -> Result<&'static Family, String> {
    let model_type = config.get("model_type").and_then(Value::as_str);
    let by_type = |name: &str| FAMILIES.iter().find(|f| f.model_types.contains(&name));
    if let Some(family) = model_type.and_then(by_type) {
        return Ok(family);
    }
    let classes = config.get("architectures").and_then(Value::as_array);
    let class = classes.and_then(|list| list.first()).and_then(Value::as_str);
    // `Qwen2MoeForCausalLM` is `qwen2_moe`, `GPT2LMHeadModel` is `gpt2`.
    let by_class = class.and_then(|class| {
        let end = ["For", "LMHead", "Model"].iter().filter_map(|word| class.find(word)).min();
        let word = class[..end.unwrap_or(class.len())].to_lowercase();
        let word = if word == "gemma3" { "gemma3text" } else { &word };
        FAMILIES.iter().find(|f| f.model_types.iter().any(|t| t.replace(['_', '-'], "") == word))
    });
    by_class.ok_or_else(|| match (model_type, class) {
        (Some(name), _) => format!("the model_type {}", show(name.as_bytes())),
        (None, Some(name)) => format!("the architecture {}", show(name.as_bytes())),
        (None, None) => "the architecture (none is named)".into(),
    })
}

/// Families that know every name of the model and whose marks the model has.
fn families_that_fit(names: Names<'_>) -> Vec<&'static Family> {
    FAMILIES
        .iter()
        .filter(|family| {
            let mut table = Table::hf_to_gguf(&[family]);
            let mut marks = vec![false; family.marks.len()];
            let keys: Vec<String> = family
                .marks
                .iter()
                .map(|mark| mark.replace('@', &family.layer.replace("{i}", "0")) + ".weight")
                .collect();
            let all = names.iter().all(|item| {
                for (mark, key) in marks.iter_mut().zip(&keys) {
                    *mark |= *item.name == *key.as_bytes();
                }
                find(&mut table, family.bases, item.name, |_, _| {})
            });
            all && names.len() > 0 && marks.iter().all(|&m| m)
        })
        .collect()
}

/// What a converter does besides renaming, in its own direction.
const fn forward(op: Op) -> Option<&'static str> {
    match op {
        Op::RopeQ | Op::RopeK => Some("rows of q and k put in rope order"),
        Op::Qkv3 | Op::Falcon => Some("rows of fused q, k, v regrouped"),
        Op::MinusOne => Some("1 added to norms"),
        Op::LogNegated => Some("A_log made -exp(A_log)"),
        Op::FlatLogNegated => Some("A_log made -exp(A_log), shaped [n, 1]"),
        Op::Transpose => Some("matrices transposed"),
        Op::InsertOne | Op::LeadingOne | Op::Flat => Some("dimensions of 1 taken out or put in"),
        Op::Same | Op::Split | Op::Join(_) => None,
    }
}

impl Stage for Gguf {
    fn apply(&mut self, item: &Mounted<'_>, out: &mut Out<'_>) {
        let Gguf { table, bases, buffer, joined, ambiguous, .. } = self;
        let mut op = None;
        let known = find(table, bases, item.name, |known, numbers| match known.outcome {
            Outcome::Rename(found) => {
                render(&known.target, numbers, 0, buffer);
                op = Some(found);
            }
            Outcome::Ambiguous => ambiguous.add(item.name),
            _ => joined.add(item.name),
        });
        if let Some(op) = op {
            self.renamed += 1;
            if let Some(change) = forward(op) {
                *self.not_done.entry(change).or_default() += 1;
            }
            out.part(TABLE, item, &self.buffer, item.shape, Transform::None);
            return;
        }
        if !known {
            self.unknown.add(item.name);
        }
        out.keep(item);
    }

    fn rule(&self, _: RuleId) -> String {
        "table".into()
    }

    fn finish(&mut self, _: Names<'_>, _: &mut MapError, warnings: &mut Vec<String>) {
        let names = if self.renamed == 1 { "name" } else { "names" };
        let changes = self.not_done.iter().map(|(change, count)| {
            format!("{change} ({count} {})", if *count == 1 { "tensor" } else { "tensors" })
        });
        let others = match changes.collect::<Vec<_>>().join("; ") {
            none if none.is_empty() => String::new(),
            changes => format!("; what a converter also does is not done: {changes}"),
        };
        warnings.push(format!(
            "map=gguf changes names only ({} {names}), this is no model for llama.cpp{others}",
            self.renamed
        ));
        for (listed, why) in [
            (&self.unknown, "without a GGUF name"),
            (&self.joined, "that a GGUF has joined into one"),
            (&self.ambiguous, "whose GGUF name depends on the architecture (no config.json)"),
        ] {
            if listed.count > 0 {
                warnings.push(format!(
                    "map=gguf: {} {why}, kept as stored: {}",
                    listed.tensors(),
                    listed.show()
                ));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::super::testing::{named, names};
    use crate::model::{Format, Model};
    use crate::naming::{ArchFacts, Catalog, MapSpec};

    fn gguf(model: &Model, config: Option<serde_json::Value>) -> Catalog {
        let facts = ArchFacts::default().with_config(config);
        Catalog::build(model, &facts, &[MapSpec::Gguf]).unwrap()
    }

    /// One warning that has all these words.
    fn has_warning(catalog: &Catalog, words: &[&str]) -> bool {
        catalog.warnings().iter().any(|w| words.iter().all(|word| w.contains(word)))
    }

    #[test]
    fn gguf_names_by_config() {
        let model = named(
            Format::Safetensors,
            &[
                "model.embed_tokens.weight",
                "model.layers.3.self_attn.q_proj.weight",
                "model.layers.3.post_attention_layernorm.weight",
                "model.layers.3.block_sparse_moe.experts.1.w1.weight",
                "model.rotary.inv_freq",
                "lm_head.weight",
            ],
        );
        let config = |text| Some(serde_json::from_str(text).unwrap());
        let catalog = gguf(&model, config(r#"{"model_type": "mixtral"}"#));
        assert_eq!(
            names(&model, &catalog),
            [
                "token_embd.weight",
                "blk.3.attn_q.weight",
                "blk.3.ffn_norm.weight",
                "model.layers.3.block_sparse_moe.experts.1.w1.weight",
                "model.rotary.inv_freq",
                "output.weight",
            ]
        );
        assert!(has_warning(&catalog, &["changes names only (4 names)", "rope order (1 tensor)"]));
        assert!(has_warning(&catalog, &["without a GGUF name", "inv_freq"]));
        assert!(has_warning(&catalog, &["joined into one", "experts.1.w1"]));
        // The same stem means another thing elsewhere.
        let catalog = gguf(&model, config(r#"{"architectures": ["Gemma2ForCausalLM"]}"#));
        assert_eq!(names(&model, &catalog)[2], "blk.3.post_attention_norm.weight");
        let catalog = gguf(&model, config(r#"{"model_type": "martian"}"#));
        assert!(catalog.is_identity());
        assert!(has_warning(&catalog, &["no table for the model_type martian"]));
    }

    #[test]
    fn gguf_names_without_config_only_when_all_that_fit_agree() {
        let layer = |names: &[&str]| {
            let mut all: Vec<String> =
                vec!["model.embed_tokens.weight".into(), "model.norm.weight".into()];
            all.extend(names.iter().map(|n| format!("model.layers.0.{n}.weight")));
            all
        };
        let llama = layer(&[
            "input_layernorm",
            "self_attn.q_proj",
            "post_attention_layernorm",
            "mlp.gate_proj",
        ]);
        let llama: Vec<&str> = llama.iter().map(String::as_str).collect();
        let st = named(Format::Safetensors, &llama);
        assert_eq!(
            names(&st, &gguf(&st, None)),
            [
                "token_embd.weight",
                "output_norm.weight",
                "blk.0.attn_norm.weight",
                "blk.0.attn_q.weight",
                "blk.0.ffn_norm.weight",
                "blk.0.ffn_gate.weight"
            ]
        );
        let mut strange = llama.clone();
        strange.push("something.else");
        let st = named(Format::Safetensors, &strange);
        let catalog = gguf(&st, None);
        assert!(catalog.is_identity());
        assert!(has_warning(&catalog, &["no config.json", "ALL names are kept"]));
    }

    #[test]
    fn checkpoints_with_and_without_their_base_prefix() {
        let config = || Some(serde_json::json!({"model_type": "gpt2"}));
        let st = named(Format::Safetensors, &["h.0.attn.c_attn.weight", "wte.weight"]);
        assert_eq!(
            names(&st, &gguf(&st, config())),
            ["blk.0.attn_qkv.weight", "token_embd.weight"]
        );
        let config = Some(serde_json::json!({"model_type": "bert"}));
        let st = named(Format::Safetensors, &["bert.encoder.layer.1.output.dense.bias"]);
        assert_eq!(names(&st, &gguf(&st, config)), ["blk.1.ffn_down.bias"]);
    }

    #[test]
    fn what_a_converter_also_does_is_listed_in_one_warning() {
        let config = |kind: &str| Some(serde_json::json!({ "model_type": kind }));
        for (kind, names, words) in [
            (
                "gemma3_text",
                ["model.norm.weight", "model.layers.0.self_attn.q_norm.weight"].as_slice(),
                "not done: 1 added to norms (2 tensors)",
            ),
            (
                "gpt2",
                &["transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias"],
                "matrices transposed (1 tensor)",
            ),
            (
                "mamba",
                &["backbone.layers.0.mixer.A_log", "backbone.layers.0.mixer.conv1d.weight"],
                "A_log made -exp(A_log) (1 tensor); dimensions of 1 taken out or put in (1 tensor)",
            ),
            ("bloom", &["h.0.self_attention.query_key_value.weight"], "regrouped (1 tensor)"),
            ("qwen2", &["model.norm.weight"], "(1 name), this is no model for llama.cpp"),
        ] {
            let st = named(Format::Safetensors, names);
            let catalog = gguf(&st, config(kind));
            let [warning] = catalog.warnings() else { panic!("{:?}", catalog.warnings()) };
            assert!(warning.ends_with(words), "{warning}");
        }
    }

    #[test]
    fn a_name_with_and_one_without_the_base_prefix_collide() {
        let st = named(Format::Safetensors, &["model.norm.weight", "norm.weight"]);
        let facts =
            ArchFacts::default().with_config(Some(serde_json::json!({"model_type": "llama"})));
        let error = Catalog::build(&st, &facts, &[MapSpec::Gguf]).unwrap_err();
        assert_eq!(
            error.problems()[0].text,
            "output_norm.weight <- model.norm.weight (table), norm.weight (table)"
        );
    }

    #[test]
    fn the_class_decides_where_the_type_says_nothing() {
        let st = named(Format::Safetensors, &["model.layers.0.mlp.gate.e_score_correction_bias"]);
        let config = serde_json::json!({"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]});
        assert_eq!(names(&st, &gguf(&st, Some(config))), ["blk.0.exp_probs_b.bias"]);
    }

    #[test]
    fn t5_layers_are_told_apart_by_fixed_numbers() {
        let config = Some(serde_json::json!({"model_type": "t5"}));
        let st = named(
            Format::Safetensors,
            &[
                "encoder.block.7.layer.0.layer_norm.weight",
                "encoder.block.7.layer.1.layer_norm.weight",
                "decoder.block.7.layer.2.layer_norm.weight",
                "decoder.block.7.layer.3.layer_norm.weight",
            ],
        );
        assert_eq!(
            names(&st, &gguf(&st, config)),
            [
                "enc.blk.7.attn_norm.weight",
                "enc.blk.7.ffn_norm.weight",
                "dec.blk.7.ffn_norm.weight",
                "decoder.block.7.layer.3.layer_norm.weight"
            ]
        );
    }

    #[test]
    fn the_format_that_has_the_names_already_is_left_alone() {
        let g = named(Format::Gguf, &["output_norm.weight"]);
        let catalog = gguf(&g, None);
        assert!(catalog.is_identity() && catalog.in_force());
        assert!(has_warning(&catalog, &["has GGUF names already"]));
    }
}
