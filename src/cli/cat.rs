//! `weightfs cat`: one tensor to stdout, every byte checked before it is written.

use super::args::{CatArgs, Form};
use super::engine::{self, Opened};
use super::exit::Exit;
use super::output::of_stdout;
use anyhow::{Context, Result, anyhow};
use std::borrow::Cow;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weightfs::bytes::line::{InLine, Name, Safe};
use weightfs::content::Content;
use weightfs::naming::{Mounted, file_stem};
use weightfs::quant::Target;
use weightfs::view::json::lossy;
use weightfs::view::{self, Repr, document};

/// Bytes read at once: large enough for full speed, small enough for `head -c` to be quick.
const PIECE: usize = 1 << 20;
/// Names suggested for one that is not there.
const SUGGESTIONS: usize = 3;

pub(crate) fn run(args: &CatArgs) -> Result<Exit> {
    let opened = engine::open_for_reading(&args.model, &args.names)?;
    let wanted = args.tensor.as_bytes();
    let tensor = find(&opened, wanted).ok_or_else(|| unknown(&opened, wanted, &args.model))?;
    let content =
        content(&opened, &tensor, args.form).with_context(|| args.model.in_line().to_string())?;
    copy(&opened, &content, &mut io::stdout().lock())
        .with_context(|| format!("tensor {}", Name(tensor.name)))?;
    Ok(Exit::Done)
}

/// The bytes of one form of a tensor.
fn content(opened: &Opened, tensor: &Mounted<'_>, form: Form) -> Result<Content<'static>> {
    let stock = opened.stock();
    let repr = match form {
        Form::Stored | Form::Npy => Repr::Stored,
        Form::F32 => Repr::Float(Target::F32),
        Form::F16 => Repr::Float(Target::F16),
        Form::Bf16 => Repr::Float(Target::BF16),
    };
    let content = match form {
        // Values that numpy has no type for are shown to it as F32.
        Form::Npy => [Repr::Stored, Repr::Float(Target::F32)]
            .into_iter()
            .find_map(|repr| view::npy(stock, tensor, repr)),
        _ => view::bin(stock, tensor, repr),
    };
    content.ok_or_else(|| {
        let name = Safe(tensor.name);
        anyhow!("tensor \"{name}\" is {} and has no values in {}", tensor.dtype, form.word())
    })
}

/// Writes all of `content`. When damage is met, what precedes it has been written.
fn copy(opened: &Opened, content: &Content<'_>, out: &mut impl Write) -> Result<()> {
    let mut buffer = vec![0; PIECE.min(usize::try_from(content.len()).unwrap_or(PIECE))];
    let mut offset = 0;
    while offset < content.len() {
        match content.read(&opened.store, offset, &mut buffer) {
            Ok(n) => {
                out.write_all(&buffer[..n]).map_err(of_stdout)?;
                offset += n as u64;
            }
            Err(failure) => {
                out.write_all(&buffer[..failure.good]).map_err(of_stdout)?;
                out.flush().map_err(of_stdout)?;
                return Err(failure.error.into());
            }
        }
    }
    out.flush().map_err(of_stdout)?;
    Ok(())
}

/// The tensor called `wanted`, by its mounted name or else by its file's name in `tensors/`.
pub(super) fn find<'a>(opened: &'a Opened, wanted: &[u8]) -> Option<Mounted<'a>> {
    let model = &opened.model;
    let all = || (0..opened.catalog.len(model)).map(|i| opened.catalog.get(model, i));
    let file = wanted.strip_prefix(b"tensors/").unwrap_or(wanted);
    let stem = file.strip_suffix(b".bin").unwrap_or(file);
    all()
        .find(|tensor| tensor.name == wanted)
        .or_else(|| {
            all().find(|tensor| {
                let own = file_stem(tensor.name, document::LONGEST_SUFFIX);
                *own == *stem || *own == *file
            })
        })
        .or_else(|| {
            // A decoded weight may be called otherwise than its codes.
            let shown = Repr::Float(Target::F32);
            all().find(|tensor| *view::name(opened.stock(), tensor, shown) == *wanted)
        })
}

/// The error for a name that no tensor has, with those that are near.
pub(super) fn unknown(opened: &Opened, wanted: &[u8], model: &Path) -> anyhow::Error {
    let mut text = format!("{}: there is no tensor {}", model.in_line(), Name(wanted));
    let near = near(opened, &lossy(wanted));
    match &near[..] {
        [] => text.push_str("; weightfs ls lists them"),
        names => {
            text.push_str("\ndid you mean ");
            text.push_str(&names.join(", or "));
            text.push('?');
        }
    }
    anyhow!(text)
}

/// The names most like `wanted`.
fn near(opened: &Opened, wanted: &str) -> Vec<String> {
    let model = &opened.model;
    let names = (0..opened.catalog.len(model)).map(|i| lossy(opened.catalog.get(model, i).name));
    most_alike(wanted, names)
}

fn most_alike<'n>(wanted: &str, names: impl Iterator<Item = Cow<'n, str>>) -> Vec<String> {
    // Names of 64 KiB exist; comparing takes the product of both lengths.
    const MAX: usize = 256;
    if wanted.len() > MAX {
        return Vec::new();
    }
    let mut best: Vec<(f64, String)> = Vec::new();
    for name in names.filter(|name| name.len() <= MAX) {
        let contained = if name.contains(wanted) { 0.5 } else { 0.0 };
        let score = strsim::jaro_winkler(wanted, &name) + contained;
        if score < 0.8 {
            continue;
        }
        if best.len() == SUGGESTIONS && best[SUGGESTIONS - 1].0 >= score {
            continue;
        }
        best.push((score, name.in_line().to_string()));
        best.sort_by(|a, b| b.0.total_cmp(&a.0));
        best.truncate(SUGGESTIONS);
    }
    best.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let names = [
            "token_embd.weight",
            "output_norm.weight",
            "blk.0.attn_q.weight",
            "blk.0.attn_k.weight",
        ];
        let near = |wanted: &str| most_alike(wanted, names.iter().map(|&name| name.into()));
        assert_eq!(near("token_emb.weight")[0], "token_embd.weight");
        assert_eq!(near("attn_k")[0], "blk.0.attn_k.weight");
        assert!(near("zzzz").is_empty());
        assert!(near(&"x".repeat(10_000)).is_empty());
    }
}
