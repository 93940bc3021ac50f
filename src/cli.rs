//! The command line of the binary: arguments in, text and an exit code out.
//!
//! Every command is a function from its arguments to `Result<Exit>`; nothing is
//! computed here that a user of the library might want. Messages go to stderr as
//! `weightfs: ...`, results to stdout, and a reader that went away is no error.

use args::Command;
use exit::Exit;
use std::ffi::OsString;
use std::process::ExitCode;

mod args;
mod below;
mod cat;
mod clock;
mod completions;
mod confine;
mod daemon;
mod diff;
mod engine;
mod exit;
mod info;
mod keeper;
mod logfile;
mod ls;
mod man;
mod map;
mod mount;
mod mountinfo;
mod mountpoint;
mod occupied;
mod options;
mod output;
mod patience;
mod preflight;
mod presence;
mod progress;
mod provenance;
mod ready;
mod seal;
mod shell;
mod stats;
mod status;
mod table;
mod text;
mod umount;
mod unopened;
mod value_file;
mod verify;

/// Runs the command that `argv` asks for and says how the process should end.
pub(crate) fn run(argv: Vec<OsString>) -> ExitCode {
    if argv.first().is_some_and(|name| name == keeper::NAME) {
        return keeper::run();
    }
    if argv.len() == 2 && argv[1] == man::FLAG {
        return exit::finish(man::run()).into();
    }
    let result = match args::parse(argv) {
        Ok(parsed) => dispatch(parsed),
        Err(end) => args::explain(end),
    };
    exit::finish(result).into()
}

fn dispatch(parsed: args::Parsed) -> anyhow::Result<Exit> {
    match parsed.command {
        Command::Mount(args) => {
            let absent = args.model.symlink_metadata().is_err();
            // With an option in front the MODEL stands elsewhere, and is one.
            let word = parsed.word.filter(|word| absent && args.model.as_os_str() == *word);
            match word.and_then(|word| args::no_such_command(&word)) {
                Some(error) => Err(error),
                None => mount::run(args, parsed.options),
            }
        }
        Command::Umount(args) => umount::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Seal(args) => seal::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Provenance(args) => provenance::run(&args),
        Command::Map(args) => map::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}
