//! Documents, JSON and binary headers, that are written while they are read.
//!
//! A vocabulary of a quarter of a million strings is megabytes of JSON that nobody
//! may ever ask for. A [`Text`] knows its length and, every so often, a place to
//! start from; any range of it is then written from the nearest such place. Memory
//! stays at a few words per `STRIDE` bytes of text, whatever the file holds.

use crate::bytes::ReadAt;
use crate::content::Body;
use crate::format::gguf::array::{ArrayReader, Item, Position};
use crate::format::gguf::write;
use crate::model::{self, Array, Extent, Model};
use crate::store::{ReadFailure, Store, StoreError};
use crate::view::json;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Bytes of text between two places to start from.
const STRIDE: u64 = 256 * 1024;
/// Bytes of a string that are escaped at a time.
const WINDOW: usize = 16 * 1024;

/// A document of known length.
#[derive(Debug)]
pub struct Text {
    pieces: Vec<Piece>,
    len: u64,
}

#[derive(Debug)]
struct Piece {
    /// Where it begins in the text.
    start: u64,
    source: Source,
    /// Places to start from, in order; none means the beginning only.
    marks: Vec<Mark>,
}

/// A place in a piece from which writing can go on.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Bytes of the piece written before.
    written: u64,
    /// Array elements written before.
    index: u64,
    /// Bytes of the source used before.
    used: u64,
}

#[derive(Debug)]
enum Source {
    /// Ready text.
    Literal(Vec<u8>),
    /// Bytes of a file, as a JSON string with its quotes (`quoted`) or verbatim.
    Str(Bytes),
    /// Lines that are made one by one.
    Lines(Arc<dyn Lines>),
    /// An array in a file: which, in which shard, indented by how many spaces.
    Array(Array, u32, usize),
    /// Bytes that can be read from any place on.
    Stored(Body),
    /// The elements of an array in a file, in GGUF's little-endian 64-bit encoding.
    Recoded(Array),
}

/// The bytes of a string, wherever they are.
#[derive(Debug)]
enum Bytes {
    File(Extent),
    Meta { model: Arc<Model>, index: usize },
}

/// Text made of entries that each can be written alone: a checksum list, a header.
pub trait Lines: std::fmt::Debug + Send + Sync {
    /// Number of entries.
    fn count(&self) -> u64;

    /// Bytes of entry `index`, when they can be told without writing it: then the length of
    /// the document does not depend on what can be read.
    fn len_of(&self, _index: u64) -> Option<u64> {
        None
    }

    /// Appends entry `index`; always the same text for the same index. What was appended
    /// before a failure is good.
    fn write(&self, store: &Store, index: u64, out: &mut Vec<u8>) -> io::Result<()>;
}

/// What a writer of text pushes into: text, and the mark that holds after it, if any does.
type Sink<'a> = dyn FnMut(&[u8], Option<Mark>) -> ControlFlow<()> + 'a;

/// Measures a piece and lays its marks.
#[derive(Debug, Default)]
struct Ruler {
    written: u64,
    /// Where the last mark is.
    last: u64,
    marks: Vec<Mark>,
}

impl Ruler {
    fn pass(&mut self, len: u64, after: Option<Mark>) {
        self.written += len;
        if let Some(after) = after
            && self.written - self.last >= STRIDE
        {
            self.last = self.written;
            self.marks.push(Mark { written: self.written, ..after });
        }
    }
}

/// Puts a [`Text`] together, piece by piece.
#[derive(Debug)]
pub struct Builder<'a> {
    model: &'a Arc<Model>,
    store: &'a Store,
    pieces: Vec<Piece>,
    len: u64,
}

