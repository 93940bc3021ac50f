//! A look at a source by who asks how things stand, and must not be kept waiting for an answer.

use super::Source;

impl Source {
    /// Whether the content is known to have changed, after one look at size and modification
    /// time where that asks nobody else: on a local file system that lies on no other. A change
    /// time alone takes longer to judge, and is left to the next read.
    pub fn glance(&self) -> bool {
        if self.near
            && !self.is_changed()
            && let Ok(now) = self.stat()
            && let Some(what) = self.opened.rewritten(&now)
        {
            self.latch(what);
        }
        self.is_changed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::source::{IoMode, Source};
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::path::PathBuf;
    use std::time::SystemTime;

    fn source(io: IoMode) -> (tempfile::TempDir, PathBuf, Source) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        std::fs::write(&path, [7; 5000]).unwrap();
        let mut source = Source::open(&path, io).unwrap();
        // Wherever the tests run.
        source.near = true;
        (dir, path, source)
    }

    #[test]
    fn what_was_written_to_is_seen_without_a_read() {
        for io in [IoMode::Mmap, IoMode::Pread] {
            let (_dir, path, source) = source(io);
            assert!(!source.glance());
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(b"more").unwrap();
            assert!(source.glance() && source.is_changed());
            assert_eq!(source.changed(), Some("size was 5000 bytes, is 5004"));
        }
        let (_dir, path, source) = source(IoMode::Auto);
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(source.glance());
        assert!(source.check_unchanged().is_err());
    }

    #[test]
    fn what_leaves_the_content_alone_is_not() {
        let (dir, path, source) = source(IoMode::Auto);
        std::fs::rename(&path, dir.path().join("n")).unwrap();
        assert!(!source.glance() && source.notes().is_empty());
        source.check_unchanged().unwrap();
    }

    #[test]
    fn a_source_that_may_hang_is_not_asked() {
        let (_dir, path, mut source) = source(IoMode::Auto);
        source.near = false;
        std::fs::write(path, b"short").unwrap();
        assert!(!source.glance());
        assert!(source.check_unchanged().is_err() && source.glance());
    }
}
