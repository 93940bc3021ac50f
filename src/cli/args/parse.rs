//! From the words typed to the command they ask for.

use super::{Cli, Command};
use crate::cli::exit::{Exit, Failure};
use crate::cli::options::{self, Options};
use crate::cli::output::of_stdout;
use anyhow::Result;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write;
use weightfs::bytes::line::Safe;

/// A command line that was understood.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) command: Command,
    /// The words of `-o`, `--map`, `--set` and `--like` in the order typed; empty but for `mount`.
    pub(crate) options: Options,
    /// The first argument, when it was no command and so taken for a MODEL or an option.
    pub(crate) word: Option<OsString>,
}

/// Why there is no command to run.
#[derive(Debug)]
pub(crate) enum End {
    /// `--help` or `--version`: text for stdout.
    Text(String),
    /// A wrong command line.
    Wrong(anyhow::Error),
}

/// The definitions, with the table of `-o` where it is looked for.
pub(crate) fn definitions() -> clap::Command {
    let mut help = String::from("Options for -o:\n");
    for line in options::TABLE {
        let _ = writeln!(help, "  {}\n      {}; default: {}", line.form, line.help, line.default);
    }
    help.push_str(
        "What mount(8) passes (ro, rw, nosuid, noatime, defaults, x-*, ...) is accepted; the mount is read-only.",
    );
    Cli::command().mut_subcommand("mount", |mount| mount.after_help(help))
}

/// Understands a command line. A first argument that is no command name starts the arguments
/// of `mount`, which makes us a mount(8) helper: `weightfs SRC DIR -o rw,nosuid`.
pub(crate) fn parse(mut argv: Vec<OsString>) -> Result<Parsed, End> {
    let mut word = None;
    match argv.get(1) {
        None => {
            return Err(End::Wrong(Failure::usage(
                "no model and no command given\nusage: weightfs MODEL MOUNTPOINT, or weightfs COMMAND ...\nhelp: weightfs --help",
            )));
        }
        Some(first) if is_command(first) || is_top_level_flag(first) => {}
        Some(first) if first == "help" && asks_for_help(&argv[2..]) => {
            argv.remove(1);
            argv.truncate(2);
            argv.push("--help".into());
        }
        Some(first) => {
            word = Some(first.clone());
            argv.insert(1, "mount".into());
        }
    }
    let matches = definitions().try_get_matches_from(argv).map_err(|error| match &word {
        Some(word) if lacks_arguments(&error) && !word.as_encoded_bytes().starts_with(b"-") => {
            End::Wrong(Failure::usage(no_mountpoint(word)))
        }
        _ => from_clap(error),
    })?;
    let cli = Cli::from_arg_matches(&matches).map_err(from_clap)?;
    let mut options = Options::default();
    if let Some(("mount", matches)) = matches.subcommand() {
        for (kind, value) in in_typed_order(matches) {
            match kind {
                "options" => options::parse_list(&mut options, value),
                name => options.apply(name.as_bytes(), Some(value.as_encoded_bytes())),
            }
            .map_err(|error| End::Wrong(Failure::usage(error.to_string())))?;
        }
    }
    if let Command::Mount(args) = &cli.command {
        options.recursive |= args.recursive;
        options.check().map_err(|error| End::Wrong(Failure::usage(error.to_string())))?;
    }
    Ok(Parsed { command: cli.command, options, word })
}

/// `help` and `help COMMAND` ask for help, as everywhere; `help /mnt/g` mounts a file called help.
fn asks_for_help(after: &[OsString]) -> bool {
    match after {
        [] => true,
        [topic] => is_command(topic),
        _ => false,
    }
}

fn lacks_arguments(error: &clap::Error) -> bool {
    error.kind() == clap::error::ErrorKind::MissingRequiredArgument
}

/// What to say when a word stands alone: it is no command, and to mount it a MOUNTPOINT is missing.
fn no_mountpoint(word: &OsStr) -> String {
    let shown = Safe(word.as_encoded_bytes()).to_string();
    format!(
        "{shown} is no command, and to mount it as a MODEL a MOUNTPOINT is needed{}\ncommands: {}\nusage: weightfs MODEL MOUNTPOINT, or weightfs COMMAND ...\nhelp: weightfs --help",
        did_you_mean(word),
        commands().join(", ")
    )
}

/// A MODEL that is not there and may have been meant for a command: what to say about it, or
/// nothing when it looks like a path.
pub(crate) fn no_such_command(word: &OsStr) -> Option<anyhow::Error> {
    let shown = Safe(word.as_encoded_bytes()).to_string();
    let list = format!("commands: {}\nhelp: weightfs --help", commands().join(", "));
    let plain = word.as_encoded_bytes().iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
    let meant = did_you_mean(word);
    (plain || !meant.is_empty()).then(|| {
        Failure::with(
            Exit::Failed,
            format!("{shown}: there is no such MODEL, and no command of that name{meant}\n{list}"),
        )
    })
}

