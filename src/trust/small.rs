//! Small files of strangers: opened once, never waited for, read up to a limit.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Longest line that is looked at: a digest, a path and a tensor's name.
const MAX_LINE: u64 = 64 << 10;

/// Why a small file is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SmallError {
    /// There is none.
    #[error("there is no such file")]
    Absent,
    /// It is something else.
    #[error("{0}")]
    Unfit(String),
    /// The system could not read it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens `path`, which the user named or which lies where it may: a regular file of at most
/// `limit` bytes.
pub(super) fn open(path: &Path, limit: u64) -> Result<File, SmallError> {
    // Without O_NONBLOCK the opening of a pipe would wait for its writer.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = match opened {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            return Err(SmallError::Absent);
        }
        opened => opened?,
    };
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(SmallError::Unfit("it is no regular file".to_owned()));
    }
    if about.len() > limit {
        let what = format!("it has {} bytes, at most {limit} are read", about.len());
        return Err(SmallError::Unfit(what));
    }
    Ok(file)
}

/// As [`open`], for a file that was found: one that is a symlink must lead to a file inside
/// the directory it lies in or, in a Hugging Face snapshot, inside its repository.
pub(super) fn open_beside(path: &Path, limit: u64) -> Result<File, SmallError> {
    let about = match path.symlink_metadata() {
        Err(_) => return Err(SmallError::Absent),
        Ok(about) => about,
    };
    if about.is_symlink() {
        let inside = path
            .canonicalize()
            .ok()
            .zip(path.parent().and_then(|dir| dir.canonicalize().ok()))
            .is_some_and(|(target, dir)| target.starts_with(home_of(&dir)));
        if !inside {
            let what = "it is a symbolic link that leads out of the model's directory";
            return Err(SmallError::Unfit(what.to_owned()));
        }
    } else if !about.is_file() {
        // A directory of that name is nobody's list.
        return Err(SmallError::Absent);
    }
    open(path, limit)
}

/// The directory that the files in `dir` may lead into: `dir`, or, for
/// `models--ORG--NAME/snapshots/COMMIT` and what is below, the repository.
fn home_of(dir: &Path) -> PathBuf {
    let is_snapshots = |at: &&Path| {
        at.file_name().is_some_and(|name| name == "snapshots")
            && at.parent().is_some_and(|repo| super::name_of(repo).starts_with(b"models--"))
    };
    match dir.ancestors().find(is_snapshots).and_then(Path::parent) {
        Some(repo) => repo.to_owned(),
        None => dir.to_owned(),
    }
}

/// All of a file, which may have grown since it was opened.
pub(super) fn read(file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

/// Gives `each` the number of each line, from 1, and the line without its end, in order; `None`
/// for longer ones than anybody writes. A line ends as on any system, or with the NUL of
/// `sha256sum -z`.
pub(super) fn lines(
    text: impl Read,
    limit: u64,
    mut each: impl FnMut(u64, Option<&[u8]>),
) -> io::Result<()> {
    let mut from = BufReader::with_capacity(64 << 10, text.take(limit));
    let mut line = Vec::new();
    let mut number = 1;
    // What ended the line before, and whether this one is too long.
    let (mut last, mut long) = (b'\n', false);
    loop {
        let room = from.fill_buf()?;
        if room.is_empty() {
            break;
        }
        if last == b'\r' && line.is_empty() && !long && room[0] == b'\n' {
            // The second half of an end that was met.
            last = b'\n';
            from.consume(1);
            continue;
        }
        let end = room.iter().position(|b| matches!(b, b'\n' | b'\r' | 0));
        let text = &room[..end.unwrap_or(room.len())];
        long |= (line.len() + text.len()) as u64 >= MAX_LINE;
        if !long {
            line.extend_from_slice(text);
        }
        let used = text.len();
        if let Some(end) = end {
            last = room[end];
            each(number, (!long).then_some(&*line));
            number += 1;
            long = false;
            line.clear();
        } else {
            last = b'\n';
        }
        from.consume(used + usize::from(end.is_some()));
    }
    if long || !line.is_empty() {
        each(number, (!long).then_some(&*line));
    }
    Ok(())
}

/// A text in UTF-16, as PowerShell's `>` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wide {
    /// The low byte first.
    Little,
    /// The high byte first.
    Big,
}

impl Wide {
    /// Whether a text that begins so is one.
    pub(super) fn of(begin: &[u8]) -> Option<Wide> {
        match begin {
            [0xFF, 0xFE, ..] => Some(Wide::Little),
            [0xFE, 0xFF, ..] => Some(Wide::Big),
            _ => None,
        }
    }

