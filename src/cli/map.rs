//! `weightfs map`: what each stored tensor is called in the mount.

use super::args::MapArgs;
use super::engine::{self, Opened};
use super::exit::Exit;
use super::output::{Ink, Out};
use super::table::{self, Align, Rows};
use super::text::{self, Safe, plural};
use anyhow::Result;
use std::io::{self, Write};
use weightfs::naming::{map_rows, write_map_document};

pub(crate) fn run(args: &MapArgs) -> Result<Exit> {
    let opened = engine::open_like(&args.model, &args.names, args.like.as_deref())?;
    let mut out = Out::new();
    let (model, catalog) = (&opened.model, &opened.catalog);
    if args.json {
        write_map_document(model, catalog, &mut out)?;
        out.flush()?;
        return Ok(Exit::Done);
    }
    let columns = [("STORED", Align::Left), ("", Align::Left), ("MOUNTED", Align::Left)];
    let (renamed, hidden) = table::stream(columns, &mut out, |table| rows(&opened, table))?;
    writeln!(
        out,
        "{}, {renamed} renamed, {hidden} not shown",
        plural(model.tensors.len(), "stored tensor")
    )?;
    for warning in catalog.warnings() {
        let text = Safe(warning.as_bytes()).to_string();
        writeln!(out, "{}", out.ink(Ink::Warn, &text))?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// A row for each mounted tensor and each that is not shown; returns how many stored ones are
/// renamed and how many not shown.
fn rows(opened: &Opened, table: &mut Rows<'_, 3>) -> io::Result<(usize, usize)> {
    let (mut renamed, mut hidden) = (0, 0);
    for row in map_rows(&opened.model, &opened.catalog) {
        let stored = text::name(&row.stored.name);
        let (nth, parts) = row.part;
        let Some(mounted) = row.mounted else {
            hidden += 1;
            table.row([stored, "--".into(), "(not shown)".into()])?;
            continue;
        };
        let same = *mounted.name == *row.stored.name;
        renamed += usize::from(nth == 0 && (parts > 1 || !same));
        table.row([
            if nth == 0 { stored } else { String::new() },
            if same { "=" } else { "->" }.into(),
            text::name(mounted.name),
        ])?;
    }
    Ok((renamed, hidden))
}