impl<'a> Builder<'a> {
    /// An empty document over the metadata of `model`.
    pub fn new(model: &'a Arc<Model>, store: &'a Store) -> Builder<'a> {
        Builder { model, store, pieces: Vec::new(), len: 0 }
    }

    /// Adds ready text.
    pub fn literal(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds bytes that are no text.
    pub fn bytes(&mut self, text: &[u8]) {
        if let Some(Piece { source: Source::Literal(last), .. }) = self.pieces.last_mut() {
            last.extend(text);
        } else {
            let source = Source::Literal(text.into());
            self.pieces.push(Piece { start: self.len, source, marks: Vec::new() });
        }
        self.len += text.len() as u64;
    }

    /// Adds the value of the metadata entry at `index`, its lines indented by `indent` spaces.
    pub fn value(&mut self, index: usize, indent: usize) -> io::Result<()> {
        let model = self.model;
        let value = &model.metadata[index].value;
        match value {
            model::Value::Str(text) => {
                let bytes = match text {
                    model::Text::Span(extent) => Bytes::File(*extent),
                    model::Text::Inline(_) => Bytes::Meta { model: Arc::clone(model), index },
                };
                self.literal("\"");
                self.piece(Source::Str(bytes))?;
                self.literal("\"");
            }
            model::Value::Array(array @ Array::Span { extent, .. }) => {
                self.piece(Source::Array(array.clone(), extent.shard, indent))?;
            }
            model::Value::Array(Array::Inline { items, .. }) => {
                let mut out = Vec::new();
                write_inline(items, indent, &mut out);
                self.literal(&String::from_utf8_lossy(&out));
            }
            scalar => {
                self.literal(&json::scalar(scalar).expect("strings and arrays are handled above"))
            }
        }
        Ok(())
    }

    /// Adds all of `lines`.
    pub fn lines(&mut self, lines: Arc<dyn Lines>) -> io::Result<()> {
        let mut ruler = Ruler::default();
        let mut text = Vec::new();
        for index in 0..lines.count() {
            let len = match lines.len_of(index) {
                Some(len) => len,
                None => {
                    text.clear();
                    lines.write(self.store, index, &mut text)?;
                    text.len() as u64
                }
            };
            ruler.pass(len, Some(Mark { index: index + 1, ..Mark::default() }));
        }
        self.measured(Source::Lines(lines), ruler);
        Ok(())
    }

    /// Adds bytes that can be read from any place on.
    pub fn stored(&mut self, body: Body) {
        let ruler = Ruler { written: body.len(), ..Ruler::default() };
        self.measured(Source::Stored(body), ruler);
    }

    /// Adds the elements of an array in a file, in GGUF's little-endian 64-bit encoding.
    pub fn recoded(&mut self, array: Array) -> io::Result<()> {
        self.piece(Source::Recoded(array))
    }

    /// Bytes added so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a piece after writing it once, to learn its length and its marks.
    fn piece(&mut self, source: Source) -> io::Result<()> {
        let piece = Piece { start: self.len, source, marks: Vec::new() };
        let mut ruler = Ruler::default();
        piece.write(self.store, Mark::default(), &mut |text, after| {
            ruler.pass(text.len() as u64, after);
            ControlFlow::Continue(())
        })?;
        self.measured(piece.source, ruler);
        Ok(())
    }

    fn measured(&mut self, source: Source, ruler: Ruler) {
        let Ruler { written, marks, .. } = ruler;
        self.pieces.push(Piece { start: self.len, source, marks });
        self.len += written;
    }

    /// The finished document.
    pub fn finish(self) -> Text {
        Text { pieces: self.pieces, len: self.len }
    }
}

impl Text {
    /// Bytes of the document.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `out` with the text from `from` on; the caller keeps inside the length.
    pub fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        let mut done = 0;
        let mut next = self.pieces.partition_point(|p| p.start <= from).saturating_sub(1);
        while done < out.len() {
            let Some(piece) = self.pieces.get(next) else {
                let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(ReadFailure { good: done, error: error.into() });
            };
            let at = from + done as u64 - piece.start;
            done += piece
                .copy(store, at, &mut out[done..])
                .map_err(|f| ReadFailure { good: done + f.good, ..f })?;
            next += 1;
        }
        Ok(())
    }
}

