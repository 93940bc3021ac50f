//! What was typed: the grammar of the command line, and nothing about what it means.

use super::exit::{Exit, Failure};
use super::options::{self, Options};
use anyhow::Result;
use clap::{
    ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "weightfs",
    version,
    about = "Mount a model's weights: every tensor of a GGUF or safetensors model is a checked, read-only file",
    after_help = "A first argument that is no command is a MODEL to mount: weightfs gemma.gguf /mnt/g\n\
        To mount a file named like a command, write ./ls or mount ls.",
    override_usage = "weightfs MODEL MOUNTPOINT [-o OPT[,OPT]...]\n       weightfs COMMAND ...",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One variant per command, in the order of the help text.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount MODEL on MOUNTPOINT; returns when the mount is ready
    Mount(MountArgs),
    /// Unmount MOUNTPOINT, alive or dead
    Umount(UmountArgs),
    /// List the tensors: name, dtype, shape, size
    Ls(LsArgs),
    /// Show what the model is: format, parameters, dtypes, metadata
    Info(InfoArgs),
    /// Write one tensor to stdout, checked, without mounting
    Cat(CatArgs),
    /// Compute the checksums of every byte and write them beside the model
    Seal(SealArgs),
    /// Check every byte against the seal or a given digest
    Verify(VerifyArgs),
    /// Show stored names and the names they are mounted under
    Map(MapArgs),
    /// Show what a mounted daemon does and has met
    Status(StatusArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// How MODEL is explained wherever it stands.
const MODEL: &str = "A .gguf or .safetensors file, the first part of a split GGUF, a \
    model.safetensors.index.json, or a directory that holds one model";

#[derive(Args, Debug)]
pub(crate) struct MountArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    /// The directory to mount on
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: PathBuf,
    /// Options, separated by commas; a comma or backslash in a value is written \, or \\ (may be repeated)
    #[arg(short = 'o', id = "options", value_name = "OPT[,OPT]...", action = ArgAction::Append)]
    options: Vec<OsString>,
    /// Stay in the foreground and log to stderr
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Log every request (implies -f)
    #[arg(short, long)]
    pub(crate) debug: bool,
    /// As map= in -o, the value taken as it is (may be repeated)
    #[arg(long, id = "map", value_name = "none|hf|gguf|FILE", action = ArgAction::Append)]
    map: Vec<OsString>,
    /// As set= in -o, the value taken as it is (may be repeated)
    #[arg(long, id = "set", value_name = "KEY=JSON|KEY=@FILE", action = ArgAction::Append)]
    set: Vec<OsString>,
    /// As like= in -o, the value taken as it is
    #[arg(long, id = "like", value_name = "REF", action = ArgAction::Append, hide = true)]
    like: Vec<OsString>,
    /// Write a line to file descriptor N when the mount is ready, then close it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) ready_fd: Option<i32>,
}

#[derive(Args, Debug)]
pub(crate) struct UmountArgs {
    /// Where the model is mounted
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: PathBuf,
    /// Unmount at once even if files are open; their readers finish first
    #[arg(short = 'z', long)]
    pub(crate) lazy: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) names: NameArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    /// Print one JSON document (model.json of the mount)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CatArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    /// Its name as mounted, or its file name in tensors/
    #[arg(value_name = "TENSOR")]
    pub(crate) tensor: OsString,
    /// What to write: the bytes as stored, the values in a dtype, or a NumPy file
    #[arg(long = "as", value_name = "FORM", value_enum, default_value_t = Form::Stored, hide_possible_values = false)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) names: NameArgs,
}

/// What `cat --as` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// The bytes as stored
    Stored,
    /// 32-bit floats
    F32,
    /// 16-bit IEEE floats
    F16,
    /// bfloat16
    Bf16,
    /// A NumPy .npy file
    Npy,
}

impl Form {
    /// The word that was typed.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Form::Stored => "stored",
            Form::F32 => "f32",
            Form::F16 => "f16",
            Form::Bf16 => "bf16",
            Form::Npy => "npy",
        }
    }
}

