//! The man page, made from the argument definitions and the tables of this program.

use super::args::Cli;
use super::exit::Exit;
use super::options;
use anyhow::Result;
use clap::CommandFactory;
use clap_mangen::Man;
use std::io::{self, Write};

/// The hidden flag that prints the page; `man/weightfs.1` holds what it prints.
pub(crate) const FLAG: &str = "--man-page";

pub(crate) fn run() -> Result<Exit> {
    let mut page = Vec::new();
    render(&mut page)?;
    let mut out = io::stdout().lock();
    out.write_all(&page)?;
    out.flush()?;
    Ok(Exit::Done)
}

const SYNOPSIS: &[&str] = &[
    "weightfs [mount] MODEL MOUNTPOINT [-o OPT[,OPT]...] [-f] [-d]",
    "weightfs mount --recursive DIRECTORY MOUNTPOINT [-o OPT[,OPT]...]",
    "weightfs umount MOUNTPOINT [--lazy]",
    "weightfs ls MODEL [--json] [--map M]",
    "weightfs info MODEL [--json]",
    "weightfs cat MODEL TENSOR [--as FORM] [--map M]",
    "weightfs seal MODEL... [--chunk-size N] [--output F] [--force] [--no-sha256]",
    "weightfs verify MODEL... [--against FILE | --expect-sha256 HEX] [--json]",
    "weightfs seal|verify --recursive DIRECTORY...",
    "weightfs seal --part FILE...",
    "weightfs seal --merge PART... [MODEL]",
    "weightfs provenance MODEL [--format FORM]",
    "weightfs map MODEL [--map M] [--like REF] [--json]",
    "weightfs stats MODEL [TENSOR...] [--json] [--svg F] [--check] [--map M]",
    "weightfs diff A B [--map M] [--json]",
    "weightfs status MOUNTPOINT [--json]",
    "weightfs completions bash|zsh|fish",
];

const DESCRIPTION: &[&str] = &[
    "weightfs mounts the weights of a model, GGUF or safetensors, as a directory in which every tensor is a \
     read-only file. Nothing is copied beforehand: a read of a tensor is a read of the model's file at the right \
     place, checked against the model's seal before it is served, and for the float views decoded on the way.",
    "MODEL is a .gguf file, the first part of a split GGUF, a .safetensors file, a model.safetensors.index.json, or a \
     directory that holds one model. A later part or a shard stands for the whole model when the first part or the \
     index lies beside it. The format is told by the content, never by the name. A first argument that is no \
     command is a MODEL to mount; to mount a file named like a command write ./ls, or mount ls.",
    "MODEL may also be a name in a store, see STORES. To name a file that is called so, write ./hf:x.",
    "mount returns when the mount is ready and leaves a daemon behind; with -f it stays. SIGINT, SIGTERM and SIGHUP \
     unmount, lazily when files are open; a second signal ends at once. umount(8), fusermount3 -u and weightfs umount \
     all work. The dead mount of a killed daemon is cleared and mounted over. As weightfs MODEL MOUNTPOINT -o OPTIONS is \
     the form of a mount(8) helper, mount -t fuse.weightfs and lines in fstab work as well.",
    "weightfs umount returns when the daemon has ended, after 30 seconds with a message that it has not; with --lazy, \
     and after umount(8) or fusermount3 -u, the daemon ends by itself. It then keeps the checksums that it learnt of unsealed \
     models, those most read first: a machine that goes down meanwhile loses some of them, and no data.",
];

const VALUES: &[&str] = &[
    "stats and diff take the values that the float views show: quantised tensors decoded, codes with scales times their scales. \
     Integers and booleans are taken as they are (least and greatest exact), complex numbers by their magnitude, in diff by \
     their parts. What has no values is listed with null. Every byte is checked as in a mount; a tensor that cannot be read is \
     named on stderr, the others are done all the same, and the exit code is 1.",
    "min, max, mean and std (of the values themselves, as numpy.std) are of the finite values; zeros counts both, NaN and Inf are \
     counted apart. The histogram has 32 bins of equal width from min to max (around a single value: 1 wide); a bin holds its \
     lower edge, the last its upper edge too. Results do not depend on the number of threads. --svg draws the deviation of each \
     tensor in each layer, on a logarithmic scale; experts of one layer share a cell.",
    "diff pairs tensors by name; --map hf and --map gguf are applied to both models, a map file to A. Of tensors of one type and \
     shape the bytes are compared first; those that both seals give the same SHA-256 are not read. In JSON, result is same (every byte), equal \
     (every value), differs, shape (not compared), bytes (there are no values to compare), only_a, only_b or failed. \
     A NaN equals a NaN; rms and cosine are of the places where both are finite.",
];

