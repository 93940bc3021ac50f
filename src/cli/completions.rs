//! `weightfs completions`: scripts made from the argument definitions.

use super::args::{Cli, CompletionsArgs, Shell};
use super::exit::Exit;
use anyhow::Result;
use clap::CommandFactory;
use std::io::{self, Write};

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut Cli::command(), "weightfs", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Exit::Done)
}