/// The names that tensors get.
#[derive(Args, Debug, Default)]
pub(crate) struct NameArgs {
    /// Names as stored, of Hugging Face, of GGUF, or by a map file (may be repeated: stages)
    #[arg(long, value_name = "none|hf|gguf|FILE", action = ArgAction::Append)]
    pub(crate) map: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct SealArgs {
    #[arg(value_name = "MODEL", help = MODEL, required = true)]
    pub(crate) models: Vec<PathBuf>,
    /// Bytes per checksum, a power of two from 4KiB to 16MiB
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = chunk_size)]
    pub(crate) chunk_size: u32,
    /// Write the seal to F instead of MODEL.weightfs.json
    #[arg(long, value_name = "F")]
    pub(crate) output: Option<PathBuf>,
    /// Replace a seal that is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Compute CRC32 only: faster, but no SHA256SUMS and no digest to compare with others
    #[arg(long)]
    pub(crate) no_sha256: bool,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[arg(value_name = "MODEL", help = MODEL, required = true)]
    pub(crate) models: Vec<PathBuf>,
    /// Compare with the digests in FILE (lines of sha256sum)
    #[arg(long, value_name = "FILE", conflicts_with = "expect_sha256")]
    pub(crate) against: Option<PathBuf>,
    /// Compare with the SHA-256 of the file, 64 hex digits
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    pub(crate) expect_sha256: Option<[u8; 32]>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MapArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Derive the names from a second model
    #[arg(long, value_name = "REF", hide = true)]
    pub(crate) like: Option<PathBuf>,
    /// Print a map file that map=FILE reads
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Where the model is mounted
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: PathBuf,
    /// Print one JSON document (.weightfs/status.json of the mount)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell to complete in
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

/// Shells with a completion script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// `64KiB`, `64K`, `65536`: a power of two from 4 KiB to 16 MiB.
fn chunk_size(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        other => return Err(format!("unknown unit {other:?}, use KiB or MiB")),
    };
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(unit))
        .unwrap_or(0);
    match u32::try_from(bytes) {
        Ok(n) if n.is_power_of_two() && (4 << 10..=16 << 20).contains(&n) => Ok(n),
        _ => Err("it must be a power of two from 4KiB to 16MiB".into()),
    }
}

/// 64 hex digits of either case.
fn sha256(text: &str) -> Result<[u8; 32], String> {
    let digits = text.as_bytes();
    let mut out = [0; 32];
    if digits.len() != 64 {
        return Err(format!(
            "a SHA-256 has 64 hex digits, this has {} characters",
            text.chars().count()
        ));
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks(2)) {
        let nibble = |c: u8| char::from(c).to_digit(16);
        match (nibble(pair[0]), nibble(pair[1])) {
            (Some(high), Some(low)) => *byte = (high << 4 | low) as u8,
            _ => return Err("a SHA-256 has hex digits only".into()),
        }
    }
    Ok(out)
}

/// A command line that was understood.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) command: Command,
    /// The words of `-o`, `--map`, `--set` and `--like` in the order typed; empty but for `mount`.
    pub(crate) options: Options,
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
        let _ = writeln!(
            help,
            "  {}\n      {}; default: {}",
            line.form, line.help, line.default
        );
    }
    help.push_str(
        "What mount(8) passes (ro, rw, nosuid, noatime, defaults, x-*, ...) is accepted; the mount is read-only.",
    );
    Cli::command().mut_subcommand("mount", |mount| mount.after_help(help))
}

/// Understands a command line. A first argument that is no command name starts the arguments
/// of `mount`, which makes us a mount(8) helper: `weightfs SRC DIR -o rw,nosuid`.
pub(crate) fn parse(mut argv: Vec<OsString>) -> Result<Parsed, End> {
    match argv.get(1) {
        None => {
            return Err(End::Wrong(Failure::usage(
                "no model and no command given\nusage: weightfs MODEL MOUNTPOINT, or weightfs COMMAND ...\nhelp: weightfs --help",
            )));
        }
        Some(first) if is_command(first) || is_top_level_flag(first) => {}
        Some(_) => argv.insert(1, "mount".into()),
    }
    let matches = definitions()
        .try_get_matches_from(argv)
        .map_err(from_clap)?;
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
    Ok(Parsed {
        command: cli.command,
        options,
    })
}

fn is_command(word: &OsStr) -> bool {
    word.to_str()
        .is_some_and(|word| Cli::command().find_subcommand(word).is_some())
}

fn is_top_level_flag(word: &OsStr) -> bool {
    ["-h", "--help", "-V", "--version"]
        .iter()
        .any(|flag| word == *flag)
}