const SEVERAL: &[&str] = &[
    "mount --recursive, or -o recursive, mounts every model in a directory and in the directories below it, each as a directory that is \
     as a mount of that model alone. A directory that stands for one model as MODEL is shown under its own path; of several models \
     each is shown as a directory named like its file, with a split set's name without the number of its part, and so is a model at \
     the very top. Directories below a model are shown beside its own files. A repository in a Hugging Face cache is shown as ORG/NAME: \
     the snapshot of main, or the only one; blobs/ and refs/ are not. A store of Ollama shows what its manifests name, as NAME:TAG. \
     Names are encoded as those of tensors. Each directory is shown once, under its own name, whatever links lead to it. seal and \
     verify --recursive take the same models one by one.",
    "models.json at the top lists every model found: path (what was opened), directory (in the mount), format, architecture, \
     tensor_count, nbytes, sealed, trust; or error in place of these for one that is left out: it cannot be opened, or \
     its directory is in the place of another's. What is left out is also told on stderr. The mount fails when nothing can be opened.",
    "Passed over are hidden names, links that lead out of the directory (but those of a snapshot to its repository's blobs), mounts of \
     weightfs, and directories that lie deeper than 8. More than 4096 models are refused, and \
     more than this process may open files for. Options hold for all models; seal=FILE, set= and \
     like= are refused. .weightfs/status.json at the top has the sums and the worst of all models, with model in each row of bad and breakers \
     and a list of models; .weightfs/metrics has a label model. weightfs status MOUNTPOINT/DIRECTORY tells of one model. A model that \
     comes later is shown by the next mount.",
];

/// Paths in the mount and what they hold.
pub(crate) const TREE: &[(&str, &str)] = &[
    (
        "model.json",
        "What the model is: format, architecture, counts, dtypes, sources, seal, trust, warnings.",
    ),
    ("metadata.json", "Every metadata key; long arrays appear as a reference to their own file."),
    (
        "metadata/KEY",
        "A string value, verbatim, no newline added. Any other value is metadata/KEY.json.",
    ),
    ("tensors/NAME.bin", "The bytes of a tensor as stored, multi-byte numbers little-endian."),
    ("tensors/NAME.json", "Its name, dtype, shape, size, place in the source and checksums."),
    ("tensors/NAME.npy", "The same bytes as a NumPy file, where NumPy has the dtype."),
    (
        "f32/, f16/, bf16/",
        "Every float or quantised tensor in that dtype, decoded while it is read: NAME.bin, NAME.json, NAME.npy (not of \
         bf16) and model.safetensors.",
    ),
    (
        "model.safetensors",
        "The whole model, block-quantised tensors as F32; a warning in model.json says why when there is none.",
    ),
    (
        "model.gguf",
        "Of GGUF sources: the whole model as one little-endian GGUF of version 3, split parts joined, set= applied.",
    ),
    ("source/FILE", "Each source file that holds tensors, whole and checked."),
    (
        "hf/",
        "For a GGUF under map=hf: config.json, generation_config.json, tokenizer.json, tokenizer_config.json, \
         special_tokens_map.json, chat templates and model.safetensors (of the type that dtype= says), as transformers and tokenizers \
         load them. Made from the metadata at the first look-up; what cannot be made is absent, and model.json says why.",
    ),
    ("source-names/SRC.bin", "Links from stored names to tensors/, when a map is in force."),
    ("SHA256SUMS", "When sealed with SHA-256: digests that sha256sum -c accepts in the mount."),
    ("tensors.sfv", "When sealed: the CRC32 of each tensor."),
    (
        "provenance.yaml",
        "When sealed: where the files come from, their SHA-256 and that of each tensor, and what else says so.",
    ),
    (".weightfs/status.json", "What the daemon does and has met, live."),
    (".weightfs/metrics", "The same counters as text that Prometheus reads."),
];

