//! The model as its seal describes it, for when the model's own header is damaged.

use super::entry::Entry;
use super::hex::from_hex;
use super::lexer::{LexError, Lexer};
use super::read::{MAX_LEN, lexed, open};
use super::{SealError, VERSION};
use crate::bytes::line::InLine;
use crate::dtype::DType;
use crate::model::{ByteOrder, Extent, Format, Model, Shard, Tensor};
use std::path::Path;

/// Tensors that are believed in; no model has a tenth of it.
const MAX_TENSORS: usize = 1_000_000;
/// Longest name that is kept, bytes.
const MAX_NAME: usize = 1 << 20;

/// Tensors and files as the seal at `path` lists them. The seal's own hash is checked, and
/// that everything lies inside its file; whether the files are those is for
/// [`super::Seal::load_layout`] and [`super::verify`] to find out.
pub(super) fn described(path: &Path) -> Result<Model, SealError> {
    let invalid = |what: String| SealError::Invalid { file: path.in_line().to_string(), what };
    let file = open(path)?;
    if file.len() > MAX_LEN {
        return Err(invalid(format!("it has {} bytes, more than {MAX_LEN}", file.len())));
    }
    let mut model = Model {
        format: Format::Gguf,
        format_version: 0,
        byte_order: ByteOrder::Little,
        architecture: None,
        name: None,
        metadata: Vec::new(),
        shards: Vec::new(),
        tensors: Vec::new(),
        warnings: Vec::new(),
    };
    let (mut version, mut promised, mut found, mut bad) = (None, None, None, None);
    let mut lexer = Lexer::new(&file);
    let read = lexer.object(|lexer, key| {
        match key {
            b"weightfs_manifest" => version = Some(lexer.unsigned()?),
            b"body_sha256" => {
                let mut text = Vec::new();
                lexer.string(&mut text, 64)?;
                promised = from_hex::<32>(&text);
            }
            b"body" => {
                lexer.hash_from_here()?;
                bad = body(lexer, &mut model)?;
                found = Some(lexer.hash_to_here()?);
            }
            _ => lexer.skip()?,
        }
        Ok(())
    });
    lexed(read.and_then(|()| lexer.end()), &file)?;
    if version != Some(VERSION) || promised.is_none() || promised != found {
        return Err(invalid("its own hash or version is wrong".to_owned()));
    }
    match bad {
        Some(bad) => Err(invalid(bad)),
        None => Ok(model),
    }
}

/// Fills the model; what is wrong with the description, in words.
fn body(lexer: &mut Lexer<'_>, model: &mut Model) -> Result<Option<String>, LexError> {
    let mut bad: Option<String> = None;
    let (mut entry, mut scratch) = (Entry::default(), Vec::new());
    lexer.object(|lexer, key| match key {
        b"sources" => lexer.array(|lexer| {
            let wrong = entry.read(lexer, MAX_NAME, None, &mut scratch)?;
            match (wrong, shard(&entry, model)) {
                (None, Some(shard)) => model.shards.push(shard),
                _ => bad = bad.take().or(Some("a source that is not described".to_owned())),
            }
            Ok(())
        }),
        b"tensors" => lexer.array(|lexer| {
            let wrong = entry.read(lexer, MAX_NAME, None, &mut scratch)?;
            match (wrong, tensor(&entry, model)) {
                (None, Some(tensor)) if model.tensors.len() < MAX_TENSORS => {
                    model.tensors.push(tensor);
                }
                _ => bad = bad.take().or(Some("a tensor that is not described".to_owned())),
            }
            Ok(())
        }),
        _ => lexer.skip(),
    })?;
    Ok(bad)
}

fn shard(entry: &Entry, model: &mut Model) -> Option<Shard> {
    model.format = Format::from_name(&entry.format)?;
    model.format_version = entry.format_version?.try_into().ok()?;
    Some(Shard {
        file: entry.name().into(),
        len: entry.size?,
        data_start: entry.data_start?,
        tensor_infos: entry.tensor_infos.unwrap_or(0),
    })
}

fn tensor(entry: &Entry, model: &Model) -> Option<Tensor> {
    let shard: u32 = entry.source?.try_into().ok()?;
    let (offset, len) = (entry.offset?, entry.nbytes?);
    let end = offset.checked_add(len)?;
    (end <= model.shards.get(shard as usize)?.len).then_some(())?;
    Some(Tensor {
        name: entry.name().into(),
        dtype: DType::from_name(std::str::from_utf8(&entry.dtype).ok()?)?,
        shape: entry.shape.as_slice().into(),
        extent: Extent { shard, offset, len },
    })
}
