//! What makes an open file still the file that was opened (contract section 5).

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Seconds and nanoseconds, as `stat` gives them.
pub type Timestamp = (i64, i64);

/// The fields of `stat` that tell one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device the file lies on.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last modification of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Number of hard links.
    pub nlink: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
}

impl Identity {
    /// Takes the fields from what the system said.
    pub(super) fn of(about: &Metadata) -> Identity {
        Identity {
            dev: about.dev(),
            ino: about.ino(),
            size: about.size(),
            mtime: (about.mtime(), about.mtime_nsec()),
            ctime: (about.ctime(), about.ctime_nsec()),
            nlink: about.nlink(),
            mode: about.mode(),
            uid: about.uid(),
            gid: about.gid(),
        }
    }

    /// One `fstat`.
    pub(super) fn now(file: &File) -> io::Result<Identity> {
        Ok(Identity::of(&file.metadata()?))
    }

    /// What tells without any doubt that the content is another one `now`, in words.
    pub(super) fn rewritten(&self, now: &Identity) -> Option<String> {
        if now.size != self.size {
            return Some(format!("size was {} bytes, is {}", self.size, now.size));
        }
        let (was, is) = (timestamp(self.mtime), timestamp(now.mtime));
        (now.mtime != self.mtime).then(|| format!("modification time was {was}, is {is}"))
    }

    /// The change time as one number, for an atomic. Wraps after 292 years, which
    /// equality does not mind.
    pub(super) fn ctime_nanos(&self) -> i64 {
        self.ctime.0.wrapping_mul(1_000_000_000).wrapping_add(self.ctime.1)
    }
}

/// Where the names of an open file lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// Device and inode found under the path it was opened by; `None` when nothing is there.
    path: Option<(u64, u64)>,
    /// The kernel's own idea of the file's name, so that a second rename is seen as one.
    kernel: Option<PathBuf>,
}

impl Names {
    pub(super) fn look(path: &Path, file: &File) -> Names {
        Names {
            path: std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino())),
            kernel: std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok(),
        }
    }
}

/// What is known to be harmless, and where the file stood then.
#[derive(Debug)]
pub(super) struct Baseline {
    pub(super) identity: Identity,
    pub(super) names: Names,
    pub(super) notes: Vec<String>,
}

/// What a new look at a file means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it was.
    Same,
    /// Its content is no longer what was opened; in words.
    Changed(String),
    /// Only ctime moved and nothing explains it. Content changed, or a rename is half done.
    Unexplained,
    /// Something about it changed that leaves its content alone; in words.
    Harmless(Vec<String>),
}

impl Baseline {
    /// Judges `now` and `names` against the baseline: the ESTALE row of contract section 5.
    pub(super) fn judge(&self, now: &Identity, names: &Names) -> Verdict {
        let old = &self.identity;
        if let Some(what) = old.rewritten(now) {
            return Verdict::Changed(what);
        }
        if now.ctime == old.ctime {
            return Verdict::Same;
        }
        let mut what = Vec::new();
        if now.nlink != old.nlink {
            what.push(if now.nlink == 0 {
                "unlinked".to_owned()
            } else {
                format!("number of links was {}, is {}", old.nlink, now.nlink)
            });
        }
        if now.mode != old.mode {
            what.push(format!("mode was {:04o}, is {:04o}", old.mode & 0o7777, now.mode & 0o7777));
        }
        if (now.uid, now.gid) != (old.uid, old.gid) {
            what.push(format!("owner was {}:{}, is {}:{}", old.uid, old.gid, now.uid, now.gid));
        }
        if *names != self.names {
            match names.path {
                Some(there) if there == (now.dev, now.ino) => {
                    what.push("renamed, its path leads to it again".to_owned());
                }
                Some(_) => what.push("replaced: its path leads to another file".to_owned()),
                None if now.nlink > 0 => what.push("renamed: its path leads nowhere".to_owned()),
                None => {}
            }
            if what.is_empty() {
                what.push("renamed".to_owned());
            }
        }
        if what.is_empty() { Verdict::Unexplained } else { Verdict::Harmless(what) }
    }
}

/// `seconds.nanoseconds`, as a seal writes it.
pub fn timestamp((seconds, nanos): Timestamp) -> String {
    format!("{seconds}.{nanos:09}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        Baseline {
            identity: Identity {
                dev: 1,
                ino: 2,
                size: 100,
                mtime: (5, 6),
                ctime: (7, 8),
                nlink: 1,
                mode: 0o100_644,
                uid: 10,
                gid: 11,
            },
            names: Names { path: Some((1, 2)), kernel: Some("/a".into()) },
            notes: Vec::new(),
        }
    }

    fn judged(change: impl Fn(&mut Identity, &mut Names)) -> Verdict {
        let base = baseline();
        let (mut now, mut names) = (base.identity, base.names.clone());
        change(&mut now, &mut names);
        base.judge(&now, &names)
    }

    #[test]
    fn the_estale_row() {
        assert_eq!(judged(|_, _| {}), Verdict::Same);
        assert_eq!(
            judged(|i, _| i.size = 99),
            Verdict::Changed("size was 100 bytes, is 99".into())
        );
        assert_eq!(
            judged(|i, _| i.mtime.1 = 7),
            Verdict::Changed("modification time was 5.000000006, is 5.000000007".into())
        );
        assert_eq!(judged(|i, _| i.ctime.1 = 9), Verdict::Unexplained);
        // A changed size stays a change even if something harmless happened as well.
        assert!(matches!(
            judged(|i, n| {
                i.size = 1;
                i.ctime.0 = 9;
                i.nlink = 0;
                n.path = None;
            }),
            Verdict::Changed(_)
        ));
    }

    #[test]
    fn harmless_changes_are_named() {
        let harmless = |change: &dyn Fn(&mut Identity, &mut Names)| match judged(|i, n| {
            i.ctime.0 += 1;
            change(i, n);
        }) {
            Verdict::Harmless(what) => what.join("; "),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            harmless(&|i, n| {
                i.nlink = 0;
                n.path = None;
            }),
            "unlinked"
        );
        assert_eq!(harmless(&|i, _| i.nlink = 2), "number of links was 1, is 2");
        assert_eq!(harmless(&|i, _| i.mode = 0o100_600), "mode was 0644, is 0600");
        assert_eq!(harmless(&|i, _| i.uid = 0), "owner was 10:11, is 0:11");
        assert_eq!(harmless(&|_, n| n.path = None), "renamed: its path leads nowhere");
        assert_eq!(
            harmless(&|_, n| n.path = Some((1, 3))),
            "replaced: its path leads to another file"
        );
        // Renamed a second time: the path led nowhere before and does now.
        assert_eq!(
            harmless(&|_, n| n.kernel = Some("/c".into())),
            "renamed, its path leads to it again"
        );
    }
}