const NAMES: &str = "In file names, /, %, control characters and invalid UTF-8 of a tensor's name are written as % and two \
     hexadecimal digits; names that would pass 255 bytes end in ~ and a hash. The JSON holds the full name.";

const MAPS: &[&str] = &[
    "map=hf shows a GGUF under the names, and with the values, of the Hugging Face checkpoint: rows of q and k and of fused \
     projections in their own order, experts one by one, norms without the 1 that was added, transposed matrices as they were. \
     Rows move as whole blocks and keep their type; what is computed or cut across blocks is F32. The JSON of each tensor lists its \
     transforms. A tensor whose values are not certain keeps its GGUF name; model.json warns of it, and of what converters dropped.",
    "A map file is JSON: {\"weightfs_map\": 1, \"unmapped\": \"keep\", \"pairs\": {...}, \"rules\": [...]}. A pair leads from a name to \
     its new name, to a list of names (cut along the first dimension, in order) or to null (not shown). A rule has \"from\" (a \
     template: {i}, {j} and {e} are numbers, {w} one segment, {rest} the end) or \"regex\" (the whole name), and \"to\", with \
     \"split\": \"e\" for a name per index of the first dimension, or \"drop\": true. Pairs go before rules, and the first that \
     matches decides alone; what none matches is kept, dropped or an error, as \"unmapped\" says. Two tensors with one name \
     refuse the mount. Repeated map= are stages, each sees the names of the one before it.",
    "like=REF takes the names of REF, any MODEL: equal names first; then, of a GGUF, what map=hf calls it (the other way, what \
     map=gguf calls a checkpoint); then a changed prefix; then names that are alike but for words, where shapes leave one \
     possibility. The mount is refused when names of REF stay without a tensor or shapes disagree, but for tied heads, buffers \
     and what converters leave out. Tensors that REF has not keep their names.",
    "weightfs map MODEL --map ... --like REF --json prints a map file that can be edited and mounted. It begins with \
     \"values\": \"hf\" where values change as with map=hf: the pairs then name what map=hf makes of each stored tensor; a tensor \
     that is given its own stored name stays as it is stored. Such a file has no rules and is the first map=. The lists \
     matched, unmatched_source, unmatched_reference, shape_mismatch, tied, not_restorable and cut tell what --like found and are read over.",
];

const FILES: &[(&str, &str)] = &[
    ("MODEL.weightfs.json", "The seal of MODEL, beside it."),
    (
        "FILE.weightfs-part.json",
        "The part of a seal that is of FILE, written by seal --part; it is read by seal --merge alone.",
    ),
    (
        "$XDG_CACHE_HOME/weightfs/seals/",
        "Seals of models in directories that are not writable (default ~/.cache).",
    ),
    ("$XDG_CACHE_HOME/weightfs/tofu/", "Checksums of unsealed models, learnt when first read."),
    (
        "$XDG_STATE_HOME/weightfs/",
        "Logs of daemons (default ~/.local/state, without a home $TMPDIR).",
    ),
    (
        "/etc/weightfs/NAME.conf",
        "What the service weightfs@NAME mounts: lines MODEL=, MOUNTPOINT= and OPTIONS=, and what else is to be in its environment.",
    ),
    (
        "/etc/fstab",
        "Lines of type fuse.weightfs are mounted by mount(8); a space in them is \\040.",
    ),
    (
        "/etc/fuse.conf",
        "Must hold the line user_allow_other before ordinary users may use allow_other.",
    ),
];

const ANCHORS: &[&str] = &[
    "What is written down elsewhere about the bytes of a model is looked for in the names of its files and beside them, and \
     compared with the seal: the trust of a seal is store when every file is sealed with the SHA-256 that its store's name for it \
     says, else sidecar, and pinned when it was named by seal=FILE. An unsealed model is tofu: nothing was compared. \
     trust says where the expected sums come from; whether they are looked at is told by verify, and with verify=off nothing is. \
     Two sources that disagree refuse the mount, verify and seal (5); -o seal=none leaves out the seal. seal writes nothing when the \
     bytes are not what an anchor says, whatever --force is. verify without a seal compares with the anchors, and on damage \
     prints the byte ranges to fetch again; with a seal, files that are cut, grown or gone are damage too. What a list says and is \
     not used (a line that is not understood, another algorithm, an absolute path elsewhere) is a warning. Lists are read up to 128 MiB and never through links that lead out of \
     the model's directory.",
];