fn did_you_mean(word: &OsStr) -> String {
    near_command(word).map_or(String::new(), |near| format!("; did you mean weightfs {near}?"))
}

/// The names of all commands, in the order of the help text.
fn commands() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// The command that a word was meant to be, if it was.
fn near_command(word: &OsStr) -> Option<String> {
    let word = word.to_str().filter(|word| word.len() < 32)?;
    let distance = |command: &String| strsim::damerau_levenshtein(word, command);
    let near = commands().into_iter().min_by_key(distance)?;
    (distance(&near) <= if near.len() > 3 { 2 } else { 1 }).then_some(near)
}

fn is_command(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| Cli::command().find_subcommand(word).is_some())
}

fn is_top_level_flag(word: &OsStr) -> bool {
    ["-h", "--help", "-V", "--version"].iter().any(|flag| word == *flag)
}

/// All options in the order typed, whichever of the four ways was used: stages of a map and
/// overrides of one key depend on it.
fn in_typed_order(matches: &ArgMatches) -> Vec<(&'static str, &OsStr)> {
    let mut found = Vec::new();
    for id in ["options", "map", "set", "like"] {
        let indices = matches.indices_of(id).into_iter().flatten();
        let values = matches.get_many::<OsString>(id).into_iter().flatten();
        found.extend(indices.zip(values).map(|(index, value)| (index, id, value.as_os_str())));
    }
    found.sort_by_key(|(index, ..)| *index);
    found.into_iter().map(|(_, id, value)| (id, value)).collect()
}

/// clap's errors in our words: one line of what is wrong, then usage and help.
fn from_clap(error: clap::Error) -> End {
    use clap::error::ErrorKind;
    let text = error.render().to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return End::Text(text);
    }
    let mut what = Vec::new();
    let mut rest = Vec::new();
    let chooses = text.contains("[possible values: ");
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(first) = line.strip_prefix("error: ") {
            what.push(first.to_owned());
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            let command = usage.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            rest.push(format!("usage: {usage}"));
            rest.push(format!("help: {command} --help"));
        } else if let Some(tip) = line.strip_prefix("tip: ") {
            // A list of what there is needs no guess beside it.
            if chooses {
                continue;
            }
            what.push(format!("({tip})"));
        } else if !line.starts_with("For more information") {
            what.push(line.to_owned());
        }
    }
    let mut lines = vec![what.join(" ")];
    lines.append(&mut rest);
    End::Wrong(Failure::usage(lines.join("\n")))
}

