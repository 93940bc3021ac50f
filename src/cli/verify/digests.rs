//! Lists of SHA-256 digests as sha256sum writes them.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use weightfs::seal::from_hex;

/// Lists are a line per file; this is room for 100,000 long ones.
const MAX_LEN: u64 = 64 << 20;

/// Digests by file name, without directories.
#[derive(Debug)]
pub(super) struct List {
    path: PathBuf,
    by_name: HashMap<Vec<u8>, [u8; 32]>,
}

impl List {
    /// Reads a list. Lines of other kinds (comments, other digests) are skipped, but there must be
    /// one that counts, and two lines must not disagree.
    pub(super) fn read(path: &Path) -> Result<List> {
        let named = || path.display().to_string();
        let len = std::fs::metadata(path).with_context(named)?.len();
        if len > MAX_LEN {
            bail!("{}: {len} bytes, more than any list of digests has", named());
        }
        let text = std::fs::read(path).with_context(named)?;
        let mut by_name = HashMap::new();
        for line in text.split(|&b| b == b'\n') {
            let Some((digest, name)) = parse(line) else {
                continue;
            };
            if by_name.insert(name.clone(), digest).is_some_and(|other| other != digest) {
                bail!("{}: two different digests for {}", named(), super::Safe(&name));
            }
        }
        if by_name.is_empty() {
            bail!("{}: no line of the form 'SHA-256  FILE'", named());
        }
        Ok(List { path: path.to_path_buf(), by_name })
    }

    /// Where it was read from.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the file with this name.
    pub(super) fn digest_of(&self, file: &[u8]) -> Option<[u8; 32]> {
        self.by_name.get(file).copied()
    }
}

/// `DIGEST  NAME` or `DIGEST *NAME`; with a backslash in front, `\\`, `\n` and `\r` in the name
/// stand for a backslash, a line feed and a carriage return. Directories are cut off, but
/// files of a mount's `tensors/` are not files of the model.
fn parse(line: &[u8]) -> Option<([u8; 32], Vec<u8>)> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (digits, rest) = line.split_at_checked(64)?;
    let digest = from_hex::<32>(&digits.to_ascii_lowercase())?;
    let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    let name = if escaped { unescape(name) } else { name.to_vec() };
    let mut parts = name.rsplit(|&b| b == b'/');
    let file = parts.next()?.to_vec();
    (!file.is_empty() && parts.next() != Some(b"tensors")).then_some((digest, file))
}

fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => out.push(b'\n'),
                Some(b'r') => out.push(b'\r'),
                Some(other) => out.push(other),
                None => out.push(b'\\'),
            },
            (other, false) => out.push(other),
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DIGEST: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn name_in(line: &str) -> Option<Vec<u8>> {
        parse(line.as_bytes()).map(|(_, name)| name)
    }

    #[test]
    fn the_forms_of_a_line() {
        for (rest, want) in [
            ("  m.gguf", Some("m.gguf")),
            (" *m.gguf", Some("m.gguf")),
            ("  ./models/m.gguf", Some("m.gguf")),
            ("  source/m.gguf\r", Some("m.gguf")),
            ("  two words.gguf", Some("two words.gguf")),
            ("  tensors/m.gguf", None),
            ("  dir/", None),
            (" m.gguf", None),
            ("", None),
        ] {
            assert_eq!(
                name_in(&format!("{DIGEST}{rest}")),
                want.map(|w| w.as_bytes().to_vec()),
                "{rest:?}"
            );
        }
        assert_eq!(name_in(&format!("\\{DIGEST}  a\\nb\\\\c")).unwrap(), b"a\nb\\c");
        for line in ["# a comment", "", "deadbeef  m.gguf", &format!("{}  m", "g".repeat(64))] {
            assert_eq!(name_in(line), None, "{line}");
        }
        assert_eq!(parse(format!("{}  m", DIGEST.to_uppercase()).as_bytes()).unwrap().0[1], 0x11);
    }

    #[test]
    fn a_list_is_read_whole_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("SHA256SUMS");
        let read = |text: String| {
            std::fs::write(&file, text).unwrap();
            List::read(&file)
        };
        let list = read(format!("# made by hand\n{DIGEST}  a\n{DIGEST} *sub/b\n")).unwrap();
        assert!(
            list.digest_of(b"a").is_some()
                && list.digest_of(b"b").is_some()
                && list.digest_of(b"c").is_none()
        );
        let other = "1".repeat(64);
        let text = read(format!("{DIGEST}  a\n{other}  a\n")).unwrap_err().to_string();
        assert!(text.contains("two different digests for a"), "{text}");
        assert!(read("nothing here\n".into()).unwrap_err().to_string().contains("no line"));
        assert!(List::read(&dir.path().join("none")).is_err());
    }
}
