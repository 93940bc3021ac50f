//! Where the log of a daemon goes, and how its lines look.

use super::occupied;
use anyhow::{Context, Result, anyhow};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weightfs::bytes::line::InLine;

/// A log file of an earlier daemon that is longer than this is begun anew.
const MAX_KEPT: u64 = 1 << 20;
/// Longest file name that is surely allowed, with room for `.log`.
const MAX_NAME: usize = 200;

/// Where the lines go.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The file, absolute, when there is one.
    pub(crate) path: Option<PathBuf>,
    /// Whether it was not there before us.
    is_new: bool,
    /// Whether the lines go to where messages go.
    pub(crate) is_stderr: bool,
}

impl Log {
    /// The text for `status.json`'s `log`: the file, which is an absolute path, `stderr`, or
    /// `none` for a daemon that has no place for one.
    pub(crate) fn described(&self) -> String {
        match (&self.path, self.is_stderr) {
            (Some(path), _) => path.to_string_lossy().into_owned(),
            (None, true) => "stderr".into(),
            (None, false) => "none".into(),
        }
    }

    /// Takes away a file that was made for nothing: no mount came about, and no line was written.
    pub(crate) fn discard_if_empty(&self) {
        if let Some(path) = self.path.as_deref().filter(|_| self.is_new)
            && path.symlink_metadata().is_ok_and(|file| file.is_file() && file.len() == 0)
        {
            // Left behind it does no harm.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts logging.
pub(crate) fn start(
    wanted: Option<&Path>,
    level: log::LevelFilter,
    daemon: bool,
    mountpoint: &Path,
) -> Result<Log> {
    let mut builder = env_logger::Builder::new();
    // The FUSE library has a line for every request at debug, and so have we.
    builder.filter_level(level).filter_module("fuser", level.min(log::LevelFilter::Warn));
    builder.format(|out, record| {
        let level = record.level().as_str().to_ascii_lowercase();
        let text = super::exit::log_line(&record.args().to_string());
        writeln!(out, "{} {level:5} {text}", out.timestamp_millis())
    });
    let file = match wanted {
        Some(path) => {
            let path = std::path::absolute(path)?;
            let is_new = path.symlink_metadata().is_err();
            let file = append_to(&path).with_context(|| format!("log={}", path.in_line()))?;
            Some((path, file, is_new))
        }
        None if !daemon => None,
        // A mount without a log is better than none: the directory may be full or read-only.
        None => open_default(mountpoint)
            .map_err(|error| super::exit::say(&format!("no log: {}", super::exit::message(&error))))
            .ok(),
    };
    let mut log = Log { is_stderr: file.is_none() && !daemon, ..Log::default() };
    if let Some((path, _, is_new)) = &file {
        (log.path, log.is_new) = (Some(path.clone()), *is_new);
    }
    match file {
        Some((_, file, _)) => builder.target(env_logger::Target::Pipe(Box::new(file))),
        None if daemon => builder.target(env_logger::Target::Pipe(Box::new(io::sink()))),
        None => builder.target(env_logger::Target::Stderr),
    };
    builder.try_init().context("starting the log")?;
    Ok(log)
}

fn append_to(path: &Path) -> Result<File> {
    // Without O_NONBLOCK a pipe that nobody reads would keep us waiting for ever.
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
    let opened =
        File::options().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    let refused =
        || io::Error::other("neither a regular file nor a terminal or other character device");
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => refused(),
        _ => error,
    })?;
    let kind = file.metadata()?;
    // /dev/stderr may be a pipe, whose reader wants the lines.
    if !kind.is_file() && !kind.file_type().is_char_device() && !is_ours(&kind) {
        return Err(refused().into());
    }
    occupied::refuse_log(path, &kind)?;
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    Ok(file)
}

/// Whether it is what stdout or stderr of this process lead to.
fn is_ours(file: &Metadata) -> bool {
    occupied::is_same(file, io::stderr()) || occupied::is_same(file, io::stdout())
}

/// Opens the log in the first state directory that can be written to.
fn open_default(mountpoint: &Path) -> Result<(PathBuf, File, bool)> {
    let dirs = state_dirs(|name| std::env::var_os(name), nix::unistd::getuid().as_raw());
    open_in_first(dirs.into_iter().map(|(base, leaf)| base.join(leaf)), mountpoint)
}

/// Opens the log in the first of these directories where that can be; the error names them all.
fn open_in_first(
    dirs: impl Iterator<Item = PathBuf>,
    mountpoint: &Path,
) -> Result<(PathBuf, File, bool)> {
    let mut failures = Vec::new();
    for dir in dirs {
        match open_in(&dir, mountpoint) {
            Ok(opened) => return Ok(opened),
            Err(error) => failures.push(format!("{}: {error}", dir.in_line())),
        }
    }
    Err(anyhow!("{}", failures.join("; ")))
}

/// The file, and whether it is new.
fn open_in(dir: &Path, mountpoint: &Path) -> io::Result<(PathBuf, File, bool)> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // In a shared temporary directory somebody else may have been there first.
    let owner = std::fs::symlink_metadata(dir)?;
    if !owner.is_dir() || owner.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("belongs to another user"));
    }
    let path = dir.join(file_name(mountpoint));
    let is_new = path.symlink_metadata().is_err();
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY)
        .open(&path)?;
    if file.metadata()?.len() > MAX_KEPT {
        file.set_len(0)?;
    }
    Ok((path, file, is_new))
}

