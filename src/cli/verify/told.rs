//! How a verdict is told: a table for people, a document for programs.

use super::super::exit::{self, Exit};
use super::super::output::{Ink, Out, Piece};
use super::super::table::{Align, Table};
use super::super::text::{self, plural, size};
use super::{Bad, Verdict};
use anyhow::Result;
use serde_json::{Value as Json, json};
use std::path::Path;
use weightfs::bytes::line::{InLine, Safe};

/// Damaged ranges that the table shows; `--json` has them all.
const SHOWN: usize = 20;

/// All of a file, as HTTP says it.
const ALL: &str = "bytes=0-";

pub(super) fn document(model: &Path, verdict: &Result<Verdict>) -> Json {
    let (result, bad) = match verdict {
        Ok(verdict) if verdict.bad.is_empty() => ("good", Vec::new()),
        Ok(verdict) => ("damaged", verdict.bad.iter().map(bad_document).collect()),
        Err(error) => match exit::code_of(error) {
            Exit::Unsealed => ("unsealed", Vec::new()),
            Exit::Seal => ("seal", Vec::new()),
            _ => ("failed", Vec::new()),
        },
    };
    let mut document = json!({ "model": model.to_string_lossy(), "result": result, "bad": bad });
    match verdict {
        Ok(verdict) => {
            if verdict.more > 0 {
                document["more"] = verdict.more.into();
            }
            document["repair"] = repair(verdict);
        }
        Err(error) => document["error"] = exit::message(error).into(),
    }
    document
}

fn bad_document(bad: &Bad) -> Json {
    json!({
        "tensor": bad.tensor,
        "chunk": bad.chunk,
        "source": { "file": bad.file, "offset": bad.offset, "length": bad.length },
        "expected": bad.expected,
        "found": bad.found,
    })
}

/// First and last byte of each range, as HTTP counts, the last `null` where nobody knows how long
/// the file should be; of a file that is too long, how long it
/// has to be made.
fn repair(verdict: &Verdict) -> Json {
    if verdict.endless {
        let file = |name: &str| json!({ "file": name, "ranges": [[0, null]], "http": ALL });
        return verdict.bad_files().map(file).collect();
    }
    let mut plan: Vec<_> = (0u32..).zip(&verdict.files).map(|(shard, _)| (shard, None)).collect();
    for repair in verdict.repair() {
        if let Some((_, fetched)) = plan.get_mut(repair.shard as usize) {
            *fetched = Some(repair);
        }
    }
    let mut files = Vec::new();
    for (shard, fetched) in plan {
        let cut = verdict.too_long().find(|(number, ..)| *number == shard as usize);
        if fetched.is_none() && cut.is_none() {
            continue;
        }
        let ranges = fetched.as_ref().map(|repair| &*repair.ranges).unwrap_or_default();
        let mut file = json!({
            "file": verdict.files.get(shard as usize).map(|(name, _)| name),
            "ranges": ranges.iter().map(|(from, to)| json!([from, to])).collect::<Vec<_>>(),
            "http": fetched.map(|repair| repair.http()),
        });
        if let Some((.., length)) = cut {
            file["truncate"] = length.into();
        }
        files.push(file);
    }
    files.into()
}

pub(super) fn write(model: &Path, verdict: &Verdict, out: &mut Out) -> Result<()> {
    let name = model.in_line().to_string();
    let with = verdict.with.as_ref().map(|with| format!(" {with}")).unwrap_or_default();
    if verdict.bad.is_empty() {
        let good = Piece::inked(Ink::Good, "good");
        let (n, unit) = verdict.checked;
        let bytes = size(verdict.bytes);
        let checked = format!("{with} ({}, {bytes})", plural(n as usize, unit));
        out.pieces([format!("{name}: ").into(), good, checked.into()])?;
        out.flush()?;
        return Ok(());
    }
    let damaged = Piece::inked(Ink::Bad, "damaged");
    out.pieces([format!("{name}: ").into(), damaged, with.into()])?;
    let mut table = Table::new([
        ("TENSOR", Align::Left),
        ("CHUNK", Align::Right),
        ("FILE", Align::Left),
        ("OFFSET", Align::Right),
        ("LENGTH", Align::Right),
        ("EXPECTED", Align::Left),
        ("FOUND", Align::Left),
    ]);
    for bad in verdict.bad.iter().take(SHOWN) {
        table.row([
            bad.tensor
                .as_ref()
                .map_or(format!("({})", bad.place), |name| text::name(name.as_bytes())),
            bad.chunk.map_or("-".into(), |chunk| chunk.to_string()),
            Safe(bad.file.as_bytes()).to_string(),
            bad.offset.to_string(),
            bad.length.to_string(),
            bad.expected.clone(),
            bad.found.clone(),
        ]);
    }
    table.write(out, 2)?;
    let unseen = (verdict.bad.len().saturating_sub(SHOWN)) as u64 + verdict.more;
    if unseen > 0 {
        out.line(format_args!("  and {unseen} more, which --json lists"))?;
    }
    write_repair(verdict, out)?;
    out.flush()?;
    Ok(())
}

fn write_repair(verdict: &Verdict, out: &mut Out) -> Result<()> {
    if verdict.endless {
        for file in verdict.bad_files() {
            out.line(format_args!("  to fetch again of {}: all of it", file.in_line()))?;
            out.line(format_args!("    {ALL}"))?;
        }
        return Ok(());
    }
    for repair in verdict.repair().iter().take(SHOWN) {
        let Some((file, length)) = verdict.files.get(repair.shard as usize) else {
            continue;
        };
        let file = Safe(file.as_bytes()).to_string();
        let (bytes, all) = (size(repair.bytes()), size(*length));
        out.line(format_args!("  to fetch again of {file}: {bytes} of {all}"))?;
        let shown = &repair.ranges[..repair.ranges.len().min(SHOWN)];
        let ranges = weightfs::trust::http_ranges(shown);
        match repair.ranges.len() - shown.len() {
            0 => out.line(format_args!("    {ranges}"))?,
            unseen => {
                out.line(format_args!("    {ranges} and {unseen} more, which --json lists"))?;
            }
        }
    }
    for (_, file, length) in verdict.too_long().take(SHOWN) {
        let file = file.in_line();
        out.line(format_args!("  to be cut off of {file}: what stands behind {length} bytes"))?;
        out.line(format_args!("    truncate -s {length}"))?;
    }
    Ok(())
}
