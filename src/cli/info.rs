//! `weightfs info`: the portrait of a model on one screen.

use super::args::InfoArgs;
use super::engine::{self, Opened, UnusedSeal};
use super::exit::Exit;
use super::output::{Ink, Out, Piece};
use super::table::{Align, Table};
use super::text::{count, cut, one_line, plural, size, width};
use anyhow::Result;
use serde_json::Value as Json;
use std::io;
use std::path::Path;
use weightfs::bytes::ReadAt;
use weightfs::bytes::line::{InLine, Safe};
use weightfs::format::gguf::array::{ArrayReader, Item};
use weightfs::model::{Array, Format, Text, Value};
use weightfs::seal;
use weightfs::store::Trust;
use weightfs::view::document;
use weightfs::view::json::scalar;

mod layers;

/// Bytes of a string that are looked at: no terminal shows more of one line.
const STRING_PREFIX: u64 = 512;
/// Columns of a bar, at most and at least: where less is left there is none.
const BAR: (usize, usize) = (24, 4);
/// Columns that stand beside a bar.
const BESIDE_BAR: usize = 42;

pub(crate) fn run(args: &InfoArgs) -> Result<Exit> {
    let opened = engine::open(&args.model, &Default::default())?;
    let mut out = Out::new();
    let document = document::model(opened.facts());
    if args.json {
        out.json(&document)?;
    } else {
        write(&opened, &document, &mut out)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn write(opened: &Opened, document: &Json, out: &mut Out) -> io::Result<()> {
    let title = opened.entry.file_name().unwrap_or(opened.entry.as_os_str());
    out.pieces([Piece::inked(Ink::Bold, title.in_line().to_string())])?;
    write_facts(opened, document, out)?;
    write_dtypes(document, out)?;
    layers::write(opened, out)?;
    write_metadata(opened, out)?;
    write_warnings(document, out)
}

fn heading(out: &mut Out, text: &str) -> io::Result<()> {
    out.line("")?;
    out.pieces([Piece::inked(Ink::Bold, text)])
}

fn number(document: &Json, key: &str) -> u64 {
    document[key].as_u64().unwrap_or(0)
}

fn write_facts(opened: &Opened, document: &Json, out: &mut Out) -> io::Result<()> {
    let model = &opened.model;
    let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
    let mut fact = |name: &str, value: String| table.row([name.into(), value]);
    let version = match model.format {
        Format::Gguf => {
            format!("GGUF version {}, {}-endian", model.format_version, model.byte_order.name())
        }
        Format::Safetensors => "safetensors".into(),
    };
    fact("format", version);
    for (name, value) in [("architecture", &model.architecture), ("name", &model.name)] {
        if let Some(value) = value {
            fact(name, cut(&Safe(value.as_bytes()).to_string(), out.columns().saturating_sub(16)));
        }
    }
    let parameters = number(document, "parameter_count");
    let (short, exact) = (count(parameters), parameters.to_string());
    fact("parameters", if short == exact { exact } else { format!("{short} ({exact})") });
    let tensors = opened.catalog.len(model);
    fact("tensors", format!("{tensors}, {}", size(number(document, "nbytes"))));
    let on_disk: u64 = model.shards.iter().map(|shard| shard.len).sum();
    fact("files", format!("{}, {}", model.shards.len(), size(on_disk)));
    fact("seal", seal_words(opened));
    table.write(out, 2)
}

fn seal_words(opened: &Opened) -> String {
    let store = &opened.store;
    let shown = |path: &Path| Safe(path.as_os_str().as_encoded_bytes()).to_string();
    let Some(seal) = store.seal() else {
        return match &opened.unused_seal {
            Some(UnusedSeal::Invalid(path)) => format!("INVALID, not used: {}", shown(path)),
            Some(UnusedSeal::Foreign(path)) => {
                format!("OF ANOTHER MODEL, not used: {}", shown(path))
            }
            Some(UnusedSeal::Unreadable(path)) => {
                format!("UNREADABLE, not used: {}", shown(path))
            }
            Some(UnusedSeal::Ignored(_)) => "ignored".into(),
            None => "none (weightfs seal MODEL makes one)".into(),
        };
    };
    let digests = if store.source_sha256(0).is_some() { "CRC32 and SHA-256" } else { "CRC32" };
    let trust = match store.trust() {
        Trust::Pinned => "given on the command line",
        Trust::Store => "from the model store's own digest",
        Trust::Sidecar if seal.path() == seal::beside(&opened.entry) => "beside the model",
        Trust::Sidecar => return format!("{digests}, in the cache: {}", shown(seal.path())),
        Trust::Tofu => "from an earlier mount",
        Trust::None => "not trusted",
    };
    format!("{digests}, {trust}")
}

fn write_dtypes(document: &Json, out: &mut Out) -> io::Result<()> {
    let Some(dtypes) = document["dtypes"].as_object().filter(|dtypes| !dtypes.is_empty()) else {
        return Ok(());
    };
    heading(out, "dtypes by bytes")?;
    let all = number(document, "nbytes").max(1) as f64;
    let mut shares: Vec<_> = dtypes
        .iter()
        .map(|(name, entry)| (name, number(entry, "nbytes"), number(entry, "tensors")))
        .collect();
    shares.sort_by_key(|&(name, bytes, _)| (std::cmp::Reverse(bytes), name));
    let mut table = Table::new([
        ("", Align::Left),
        ("", Align::Left),
        ("", Align::Right),
        ("", Align::Right),
        ("", Align::Right),
    ]);
    let room = out.columns().saturating_sub(BESIDE_BAR).min(BAR.0);
    let bar = if room < BAR.1 { 0 } else { room };
    for (name, bytes, tensors) in shares {
        let share = bytes as f64 / all;
        table.row([
            name.as_str().into(),
            Piece::inked(Ink::Accent, out.bar(share, bar)),
            format!("{:.1} %", share * 100.0).into(),
            size(bytes).into(),
            plural(tensors as usize, "tensor").into(),
        ]);
    }
    table.write(out, 2)
}

fn write_metadata(opened: &Opened, out: &mut Out) -> io::Result<()> {
    let model = &opened.model;
    if model.metadata.is_empty() {
        return Ok(());
    }
    heading(out, &format!("metadata, {}", plural(model.metadata.len(), "key")))?;
    let rows: Vec<_> = model
        .metadata
        .iter()
        .map(|meta| {
            let (kind, value) = show(opened, &meta.value);
            (Safe(&meta.key).to_string(), kind, value)
        })
        .collect();
    let before = |of: fn(&(String, String, String)) -> &String| {
        rows.iter().map(|row| width(of(row))).max().unwrap_or(0).min(48)
    };
    let room =
        out.columns().saturating_sub(before(|row| &row.0) + before(|row| &row.1) + 6).max(24);
    let mut table = Table::new([("", Align::Left), ("", Align::Left), ("", Align::Left)]);
    for (key, kind, value) in rows {
        table.row([key, kind, cut(&value, room)]);
    }
    table.write(out, 2)
}

/// Type and short value of a metadata entry. An array shows its type and length: `str[262144]`.
fn show(opened: &Opened, value: &Value) -> (String, String) {
    let kind = value.value_type().name().to_owned();
    match value {
        Value::Array(array) => {
            (format!("{}[{}]", array.elem().name(), array.len()), first_elements(opened, array))
        }
        Value::Str(Text::Inline(bytes)) => {
            let shown = bytes.len().min(STRING_PREFIX as usize);
            (kind, one_line(&bytes[..shown]))
        }
        Value::Str(Text::Span(extent)) => {
            let mut prefix = vec![0; extent.len.min(STRING_PREFIX) as usize];
            match opened.store.shard(extent.shard as usize).read_at(extent.offset, &mut prefix) {
                Ok(()) => (kind, one_line(whole_characters(&prefix))),
                Err(error) => (kind, format!("({error})")),
            }
        }
        other => (kind, scalar(other).unwrap_or_default()),
    }
}

/// The first few elements of an array, and `...` when there are more.
fn first_elements(opened: &Opened, array: &Array) -> String {
    const SHOWN: usize = 6;
    let mut shown = Vec::new();
    match array {
        Array::Inline { items, .. } => {
            shown.extend(items.iter().take(SHOWN).map(|item| element(opened, item)));
        }
        Array::Span { elem, count, extent, encoding } => {
            let shard = opened.store.shard(extent.shard as usize);
            let mut reader = ArrayReader::new(&shard, *elem, *count, *extent, *encoding);
            while shown.len() < SHOWN {
                shown.push(match reader.next() {
                    Ok(Some(Item::Value(value))) => element(opened, &value),
                    Ok(Some(Item::Str(bytes))) => quoted(bytes),
                    Ok(Some(Item::Array(inner))) => element(opened, &Value::Array(inner)),
                    Ok(None) => break,
                    Err(error) => return format!("({error})"),
                });
            }
        }
    }
    if array.len() > shown.len() as u64 {
        shown.push("...".into());
    }
    shown.join(", ")
}

/// One element on one line.
fn element(opened: &Opened, value: &Value) -> String {
    match value {
        Value::Str(Text::Inline(bytes)) => quoted(bytes),
        Value::Array(inner) => format!("{}[{}]", inner.elem().name(), inner.len()),
        other => show(opened, other).1,
    }
}

fn quoted(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(STRING_PREFIX as usize)];
    format!("\"{}\"", one_line(whole_characters(shown)))
}

/// Without the piece of a character that a prefix may end with.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

fn write_warnings(document: &Json, out: &mut Out) -> io::Result<()> {
    let warnings: Vec<_> =
        document["warnings"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    if warnings.is_empty() {
        return Ok(());
    }
    heading(out, "warnings")?;
    for warning in warnings {
        out.pieces(["  ".into(), Piece::inked(Ink::Warn, warning)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_character_is_left_out_and_a_bad_byte_is_not() {
        let text = "caf\u{e9}".as_bytes();
        assert_eq!(whole_characters(&text[..4]), b"caf");
        assert_eq!(whole_characters(text), text);
        assert_eq!(whole_characters(b"a\xffb"), b"a\xffb");
    }
}
