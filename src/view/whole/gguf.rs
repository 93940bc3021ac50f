//! `model.gguf`: the whole model as one little-endian GGUF file of version 3.
//!
//! Stored names and bytes in tensor order, packed as ggml wants them: the parts of a split
//! joined, big-endian files turned, older versions written anew, overrides in force. Of
//! metadata nothing is kept but what an override holds: what is long and already has the right
//! encoding is read straight from the source, the rest is written while it is read.

use super::{Data, Whole};
use crate::content::{Body, Swap};
use crate::format::gguf::types::{fixed_size, tensor_type_id};
use crate::format::gguf::{DEFAULT_ALIGNMENT, write};
use crate::model::{Array, ByteOrder, Format, Meta, Model, Text, Value, ValueType};
use crate::store::Store;
use crate::view::text::{Builder, Lines, recode};
use crate::view::{self, Stored};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Values from so many bytes on are pieces of their own, the others are written with their
/// keys: what is kept in memory depends on the length of the metadata, not on the number of keys.
const LONG: u64 = 16 * 1024;

/// Whether the model can be one GGUF file, and if not, why, as far as that is worth a warning.
pub fn obstacle(model: &Model) -> Result<(), Option<String>> {
    if model.format != Format::Gguf {
        return Err(None);
    }
    let unfit = |t: &&crate::model::Tensor| {
        view::stored_form(t.dtype, model.byte_order) == Stored::Undefined
            || tensor_type_id(t.dtype).is_none()
    };
    if let Some(tensor) = model.tensors.iter().find(unfit) {
        return Err(Some(format!(
            "there is no model.gguf: nobody defines how type {} of tensor \"{}\" is laid out in a \
             big-endian file",
            tensor.dtype.name(),
            tensor.name.escape_ascii()
        )));
    }
    match starts(model) {
        Ok(_) => Ok(()),
        Err(_) => Err(Some("there is no model.gguf: it would be too long for a file".into())),
    }
}

impl Whole {
    /// Plans `model.gguf`; [`obstacle`] has found none. Fails when metadata that has to be
    /// written anew cannot be read.
    pub fn gguf(model: &Arc<Model>, store: &Store) -> io::Result<Whole> {
        let tensors = Arc::new(Tensors { model: Arc::clone(model), starts: starts(model)?.into() });
        let keys = model.metadata.iter().filter(|meta| is_shown(meta)).count();
        let mut header = Builder::new(model, store);
        header.bytes(b"GGUF");
        header.bytes(&3u32.to_le_bytes());
        header.bytes(&(model.tensors.len() as u64).to_le_bytes());
        header.bytes(&(keys as u64).to_le_bytes());
        let mut short = 0;
        for (i, meta) in model.metadata.iter().enumerate() {
            let payload = Payload::of(&meta.value);
            if !is_shown(meta) || payload.source_len() < LONG {
                continue;
            }
            let mut head = Vec::new();
            write_head(meta, &mut head);
            header.lines(Arc::new(Records { model: Arc::clone(model), range: short..i }))?;
            header.bytes(&head);
            match payload {
                Payload::Stored(body) => header.stored(body),
                Payload::Recoded(array) => header.recoded(array.clone())?,
                Payload::Held(bytes) => header.bytes(bytes),
                Payload::Items(items) => header.bytes(&encoded(items)),
                Payload::None => {}
            }
            short = i + 1;
        }
        let range = short..model.metadata.len();
        header.lines(Arc::new(Records { model: Arc::clone(model), range }))?;
        header.lines(Arc::clone(&tensors) as Arc<dyn Lines>)?;
        let gap = header.len().next_multiple_of(alignment(model)) - header.len();
        Ok(Whole { header: header.finish(), gap, data: tensors })
    }
}

/// `general.alignment` of the first file, which its reader has checked.
fn alignment(model: &Model) -> u64 {
    model.meta("general.alignment").and_then(Value::as_u64).unwrap_or(DEFAULT_ALIGNMENT)
}

/// Where each tensor begins, from the start of the data, and where the data ends.
fn starts(model: &Model) -> io::Result<Vec<u64>> {
    /// Room for the header: readers take at most some hundreds of megabytes of it.
    const LONGEST: u64 = i64::MAX as u64 - (1 << 40);
    let alignment = alignment(model);
    let mut starts = Vec::with_capacity(model.tensors.len() + 1);
    let mut end = 0u64;
    starts.push(end);
    for tensor in &model.tensors {
        end = end
            .checked_add(tensor.extent.len)
            .and_then(|end| end.checked_next_multiple_of(alignment))
            .filter(|&end| end <= LONGEST)
            .ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        starts.push(end);
    }
    Ok(starts)
}

/// Whether a key says something of the model; `split.*` tells of files that are joined here.
fn is_shown(meta: &Meta) -> bool {
    !meta.key.starts_with(b"split.")
}

/// Key, type, and what stands in front of the payload: a scalar, a length, type and count.
fn write_head(meta: &Meta, out: &mut Vec<u8>) {
    write::string(&meta.key, out);
    out.extend((meta.value.value_type() as u32).to_le_bytes());
    match &meta.value {
        Value::Str(Text::Inline(bytes)) => out.extend((bytes.len() as u64).to_le_bytes()),
        Value::Str(Text::Span(extent)) => out.extend(extent.len.to_le_bytes()),
        Value::Array(array) => write::array_head(array.elem(), array.len(), out),
        scalar => write::fixed(scalar, out),
    }
}

