//! Sources against real files that are changed under them.
#![allow(clippy::unwrap_used)]

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tempfile::TempDir;

const BOTH: [IoMode; 2] = [IoMode::Mmap, IoMode::Pread];

impl Source {
    /// Loses the mapping, as if a page of it could not be had, at a moment of the caller's choice.
    pub(crate) fn loser(&self) -> impl Fn() + Send + Sync + 'static + use<> {
        self.mapping.as_ref().unwrap().loser()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn file(len: usize) -> (TempDir, PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model");
    let bytes = pattern(len);
    std::fs::write(&path, &bytes).unwrap();
    (dir, path, bytes)
}

fn is_changed(result: Result<(), SourceError>) -> bool {
    matches!(result, Err(SourceError::Changed { .. }))
}

/// Overwrites one byte in place and gives the file its old modification time back.
fn modify_keeping_mtime(path: &Path) {
    let open = OpenOptions::new().write(true).open(path).unwrap();
    let mtime = open.metadata().unwrap().modified().unwrap();
    open.write_at(b"!", 1).unwrap();
    open.set_modified(mtime).unwrap();
}

#[test]
fn any_range_equals_the_slice() {
    let (_dir, path, bytes) = file(100_003);
    for io in BOTH {
        let source = Source::open(&path, io).unwrap();
        assert_eq!((source.len(), source.io()), (100_003, io));
        for (from, len) in [(0, 100_003), (1, 5), (4095, 2), (99_999, 4), (100_003, 0)] {
            let mut out = vec![0; len];
            source.read_at(from as u64, &mut out).unwrap();
            assert_eq!(out, bytes[from..from + len]);
            source.reread_at(from as u64, &mut out).unwrap();
            assert_eq!(out, bytes[from..from + len]);
        }
        for (from, len) in [(100_003, 1), (100_000, 4), (u64::MAX, 1), (u64::MAX - 1, 4)] {
            let error = source.read_at(from, &mut vec![0; len]).unwrap_err().to_string();
            assert!(error.contains("past the end, the file has 100003 bytes"), "{error}");
        }
        source.check_unchanged().unwrap();
    }
}

#[test]
fn auto_maps_local_files_and_empty_files_are_not_mapped() {
    let (dir, path, _) = file(10);
    assert_eq!(Source::open(&path, IoMode::Auto).unwrap().io(), IoMode::Mmap);
    let empty = dir.path().join("empty");
    std::fs::write(&empty, b"").unwrap();
    for io in [IoMode::Auto, IoMode::Mmap, IoMode::Pread] {
        let source = Source::open(&empty, io).unwrap();
        assert!(source.is_empty());
        source.read_at(0, &mut []).unwrap();
        assert!(source.read_at(0, &mut [0]).is_err());
        source.check_unchanged().unwrap();
    }
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (path, kind) in [
        (dir.path(), "a directory"),
        (fifo.as_path(), "a named pipe"),
        (Path::new("/dev/zero"), "a character device"),
    ] {
        let error = Source::open(path, IoMode::Auto).unwrap_err().to_string();
        assert_eq!(error, format!("{}: is {kind}, not a regular file", path.display()));
    }
    let error = Source::open(&dir.path().join("none"), IoMode::Auto).unwrap_err().to_string();
    assert!(error.contains("none: open: No such file"), "{error}");
}

#[test]
fn symlinks_are_followed_and_remembered() {
    let (dir, path, bytes) = file(10);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("model", &link).unwrap();
    let source = Source::open(&link, IoMode::Auto).unwrap();
    assert_eq!(source.path(), link);
    assert_eq!(source.file_name(), "link");
    assert_eq!(source.canonical_path(), path.canonicalize().unwrap());
    let mut out = [0; 10];
    source.read_at(0, &mut out).unwrap();
    assert_eq!(out, bytes[..]);
}

#[test]
fn truncation_is_a_change_in_both_modes() {
    for io in BOTH {
        let (_dir, path, bytes) = file(64 << 10);
        let source = Source::open(&path, io).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let mut out = vec![0; 8192];
        assert!(is_changed(source.read_at(8192, &mut out)), "{io:?}");
        assert_eq!(source.io(), IoMode::Pread, "the mapping is not used again");
        // What is still there can be copied; whether it may be served is the check's word.
        source.read_at(0, &mut out[..4096]).unwrap();
        assert_eq!(out[..4096], bytes[..4096]);
        assert!(is_changed(source.check_unchanged()));
        std::fs::write(&path, &bytes).unwrap();
        assert!(is_changed(source.check_unchanged()), "sticky");
        assert!(source.is_changed());
    }
}

#[test]
fn truncation_within_the_last_page_is_seen_by_the_check() {
    for io in BOTH {
        let (_dir, path, _) = file(8192 + 100);
        let source = Source::open(&path, io).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(8192 + 50).unwrap();
        let _ = source.read_at(8192, &mut [0; 100]);
        let error = source.check_unchanged().unwrap_err().to_string();
        assert!(error.contains("size was 8292 bytes, is 8242"), "{error}");
    }
}

#[test]
fn modification_in_place_is_a_change_with_and_without_the_old_mtime() {
    let (_dir, path, bytes) = file(100);
    let source = Source::open(&path, IoMode::Auto).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    modify_keeping_mtime(&path);
    let error = source.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("change time was"), "{error}");

