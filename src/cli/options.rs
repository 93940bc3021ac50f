//! The words of `-o`: split at commas, sorted into typed values, or refused by name.
//!
//! Knows what can be written, not what it does. [`TABLE`] is what the help text, the man
//! page and the README say about each word; a test holds it against the parser.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;
use weightfs::fuse::CacheMode;
use weightfs::source::IoMode;
use weightfs::store::Verify;

mod words;

/// Which seal is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SealChoice {
    #[default]
    Auto,
    Require,
    None,
    File(PathBuf),
}

/// What a reader of damaged bytes gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnCorruption {
    #[default]
    Eio,
    Log,
}

/// The dtype of `hf/model.safetensors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HfDtype {
    Bf16,
    F16,
    F32,
}

/// One `set=KEY=...`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    pub(crate) key: String,
    pub(crate) value: SetValue,
}

/// What a metadata key is set to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SetValue {
    Json(serde_json::Value),
    /// The content of a file, as a string.
    File(PathBuf),
}

/// Everything that can be asked for with `-o`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Stages in order; the words `none`, `hf`, `gguf` or a file.
    pub(crate) map: Vec<OsString>,
    pub(crate) like: Option<PathBuf>,
    pub(crate) dtype: Option<HfDtype>,
    pub(crate) verify: Verify,
    pub(crate) seal: SealChoice,
    pub(crate) on_corruption: OnCorruption,
    pub(crate) io: IoMode,
    pub(crate) cache: CacheMode,
    pub(crate) idle: Option<Duration>,
    pub(crate) set: Vec<Override>,
    pub(crate) threads: Option<usize>,
    pub(crate) allow_other: bool,
    pub(crate) auto_unmount: bool,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) umask: Option<u32>,
    pub(crate) fsname: Option<OsString>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) log_level: Option<log::LevelFilter>,
}

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
    Line { form: "verify=always|once|off", default: "always", help: "check the bytes of every request that reaches the daemon, each chunk's first, or never" },
    Line { form: "seal=auto|require|none|FILE", default: "auto", help: "auto: the seal beside the model, else the one in the cache, else trust on first use; require: refuse an unsealed model; none: ignore any seal" },
    Line { form: "on_corruption=eio|log", default: "eio", help: "log serves damaged bytes and says so loudly, for forensics" },
    Line { form: "io=auto|mmap|pread", default: "auto", help: "where bytes come from; auto maps files on local file systems and reads those on network and FUSE ones" },
    Line { form: "cache=auto|page|direct", default: "auto", help: "direct: every read is checked and nothing is kept in memory twice; page: the kernel keeps pages, checked once while kept; auto: direct for large tensors, page for small files" },
    Line { form: "idle=SECONDS", default: "never", help: "unmount after so long without an open file" },
    Line { form: "set=KEY=JSON, set=KEY=@FILE", default: "none", help: "override a metadata key in metadata*, the source stays as it is; @FILE: a string, verbatim; may be repeated" },
    Line { form: "threads=N", default: "cores, 2 to 8", help: "reads at work at once" },
    Line { form: "allow_other", default: "off", help: "let other users read the mount; for ordinary users /etc/fuse.conf must say user_allow_other" },
    Line { form: "uid=N, gid=N, umask=OCTAL", default: "the process's, 0", help: "owner of the files, and the permissions taken from 0444 and 0555" },
    Line { form: "auto_unmount", default: "off", help: "unmount even if the daemon is killed; works without allow_other" },
    Line { form: "fsname=NAME", default: "MODEL", help: "the source that mount and df show" },
    Line { form: "log=FILE", default: "stderr with -f, else a file that status names", help: "where the daemon logs" },
    Line { form: "log_level=off|error|warn|info|debug|trace", default: "info, debug with -d", help: "how much the daemon logs" },
];

