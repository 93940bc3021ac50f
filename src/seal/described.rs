//! The model as its seal describes it, for when the model's own header is damaged.

use super::entry::Entry;
use super::grid::Part;
use super::hex::from_hex;
use super::lexer::{LexError, Lexer};
use super::read::{MAX_LEN, lexed, open, version_of};
use super::{SealError, VERSION};
use crate::bytes::line::InLine;
use crate::dtype::DType;
use crate::model::{ByteOrder, Extent, Format, Model, Shard, Tensor};
use std::collections::HashMap;
use std::path::Path;

/// Tensors that are believed in; no model has a tenth of it.
const MAX_TENSORS: usize = 1_000_000;
/// Files that are believed in.
const MAX_FILES: usize = 100_000;
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
    let mut description = Description::default();
    let (mut version, mut promised, mut found) = (None, None, None);
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
                description.body(lexer)?;
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
    description.model().map_err(|what| invalid(what.to_owned()))
}

/// What a body says, in whatever order.
#[derive(Default)]
struct Description {
    format: Option<(Format, u32)>,
    shards: Vec<Shard>,
    /// Where the data of each file begin, where it says so.
    starts: Vec<Option<u64>>,
    tensors: Vec<Tensor>,
    /// Length of the header of each file.
    headers: HashMap<u64, u64>,
    bad: Option<&'static str>,
}

impl Description {
    fn body(&mut self, lexer: &mut Lexer<'_>) -> Result<(), LexError> {
        let (mut entry, mut scratch) = (Entry::default(), Vec::new());
        lexer.object(|lexer, key| {
            let add = match key {
                b"sources" => Description::source,
                b"tensors" => Description::tensor,
                b"regions" => Description::region,
                _ => return lexer.skip(),
            };
            lexer.array(|lexer| {
                let wrong = entry.read(lexer, MAX_NAME, None, &mut scratch)?;
                let added = wrong.is_none().then(|| add(self, &entry)).flatten();
                if added.is_none() && self.bad.is_none() {
                    self.bad = Some("a file, region or tensor that it does not describe");
                }
                Ok(())
            })
        })
    }

    fn source(&mut self, entry: &Entry) -> Option<()> {
        let format = Format::from_name(&entry.format)?;
        let version = version_of(entry, format)?.try_into().ok()?;
        self.format = Some((format, version));
        self.starts.push(entry.data_start);
        self.shards.push(Shard {
            file: entry.name().into(),
            len: entry.size?,
            data_start: 0,
            tensor_infos: entry.tensor_infos.unwrap_or(0),
        });
        Some(())
    }

    fn region(&mut self, entry: &Entry) -> Option<()> {
        if *entry.kind == *Part::Header.kind().as_bytes() && self.headers.len() < MAX_FILES {
            self.headers.entry(entry.source?).or_insert(entry.nbytes?);
        }
        Some(())
    }

    fn tensor(&mut self, entry: &Entry) -> Option<()> {
        let shard: u32 = entry.source?.try_into().ok()?;
        let (offset, len) = (entry.offset?, entry.nbytes?);
        (self.tensors.len() < MAX_TENSORS).then_some(())?;
        self.tensors.push(Tensor {
            name: entry.name().into(),
            dtype: DType::from_name(std::str::from_utf8(&entry.dtype).ok()?)?,
            shape: entry.shape.as_slice().into(),
            extent: Extent { shard, offset, len },
        });
        Some(())
    }

    /// The model, of which everything lies inside its file; or what is wrong, in words.
    fn model(self) -> Result<Model, &'static str> {
        let Description { format, mut shards, starts, tensors, headers, bad } = self;
        for (number, (shard, start)) in (0..).zip(shards.iter_mut().zip(starts)) {
            shard.data_start = start.or(headers.get(&number).copied()).unwrap_or(shard.len);
        }
        let inside = |tensor: &Tensor| {
            let Extent { shard, offset, len } = tensor.extent;
            let end = offset.checked_add(len)?;
            (end <= shards.get(shard as usize)?.len).then_some(())
        };
        if !tensors.iter().all(|tensor| inside(tensor).is_some()) {
            return Err("a tensor outside of its file");
        }
        let (Some((format, format_version)), None) = (format, bad) else {
            return Err(bad.unwrap_or("it lists no files"));
        };
        Ok(Model {
            format,
            format_version,
            byte_order: ByteOrder::Little,
            architecture: None,
            name: None,
            metadata: Vec::new(),
            shards,
            tensors,
            warnings: Vec::new(),
        })
    }
}