    let source = Source::open(&path, IoMode::Auto).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    std::fs::write(&path, bytes).unwrap();
    let error = source.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("modification time was"), "{error}");
}

#[test]
fn harmless_changes_are_noted_and_a_later_modification_is_still_seen() {
    let (dir, path, bytes) = file(5000);
    let other = dir.path().join("other");
    let step = || std::thread::sleep(Duration::from_millis(10));
    let source = Source::open(&path, IoMode::Mmap).unwrap();

    step();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    source.check_unchanged().unwrap();
    step();
    std::fs::hard_link(&path, &other).unwrap();
    source.check_unchanged().unwrap();
    step();
    std::fs::remove_file(&other).unwrap();
    source.check_unchanged().unwrap();
    step();
    std::fs::rename(&path, &other).unwrap();
    source.check_unchanged().unwrap();
    step();
    let third = dir.path().join("third");
    std::fs::rename(&other, &third).unwrap();
    source.check_unchanged().expect("a second rename is still a rename");
    step();
    let fresh = dir.path().join("fresh");
    std::fs::write(&fresh, b"another file").unwrap();
    std::fs::rename(&third, &path).unwrap();
    source.check_unchanged().unwrap();
    step();
    std::fs::rename(&fresh, &path).unwrap();
    source.check_unchanged().expect("replaced and unlinked");
    let mut out = vec![0; 5000];
    source.read_at(0, &mut out).unwrap();
    assert_eq!(out, bytes, "the old bytes go on");

    let notes = source.notes().join("\n");
    for word in [
        "mode was 0644, is 0600",
        "number of links was 1, is 2",
        "number of links was 2, is 1",
        "its path leads nowhere",
        "leads to it again",
        "unlinked",
        "replaced",
    ] {
        assert!(notes.contains(word), "{word} is not in\n{notes}");
    }

    // The unlinked file is written to by somebody who has it open.
    step();
    modify_keeping_mtime(Path::new(&format!("/proc/self/fd/{}", {
        use std::os::fd::AsRawFd;
        source.file().as_raw_fd()
    })));
    assert!(is_changed(source.check_unchanged()));
}

/// A rename moves the change time a moment before the names: it must never look like a
/// modification, whenever a reader happens to come by.
#[test]
fn renames_under_constant_checks_are_never_taken_for_a_modification() {
    let (dir, path, _) = file(100);
    let source = Source::open(&path, IoMode::Auto).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    source.check_unchanged().unwrap();
                }
            });
        }
        let mut from = path.clone();
        for i in 0..300 {
            let to = dir.path().join(format!("name{i}"));
            std::fs::rename(&from, &to).unwrap();
            from = to;
            std::thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn truncation_under_eight_threads_kills_nobody() {
    for io in BOTH {
        for round in 0..20u64 {
            let (_dir, path, bytes) = file(1 << 20);
            let source = Source::open(&path, io).unwrap();
            let (served, refused) = (AtomicU64::new(0), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for thread in 0..8u64 {
                    let (source, bytes, served, refused) = (&source, &bytes, &served, &refused);
                    scope.spawn(move || {
                        let mut out = vec![0; 20_000];
                        let mut at = thread * 97_003 % 1_000_000;
                        for _ in 0..400 {
                            at = (at + 131_072) % 1_000_000;
                            if source.read_at(at, &mut out).is_ok()
                                && source.check_unchanged().is_ok()
                            {
                                assert_eq!(out, bytes[at as usize..at as usize + 20_000]);
                                served.fetch_add(1, Ordering::Relaxed);
                            } else {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
                std::thread::sleep(Duration::from_micros(200 * round));
                let open = OpenOptions::new().write(true).open(&path).unwrap();
                open.set_len(round * 50_001).unwrap();
            });
            assert!(is_changed(source.check_unchanged()), "{io:?} {round}");
            assert_eq!(served.into_inner() + refused.into_inner(), 3200);
        }
    }
}
