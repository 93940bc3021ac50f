//! What help text, man page and README say about each option.

/// One line of the table of options.
pub(crate) struct Line {
    /// What is written, as in `verify=always|once|off`.
    pub(crate) form: &'static str,
    /// What happens without it.
    pub(crate) default: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

/// Every option of ours that has an effect, in the order of the manual.
#[rustfmt::skip]
pub(crate) const TABLE: &[Line] = &[
    Line { form: "map=none|hf|gguf|FILE", default: "none", help: "names in the mount: as stored, of Hugging Face, of GGUF, or by a map file; repeated: stages" },
    Line { form: "like=REF", default: "none", help: "names of a second model, found by names and shapes of both headers, behind the stages of map=; the mount is refused when names of REF stay without a tensor" },
    Line { form: "verify=always|once|off", default: "always", help: "check the bytes of every request that reaches the daemon, each chunk's first, or never" },
    Line { form: "seal=auto|require|none|FILE", default: "auto", help: "auto: the seal beside the model, else the one in the cache, else trust on first use; require: refuse an unsealed model; none: ignore any seal" },
    Line { form: "on_corruption=eio|log", default: "eio", help: "log serves damaged bytes and says so loudly, for forensics" },
    Line { form: "io=auto|mmap|pread", default: "auto", help: "where bytes come from; auto maps files on local file systems and reads those on network and FUSE ones" },
    Line { form: "cache=auto|page|direct", default: "auto", help: "direct: every read is checked and nothing is kept in memory twice; page: the kernel keeps pages, checked once while kept; auto: direct for large tensors, page for small files" },
    Line { form: "idle=SECONDS", default: "never", help: "unmount after so long without an open file" },
    Line { form: "set=KEY=JSON, set=KEY=@FILE", default: "none", help: "override a metadata key in metadata*, the source stays as it is; @FILE: a string, verbatim; may be repeated" },
    Line { form: "threads=N", default: "cores, 2 to 8", help: "reads at work at once" },
    Line { form: "recursive", default: "off", help: "MODEL is a directory: every model in it and in the directories below is mounted as a directory of its own" },
    Line { form: "allow_other", default: "off", help: "let other users read the mount; for ordinary users /etc/fuse.conf must say user_allow_other" },
    Line { form: "uid=N, gid=N, umask=OCTAL", default: "the process's, 0", help: "owner of the files, and the permissions taken from 0444 and 0555" },
    Line { form: "auto_unmount", default: "off", help: "unmount even if the daemon is killed; works without allow_other" },
    Line { form: "fsname=NAME", default: "MODEL", help: "the source that mount and df show" },
    Line { form: "log=FILE", default: "stderr with -f, else a file that status names", help: "where the daemon logs: a new file or behind lines of text, never behind a model, a seal or a document" },
    Line { form: "log_level=off|error|warn|info|debug|trace", default: "info, debug with -d", help: "how much the daemon logs" },
];
