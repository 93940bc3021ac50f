//! What was typed: the grammar of the command line, and nothing about what it means.

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

mod parse;
mod values;

pub(crate) use parse::{Parsed, definitions, explain, no_such_command, parse};
use values::{chunk_size, descriptor, sha256};

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
    /// Check every byte against the seal, a store's digest or a given one
    Verify(VerifyArgs),
    /// Report where the model comes from, and the checksums of its files and tensors
    Provenance(ProvenanceArgs),
    /// Show stored names and the names they are mounted under
    Map(MapArgs),
    /// Count the values of tensors: min, max, mean, std, zeros, NaN, Inf, histogram
    Stats(StatsArgs),
    /// Tell which tensors of two models differ, and how much
    Diff(DiffArgs),
    /// Show what a mounted daemon does and has met
    Status(StatusArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

/// How MODEL is explained wherever it stands.
const MODEL: &str = "A .gguf or .safetensors file, any part of a split GGUF or shard of a set whose other \
    files lie beside it, a model.safetensors.index.json, a directory that holds one model, hf:ORG/NAME[@REV] from the \
    Hugging Face cache, or ollama:NAME[:TAG] from Ollama's store";

#[derive(Args, Debug)]
pub(crate) struct MountArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    /// The directory to mount on
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: PathBuf,
    /// Options, separated by commas; a comma or backslash in a value is written \, or \\ (may be
    /// repeated)
    #[arg(short = 'o', id = "options", value_name = "OPT[,OPT]...", action = ArgAction::Append)]
    options: Vec<OsString>,
    /// Stay in the foreground and log to stderr
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Stay in the foreground and log every read and every request that fails
    #[arg(short, long)]
    pub(crate) debug: bool,
    /// As map= in -o, the value taken as it is (may be repeated)
    #[arg(long, id = "map", value_name = "none|hf|gguf|FILE", action = ArgAction::Append)]
    map: Vec<OsString>,
    /// As set= in -o, the value taken as it is (may be repeated)
    #[arg(long, id = "set", value_name = "KEY=JSON|KEY=@FILE", action = ArgAction::Append)]
    set: Vec<OsString>,
    /// As like= in -o, the value taken as it is
    #[arg(long, id = "like", value_name = "REF", action = ArgAction::Append)]
    like: Vec<OsString>,
    /// Mount every model in the directory MODEL and in the directories below, each as a directory
    #[arg(long)]
    pub(crate) recursive: bool,
    /// Write a line to file descriptor N when the mount is ready, then close it
    #[arg(long, value_name = "N", value_parser = descriptor)]
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
    /// Seal every model in the directory MODEL and in the directories below, as mount --recursive
    /// finds them
    #[arg(long, conflicts_with_all = ["part", "merge", "output"])]
    pub(crate) recursive: bool,
    /// Seal each FILE by itself, one file of a set, as a part: FILE.weightfs-part.json. The
    /// other files need not be there
    #[arg(long)]
    pub(crate) part: bool,
    /// Make one seal from parts, one per file of the model, without reading the files again.
    /// The model is found beside the first part, or is named as well
    #[arg(long, conflicts_with_all = ["part", "chunk_size", "no_sha256"])]
    pub(crate) merge: bool,
    /// Bytes per checksum, a power of two from 4KiB to 16MiB (64KiB if not given)
    #[arg(long, value_name = "SIZE", value_parser = chunk_size)]
    pub(crate) chunk_size: Option<u32>,
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
    /// Check every model in the directory MODEL and in the directories below, as mount --recursive
    /// finds them
    #[arg(long, conflicts_with_all = ["part", "expect_sha256"])]
    pub(crate) recursive: bool,
    /// Check each FILE by itself, one file of a set, and not the others: of those only the headers
    /// are read
    #[arg(long)]
    pub(crate) part: bool,
    /// Compare with FILE: lines of sha256sum (also in BSD form), SFV or gguf-hash, a provenance
    /// report, a model signature's digests, or a seal; of a pipe, or - for standard input, all that
    /// comes is read
    #[arg(long, value_name = "FILE", conflicts_with = "expect_sha256")]
    pub(crate) against: Option<PathBuf>,
    /// Compare with the SHA-256 of the file, 64 hex digits
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    pub(crate) expect_sha256: Option<[u8; 32]>,
    /// Print one JSON document; result is good, damaged, unsealed, seal (at fault) or failed
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ProvenanceArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    /// The form of the report
    #[arg(long, value_name = "FORM", value_enum, default_value_t = ReportForm::Yaml, hide_possible_values = false)]
    pub(crate) format: ReportForm,
}

/// What `provenance --format` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    /// The report, provenance.yaml of the mount
    Yaml,
    /// The same report as one JSON document
    Json,
    /// Lines that sha256sum -c takes, one per file of the model
    Sha256sum,
    /// Names and CRC32 of the files in the mount's tensors/
    Sfv,
    /// SHA-256 of each tensor as llama.cpp's gguf-hash prints them (reads all tensors)
    GgufHash,
}

#[derive(Args, Debug)]
pub(crate) struct MapArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Derive the names from those and the shapes of a second model, behind the stages of --map
    #[arg(long, value_name = "REF")]
    pub(crate) like: Option<PathBuf>,
    /// Print a map file that map=FILE reads
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    #[arg(value_name = "MODEL", help = MODEL)]
    pub(crate) model: PathBuf,
    /// Its name as mounted, or its file name in tensors/; shown with a histogram (all tensors if
    /// none is given)
    #[arg(value_name = "TENSOR")]
    pub(crate) tensors: Vec<OsString>,
    /// Print one JSON document, with a histogram of each tensor
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a heat map of the layers to F: a new file, the place of an older picture, or a pipe;
    /// with -, the map alone to standard output
    #[arg(long, value_name = "F")]
    pub(crate) svg: Option<PathBuf>,
    /// End with exit code 3 when there is a NaN or an infinity
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) names: NameArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    #[arg(value_name = "A", help = MODEL)]
    pub(crate) a: PathBuf,
    /// The model to compare it with
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    /// Compare under the names of Hugging Face or of GGUF (and, with hf, their values), or rename
    /// the tensors of A by a map file (may be repeated: stages)
    #[arg(long, value_name = "none|hf|gguf|FILE", action = ArgAction::Append)]
    pub(crate) map: Vec<OsString>,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Where the model is mounted; of several models, the directory of one tells of that one
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