/// Prints what [`parse`] ended with.
pub(crate) fn explain(end: End) -> Result<Exit> {
    match end {
        End::Text(text) => {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(of_stdout)?;
            Ok(Exit::Done)
        }
        End::Wrong(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::args::MountArgs;
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    fn parse_words(words: &[&str]) -> Result<Parsed, End> {
        parse(
            std::iter::once("weightfs").chain(words.iter().copied()).map(OsString::from).collect(),
        )
    }

    fn mount(words: &[&str]) -> (MountArgs, Options) {
        match parse_words(words) {
            Ok(Parsed { command: Command::Mount(args), options, .. }) => (args, options),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn wrong(words: &[&str]) -> String {
        match parse_words(words) {
            Err(End::Wrong(error)) => {
                assert_eq!(crate::cli::exit::code_of(&error), Exit::Usage);
                error.to_string()
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_first_argument_that_is_no_command_is_a_model() {
        for words in [
            &["gemma.gguf", "/mnt/g"][..],
            &["mount", "gemma.gguf", "/mnt/g"],
            &["-f", "gemma.gguf", "/mnt/g"],
            &["-o", "ro", "gemma.gguf", "/mnt/g"],
            &["gemma.gguf", "/mnt/g", "-o", "rw,nosuid,nodev"],
            &["gemma.gguf", "-orw", "/mnt/g"],
            &["--", "gemma.gguf", "/mnt/g"],
        ] {
            let (args, _) = mount(words);
            assert_eq!(
                (args.model.to_str(), args.mountpoint.to_str()),
                (Some("gemma.gguf"), Some("/mnt/g")),
                "{words:?}"
            );
        }
    }

    #[test]
    fn a_file_named_like_a_command_can_be_mounted() {
        for (words, model) in [
            (&["./ls", "/mnt"][..], "./ls"),
            (&["mount", "ls", "/mnt"], "ls"),
            (&["mount", "mount", "/mnt"], "mount"),
            (&["help", "/mnt"], "help"),
            (&["man", "/mnt"], "man"),
            (&["-f", "ls", "/mnt"], "ls"),
        ] {
            assert_eq!(mount(words).0.model, Path::new(model), "{words:?}");
        }
        assert!(matches!(parse_words(&["ls", "/mnt"]).unwrap().command, Command::Ls(_)));
    }

    #[test]
    fn a_slip_is_seen_and_a_model_is_not_taken_for_one() {
        for (word, want) in [
            ("lss", Some("ls")),
            ("lst", Some("ls")),
            ("verfy", Some("verify")),
            ("unmount", Some("umount")),
            ("gemma.gguf", None),
            ("model", None),
        ] {
            assert_eq!(near_command(OsStr::new(word)).as_deref(), want, "{word}");
        }
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert_eq!(near_command(OsStr::new(name)).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_lone_word_is_answered_with_the_commands_there_are() {
        for (word, part) in [
            ("lst", "did you mean weightfs ls?"),
            ("frob", "frob is no command"),
            ("m.gguf", "MOUNTPOINT"),
        ] {
            let text = wrong(&[word]);
            assert!(text.contains(part) && text.contains("ls, info, cat"), "{text}");
            assert!(text.lines().count() <= 4, "{text}");
        }
        for (word, said) in [("frob", true), ("./m", false), ("gemma.gguf", false)] {
            assert_eq!(no_such_command(OsStr::new(word)).is_some(), said, "{word}");
        }
    }

    #[test]
    fn help_is_a_word_as_well() {
        for words in [&["help"][..], &["help", "seal"], &["help", "mount"]] {
            let Err(End::Text(text)) = parse_words(words) else { panic!("{words:?}") };
            let topic = words.get(1).copied().unwrap_or("COMMAND");
            assert!(text.contains(&format!("weightfs {topic}")), "{text}");
        }
    }

    #[test]
    fn a_shell_that_is_not_known_is_answered_with_those_that_are() {
        let text = wrong(&["completions", "elvish"]);
        assert!(text.contains("bash, zsh, fish") && !text.contains("similar"), "{text}");
    }

    #[test]
    fn paths_need_not_be_utf8() {
        let argv = [&b"weightfs"[..], b"m\xff.gguf", b"/mnt/\xfe"]
            .map(|word| OsString::from_vec(word.to_vec()));
        let Command::Mount(args) = parse(argv.to_vec()).unwrap().command else { panic!() };
        assert_eq!(args.model.as_os_str().as_encoded_bytes(), b"m\xff.gguf");
        assert_eq!(args.mountpoint.as_os_str().as_encoded_bytes(), b"/mnt/\xfe");
    }

    #[test]
    fn stages_keep_the_order_in_which_they_were_typed() {
        let (_, options) =
            mount(&["m", "d", "--map", "a.json", "-o", "map=hf", "--map", "b,c.json"]);
        let maps: Vec<_> = options.map.iter().map(|m| m.to_str().unwrap()).collect();
        assert_eq!(maps, ["a.json", "hf", "b,c.json"]);
    }

    #[test]
    fn flags_take_their_values_as_they_are() {
        let (_, options) = mount(&["m", "d", "--set", r#"a.b="x,\\y""#, "--like", "r,\\s"]);
        assert_eq!(options.set[0].key, "a.b");
        assert_eq!(options.set[0].value, options::SetValue::Json(serde_json::json!("x,\\y")));
        assert_eq!(options.like.unwrap(), Path::new("r,\\s"));
    }

    #[test]
    fn an_unknown_word_in_o_is_named() {
        let text = wrong(&["m", "d", "-o", "ro,frobnicate"]);
        assert!(text.contains("frobnicate"), "{text}");
    }

    #[test]
    fn usage_errors_are_usage_errors() {
        for words in [
            &[][..],
            &["m"],
            &["ls"],
            &["ls", "m", "--nope"],
            &["m", "d", "e"],
            &["m", "d", "--ready-fd", "1"],
            &["cat", "m"],
            &["stats"],
            &["diff", "a"],
            &["diff", "a", "b", "c"],
            &["cat", "m", "t", "--as", "f64"],
            &["seal"],
            &["seal", "m", "--chunk-size", "5000"],
            &["seal", "m", "--chunk-size", "32MiB"],
            &["seal", "m", "--chunk-size", "2KiB"],
            &["verify", "m", "--expect-sha256", "abc"],
            &["verify", "m", "--against", "f", "--expect-sha256", &"0".repeat(64)],
            &["completions", "tcsh"],
            &["m", "d", "--recursive", "--set", "a=1"],
            &["--recursive", "m", "d", "-o", "seal=x.json"],
        ] {
            let text = wrong(words);
            assert!(text.lines().count() <= 4, "{words:?}: {text}");
            assert!(!text.contains("error:"), "{words:?}: {text}");
        }
    }

    #[test]
    fn help_and_version_are_no_errors() {
        for words in [
            &["--help"][..],
            &["-h"],
            &["--version"],
            &["-V"],
            &["ls", "--help"],
            &["mount", "--help"],
        ] {
            assert!(matches!(parse_words(words), Err(End::Text(_))), "{words:?}");
        }
    }
}