/// All options in the order typed, whichever of the four ways was used: stages of a map and
/// overrides of one key depend on it.
fn in_typed_order(matches: &ArgMatches) -> Vec<(&'static str, &OsStr)> {
    let mut found = Vec::new();
    for id in ["options", "map", "set", "like"] {
        let indices = matches.indices_of(id).into_iter().flatten();
        let values = matches.get_many::<OsString>(id).into_iter().flatten();
        found.extend(
            indices
                .zip(values)
                .map(|(index, value)| (index, id, value.as_os_str())),
        );
    }
    found.sort_by_key(|(index, ..)| *index);
    found
        .into_iter()
        .map(|(_, id, value)| (id, value))
        .collect()
}

/// clap's errors in our words: one line of what is wrong, then usage and help.
fn from_clap(error: clap::Error) -> End {
    use clap::error::ErrorKind;
    let text = error.render().to_string();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return End::Text(text);
    }
    let mut what = Vec::new();
    let mut rest = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(first) = line.strip_prefix("error: ") {
            what.push(first.to_owned());
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            let command = usage
                .split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ");
            rest.push(format!("usage: {usage}"));
            rest.push(format!("help: {command} --help"));
        } else if let Some(tip) = line.strip_prefix("tip: ") {
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
            out.write_all(text.as_bytes())?;
            out.flush()?;
            Ok(Exit::Done)
        }
        End::Wrong(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    fn parse_words(words: &[&str]) -> Result<Parsed, End> {
        parse(
            std::iter::once("weightfs")
                .chain(words.iter().copied())
                .map(OsString::from)
                .collect(),
        )
    }

    fn mount(words: &[&str]) -> (MountArgs, Options) {
        match parse_words(words) {
            Ok(Parsed {
                command: Command::Mount(args),
                options,
            }) => (args, options),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn wrong(words: &[&str]) -> String {
        match parse_words(words) {
            Err(End::Wrong(error)) => {
                assert_eq!(super::super::exit::code_of(&error), Exit::Usage);
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
        assert!(matches!(
            parse_words(&["ls", "/mnt"]).unwrap().command,
            Command::Ls(_)
        ));
    }

    #[test]
    fn paths_need_not_be_utf8() {
        let argv = [&b"weightfs"[..], b"m\xff.gguf", b"/mnt/\xfe"]
            .map(|word| OsString::from_vec(word.to_vec()));
        let Command::Mount(args) = parse(argv.to_vec()).unwrap().command else {
            panic!()
        };
        assert_eq!(args.model.as_os_str().as_encoded_bytes(), b"m\xff.gguf");
        assert_eq!(args.mountpoint.as_os_str().as_encoded_bytes(), b"/mnt/\xfe");
    }

    #[test]
    fn stages_keep_the_order_in_which_they_were_typed() {
        let (_, options) = mount(&[
            "m", "d", "--map", "a.json", "-o", "map=hf", "--map", "b,c.json",
        ]);
        let maps: Vec<_> = options.map.iter().map(|m| m.to_str().unwrap()).collect();
        assert_eq!(maps, ["a.json", "hf", "b,c.json"]);
    }

    #[test]
    fn flags_take_their_values_as_they_are() {
        let (_, options) = mount(&["m", "d", "--set", r#"a.b="x,\\y""#, "--like", "r,\\s"]);
        assert_eq!(options.set[0].key, "a.b");
        assert_eq!(
            options.set[0].value,
            options::SetValue::Json(serde_json::json!("x,\\y"))
        );
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
            &["cat", "m", "t", "--as", "f64"],
            &["seal"],
            &["seal", "m", "--chunk-size", "5000"],
            &["seal", "m", "--chunk-size", "32MiB"],
            &["seal", "m", "--chunk-size", "2KiB"],
            &["verify", "m", "--expect-sha256", "abc"],
            &[
                "verify",
                "m",
                "--against",
                "f",
                "--expect-sha256",
                &"0".repeat(64),
            ],
            &["completions", "tcsh"],
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

    #[test]
    fn chunk_sizes_and_digests() {
        for (text, want) in [
            ("64KiB", 65536),
            ("4K", 4096),
            ("16MiB", 16 << 20),
            ("65536", 65536),
            ("1m", 1 << 20),
        ] {
            assert_eq!(chunk_size(text), Ok(want));
        }
        for text in ["", "KiB", "64GB", "3KiB", "99999999999999999999MiB", "-1"] {
            assert!(chunk_size(text).is_err(), "{text}");
        }
        let hex = "00ff".repeat(16);
        assert_eq!(sha256(&hex).unwrap()[..4], [0, 255, 0, 255]);
        assert!(sha256(&"g".repeat(64)).is_err());
        assert!(sha256(&"\u{e9}".repeat(32)).is_err());
    }
}