/// Words of mount(8) that mean nothing here; the mount is read-only whatever they say. Those in
/// the second list have an opposite that begins with `no`.
const IGNORED: &[&str] = &[
    "ro", "rw", "sync", "async", "silent", "loud", "defaults", "nofail", "_netdev",
];
const IGNORED_WITH_OPPOSITE: &[&str] = &[
    "dev",
    "suid",
    "exec",
    "atime",
    "relatime",
    "strictatime",
    "diratime",
    "lazytime",
    "iversion",
    "dirsync",
    "mand",
    "symfollow",
    "default_permissions",
    "group",
    "auto",
    "user",
    "users",
    "owner",
];
/// Words with a value that mean nothing here.
const IGNORED_WITH_VALUE: &[&str] = &[
    "subtype",
    "max_read",
    "comment",
    "context",
    "fscontext",
    "defcontext",
    "rootcontext",
];

/// Why a word of `-o` was refused.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("-o: unknown option {0:?}\nhelp: weightfs mount --help lists the options")]
    Unknown(String),
    #[error("-o {name}: needs a value: {form}")]
    NoValue { name: String, form: &'static str },
    #[error("-o {name}: takes no value, found {value:?}")]
    Value { name: String, value: String },
    #[error("-o {name}={value}: {expected}")]
    Bad {
        name: String,
        value: String,
        expected: String,
    },
}

/// Applies one `-o` argument, words separated by commas.
pub(crate) fn parse_list(options: &mut Options, list: &OsStr) -> Result<(), OptionError> {
    for word in words::split(list.as_bytes()) {
        let (name, value) = match word.iter().position(|&b| b == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (&word[..], None),
        };
        options.apply(name, value)?;
    }
    Ok(())
}

impl Options {
    /// Applies one option, the value as it is.
    pub(crate) fn apply(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), OptionError> {
        let Ok(name) = std::str::from_utf8(name) else {
            return Err(OptionError::Unknown(
                String::from_utf8_lossy(name).into_owned(),
            ));
        };
        let word = Word { name, value };
        match name {
            "map" => self.map.push(word.os()?),
            "like" => self.like = Some(word.path()?),
            "dtype" => {
                self.dtype = Some(word.choice(&[
                    ("bf16", HfDtype::Bf16),
                    ("f16", HfDtype::F16),
                    ("f32", HfDtype::F32),
                ])?)
            }
            "verify" => {
                self.verify = word.choice(&[
                    ("always", Verify::Always),
                    ("once", Verify::Once),
                    ("off", Verify::Off),
                ])?
            }
            "seal" => {
                self.seal = match word.bytes()? {
                    b"auto" => SealChoice::Auto,
                    b"require" => SealChoice::Require,
                    b"none" => SealChoice::None,
                    _ => SealChoice::File(word.path()?),
                }
            }
            "on_corruption" => {
                self.on_corruption =
                    word.choice(&[("eio", OnCorruption::Eio), ("log", OnCorruption::Log)])?
            }
            "io" => {
                self.io = word.choice(&[
                    ("auto", IoMode::Auto),
                    ("mmap", IoMode::Mmap),
                    ("pread", IoMode::Pread),
                ])?
            }
            "cache" => {
                self.cache = word.choice(&[
                    ("auto", CacheMode::Auto),
                    ("page", CacheMode::Page),
                    ("direct", CacheMode::Direct),
                ])?
            }
            "idle" => self.idle = Some(Duration::from_secs(word.number(1, u32::MAX.into())?)),
            "set" => self.set.push(word.set()?),
            // The upper end only keeps a slip of the finger from starting millions of threads.
            "threads" => self.threads = Some(word.number(1, 256)? as usize),
            "allow_other" => self.allow_other = word.flag()?,
            "auto_unmount" => self.auto_unmount = word.flag()?,
            // 2^32 - 1 is "no such id" to the kernel.
            "uid" => self.uid = Some(word.number(0, u64::from(u32::MAX) - 1)? as u32),
            "gid" => self.gid = Some(word.number(0, u64::from(u32::MAX) - 1)? as u32),
            "umask" => self.umask = Some(word.octal()?),
            "fsname" => self.fsname = Some(word.os()?),
            "log" => self.log = Some(word.path()?),
            "log_level" => {
                let text = word.text()?;
                self.log_level = Some(
                    text.parse()
                        .map_err(|_| word.bad("one of off, error, warn, info, debug, trace"))?,
                );
            }
            _ if IGNORED.contains(&name) || is_opposable(name) => {
                word.flag()?;
            }
            _ if IGNORED_WITH_VALUE.contains(&name)
                || name.starts_with("x-")
                || name.starts_with("X-") => {}
            _ => return Err(OptionError::Unknown(word.shown())),
        }
        Ok(())
    }
}