/// Directories for state that may be there, best first, and the name of ours in each.
fn state_dirs(env: impl Fn(&str) -> Option<OsString>, uid: u32) -> Vec<(PathBuf, OsString)> {
    let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let mut dirs = Vec::new();
    if let Some(state) = absolute("XDG_STATE_HOME") {
        dirs.push((state, "weightfs".into()));
    }
    if let Some(home) = absolute("HOME") {
        dirs.push((home.join(".local/state"), "weightfs".into()));
    }
    let temporary = absolute("TMPDIR").unwrap_or_else(|| "/tmp".into());
    dirs.push((temporary, format!("weightfs-{uid}").into()));
    dirs
}

/// `/mnt/g` becomes `mnt-g.log`. Two mount points may share a file; lines are appended whole.
fn file_name(mountpoint: &Path) -> OsString {
    let bytes = mountpoint.as_os_str().as_bytes();
    let mut name: Vec<u8> = bytes
        .iter()
        .skip_while(|&&b| b == b'/')
        .map(|&b| if b == b'/' || b.is_ascii_control() { b'-' } else { b })
        .collect();
    if name.len() > MAX_NAME {
        name.drain(..name.len() - MAX_NAME);
    }
    if name.is_empty() || name.starts_with(b".") {
        name.insert(0, b'_');
    }
    name.extend_from_slice(b".log");
    OsString::from_vec(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_falls_back_in_order() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            }
        };
        for (pairs, want) in [
            (
                &[("XDG_STATE_HOME", "/s"), ("HOME", "/h")][..],
                &["/s/weightfs", "/h/.local/state/weightfs", "/tmp/weightfs-7"][..],
            ),
            (
                &[("XDG_STATE_HOME", ""), ("HOME", "/h")],
                &["/h/.local/state/weightfs", "/tmp/weightfs-7"],
            ),
            (&[("XDG_STATE_HOME", "rel"), ("TMPDIR", "/t")], &["/t/weightfs-7"]),
            (&[], &["/tmp/weightfs-7"]),
        ] {
            let dirs = state_dirs(env(pairs), 7);
            let dirs: Vec<_> = dirs.iter().map(|(base, leaf)| base.join(leaf)).collect();
            assert_eq!(dirs, want.iter().map(PathBuf::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_log_that_cannot_be_had_in_one_place_is_had_in_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let point = Path::new("/mnt/g");
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(open_in(&dir.path().join("file/weightfs"), point).is_err());
        let (path, file, is_new) = open_in(&dir.path().join("new/weightfs"), point).unwrap();
        assert!(is_new);
        assert_eq!(path, dir.path().join("new/weightfs/mnt-g.log"));
        file.set_len(MAX_KEPT + 1).unwrap();
        let (_, file, is_new) = open_in(&dir.path().join("new/weightfs"), point).unwrap();
        assert!(!is_new);
        assert_eq!(file.metadata().unwrap().len(), 0);
        std::os::unix::fs::symlink("elsewhere", dir.path().join("new/weightfs/link.log")).unwrap();
        assert!(open_in(&dir.path().join("new/weightfs"), Path::new("/link")).is_err());
    }

    #[test]
    fn every_place_that_has_no_room_for_a_log_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let places = ["a", "b"].map(|name| dir.path().join(name).join("weightfs"));
        for place in &places {
            std::fs::write(place.parent().unwrap(), "").unwrap();
        }
        let error = open_in_first(places.clone().into_iter(), Path::new("/mnt/g")).unwrap_err();
        for place in places {
            let text = format!("{}: ", place.in_line());
            assert!(error.to_string().contains(&text), "{error}");
        }
    }

    #[test]
    fn a_daemon_without_a_log_says_so() {
        for (path, is_stderr, want) in
            [(Some("/s/x.log"), false, "/s/x.log"), (None, true, "stderr"), (None, false, "none")]
        {
            let log = Log { path: path.map(PathBuf::from), is_new: false, is_stderr };
            assert_eq!(log.described(), want);
        }
    }

    #[test]
    fn only_an_empty_log_of_our_own_is_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        for (text, is_new, stays) in [("", true, false), ("", false, true), ("line", true, true)] {
            std::fs::write(&path, text).unwrap();
            Log { path: Some(path.clone()), is_new, is_stderr: false }.discard_if_empty();
            assert_eq!(path.exists(), stays, "{text:?} {is_new}");
        }
    }

    #[test]
    fn a_log_is_a_file_or_a_character_device_and_never_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        append_to(&path).unwrap().write_all(b"a").unwrap();
        append_to(&path).unwrap().write_all(b"b").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"ab");
        append_to(Path::new("/dev/null")).unwrap().write_all(b"a").unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let unread = append_to(&pipe).unwrap_err().to_string();
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        let read = append_to(&pipe).unwrap_err().to_string();
        drop(reader);
        for text in [unread, read] {
            assert!(text.contains("neither a regular file"), "{text}");
        }
    }

    #[test]
    fn a_mount_point_becomes_one_safe_file_name() {
        for (point, want) in
            [("/mnt/g", "mnt-g.log"), ("/", "_.log"), ("/.hidden/a\nb", "_.hidden-a-b.log")]
        {
            assert_eq!(file_name(Path::new(point)), want);
        }
        let long = format!("/{}", "x".repeat(4000));
        assert_eq!(file_name(Path::new(&long)).len(), MAX_NAME + 4);
    }
}