impl Piece {
    /// Copies text from `at` (in this piece) on; returns how much there was, or fit.
    fn copy(&self, store: &Store, at: u64, out: &mut [u8]) -> Result<usize, ReadFailure> {
        if let Source::Stored(body) = &self.source {
            let left = body.len().saturating_sub(at);
            let n = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
            return body.read(store, at, &mut out[..n]).map(|()| n);
        }
        let nearest = self.marks.partition_point(|m| m.written <= at);
        let mark = nearest.checked_sub(1).map_or_else(Mark::default, |i| self.marks[i]);
        let mut skip = at - mark.written;
        let mut done = 0;
        let written = self.write(store, mark, &mut |text, _| {
            let passed = skip.min(text.len() as u64);
            skip -= passed;
            // At most text.len().
            let rest = &text[passed as usize..];
            let n = rest.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&rest[..n]);
            done += n;
            if done == out.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        // What was handed on before the failure was read through the checks.
        written.map_err(|e| ReadFailure { good: done, error: StoreError::from(e) })?;
        Ok(done)
    }

    /// Writes the piece from `mark` on.
    fn write(&self, store: &Store, mark: Mark, sink: &mut Sink<'_>) -> io::Result<()> {
        match &self.source {
            Source::Literal(text) => {
                let _ = sink(text, None);
                Ok(())
            }
            // Copied straight from the store, without a writer between.
            Source::Stored(_) => Ok(()),
            Source::Str(Bytes::File(extent)) => {
                let shard = store.shard(extent.shard as usize);
                write_str(&shard, extent.offset, extent.len, mark, sink)
            }
            Source::Str(Bytes::Meta { model, index }) => match &model.metadata[*index].value {
                model::Value::Str(model::Text::Inline(bytes)) => {
                    write_str(&**bytes, 0, bytes.len() as u64, mark, sink)
                }
                _ => Ok(()),
            },
            Source::Lines(lines) => {
                let mut text = Vec::new();
                for index in mark.index..lines.count() {
                    text.clear();
                    let whole = lines.write(store, index, &mut text);
                    let after = Mark { index: index + 1, ..Mark::default() };
                    if sink(&text, Some(after)).is_break() {
                        break;
                    }
                    whole?;
                }
                Ok(())
            }
            Source::Array(array, shard, indent) => {
                write_array(&store.shard(*shard as usize), array, mark, *indent, sink)
            }
            Source::Recoded(array) => {
                let Array::Span { extent, .. } = array else { return Ok(()) };
                let _ = write_recoded(&store.shard(extent.shard as usize), array, mark, sink)?;
                Ok(())
            }
        }
    }
}

/// Escapes a string window by window; a character cut by a window's end waits for the next.
fn write_str(
    from: &(impl ReadAt + ?Sized),
    offset: u64,
    len: u64,
    mark: Mark,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let mut used = mark.used;
    let mut window = vec![0; WINDOW];
    let mut text = Vec::new();
    while used < len {
        let n = WINDOW.min(usize::try_from(len - used).unwrap_or(WINDOW));
        let bytes = &mut window[..n];
        from.read_at(offset + used, bytes)?;
        let whole = if used + (n as u64) < len { whole_characters(bytes) } else { n };
        text.clear();
        json::escape_into(&json::lossy(&bytes[..whole]), &mut text);
        used += whole as u64;
        if sink(&text, Some(Mark { used, ..Mark::default() })).is_break() {
            break;
        }
    }
    Ok(())
}

/// How many leading bytes do not end inside a character: the last up to three bytes
/// stay behind when they begin one that is not finished. Never 0.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(4) {
        let at = bytes.len() - back;
        let lead = bytes[at];
        if lead & 0xC0 == 0x80 {
            continue;
        }
        let needed = match lead {
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF7 => 4,
            _ => 1,
        };
        return if needed > back && at > 0 { at } else { bytes.len() };
    }
    bytes.len()
}

/// Writes `[`, the elements one to a line, and `]`.
fn write_array(
    file: &dyn ReadAt,
    array: &Array,
    mark: Mark,
    indent: usize,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let Array::Span { elem, count, extent, encoding } = *array else {
        return Ok(());
    };
    if count == 0 {
        let _ = sink(b"[]", None);
        return Ok(());
    }
    let pad = " ".repeat(indent + 2);
    let mut reader = ArrayReader::new(file, elem, count, extent, encoding);
    if mark.index > 0 {
        reader = reader.resume(Position { index: mark.index, offset: extent.offset + mark.used });
    }
    let mut text = Vec::new();
    let mut index = mark.index;
    while let Some(item) = reader.next().map_err(io::Error::other)? {
        text.clear();
        text.extend(if index == 0 { &b"[\n"[..] } else { b",\n" });
        text.extend(pad.as_bytes());
        match item {
            Item::Value(value) => text.extend(json::scalar(&value).unwrap_or_default().as_bytes()),
            Item::Str(bytes) => write_quoted(bytes, &mut text),
            Item::Array(inner) => {
                write_array(file, &inner, Mark::default(), indent + 2, &mut |inner, _| {
                    text.extend(inner);
                    ControlFlow::Continue(())
                })?;
            }
        }
        index += 1;
        if index == count {
            text.push(b'\n');
            text.extend(&pad.as_bytes()[2..]);
            text.push(b']');
        }
        let used = reader.position().offset - extent.offset;
        if sink(&text, Some(Mark { index, used, written: 0 })).is_break() {
            break;
        }
    }
    Ok(())
}

