//! The words of `-o`: split at commas, sorted into typed values, or refused by name.
//!
//! Knows what can be written, not what it does. [`TABLE`] is what the help text, the man
//! page and the README say about each word; a test holds it against the parser.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;
use weightfs::bytes::line::InLine;
use weightfs::fuse::CacheMode;
use weightfs::source::IoMode;
use weightfs::store::{OnCorruption, Verify};

mod table;
mod word;
mod words;

pub(crate) use table::TABLE;
use word::Word;

/// Which seal is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SealChoice {
    #[default]
    Auto,
    Require,
    None,
    File(PathBuf),
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
    /// That content.
    Verbatim(Vec<u8>),
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
    /// Every model of a directory, each as a directory.
    pub(crate) recursive: bool,
}

/// Words of mount(8) that mean nothing here; the mount is read-only whatever they say. Those in
/// the second list have an opposite that begins with `no`.
const IGNORED: &[&str] =
    &["ro", "rw", "sync", "async", "silent", "loud", "defaults", "nofail", "_netdev"];
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
const IGNORED_WITH_VALUE: &[&str] =
    &["subtype", "max_read", "comment", "context", "fscontext", "defcontext", "rootcontext"];

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
    Bad { name: String, value: String, expected: String },
    #[error(
        "{0} is of one model, and --recursive mounts several\nto mount that model: without --recursive"
    )]
    OfOneModel(String),
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
    /// Refuses words that do not go together.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        let of_one = match (&self.seal, &self.like, &*self.set) {
            (SealChoice::File(file), ..) => Some(format!("seal={}", file.in_line())),
            (_, Some(like), _) => Some(format!("like={}", like.in_line())),
            (_, _, [set, ..]) => Some(format!("set={}", set.key)),
            _ => None,
        };
        match of_one.filter(|_| self.recursive) {
            Some(word) => Err(OptionError::OfOneModel(word)),
            None => Ok(()),
        }
    }

    /// Applies one option, the value as it is.
    pub(crate) fn apply(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), OptionError> {
        let Ok(name) = std::str::from_utf8(name) else {
            return Err(OptionError::Unknown(String::from_utf8_lossy(name).into_owned()));
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
            "recursive" => self.recursive = word.flag()?,
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;
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
            ("map=a,map=b", with(|o| o.map = vec!["a".into(), "b".into()])),
            ("like=/x/r.gguf", with(|o| o.like = Some("/x/r.gguf".into()))),
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
            ("seal=./none", with(|o| o.seal = SealChoice::File("./none".into()))),
            ("on_corruption=eio", Options::default()),
            ("on_corruption=log", with(|o| o.on_corruption = OnCorruption::Log)),
            ("io=auto", Options::default()),
            ("io=mmap", with(|o| o.io = IoMode::Mmap)),
            ("io=pread", with(|o| o.io = IoMode::Pread)),
            ("cache=auto", Options::default()),
            ("cache=page", with(|o| o.cache = CacheMode::Page)),
            ("cache=direct", with(|o| o.cache = CacheMode::Direct)),
            ("idle=90", with(|o| o.idle = Some(Duration::from_secs(90)))),
            ("threads=4", with(|o| o.threads = Some(4))),
            ("recursive", with(|o| o.recursive = true)),
            ("allow_other", with(|o| o.allow_other = true)),
            ("auto_unmount", with(|o| o.auto_unmount = true)),
            ("uid=1000,gid=0", with(|o| (o.uid, o.gid) = (Some(1000), Some(0)))),
            ("umask=077", with(|o| o.umask = Some(0o77))),
            ("umask=0", with(|o| o.umask = Some(0))),
            ("fsname=my model", with(|o| o.fsname = Some("my model".into()))),
            ("log=/var/log/w.log", with(|o| o.log = Some("/var/log/w.log".into()))),
            ("log_level=debug", with(|o| o.log_level = Some(log::LevelFilter::Debug))),
        ];
        for (list, want) in cases {
            assert_eq!(parse(list).as_ref(), Ok(&want), "{list}");
        }
    }

    #[test]
    fn set_takes_json_or_a_file() {
        let json = |key: &str, value| Override { key: key.into(), value: SetValue::Json(value) };
        for (list, want) in [
            ("set=a.b=3", json("a.b", serde_json::json!(3))),
            (r#"set=a="x=y""#, json("a", serde_json::json!("x=y"))),
            (r"set=a=[1\,2]", json("a", serde_json::json!([1, 2]))),
            ("set=a=18446744073709551615", json("a", serde_json::json!(u64::MAX))),
            (
                "set=a=@t.jinja",
                Override { key: "a".into(), value: SetValue::File("t.jinja".into()) },
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
            ("recursive=yes", "takes no value"),
            ("rw=1", "takes no value"),
            ("set=a", "KEY=JSON"),
            ("set=a=text", "quotes"),
            ("set==1", "empty"),
            ("set=a=18446744073709551616", "64 bits"),
            ("set=a=[1\\,18446744073709551616]", "64 bits"),
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
    fn what_is_of_one_model_does_not_go_with_several() {
        for word in ["seal=x.json", "like=ref", "set=a=1"] {
            for list in [format!("{word},recursive"), format!("recursive,{word}")] {
                let text = parse(&list).unwrap().check().unwrap_err().to_string();
                assert!(text.starts_with(word.trim_end_matches("=1")), "{text}");
            }
            assert_eq!(parse(word).unwrap().check(), Ok(()), "{word}");
        }
        for list in ["recursive,seal=none,map=hf,dtype=f32", "recursive,seal=require"] {
            assert_eq!(parse(list).unwrap().check(), Ok(()), "{list}");
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
        assert_eq!(parse(r"log=/a\,b\\c").unwrap().log.unwrap(), Path::new(r"/a,b\c"));
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
                let word =
                    if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
                parse(&word).unwrap();
            }
        }
    }
}
