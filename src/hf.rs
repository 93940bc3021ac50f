//! `hf/`: what Hugging Face's libraries expect beside weights, made from a GGUF's metadata.
//!
//! Pure functions from metadata (and, for rope scaling, two small tensors) to the bytes of
//! `config.json`, `tokenizer.json` and their companions. Must not know inodes or FUSE; who
//! serves them keeps them.

mod config;
pub mod meta;
mod tokenizer;

use crate::model::{Format, Model};
use meta::Meta;
use std::io;

/// One file of `hf/`, beside the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum File {
    /// `config.json`.
    Config,
    /// `generation_config.json`.
    GenerationConfig,
    /// `tokenizer.json`.
    Tokenizer,
    /// `tokenizer_config.json`.
    TokenizerConfig,
    /// `special_tokens_map.json`.
    SpecialTokensMap,
    /// `chat_template.jinja`.
    ChatTemplate,
    /// `additional_chat_templates/NAME.jinja`: the metadata key with this index.
    NamedTemplate(u32),
}

/// Which files a mount has in `hf/`, and why it lacks others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In listing order.
    pub files: Vec<File>,
    /// What a user should know: files that are missing, values that are not certain.
    pub warnings: Vec<String>,
}

/// The type that `hf/model.safetensors` mainly holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// BF16.
    Bfloat16,
    /// F16.
    Float16,
    /// F32.
    Float32,
}

impl Weights {
    /// torch's name of it, for `torch_dtype`.
    pub const fn name(self) -> &'static str {
        match self {
            Weights::Bfloat16 => "bfloat16",
            Weights::Float16 => "float16",
            Weights::Float32 => "float32",
        }
    }
}

/// What precedes the name of a further chat template in its key.
pub const NAMED_TEMPLATE: &[u8] = b"tokenizer.chat_template.";

/// The name of the template in the `i`th metadata key.
pub fn template_name(model: &Model, i: u32) -> &[u8] {
    let key = model.metadata.get(i as usize).map(|meta| &*meta.key).unwrap_or_default();
    key.strip_prefix(NAMED_TEMPLATE).unwrap_or(key)
}

/// Decides which files there are, from the header alone: keys, counts and lengths.
pub fn plan(meta: Meta<'_>) -> Plan {
    let mut plan = Plan::default();
    if meta.model().format != Format::Gguf {
        return plan;
    }
    match config::check(meta) {
        Ok(warnings) => {
            plan.files.push(File::Config);
            plan.warnings.extend(warnings);
        }
        Err(why) => plan.warnings.push(format!("hf/ has no config.json: {why}")),
    }
    tokenizer::plan(meta, &mut plan);
    plan
}

/// The bytes of `file`, always the same for the same model and options.
pub fn write(meta: Meta<'_>, file: File, weights: Weights) -> io::Result<Vec<u8>> {
    match file {
        File::Config => config::write(meta, weights),
        other => tokenizer::write(meta, other),
    }
}
