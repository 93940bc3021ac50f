//! What lies already where the user has us write: nobody's model, seal or document is written
//! over or added to because its name was typed in the wrong place.

use anyhow::{Result, bail};
use nix::sys::stat::{FileStat, fstat};
use std::fs::{FileType, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use weightfs::bytes::line::InLine;
use weightfs::format::{self, Detected};
use weightfs::seal;
use weightfs::source::{IoMode, Source, SourceError};

/// As much of a file as tells what it is.
const HEAD: u64 = 4096;

/// What a regular file is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    Empty,
    /// The drawing that `--svg` makes, or another XML document.
    Drawing,
    /// Lines of text that are nothing else of these.
    Text,
    /// What other programs read as a whole, in words.
    Document(&'static str),
}

/// What the regular file at `path` is; and the device and number of the file that was looked at.
pub(crate) fn looks(path: &Path) -> Result<(Looks, (u64, u64)), SourceError> {
    let file = Source::open(path, IoMode::Pread)?;
    let identity = file.identity();
    let mut head = vec![0; file.len().min(HEAD) as usize];
    file.read_at(0, &mut head)?;
    let detected = format::detect(&file).map_err(|source| SourceError::Io {
        file: path.in_line().to_string(),
        op: "read".to_owned(),
        source,
    })?;
    let looks = match detected {
        _ if head.is_empty() => Looks::Empty,
        Detected::Gguf => Looks::Document("a GGUF model"),
        Detected::Safetensors => Looks::Document("a safetensors model"),
        _ if seal::is_seal(path) => Looks::Document("the seal of a model"),
        Detected::Json if head.trim_ascii_start().starts_with(b"[") => Looks::Text,
        Detected::Json => Looks::Document("a JSON document"),
        Detected::Other(what) if what == format::LFS_POINTER => Looks::Document(what),
        _ if is_drawing(&head) => Looks::Drawing,
        _ if begins_with_digest(&head) => Looks::Document("a list of digests"),
        Detected::Other(what) if head.contains(&0) => Looks::Document(match what {
            format::UNKNOWN => "a file of bytes that are no text",
            known => known,
        }),
        Detected::Other(_) => Looks::Text,
    };
    Ok((looks, (identity.dev, identity.ino)))
}

/// Whether the file begins as SVG, or as XML, which SVG is.
fn is_drawing(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let begins = |word: &[u8]| head.get(..word.len()).is_some_and(|b| b.eq_ignore_ascii_case(word));
    begins(b"<?xml") || begins(b"<svg") || begins(b"<!doctype svg")
}

/// Whether the first line is one of `sha256sum`, in either of its forms, or of gguf-hash.
fn begins_with_digest(head: &[u8]) -> bool {
    const DIGITS: usize = 64;
    let digits = head.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    digits == DIGITS || head.starts_with(b"SHA256 (") || head.starts_with(b"sha256  ")
}

/// What takes bytes as they come, and has none to lose.
pub(crate) fn is_stream(kind: FileType) -> bool {
    kind.is_char_device() || kind.is_fifo()
}

/// Whether it is what an open descriptor of this process leads to.
pub(crate) fn is_same(file: &Metadata, descriptor: impl AsFd) -> bool {
    let same = |other: FileStat| (other.st_dev, other.st_ino) == (file.dev(), file.ino());
    fstat(descriptor).is_ok_and(same)
}

/// Fails, with what it is, where a log file must not grow: lines at the end of a model, a seal or
/// another document would make it another one.
pub(crate) fn refuse_log(path: &Path, opened: &Metadata) -> Result<()> {
    if !opened.is_file() || opened.len() == 0 {
        return Ok(());
    }
    match looks(path)? {
        (_, there) if there != (opened.dev(), opened.ino()) => bail!("changed as it was opened"),
        (Looks::Document(what), _) => {
            bail!("it is {what}, to which no log is added: name a new file")
        }
        (Looks::Empty | Looks::Text | Looks::Drawing, _) => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_has_something_to_lose_is_told_from_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut page = 4096u64.to_le_bytes().to_vec();
        page.extend([b' '; 4096]);
        let digest = "0".repeat(64);
        for (bytes, want) in [
            (&b""[..], "Empty"),
            (b"GGUF\x03\0\0\0", "GGUF"),
            (b"\x02\0\0\0\0\0\0\0{}", "safetensors"),
            (&page, "safetensors"),
            (b" {\n \"weightfs_manifest\": 1", "seal"),
            (b"{\"weight_map\": {}}", "JSON"),
            (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
            (b"PK\x03\x04\x14\0\0\0\0", "zip"),
            (b"\x01\x02\x03\x00\xff", "no text"),
            (format!("{digest}  m.gguf\n").as_bytes(), "digests"),
            (b"SHA256 (m.gguf) = 00", "digests"),
            (b"sha256    00  m.gguf", "digests"),
            (b"<svg xmlns=", "Drawing"),
            (b"\xef\xbb\xbf\n<?xml version", "Drawing"),
            (b"<!DOCTYPE html>", "Text"),
            (b"<svg", "Drawing"),
            (b"<!-- ", "Text"),
            (b"[2026-11-30] a line", "Text"),
            (b"2026-11-30T12:00:00.000Z info  a line\n", "Text"),
            (format!("{digest}0\n").as_bytes(), "Text"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let looks = format!("{:?}", looks(&path).unwrap().0);
            assert!(looks.contains(want), "{looks}, wanted {want}");
        }
    }
}
