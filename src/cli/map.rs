//! `weightfs map`: what each stored tensor is called in the mount.

use super::args::MapArgs;
use super::engine::{self, Opened};
use super::exit::Exit;
use super::output::{Ink, Out, Piece};
use super::table::{self, Align, Rows};
use super::text::{self, plural};
use anyhow::Result;
use std::io;
use weightfs::naming::{Likeness, MapDocument, map_rows};

pub(crate) fn run(args: &MapArgs) -> Result<Exit> {
    let opened = engine::open_like(&args.model, &args.names, args.like.as_deref())?;
    let mut out = Out::new();
    let (model, catalog) = (&opened.model, &opened.catalog);
    if args.json {
        MapDocument::new(model, catalog, opened.likeness.as_ref())?.write(&mut out.exact())?;
        out.flush()?;
        return Ok(Exit::Done);
    }
    let columns = [("STORED", Align::Left), ("", Align::Left), ("MOUNTED", Align::Left)];
    let (renamed, hidden) = table::stream(columns, &mut out, |table| rows(&opened, table))?;
    let stored = plural(model.tensors.len(), "stored tensor");
    out.line(format_args!("{stored}, {renamed} renamed, {hidden} not shown"))?;
    let missing = opened.likeness.as_ref().map(lists).unwrap_or_default();
    for warning in missing.iter().chain(catalog.warnings()) {
        out.pieces([Piece::inked(Ink::Warn, warning)])?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// What `like=` found and did not, a line for each list.
fn lists(likeness: &Likeness) -> Vec<String> {
    let mut lines = vec![format!(
        "{} matched; not matched: {} here, {} of the reference; {} with another shape",
        plural(likeness.matched.len(), "name"),
        likeness.unmatched_source.len(),
        likeness.unmatched_reference.len(),
        likeness.shape_mismatch.len()
    )];
    let lists = [
        ("missing here", &likeness.unmatched_reference),
        ("tied to the embedding", &likeness.tied),
    ];
    for (what, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        let names: Vec<String> = names.iter().map(|name| text::name(name)).collect();
        lines.push(format!("{what}: {}", names.join(", ")));
    }
    lines.extend(likeness.shape_mismatch.iter().map(|found| format!("shapes disagree: {found}")));
    lines.extend(likeness.notes.iter().cloned());
    lines
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