const ANCHOR_KINDS: &[(&str, &str)] = &[
    (
        "hf-blob",
        "The name of 64 digits of a blob in a Hugging Face cache, models--ORG--NAME/blobs. Names of 40 digits, git's SHA-1, are not used.",
    ),
    (
        "ollama-blob",
        "The name sha256-HEX of a blob in Ollama's store, in a directory blobs; elsewhere such a name says nothing.",
    ),
    (
        "hf-local",
        ".cache/huggingface/download/FILE.metadata, where the file was not written to after it.",
    ),
    (
        "sha256sums",
        "SHA256SUMS, sha256sums.txt, sha256sum.txt, CHECKSUMS, checksums.txt, FILE.sha256, FILE.sha256sum and the like, as \
         sha256sum writes them or in the BSD form. FILE.b3, B3SUMS and the like are of BLAKE3, which is not supported: a warning says so.",
    ),
    (
        "gguf-hash",
        "FILE.manifest or model.manifest with the lines of llama.cpp's gguf-hash: SHA-256 of tensors. Its last line is of all \
         tensors without the header, not of the file.",
    ),
    (
        "model-signing",
        "model.sig, FILE.sig or another *.sig: the digests in an OpenSSF model signature. The signature is not verified.",
    ),
];

const ERRORS: &[(&str, &str)] = &[
    (
        "EIO",
        "The bytes fail their checksum after retries, or the device failed. Everything before and after the bad chunk is served. \
         A chunk that failed is refused at once for a cool-down that doubles from a second to a quarter of an hour; \
         five of them open the breaker of their tensor, which ends retries there.",
    ),
    ("ESTALE", "The source file was truncated or modified in place since it was mounted."),
    ("EROFS", "Any attempt to change something."),
    ("ENOENT, ENAMETOOLONG", "No such name, or one over 255 bytes."),
    (
        "SIGBUS",
        "In programs that map a file: the page that was touched is bad. weightfs verify checks a model beforehand.",
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("NO_COLOR", "No colours, even on a terminal."),
    ("COLUMNS", "Columns of the output where it is no terminal."),
    ("NOTIFY_SOCKET", "systemd's: told when the mount is ready and when it stops."),
    ("FUSERMOUNT_PATH", "The fusermount3 to use."),
    (
        "XDG_CACHE_HOME, XDG_STATE_HOME, HOME, TMPDIR",
        "Where seals, checksums and logs go, see FILES.",
    ),
    (
        "HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, OLLAMA_MODELS",
        "Where models live, see STORES.",
    ),
];

const STORES: &[(&str, &str)] = &[
    (
        "hf:ORG/NAME[@REV]",
        "The snapshot of a repository in the Hugging Face cache: $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else \
         $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. REV is a branch, a tag, refs/pr/N, or \
         a commit, which may be cut short; main without one. Old models have no ORG. The snapshot is a directory as MODEL: of several \
         models in it one is named as hf:ORG/NAME/FILE or hf:ORG/NAME@REV/FILE, where FILE may be a directory.",
    ),
    (
        "ollama:[[HOST/]NAMESPACE/]NAME[:TAG]",
        "The weights of a model in Ollama's store: $OLLAMA_MODELS, else the first of ~/.ollama/models, \
         /usr/share/ollama/.ollama/models and /var/lib/ollama/models that has it. HOST is registry.ollama.ai, NAMESPACE library, \
         TAG latest where they are not given. Adapters and projectors are no part of the tree; a warning names their blobs. \
         Ollama removes what is no blob from blobs/ when it starts, seals too: seal --output F and seal=F keep one elsewhere.",
    ),
];

const EXAMPLES: &[(&str, &str)] = &[
    ("weightfs gemma.gguf /mnt/g", "Mount a model; every tensor is a file in /mnt/g/tensors."),
    (
        "weightfs seal gemma.gguf",
        "Seal it, so that every read is checked against what it was today.",
    ),
    (
        "weightfs seal --part model-00001-of-00009.safetensors",
        "Seal one shard, on whichever machine has it.",
    ),
    (
        "weightfs seal --merge *.weightfs-part.json",
        "Make the seal of the model from the parts of all its files, without reading them again.",
    ),
    ("weightfs ls hf:google/gemma-3-270m", "The tensors of a model in the Hugging Face cache."),
    ("weightfs ollama:gemma3:270m /mnt/g", "Mount what Ollama has pulled."),
    (
        "weightfs mount --recursive ~/.cache/huggingface/hub /mnt/m",
        "Mount all models of a cache, each as /mnt/m/ORG/NAME.",
    ),
    ("weightfs verify gemma.gguf", "Check all of it now."),
    (
        "weightfs verify gemma.gguf --against SHA256SUMS",
        "Check it against a list of digests from elsewhere.",
    ),
    (
        "weightfs provenance gemma.gguf > gemma.yaml",
        "A report of what it is, which verify --against takes again.",
    ),
    (
        "weightfs stats --check gemma.gguf",
        "Statistics of every tensor, and exit code 3 when there is a NaN or an infinity.",
    ),
    (
        "weightfs diff gemma.gguf gemma-Q4_K_M.gguf",
        "Which tensors a quantisation or a fine-tune changed, and how much.",
    ),
    ("weightfs cat gemma.gguf token_embd.weight | sha256sum", "One tensor without mounting."),
    ("cat /mnt/g/metadata/tokenizer.chat_template", "The chat template, byte for byte."),
    (
        "mount -t fuse.weightfs gemma.gguf /mnt/g -o seal=require,allow_other",
        "As root, through mount(8).",
    ),
    (
        "/models/gemma.gguf /mnt/g fuse.weightfs nofail,allow_other,seal=require 0 0",
        "A line of /etc/fstab: mounted at boot, readable for all.",
    ),
    (
        "systemctl enable --now weightfs@gemma",
        "The same as a service, by /etc/weightfs/gemma.conf.",
    ),
];

/// Writes the whole page.
fn render(out: &mut impl Write) -> io::Result<()> {
    let command = Cli::command();
    let source = format!("weightfs {}", env!("CARGO_PKG_VERSION"));
    let man =
        Man::new(command.clone()).title("WEIGHTFS").date("").source(source).manual("User Commands");
    man.render_title(out)?;
    man.render_name_section(out)?;
    section(out, "SYNOPSIS")?;
    for (i, line) in SYNOPSIS.iter().enumerate() {
        if i > 0 {
            writeln!(out, ".br")?;
        }
        text(out, line)?;
    }
    section(out, "DESCRIPTION")?;
    paragraphs(out, DESCRIPTION)?;
    section(out, "COMMANDS")?;
    for subcommand in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        render_command(out, subcommand)?;
    }
    section(out, "MOUNT OPTIONS")?;
    paragraphs(
        out,
        &[
            "Given with -o, separated by commas; -o may be repeated. A comma or a backslash inside a value is written \\, or \\\\. \
        What mount(8) passes (ro, rw, nosuid, noatime, defaults, x-*, ...) is accepted and means nothing: the mount is read-only.",
        ],
    )?;
    for line in options::TABLE {
        tagged(out, line.form, &format!("{} Default: {}.", stopped(line.help), line.default))?;
    }
    section(out, "STORES")?;
    list(out, STORES)?;
    paragraphs(
        out,
        &[
            "Nothing is downloaded and, but for seals, nothing is written there. Other stores are directories: name the file, or mount all with --recursive.",
        ],
    )?;
    section(out, "TREE")?;
    list(out, TREE)?;
    paragraphs(out, &[NAMES])?;
    section(out, "SEVERAL MODELS")?;
    paragraphs(out, SEVERAL)?;
    section(out, "MAP FILES")?;
    paragraphs(out, MAPS)?;
    section(out, "VALUES")?;
    paragraphs(out, VALUES)?;
    section(out, "FILES")?;
    list(out, FILES)?;
    section(out, "EXIT STATUS")?;
    for (exit, meaning) in Exit::TABLE {
        tagged(out, &exit.code().to_string(), meaning)?;
    }
    paragraphs(out, &["Of several models, the first of 1, 5, 3, 4 that occurred."])?;
    section(out, "ANCHORS")?;
    paragraphs(out, ANCHORS)?;
    list(out, ANCHOR_KINDS)?;
    section(out, "ERRORS")?;
    list(out, ERRORS)?;
    section(out, "ENVIRONMENT")?;
    list(out, ENVIRONMENT)?;
    section(out, "EXAMPLES")?;
    list(out, EXAMPLES)?;
    section(out, "SEE ALSO")?;
    text(out, "mount.fuse3(8), fusermount3(1), mount(8), fstab(5), systemctl(1), sha256sum(1)")
}

