//! `weightfs ls`: the tensors of a model as a table.

use super::args::LsArgs;
use super::engine::{self, Opened};
use super::exit::Exit;
use super::output::Out;
use super::table::{self, Align, Rows};
use super::text::{self, counted, plural, shape, size};
use anyhow::Result;
use std::io;
use weightfs::bytes::line::Safe;
use weightfs::model::elements;
use weightfs::view::document;

pub(crate) fn run(args: &LsArgs) -> Result<Exit> {
    let opened = engine::open(&args.model, &args.names)?;
    let mut out = Out::new();
    if args.json {
        document::write_listing(opened.facts(), &mut out.exact())?;
    } else {
        write(&opened, &mut out)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn write(opened: &Opened, out: &mut Out) -> Result<()> {
    let model = &opened.model;
    let several = model.shards.len() > 1;
    let columns = [
        ("NAME", Align::Left),
        ("DTYPE", Align::Left),
        ("SHAPE", Align::Left),
        ("SIZE", Align::Right),
        (if several { "FILE" } else { "" }, Align::Left),
    ];
    let tensors = opened.catalog.len(model);
    let (parameters, bytes) = table::stream(columns, out, |table| rows(opened, several, table))?;
    let files =
        if several { format!(" in {}", plural(model.shards.len(), "file")) } else { String::new() };
    let (tensors, parameters) = (plural(tensors, "tensor"), counted(parameters, "parameter"));
    out.line(format_args!("{tensors}, {parameters}, {}{files}", size(bytes)))?;
    Ok(())
}

/// A row for each tensor; returns all parameters and bytes.
fn rows(opened: &Opened, several: bool, table: &mut Rows<'_, 5>) -> io::Result<(u64, u64)> {
    let model = &opened.model;
    let (mut parameters, mut bytes) = (0u64, 0u64);
    let tensors = opened.catalog.len(model);
    for tensor in (0..tensors).map(|i| opened.catalog.get(model, i)) {
        // Saturating: a dimension of 0 lets the others be absurd.
        parameters = parameters.saturating_add(elements(tensor.shape));
        bytes = bytes.saturating_add(tensor.nbytes);
        let file = &model.shards[tensor.extent.shard as usize].file;
        table.row([
            text::name(tensor.name),
            tensor.dtype.name().to_owned(),
            shape(tensor.shape),
            size(tensor.nbytes),
            if several { Safe(file).to_string() } else { String::new() },
        ])?;
    }
    Ok((parameters, bytes))
}