    /// The same text in UTF-8, without the mark in front.
    pub(super) fn to_utf8(self, text: &[u8]) -> Vec<u8> {
        let units = text.chunks_exact(2).skip(1).map(|two| match self {
            Wide::Little => u16::from_le_bytes([two[0], two[1]]),
            Wide::Big => u16::from_be_bytes([two[0], two[1]]),
        });
        let chars = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        chars.collect::<String>().into_bytes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn all(text: &[u8]) -> Vec<Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, text).unwrap();
        let (mut lines_of, mut met) = (Vec::new(), 0);
        lines(open(&path, 1 << 20).unwrap(), 1 << 20, |number, line| {
            met += 1;
            assert_eq!(number, met);
            lines_of.push(line.unwrap_or(b"too long").to_vec());
        })
        .unwrap();
        lines_of
    }

    #[test]
    fn lines_end_in_every_way_and_long_ones_are_only_counted() {
        assert_eq!(all(b"a\nb\r\n\nc"), [&b"a"[..], b"b", b"", b"c"]);
        assert_eq!(all(b"a\rb\r\rc\r"), [&b"a"[..], b"b", b"", b"c"]);
        assert_eq!(all(b"a\0b\0\0"), [&b"a"[..], b"b", b""]);
        assert_eq!(all(b""), [b""; 0]);
        let long = [&b"x\n"[..], &vec![b'y'; 200_000], b"\nz\n"].concat();
        assert_eq!(all(&long), [&b"x"[..], b"too long", b"z"]);
        assert_eq!(all(&vec![b'y'; 200_000]), [b"too long"]);
        let exact = [vec![b'y'; MAX_LINE as usize - 1], b"\nz".to_vec()].concat();
        assert_eq!(all(&exact).len(), 2);
    }

    #[test]
    fn a_text_of_either_order_and_what_is_none() {
        let units: Vec<u16> = "\u{feff}a\u{e9}\u{1f600}\r\n".encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for (text, wide) in [(little, Wide::Little), (big, Wide::Big)] {
            assert_eq!(Wide::of(&text), Some(wide));
            assert_eq!(wide.to_utf8(&text), "a\u{e9}\u{1f600}\r\n".as_bytes());
        }
        assert_eq!(Wide::Little.to_utf8(b"\xff\xfe\x00\xd8x"), "\u{fffd}".as_bytes());
        for text in [&b""[..], b"\xff", b"a\0", b"\xef\xbb\xbf"] {
            assert_eq!(Wide::of(text), None);
        }
    }

    #[test]
    fn only_regular_files_of_a_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert!(matches!(open(&at("x"), 9), Err(SmallError::Absent)));
        std::fs::write(at("x"), b"0123456789").unwrap();
        assert!(open(&at("x"), 9).unwrap_err().to_string().contains("at most 9"));
        assert!(open(&at("x"), 10).is_ok());
        assert!(matches!(open(&at("x/y"), 9), Err(SmallError::Absent)));
        assert!(std::process::Command::new("mkfifo").arg(at("p")).status().unwrap().success());
        assert!(open(&at("p"), 9).is_err());
        assert!(matches!(open_beside(&at("p"), 9), Err(SmallError::Absent)));
        assert!(matches!(open_beside(dir.path(), 9), Err(SmallError::Absent)));
    }

    #[test]
    fn links_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("m")).unwrap();
        std::fs::write(root.join("outside"), b"x").unwrap();
        std::fs::write(root.join("m/inside"), b"x").unwrap();
        symlink("../outside", root.join("m/out")).unwrap();
        symlink("inside", root.join("m/in")).unwrap();
        symlink("nowhere", root.join("m/dangling")).unwrap();
        assert!(open_beside(&root.join("m/in"), 9).is_ok());
        assert!(open_beside(&root.join("m/out"), 9).unwrap_err().to_string().contains("leads out"));
        assert!(open_beside(&root.join("m/dangling"), 9).is_err());
        let snapshot = root.join("models--a--b/snapshots/c0ffee");
        std::fs::create_dir_all(&snapshot).unwrap();
        std::fs::create_dir_all(root.join("models--a--b/blobs")).unwrap();
        std::fs::write(root.join("models--a--b/blobs/x"), b"x").unwrap();
        symlink("../../blobs/x", snapshot.join("SHA256SUMS")).unwrap();
        symlink("../../../outside", snapshot.join("evil")).unwrap();
        assert!(open_beside(&snapshot.join("SHA256SUMS"), 9).is_ok());
        assert!(open_beside(&snapshot.join("evil"), 9).is_err());
    }
}
