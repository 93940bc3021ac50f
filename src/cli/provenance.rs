//! `weightfs provenance`: where a model comes from and what its bytes are, for other tools.

use super::args::{NameArgs, ProvenanceArgs, ReportForm};
use super::engine::{self, Opened};
use super::exit::{Exit, Failure};
use super::output::Out;
use super::progress::Progress;
use super::shell;
use anyhow::{Result, bail};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weightfs::bytes::line::{InLine, Name};
use weightfs::model::{Extent, Format};
use weightfs::seal::hex;
use weightfs::view::{provenance, sums};

/// Bytes read at a time.
const STEP: u64 = 1 << 20;

pub(crate) fn run(args: &ProvenanceArgs) -> Result<Exit> {
    let opened = engine::open_for_reading(&args.model, &NameArgs::default())?;
    for warning in &opened.warnings {
        super::exit::warn(warning);
    }
    let mut out = Out::new();
    match args.format {
        ReportForm::Sha256sum => sha256sum(&args.model, &opened, &mut out)?,
        ReportForm::GgufHash => gguf_hash(&args.model, &opened, &mut out)?,
        form => {
            if !opened.store.is_sealed() {
                return Err(Failure::with(
                    Exit::Unsealed,
                    format!(
                        "{}: not sealed, so there are no checksums to report (weightfs seal {})",
                        args.model.in_line(),
                        shell::word(&args.model)
                    ),
                ));
            }
            match form {
                ReportForm::Json => provenance::write_json(opened.facts(), &mut out.exact())?,
                ReportForm::Sfv => {
                    let mut line = Vec::new();
                    for index in 0..opened.catalog.len(&opened.model) {
                        line.clear();
                        sums::sfv_line(opened.facts(), index, &mut line);
                        out.exact().write_all(&line)?;
                    }
                }
                _ => provenance::write_yaml(opened.facts(), &mut out.exact())?,
            }
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// The path of a source file as the user would type it: what was typed for the one file of a
/// model, else the file in the directory of what was typed.
fn typed(model: &Path, opened: &Opened, shard: usize) -> Vec<u8> {
    let source = opened.store.sources()[shard].path();
    let is_it = std::path::absolute(model).is_ok_and(|path| path == source);
    match is_it {
        true => model.as_os_str().as_bytes().to_vec(),
        false => engine::as_typed(source, model).as_os_str().as_bytes().to_vec(),
    }
}

/// Lines that `sha256sum -c` takes: from the seal, or else computed now.
fn sha256sum(model: &Path, opened: &Opened, out: &mut Out) -> Result<()> {
    let bar = Progress::new(model, opened.model.shards.iter().map(|shard| shard.len).sum());
    let mut before = 0;
    for (shard, about) in opened.model.shards.iter().enumerate() {
        let digest = match opened.store.source_sha256(shard) {
            Some(digest) => digest,
            None => {
                let mut sha = Sha256::new();
                let extent = Extent { shard: shard as u32, offset: 0, len: about.len };
                read(opened, extent, &mut |bytes| sha.update(bytes), &|at| bar.set(before + at))?;
                sha.finalize().into()
            }
        };
        before += about.len;
        let mut line = Vec::new();
        sums::sha256_line(&digest, &typed(model, opened, shard), &mut line);
        out.exact().write_all(&line)?;
    }
    Ok(())
}

/// What llama.cpp's `gguf-hash --sha256` prints: a line per tensor, then one of all their bytes.
fn gguf_hash(model: &Path, opened: &Opened, out: &mut Out) -> Result<()> {
    if opened.model.format != Format::Gguf {
        bail!("{}: not a GGUF, and gguf-hash is about nothing else", model.in_line());
    }
    let bar = Progress::new(model, opened.model.tensors.iter().map(|t| t.extent.len).sum());
    let mut before = 0;
    for shard in 0..opened.model.shards.len() {
        let file = typed(model, opened, shard);
        let mut all = Sha256::new();
        let tensors = opened.model.tensors.iter().filter(|t| t.extent.shard as usize == shard);
        let names = tensors.clone().map(|tensor| &*tensor.name).chain([&*file]);
        if let Some(name) = names.into_iter().find(|name| name.contains(&b'\n')) {
            let (model, name) = (model.in_line(), Name(name));
            bail!("{model}: the name {name} has a line break, and gguf-hash no way to write one");
        }
        for tensor in tensors {
            let mut one = Sha256::new();
            let mut take = |bytes: &[u8]| {
                one.update(bytes);
                all.update(bytes);
            };
            read(opened, tensor.extent, &mut take, &|at| bar.set(before + at))?;
            before += tensor.extent.len;
            out.exact().write_all(format!("sha256    {}  ", hex(&one.finalize())).as_bytes())?;
            out.exact().write_all(&[&file, &b":"[..], &tensor.name, b"\n"].concat())?;
        }
        out.exact().write_all(format!("sha256    {}  ", hex(&all.finalize())).as_bytes())?;
        out.exact().write_all(&[&file[..], b"\n"].concat())?;
    }
    Ok(())
}

/// Reads through the checks.
fn read(
    opened: &Opened,
    extent: Extent,
    take: &mut dyn FnMut(&[u8]),
    at: &dyn Fn(u64),
) -> Result<()> {
    let mut room = Vec::new();
    let mut done = 0;
    while done < extent.len {
        let step = STEP.min(extent.len - done);
        room.resize(step as usize, 0);
        opened.store.read(extent, done, &mut room).map_err(|failure| failure.error)?;
        take(&room);
        done += step;
        at(done);
    }
    Ok(())
}
