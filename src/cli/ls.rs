//! `weightfs ls`: the tensors of a model as a table.

use super::args::LsArgs;
use super::engine::{self, Opened};
use super::exit::Exit;
use super::output::Out;
use super::table::{Align, Table};
use super::text::{self, Safe, counted, plural, shape, size};
use anyhow::Result;
use std::io::Write;
use weightfs::model::elements;
use weightfs::view::document;

pub(crate) fn run(args: &LsArgs) -> Result<Exit> {
    let opened = engine::open(&args.model, &args.names)?;
    let mut out = Out::new();
    if args.json {
        out.json(&document::listing(opened.facts()))?;
    } else {
        write(&opened, &mut out)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

fn write(opened: &Opened, out: &mut Out) -> Result<()> {
    let model = &opened.model;
    let several = model.shards.len() > 1;
    let mut table = Table::new([
        ("NAME", Align::Left),
        ("DTYPE", Align::Left),
        ("SHAPE", Align::Left),
        ("SIZE", Align::Right),
        (if several { "FILE" } else { "" }, Align::Left),
    ]);
    let (mut parameters, mut bytes) = (0u64, 0u64);
    let tensors = opened.catalog.len(model);
    for tensor in (0..tensors).map(|i| opened.catalog.get(model, i)) {
        // Saturating: a dimension of 0 lets the others be absurd.
        parameters = parameters.saturating_add(elements(tensor.shape));
        bytes = bytes.saturating_add(tensor.extent.len);
        let file = &model.shards[tensor.extent.shard as usize].file;
        table.row([
            text::name(tensor.name),
            tensor.dtype.name().to_owned(),
            shape(tensor.shape),
            size(tensor.extent.len),
            if several { Safe(file).to_string() } else { String::new() },
        ]);
    }
    table.write(out, 0)?;
    let files =
        if several { format!(" in {}", plural(model.shards.len(), "file")) } else { String::new() };
    writeln!(
        out,
        "{}, {}, {}{files}",
        plural(tensors, "tensor"),
        counted(parameters, "parameter"),
        size(bytes)
    )?;
    Ok(())
}
