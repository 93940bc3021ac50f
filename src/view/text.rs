//! JSON documents that are written while they are read.
//!
//! A vocabulary of a quarter of a million strings is megabytes of JSON that nobody
//! may ever ask for. A [`Text`] knows its length and, every so often, a place to
//! start from; any range of it is then written from the nearest such place. Memory
//! stays at a few words per `STRIDE` bytes of text, whatever the file holds.

use crate::bytes::ReadAt;
use crate::format::gguf::array::{ArrayReader, Item, Position};
use crate::model::{self, Array, Extent, Model};
use crate::store::Store;
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

    /// Appends entry `index`; always the same text for the same index.
    fn write(&self, index: u64, out: &mut Vec<u8>);
}

/// What a writer of text pushes into: text, and the mark that holds after it, if writing can go
/// on from there.
type Sink<'a> = dyn FnMut(&[u8], Option<Mark>) -> ControlFlow<()> + 'a;

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
        self.piece(Source::Lines(lines))
    }

    /// Adds a piece after writing it once, to learn its length and its marks.
    fn piece(&mut self, source: Source) -> io::Result<()> {
        let mut piece = Piece { start: self.len, source, marks: Vec::new() };
        let mut written = 0;
        let mut marks = Vec::new();
        let mut last = 0;
        piece.write(self.store, Mark::default(), &mut |text, after| {
            written += text.len() as u64;
            if let Some(after) = after.filter(|_| written - last >= STRIDE) {
                last = written;
                marks.push(Mark { written, ..after });
            }
            ControlFlow::Continue(())
        })?;
        piece.marks = marks;
        self.len += written;
        self.pieces.push(piece);
        Ok(())
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
    pub fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        let mut next = self.pieces.partition_point(|p| p.start <= from).saturating_sub(1);
        while done < out.len() {
            let piece = self.pieces.get(next).ok_or(io::ErrorKind::UnexpectedEof)?;
            let at = from + done as u64 - piece.start;
            done += piece.copy(store, at, &mut out[done..])?;
            next += 1;
        }
        Ok(())
    }
}

impl Piece {
    /// Copies text from `at` (in this piece) on; returns how much there was, or fit.
    fn copy(&self, store: &Store, at: u64, out: &mut [u8]) -> io::Result<usize> {
        let nearest = self.marks.partition_point(|m| m.written <= at);
        let mark = nearest.checked_sub(1).map_or_else(Mark::default, |i| self.marks[i]);
        let mut skip = at - mark.written;
        let mut done = 0;
        self.write(store, mark, &mut |text, _| {
            let passed = skip.min(text.len() as u64);
            skip -= passed;
            // At most text.len().
            let rest = &text[passed as usize..];
            let n = rest.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&rest[..n]);
            done += n;
            if done == out.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(done)
    }

    /// Writes the piece from `mark` on.
    fn write(&self, store: &Store, mark: Mark, sink: &mut Sink<'_>) -> io::Result<()> {
        match &self.source {
            Source::Literal(text) => {
                let _ = sink(text, None);
                Ok(())
            }
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
                    lines.write(index, &mut text);
                    let after = Mark { index: index + 1, ..Mark::default() };
                    if sink(&text, Some(after)).is_break() {
                        break;
                    }
                }
                Ok(())
            }
            Source::Array(array, shard, indent) => {
                write_array(&store.shard(*shard as usize), array, mark, *indent, sink).map(drop)
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

/// The same for bytes in memory, into the middle of something.
fn write_bytes(mut bytes: &[u8], text: &mut Vec<u8>, sink: &mut Sink<'_>) -> ControlFlow<()> {
    while bytes.len() > WINDOW {
        let (window, rest) = bytes.split_at(whole_characters(&bytes[..WINDOW]));
        json::escape_into(&json::lossy(window), text);
        sink(text, None)?;
        text.clear();
        bytes = rest;
    }
    json::escape_into(&json::lossy(bytes), text);
    ControlFlow::Continue(())
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
) -> io::Result<ControlFlow<()>> {
    let Array::Span { elem, count, extent, encoding } = *array else {
        return Ok(ControlFlow::Continue(()));
    };
    if count == 0 {
        let _ = sink(b"[]", None);
        return Ok(ControlFlow::Continue(()));
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
        // What is long goes to the sink in pieces; what is left in `text` follows below.
        let flow = match item {
            Item::Value(value) => {
                text.extend(json::scalar(&value).unwrap_or_default().as_bytes());
                ControlFlow::Continue(())
            }
            Item::Str(bytes) => {
                text.push(b'"');
                let flow = write_bytes(bytes, &mut text, sink);
                text.push(b'"');
                flow
            }
            Item::Array(inner) => {
                let flow = sink(&text, None);
                text.clear();
                match flow {
                    ControlFlow::Continue(()) => {
                        write_array(file, &inner, Mark::default(), indent + 2, &mut |inner, _| {
                            sink(inner, None)
                        })?
                    }
                    stop => stop,
                }
            }
        };
        if flow.is_break() {
            return Ok(flow);
        }
        index += 1;
        if index == count {
            text.push(b'\n');
            text.extend(&pad.as_bytes()[2..]);
            text.push(b']');
        }
        let used = reader.position().offset - extent.offset;
        let flow = sink(&text, Some(Mark { index, used, written: 0 }));
        if flow.is_break() {
            return Ok(flow);
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
