//! `weightfs completions`: scripts made from the argument definitions.

use super::args::{self, CompletionsArgs, Shell};
use super::exit::Exit;
use super::output::of_stdout;
use anyhow::Result;
use std::io::{self, Write};

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut args::definitions(), "weightfs", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script).and_then(|()| out.flush()).map_err(of_stdout)?;
    Ok(Exit::Done)
}
