//! The tokenizer's files and `generation_config.json`.
//!
//! A GGUF keeps a vocabulary as parallel arrays and the name of an algorithm;
//! `tokenizer.json` states the algorithm itself. What there is to write is decided from keys,
//! counts and lengths ([`recipe`]); the arrays are read when a file is first asked for.
//! Whatever they hold, a file that is written is one that the `tokenizers` library loads.

mod charsmap;
mod frame;
mod generation;
mod index;
mod json;
mod merges;
mod recipe;
mod settings;
mod special;
mod split;
mod templates;
mod vocabulary;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use super::meta::Meta;
use super::{File, Plan};
use recipe::Recipe;
use std::io;

/// Adds the files that there are to `plan`, or a warning that says why there are none. Looks
/// at keys, counts and lengths alone, unless a ready tokenizer is all that there is: that one
/// is read, so that no name is listed that nothing can be behind.
pub(super) fn plan(meta: Meta<'_>, plan: &mut Plan) {
    plan.files.push(File::GenerationConfig);
    let ready = recipe::verbatim(meta);
    match Recipe::of(meta) {
        Ok(recipe) if ready.is_none() => plan.warnings.extend(recipe.warnings()),
        Err(why) if ready.is_none() || !matches!(recipe::read_verbatim(meta), Ok(Some(_))) => {
            plan.warnings.push(format!("hf/ has no tokenizer files: {why}"));
            return;
        }
        _ => {}
    }
    plan.files.extend([File::Tokenizer, File::TokenizerConfig, File::SpecialTokensMap]);
    templates::plan(meta, plan);
}

/// The bytes of `file`.
pub(super) fn write(meta: Meta<'_>, file: File) -> io::Result<Vec<u8>> {
    match file {
        File::Config => Err(io::ErrorKind::Unsupported.into()),
        File::GenerationConfig => generation::write(meta),
        File::Tokenizer => match recipe::read_verbatim(meta)? {
            Some(ready) => Ok(ready),
            None => frame::write(meta, &Recipe::of(meta).map_err(unfit)?),
        },
        File::TokenizerConfig => settings::write(meta),
        File::SpecialTokensMap => settings::write_special_tokens(meta),
        File::ChatTemplate => templates::main(meta).map_or_else(missing, |t| meta.string(t)),
        File::NamedTemplate(key) => {
            templates::named(meta, key).map_or_else(missing, |(_, t)| meta.string(t))
        }
    }
}

fn missing<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotFound.into())
}

/// What the arrays hold makes no tokenizer.
fn unfit(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