fn is_opposable(name: &str) -> bool {
    [Some(name), name.strip_prefix("no")]
        .iter()
        .flatten()
        .any(|name| IGNORED_WITH_OPPOSITE.contains(name))
}

/// One option as written.
struct Word<'a> {
    name: &'a str,
    value: Option<&'a [u8]>,
}

impl<'a> Word<'a> {
    fn shown(&self) -> String {
        match self.value {
            Some(value) => format!("{}={}", self.name, String::from_utf8_lossy(value)),
            None => self.name.to_owned(),
        }
    }

    fn bad(&self, expected: impl Into<String>) -> OptionError {
        let value = String::from_utf8_lossy(self.value.unwrap_or_default()).into_owned();
        OptionError::Bad {
            name: self.name.into(),
            value,
            expected: expected.into(),
        }
    }

    fn flag(&self) -> Result<bool, OptionError> {
        match self.value {
            None => Ok(true),
            Some(value) => Err(OptionError::Value {
                name: self.name.into(),
                value: String::from_utf8_lossy(value).into_owned(),
            }),
        }
    }

    fn bytes(&self) -> Result<&'a [u8], OptionError> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => {
                let form = TABLE
                    .iter()
                    .flat_map(|line| line.form.split(", "))
                    .find(|form| {
                        form.strip_prefix(self.name)
                            .is_some_and(|rest| rest.starts_with('='))
                    });
                Err(OptionError::NoValue {
                    name: self.name.into(),
                    form: form.unwrap_or("NAME=VALUE"),
                })
            }
        }
    }

    fn os(&self) -> Result<OsString, OptionError> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()))
    }

    fn path(&self) -> Result<PathBuf, OptionError> {
        self.os().map(PathBuf::from)
    }

    fn text(&self) -> Result<&'a str, OptionError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.bad("must be UTF-8"))
    }

    fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, OptionError> {
        let text = self.text()?;
        choices
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, value)| *value)
            .ok_or_else(|| {
                let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
                self.bad(format!("one of {}", names.join(", ")))
            })
    }

    fn number(&self, min: u64, max: u64) -> Result<u64, OptionError> {
        let text = self.text()?;
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(n) if digits && (min..=max).contains(&n) => Ok(n),
            _ => Err(self.bad(format!("a whole number from {min} to {max}"))),
        }
    }

    fn octal(&self) -> Result<u32, OptionError> {
        let text = self.text()?;
        match u32::from_str_radix(text, 8) {
            Ok(n) if n <= 0o777 && !text.starts_with('+') => Ok(n),
            _ => Err(self.bad("an octal number from 0 to 777")),
        }
    }

    fn set(&self) -> Result<Override, OptionError> {
        let bytes = self.bytes()?;
        let equals = bytes.iter().position(|&b| b == b'=');
        let Some((key, value)) = equals.map(|at| (&bytes[..at], &bytes[at + 1..])) else {
            return Err(self.bad("set=KEY=JSON or set=KEY=@FILE"));
        };
        let Ok(key) = std::str::from_utf8(key) else {
            return Err(self.bad("the key must be UTF-8"));
        };
        if key.is_empty() {
            return Err(self.bad("the key is empty"));
        }
        if key.starts_with("split.") || key == "general.alignment" {
            return Err(self.bad(format!("{key} describes the file itself and cannot be set")));
        }
        let value = match value {
            [b'@', file @ ..] if !file.is_empty() => {
                SetValue::File(OsString::from_vec(file.to_vec()).into())
            }
            json => SetValue::Json(serde_json::from_slice(json).map_err(|error| {
                self.bad(format!(
                    "not JSON ({error}); a string needs quotes: set={key}='\"text\"'"
                ))
            })?),
        };
        Ok(Override {
            key: key.to_owned(),
            value,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(list: &str) -> Result<Options, OptionError> {
        let mut options = Options::default();
        parse_list(&mut options, OsStr::new(list)).map(|()| options)
    }

    fn with(change: impl FnOnce(&mut Options)) -> Options {
        let mut options = Options::default();
        change(&mut options);
        options
    }

    #[test]
    fn every_value_of_every_option() {
        let cases: Vec<(&str, Options)> = vec![
            ("", Options::default()),
            ("map=hf", with(|o| o.map = vec!["hf".into()])),
            (
                "map=a,map=b",
                with(|o| o.map = vec!["a".into(), "b".into()]),
            ),
            (
                "like=/x/r.gguf",
                with(|o| o.like = Some("/x/r.gguf".into())),
            ),
            ("dtype=bf16", with(|o| o.dtype = Some(HfDtype::Bf16))),
            ("dtype=f16", with(|o| o.dtype = Some(HfDtype::F16))),
            ("dtype=f32", with(|o| o.dtype = Some(HfDtype::F32))),
            ("verify=always", Options::default()),
            ("verify=once", with(|o| o.verify = Verify::Once)),
            ("verify=off", with(|o| o.verify = Verify::Off)),
            ("verify=off,verify=once", with(|o| o.verify = Verify::Once)),
            ("seal=auto", Options::default()),
            ("seal=require", with(|o| o.seal = SealChoice::Require)),
            ("seal=none", with(|o| o.seal = SealChoice::None)),
            (
                "seal=./none",
                with(|o| o.seal = SealChoice::File("./none".into())),
            ),
            ("on_corruption=eio", Options::default()),
            (
                "on_corruption=log",
                with(|o| o.on_corruption = OnCorruption::Log),
            ),
            ("io=auto", Options::default()),
            ("io=mmap", with(|o| o.io = IoMode::Mmap)),
            ("io=pread", with(|o| o.io = IoMode::Pread)),
            ("cache=auto", Options::default()),
            ("cache=page", with(|o| o.cache = CacheMode::Page)),
            ("cache=direct", with(|o| o.cache = CacheMode::Direct)),
            ("idle=90", with(|o| o.idle = Some(Duration::from_secs(90)))),
            ("threads=4", with(|o| o.threads = Some(4))),
            ("allow_other", with(|o| o.allow_other = true)),
            ("auto_unmount", with(|o| o.auto_unmount = true)),
            (
                "uid=1000,gid=0",
                with(|o| (o.uid, o.gid) = (Some(1000), Some(0))),
            ),
            ("umask=077", with(|o| o.umask = Some(0o77))),
            ("umask=0", with(|o| o.umask = Some(0))),
            (
                "fsname=my model",
                with(|o| o.fsname = Some("my model".into())),
            ),
            (
                "log=/var/log/w.log",
                with(|o| o.log = Some("/var/log/w.log".into())),
            ),
            (
                "log_level=debug",
                with(|o| o.log_level = Some(log::LevelFilter::Debug)),
            ),
        ];
        for (list, want) in cases {
            assert_eq!(parse(list).as_ref(), Ok(&want), "{list}");
        }
    }

    #[test]
    fn set_takes_json_or_a_file() {
        let json = |key: &str, value| Override {
            key: key.into(),
            value: SetValue::Json(value),
        };
        for (list, want) in [
            ("set=a.b=3", json("a.b", serde_json::json!(3))),
            (r#"set=a="x=y""#, json("a", serde_json::json!("x=y"))),
            (r"set=a=[1\,2]", json("a", serde_json::json!([1, 2]))),
            (
                "set=a=18446744073709551615",
                json("a", serde_json::json!(u64::MAX)),
            ),
            (
                "set=a=@t.jinja",
                Override {
                    key: "a".into(),
                    value: SetValue::File("t.jinja".into()),
                },
            ),
        ] {
            assert_eq!(parse(list).unwrap().set, [want], "{list}");
        }
        assert_eq!(parse("set=a=1,set=b=2").unwrap().set.len(), 2);
    }

    #[test]
    fn bad_values_are_refused_with_what_was_expected() {
        for (list, part) in [
            ("verify=sometimes", "one of always, once, off"),
            ("verify", "verify=always|once|off"),
            ("verify=", "verify=always|once|off"),
            ("map", "map=none|hf|gguf|FILE"),
            ("log=", "log=FILE"),
            ("gid=", "gid=N"),
            ("dtype=q4", "bf16"),
            ("io=aio", "pread"),
            ("cache=none", "direct"),
            ("on_corruption=ignore", "log"),
            ("idle=0", "from 1"),
            ("idle=1.5", "whole number"),
            ("idle=-1", "whole number"),
            ("threads=0", "from 1"),
            ("threads=+4", "whole number"),
            ("threads=1000", "256"),
            ("uid=root", "whole number"),
            ("uid=4294967295", "4294967294"),
            ("umask=8", "octal"),
            ("umask=1000", "777"),
            ("umask=+7", "octal"),
            ("log_level=loud", "trace"),
            ("allow_other=1", "takes no value"),
            ("rw=1", "takes no value"),
            ("set=a", "KEY=JSON"),
            ("set=a=text", "quotes"),
            ("set==1", "empty"),
            ("set=a=@", "not JSON"),
            ("set=split.count=2", "cannot be set"),
            ("set=general.alignment=64", "cannot be set"),
        ] {
            let text = parse(list).unwrap_err().to_string();
            assert!(text.contains(part), "{list}: {text}");
            let name = list.split('=').next().unwrap();
            assert!(text.contains(name), "{list}: {text}");
        }
    }

    #[test]
    fn what_mount_passes_is_accepted_and_means_nothing() {
        let words = "ro,rw,dev,nodev,suid,nosuid,exec,noexec,atime,noatime,relatime,norelatime,strictatime,\
            nostrictatime,diratime,nodiratime,lazytime,nolazytime,iversion,noiversion,sync,async,dirsync,mand,\
            nomand,silent,loud,symfollow,nosymfollow,default_permissions,group,nogroup,subtype=weightfs,\
            max_read=131072,context=\"system_u:object_r:x\",nofail,_netdev,defaults,auto,noauto,user,nouser,users,\
            nousers,owner,noowner,x-systemd.automount,x-gvfs-name=Gemma,X-mount.mkdir,comment=models";
        for word in words.split(',') {
            assert_eq!(parse(word), Ok(Options::default()), "{word}");
        }
        assert_eq!(parse(words), Ok(Options::default()));
    }

    #[test]
    fn unknown_words_are_named() {
        for word in [
            "frobnicate",
            "norw",
            "noro",
            "nomap=hf",
            "Verify=off",
            "direct_io",
            "no",
            "allow_root",
        ] {
            let text = parse(&format!("ro,{word},rw")).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
        let mut options = Options::default();
        let error = parse_list(&mut options, OsStr::from_bytes(b"\xff\xfe")).unwrap_err();
        assert!(matches!(error, OptionError::Unknown(_)));
    }

    #[test]
    fn values_may_hold_commas_backslashes_and_any_bytes() {
        assert_eq!(
            parse(r"log=/a\,b\\c").unwrap().log.unwrap(),
            Path::new(r"/a,b\c")
        );
        let mut options = Options::default();
        parse_list(&mut options, OsStr::from_bytes(b"seal=/\xff.json,ro")).unwrap();
        assert_eq!(
            options.seal,
            SealChoice::File(OsString::from_vec(b"/\xff.json".to_vec()).into())
        );
    }

    #[test]
    fn the_table_says_what_the_parser_knows() {
        for form in TABLE.iter().flat_map(|line| line.form.split(", ")) {
            let (name, values) = form.split_once('=').unwrap_or((form, ""));
            for value in values.split('|') {
                let value = match value {
                    "SECONDS" | "N" | "OCTAL" => "7",
                    "KEY=JSON" => "k=1",
                    "KEY=@FILE" => "k=@f",
                    other => other,
                };
                let word = if value.is_empty() {
                    name.to_owned()
                } else {
                    format!("{name}={value}")
                };
                parse(&word).unwrap();
            }
        }
    }
}