/// What follows a record's head, by how its bytes are had.
#[derive(Debug)]
enum Payload<'a> {
    /// A scalar has none.
    None,
    /// As in the source, or turned number by number.
    Stored(Body),
    /// An array with lengths inside that are written otherwise in the source.
    Recoded(&'a Array),
    /// An override's string.
    Held(&'a [u8]),
    /// An override's array.
    Items(&'a [Value]),
}

impl Payload<'_> {
    fn of(value: &Value) -> Payload<'_> {
        let (array, elem, extent, encoding) = match value {
            Value::Str(Text::Span(extent)) => return Payload::Stored(Body::Span(*extent)),
            Value::Str(Text::Inline(bytes)) => return Payload::Held(bytes),
            Value::Array(Array::Inline { items, .. }) => return Payload::Items(items),
            Value::Array(array @ Array::Span { elem, extent, encoding, .. }) => {
                (array, *elem, *extent, *encoding)
            }
            _ => return Payload::None,
        };
        let little = encoding.order == ByteOrder::Little;
        let fields: &'static [(usize, usize)] = match (fixed_size(elem), little) {
            (None, true) if encoding.wide => return Payload::Stored(Body::Span(extent)),
            (None, _) => return Payload::Recoded(array),
            (Some(2), false) => &[(0, 2)],
            (Some(4), false) => &[(0, 4)],
            (Some(8), false) => &[(0, 8)],
            (Some(_), _) => return Payload::Stored(Body::Span(extent)),
        };
        Payload::Stored(Body::Swapped(extent, Swap { block: fields[0].1, fields }))
    }

    /// Bytes where it comes from; about as many as it has here.
    fn source_len(&self) -> u64 {
        match self {
            Payload::None => 0,
            Payload::Stored(body) => body.len(),
            Payload::Recoded(Array::Span { extent, .. }) => extent.len,
            Payload::Recoded(Array::Inline { items, .. }) => items.len() as u64,
            Payload::Held(bytes) => bytes.len() as u64,
            Payload::Items(items) => encoded(items).len() as u64,
        }
    }

    /// Bytes here, when that can be told without reading them: a length of 64 bits is as long
    /// in either order of bytes.
    fn len(&self) -> Option<u64> {
        match self {
            Payload::Recoded(Array::Span { encoding, .. }) if !encoding.wide => None,
            other => Some(other.source_len()),
        }
    }

    /// Appends the bytes; on failure the good ones in front.
    fn write(&self, store: &Store, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Payload::None => {}
            Payload::Held(bytes) => out.extend(*bytes),
            Payload::Items(items) => out.extend(encoded(items)),
            Payload::Recoded(array) => recode(store, array, out)?,
            Payload::Stored(body) => {
                let from = out.len();
                // Shorter than LONG, or a record that was not made a piece of its own.
                out.resize(from + body.len() as usize, 0);
                if let Err(failure) = body.read(store, 0, &mut out[from..]) {
                    out.truncate(from + failure.good);
                    return Err(io::Error::other(failure));
                }
            }
        }
        Ok(())
    }
}

fn encoded(items: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    items.iter().for_each(|item| write::fixed(item, &mut out));
    out
}

/// Metadata records with short values, one after another.
#[derive(Debug)]
struct Records {
    model: Arc<Model>,
    range: Range<usize>,
}

impl Records {
    fn meta(&self, index: u64) -> Option<&Meta> {
        let meta = self.model.metadata.get(self.range.start + index as usize)?;
        is_shown(meta).then_some(meta)
    }
}

impl Lines for Records {
    fn count(&self) -> u64 {
        self.range.len() as u64
    }

    fn len_of(&self, index: u64) -> Option<u64> {
        let Some(meta) = self.meta(index) else { return Some(0) };
        let head = 8 + meta.key.len() as u64 + 4;
        let fixed = match meta.value.value_type() {
            ValueType::Str => 8,
            ValueType::Array => 4 + 8,
            scalar => fixed_size(scalar)?,
        };
        Some(head + fixed + Payload::of(&meta.value).len()?)
    }

    fn write(&self, store: &Store, index: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(meta) = self.meta(index) else { return Ok(()) };
        write_head(meta, out);
        Payload::of(&meta.value).write(store, out)
    }
}

/// The tensors: an info for each, and their bytes.
#[derive(Debug)]
struct Tensors {
    model: Arc<Model>,
    starts: Box<[u64]>,
}

impl Lines for Tensors {
    fn count(&self) -> u64 {
        self.model.tensors.len() as u64
    }

    fn len_of(&self, index: u64) -> Option<u64> {
        let tensor = &self.model.tensors[index as usize];
        Some(8 + tensor.name.len() as u64 + 4 + 8 * tensor.shape.len() as u64 + 4 + 8)
    }

    fn write(&self, _: &Store, index: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let i = index as usize;
        let tensor = &self.model.tensors[i];
        write::string(&tensor.name, out);
        // At most 8 dimensions, the fastest-varying first.
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|dim| out.extend(dim.to_le_bytes()));
        let id = tensor_type_id(tensor.dtype).expect("a tensor of a GGUF file has GGUF's types");
        out.extend(id.to_le_bytes());
        out.extend(self.starts[i].to_le_bytes());
        Ok(())
    }
}

impl Data for Tensors {
    fn starts(&self) -> &[u64] {
        &self.starts
    }

    fn body(&self, i: usize) -> Body {
        let tensor = &self.model.tensors[i];
        view::stored(tensor.dtype, self.model.byte_order, tensor.extent)
    }
}