/// One command: what it is for, then its arguments as clap_mangen writes them.
fn render_command(out: &mut impl Write, command: &clap::Command) -> io::Result<()> {
    writeln!(out, ".SS \"weightfs {}\"", escape(command.get_name()))?;
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    text(out, &sentence(&about))?;
    let mut rendered = Vec::new();
    Man::new(command.clone().disable_help_flag(true)).render_options_section(&mut rendered)?;
    let rendered = String::from_utf8_lossy(&rendered).into_owned();
    for line in rendered.lines().filter(|line| !line.starts_with(".SH")) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn section(out: &mut impl Write, title: &str) -> io::Result<()> {
    writeln!(out, ".SH {}", escape(title))
}

fn paragraphs(out: &mut impl Write, all: &[&str]) -> io::Result<()> {
    for paragraph in all {
        writeln!(out, ".PP")?;
        text(out, paragraph)?;
    }
    Ok(())
}

fn list(out: &mut impl Write, entries: &[(&str, &str)]) -> io::Result<()> {
    entries.iter().try_for_each(|(tag, body)| tagged(out, tag, body))
}

fn tagged(out: &mut impl Write, tag: &str, body: &str) -> io::Result<()> {
    writeln!(out, ".TP\n\\fB{}\\fR", escape(tag))?;
    text(out, body)
}

fn text(out: &mut impl Write, line: &str) -> io::Result<()> {
    let line = escape(line);
    // A dot or an apostrophe in front would be a request.
    let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
    writeln!(out, "{guard}{line}")
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A capital letter in front and a full stop behind.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().collect::<String>() + &stopped(letters.as_str())
}

/// A full stop behind. Words that are written in options are not to begin with a capital letter.
fn stopped(text: &str) -> String {
    let stop = if text.ends_with('.') { "" } else { "." };
    format!("{text}{stop}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn requests_cannot_come_from_text() {
        let mut out = Vec::new();
        text(&mut out, ".weightfs/status.json - \\,").unwrap();
        assert_eq!(out, b"\\&.weightfs/status.json \\- \\e,\n");
    }

    /// Words that are put into the synopsis by hand are checked against what is parsed.
    #[test]
    fn the_synopsis_has_every_command_and_no_flag_that_is_none() {
        let cli = Cli::command();
        let is_of = |line: &str, name: &str| {
            let words = line.split(' ').nth(1).unwrap_or_default();
            words.split('|').any(|word| word.trim_matches(['[', ']']) == name)
        };
        for command in cli.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let name = command.get_name();
            let lines: Vec<&str> =
                SYNOPSIS.iter().copied().filter(|line| is_of(line, name)).collect();
            assert!(!lines.is_empty(), "{name}");
            for word in lines.iter().flat_map(|line| line.split(' ')) {
                let Some(flag) = word.trim_matches(['[', ']']).strip_prefix("--") else { continue };
                let known = command.get_arguments().any(|arg| arg.get_long() == Some(flag));
                assert!(known, "{name} --{flag}");
            }
        }
    }

    #[test]
    fn words_of_options_keep_their_letters() {
        let mut page = Vec::new();
        render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for line in options::TABLE {
            let text = format!("\n{} Default: ", escape(&stopped(line.help)));
            assert!(page.contains(&text), "{text}");
        }
    }

    #[test]
    fn every_command_and_option_is_on_the_page() {
        let mut page = Vec::new();
        render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for command in Cli::command().get_subcommands() {
            assert!(page.contains(&format!(".SS \"weightfs {}\"", command.get_name())));
        }
        for line in options::TABLE {
            assert!(page.contains(&escape(line.form)), "{}", line.form);
        }
        assert!(page.lines().all(|line| !line.starts_with(".weightfs")));
    }
}
