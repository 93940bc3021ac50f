//! `weightfs map`: what each stored tensor is called in the mount.

use super::args::MapArgs;
use super::engine;
use super::exit::Exit;
use super::output::{Ink, Out};
use super::table::{Align, Table};
use super::text::{Safe, plural};
use anyhow::Result;
use std::io::Write;

pub(crate) fn run(args: &MapArgs) -> Result<Exit> {
    let opened = engine::open_like(&args.model, &args.names, args.like.as_deref())?;
    let mut out = Out::new();
    if args.json {
        out.json(&engine::map_document(&opened))?;
        out.flush()?;
        return Ok(Exit::Done);
    }
    let (model, catalog) = (&opened.model, &opened.catalog);
    let mut table = Table::new([
        ("STORED", Align::Left),
        ("", Align::Left),
        ("MOUNTED", Align::Left),
    ]);
    let (mut renamed, mut hidden) = (0, 0);
    for (i, tensor) in model.tensors.iter().enumerate() {
        let stored = Safe(&tensor.name).to_string();
        // Tensor indices are u32 throughout: a header of that many does not fit in memory.
        let targets = catalog.targets(model, i as u32);
        if targets.is_empty() {
            hidden += 1;
            table.row([stored, "--".into(), "(not shown)".into()]);
            continue;
        }
        let pieces = targets.len();
        for (nth, target) in targets.enumerate() {
            let name = catalog.get(model, target).name;
            let arrow = if *name == *tensor.name { "=" } else { "->" };
            renamed += usize::from(nth == 0 && (pieces > 1 || arrow == "->"));
            table.row([
                if nth == 0 {
                    stored.clone()
                } else {
                    String::new()
                },
                arrow.into(),
                Safe(name).to_string(),
            ]);
        }
    }
    table.write(&mut out, 0)?;
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