/// Appends the elements of an array in a file, as [`Builder::recoded`] writes them. What was
/// appended before a failure is good.
pub(crate) fn recode(store: &Store, array: &Array, out: &mut Vec<u8>) -> io::Result<()> {
    let Array::Span { extent, .. } = array else { return Ok(()) };
    let file = store.shard(extent.shard as usize);
    let _ = write_recoded(&file, array, Mark::default(), &mut |text, _| {
        out.extend(text);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Writes the elements of an array as GGUF version 3, little-endian, has them. Inner arrays
/// are handed on as they are written, whatever their length; marks lie between outer elements.
fn write_recoded(
    file: &dyn ReadAt,
    array: &Array,
    mark: Mark,
    sink: &mut Sink<'_>,
) -> io::Result<ControlFlow<()>> {
    let Array::Span { elem, count, extent, encoding } = *array else {
        return Ok(ControlFlow::Continue(()));
    };
    let mut reader = ArrayReader::new(file, elem, count, extent, encoding);
    if mark.index > 0 {
        reader = reader.resume(Position { index: mark.index, offset: extent.offset + mark.used });
    }
    let mut text = Vec::new();
    let mut index = mark.index;
    while let Some(item) = reader.next().map_err(io::Error::other)? {
        text.clear();
        match item {
            Item::Value(value) => write::fixed(&value, &mut text),
            Item::Str(bytes) => write::string(bytes, &mut text),
            Item::Array(inner) => {
                write::array_head(inner.elem(), inner.len(), &mut text);
                if sink(&text, None).is_break()
                    || write_recoded(file, &inner, Mark::default(), &mut |t, _| sink(t, None))?
                        .is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
                text.clear();
            }
        }
        index += 1;
        let used = reader.position().offset - extent.offset;
        if sink(&text, Some(Mark { index, used, written: 0 })).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn write_quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    json::escape_into(&json::lossy(bytes), out);
    out.push(b'"');
}

fn write_inline(items: &[model::Value], indent: usize, out: &mut Vec<u8>) {
    if items.is_empty() {
        out.extend(b"[]");
        return;
    }
    for (i, item) in items.iter().enumerate() {
        out.extend(if i == 0 { &b"[\n"[..] } else { b",\n" });
        out.extend(std::iter::repeat_n(b' ', indent + 2));
        match item {
            model::Value::Str(model::Text::Inline(bytes)) => write_quoted(bytes, out),
            other => out.extend(json::scalar(other).unwrap_or_default().as_bytes()),
        }
    }
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', indent));
    out.push(b']');
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_window_never_ends_inside_a_character() {
        let text = "ab\u{e9}\u{20ac}\u{1f600}".as_bytes();
        for end in 1..=text.len() {
            let whole = whole_characters(&text[..end]);
            assert!(whole > 0);
            assert!(std::str::from_utf8(&text[..whole]).is_ok() || whole == end, "{end}");
        }
        assert_eq!(whole_characters(b"\x80\x80\x80\x80\x80"), 5);
        assert_eq!(whole_characters(b"\xf0"), 1);
    }

    #[test]
    fn windows_give_the_text_of_the_whole() {
        let mut bytes = Vec::new();
        while bytes.len() < 3 * WINDOW {
            bytes.extend("x\u{1f600}\"\n\u{e9}".as_bytes());
            bytes.push(0xff);
        }
        let mut text: Vec<u8> = Vec::new();
        let len = bytes.len() as u64;
        write_str(&bytes, 0, len, Mark::default(), &mut |t, _| {
            text.extend(t);
            ControlFlow::Continue(())
        })
        .unwrap();
        let mut expected = Vec::new();
        json::escape_into(&json::lossy(&bytes), &mut expected);
        assert!(text == expected);
    }
}
