//! How each kind of piece is written from a mark on.

use super::{Mark, Sink};
use crate::bytes::ReadAt;
use crate::format::gguf::array::{ArrayReader, Item, Position};
use crate::format::gguf::write;
use crate::model::{self, Array};
use crate::view::json;
use std::io;
use std::ops::ControlFlow;

/// Bytes of a string that are escaped at a time.
const WINDOW: usize = 16 * 1024;

/// Escapes a string window by window; a character cut by a window's end waits for the next.
pub(super) fn write_str(
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

/// The same for bytes in memory, in the middle of something: what is long goes to the sink in
/// pieces, the rest stays in `text`. Escaping can make six bytes of one.
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

/// Writes `[`, the elements one to a line, and `]`. Inner arrays are handed on as they are
/// written, whatever their length; marks lie between outer elements.
pub(super) fn write_array(
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
        return Ok(sink(b"[]", None));
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
            Item::Str(bytes) => {
                text.push(b'"');
                if write_bytes(bytes, &mut text, sink).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                text.push(b'"');
            }
            Item::Array(inner) => {
                let none = Mark::default();
                if sink(&text, None).is_break()
                    || write_array(file, &inner, none, indent + 2, &mut |t, _| sink(t, None))?
                        .is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
                text.clear();
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
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Writes the elements of an array as GGUF version 3, little-endian, has them; inner arrays
/// and marks as in [`write_array`].
pub(super) fn write_recoded(
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

pub(super) fn write_inline(items: &[model::Value], indent: usize, out: &mut Vec<u8>) {
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
