//! What is mounted where, from `/proc/self/mountinfo`: works for dead mounts as well, which no
//! `stat` can look at.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `major:minor` of the mounted file system.
    pub(crate) device: String,
    pub(crate) point: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: OsString,
    /// Of a FUSE mount the user who made it: nobody else but root may end it.
    pub(crate) owner: Option<u32>,
}

impl Mount {
    /// Whether it is one of ours. Without a subtype only the source's name tells.
    pub(crate) fn is_weightfs(&self) -> bool {
        self.kind == "fuse.weightfs"
            || (self.kind == "fuse" && self.source.as_bytes().starts_with(b"weightfs"))
    }
}

/// All mounts that this process sees, lower ones first.
pub(crate) fn all() -> io::Result<Vec<Mount>> {
    Ok(std::fs::read("/proc/self/mountinfo")?.split(|&b| b == b'\n').filter_map(parse).collect())
}

/// The topmost mount on exactly `point`, an absolute path without symlinks.
pub(crate) fn top_at(point: &Path) -> io::Result<Option<Mount>> {
    Ok(all()?.into_iter().rfind(|mount| mount.point == point))
}

/// The mount of ours that `path`, absolute and without symlinks, lies in or on: the deepest.
pub(crate) fn ours_over(path: &Path) -> io::Result<Option<Mount>> {
    let all = all()?;
    for above in path.ancestors() {
        if let Some(top) = all.iter().rfind(|mount| mount.point == above) {
            return Ok(Some(top.clone()).filter(Mount::is_weightfs));
        }
    }
    Ok(None)
}

/// `36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw`, see proc_pid_mountinfo(5).
fn parse(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&b| b == b' ');
    let device = String::from_utf8(words.nth(2)?.to_vec()).ok()?;
    let point = unescape(words.nth(1)?);
    words.find(|word| *word == b"-")?;
    let kind = String::from_utf8_lossy(&unescape(words.next()?)).into_owned();
    let source = OsString::from_vec(unescape(words.next()?));
    let owner = words.next().and_then(owner);
    Some(Mount { device, point: OsString::from_vec(point).into(), kind, source, owner })
}

/// `user_id=1000` among the options of the file system.
fn owner(options: &[u8]) -> Option<u32> {
    let id = options.split(|&b| b == b',').find_map(|word| word.strip_prefix(b"user_id="))?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// The kernel writes space, tab, newline, backslash (and `#`) as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let octal = match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes() {
        let line = br"36 35 0:52 / /mnt/my\040model\134x rw,nosuid shared:1 master:2 - fuse.weightfs a\011b.gguf rw";
        let mount = parse(line).unwrap();
        assert_eq!(mount.device, "0:52");
        assert_eq!(mount.point, Path::new(r"/mnt/my model\x"));
        assert_eq!(mount.source, "a\tb.gguf");
        assert!(mount.is_weightfs());
    }

    #[test]
    fn only_our_mounts_are_ours() {
        for (kind, source, ours) in [
            ("fuse.weightfs", "/m.gguf", true),
            ("fuse", "weightfs", true),
            ("fuse", "/m.gguf", false),
            ("fuse.sshfs", "weightfs", false),
            ("ext4", "weightfs", false),
        ] {
            let line = format!("1 1 0:1 / /m rw - {kind} {source} rw");
            assert_eq!(parse(line.as_bytes()).unwrap().is_weightfs(), ours, "{line}");
        }
    }

    #[test]
    fn the_owner_is_told_where_there_is_one() {
        for (options, owner) in [
            ("ro,user_id=1000,group_id=1000", Some(1000)),
            ("ro,user_id=0", Some(0)),
            ("ro,user_id=x", None),
            ("ro", None),
            ("", None),
        ] {
            let line = format!("1 1 0:1 / /m rw - fuse.weightfs m {options}");
            assert_eq!(parse(line.as_bytes()).unwrap().owner, owner, "{line}");
        }
    }

    #[test]
    fn a_broken_line_is_skipped() {
        for line in ["", "1 2 3", "1 1 0:1 / /m rw"] {
            assert_eq!(parse(line.as_bytes()), None);
        }
    }

    #[test]
    fn a_lone_backslash_stays() {
        assert_eq!(unescape(br"a\9b\0"), br"a\9b\0");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(top_at(Path::new("/")).unwrap().is_some());
    }
}
