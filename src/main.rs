//! The `weightfs` command: what was typed, then one command, then its exit code.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os().collect())
}
