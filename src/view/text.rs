//! Documents, JSON and binary headers, that are written while they are read.
//!
//! A vocabulary of a quarter of a million strings is megabytes of JSON that nobody
//! may ever ask for. A [`Text`] knows its length and, every so often, a place to
//! start from; any range of it is then written from the nearest such place. Memory
//! stays at a few words per `STRIDE` bytes of text, whatever the file holds.

use crate::content::Body;
use crate::model::{self, Array, Extent, Model};
use crate::store::{ReadFailure, Store, StoreError};
use crate::view::json;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

mod writers;

use writers::{write_array, write_inline, write_recoded, write_str};

/// Bytes of text between two places to start from.
const STRIDE: u64 = 256 * 1024;

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
    /// Bytes of a string, escaped as JSON, without quotes.
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
                let _ = write_array(&store.shard(*shard as usize), array, mark, *indent, sink)?;
                Ok(())
            }
            Source::Recoded(array) => {
                let Array::Span { extent, .. } = array else { return Ok(()) };
                let _ = write_recoded(&store.shard(extent.shard as usize), array, mark, sink)?;
                Ok(())
            }
        }
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Entries of ten bytes; the third breaks off after four.
    #[derive(Debug)]
    struct Breaking;

    impl Lines for Breaking {
        fn count(&self) -> u64 {
            5
        }

        fn len_of(&self, _: u64) -> Option<u64> {
            Some(10)
        }

        fn write(&self, _: &Store, index: u64, out: &mut Vec<u8>) -> io::Result<()> {
            out.extend(&b"0123456789"[..if index == 2 { 4 } else { 10 }]);
            if index == 2 { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
        }
    }

    #[test]
    fn what_comes_before_a_failure_is_good_and_what_comes_behind_it_is_served() {
        let model = Arc::new(Model {
            format: model::Format::Gguf,
            format_version: 3,
            byte_order: model::ByteOrder::Little,
            architecture: None,
            name: None,
            metadata: vec![],
            shards: vec![],
            tensors: vec![],
            warnings: vec![],
        });
        let store = Store::new(Arc::clone(&model), vec![], None, Default::default());
        let mut builder = Builder::new(&model, &store);
        builder.literal("abc");
        builder.lines(Arc::new(Breaking)).unwrap();
        builder.literal("def");
        builder.stored(Body::Span(Extent { shard: 0, offset: 0, len: 7 }));
        builder.literal("ghi");
        let text = builder.finish();
        assert_eq!(text.len(), 3 + 50 + 3 + 7 + 3);
        let read = |from, len| {
            let mut out = vec![b'-'; len];
            let good = text.read(&store, from, &mut out).map_or_else(|f| f.good, |()| len);
            String::from_utf8(out[..good].into()).unwrap()
        };
        assert_eq!(read(0, 66), "abc012345678901234567890123");
        assert_eq!(read(1, 26), "bc012345678901234567890123");
        assert_eq!(read(20, 7), "7890123");
        assert_eq!(read(20, 8), "7890123");
        assert_eq!(read(28, 3), "");
        // There is no such source.
        assert_eq!(read(54, 20), "ef");
        assert_eq!(read(63, 3), "ghi");
    }
}
