//! The program as people and scripts meet it: exit codes, messages, pipes, mounts that come, stay
//! and go. Mounting needs /dev/fuse; WEIGHTFS_SKIP_MOUNT_TESTS=1 skips those tests, aloud.
#![allow(clippy::unwrap_used)]

mod mounting;
mod parts;
mod reading;
mod sealing;
mod words;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WEIGHTFS: &str = env!("CARGO_BIN_EXE_weightfs");

/// A directory with a model, a home of its own, and nothing mounted below it when it goes.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        fs::write(place.path("m.gguf"), gguf(&[("a.weight", 70_000), ("b", 3)])).unwrap();
        fs::create_dir(place.path("mnt")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(WEIGHTFS);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("HOME", self.path("home"))
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Said {
        Said::from(self.command(args).output().unwrap())
    }

    /// The process that keeps `mnt`: its command line is the one that was typed.
    fn daemon(&self) -> Option<u32> {
        let me = std::process::id();
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let words = fs::read(entry.path().join("cmdline")).ok()?;
            let ours = words.starts_with(WEIGHTFS.as_bytes()) && pid != me;
            let cwd_or_log = fs::read(entry.path().join("environ")).ok()?;
            let home = format!("HOME={}", self.path("home").display());
            (ours && cwd_or_log.split(|&b| b == 0).any(|var| var == home.as_bytes())).then_some(pid)
        })
    }

    fn is_mounted(&self) -> bool {
        mounted_at(&self.path("mnt"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mnt = self.path("mnt");
        while mounted_at(&mnt) {
            if !Command::new("umount").arg("-l").arg(&mnt).status().is_ok_and(|s| s.success()) {
                break;
            }
        }
    }
}

fn mounted_at(point: &Path) -> bool {
    let point = format!(" {} ", point.display());
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|line| line.contains(&point))
}

/// What a command said and how it ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    /// It failed with `code` and said why, as it should: by its name, in at most four lines.
    fn failed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.starts_with("weightfs: "), "{self:?}");
        assert!(self.err.lines().count() <= 4, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in {self:?}");
        }
    }

    fn done(&self) -> &Said {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }
}

/// A GGUF with I8 tensors of the given lengths, each byte its position modulo 251.
fn gguf(tensors: &[(&str, u64)]) -> Vec<u8> {
    fn string(file: &mut Vec<u8>, text: &str) {
        file.extend_from_slice(&(text.len() as u64).to_le_bytes());
        file.extend_from_slice(text.as_bytes());
    }
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend_from_slice(&(tensors.len() as u64).to_le_bytes());
    file.extend_from_slice(&1u64.to_le_bytes());
    string(&mut file, "general.architecture");
    file.extend_from_slice(&8u32.to_le_bytes());
    string(&mut file, "llama");
    let mut offset = 0u64;
    for (name, len) in tensors {
        string(&mut file, name);
        file.extend_from_slice(&1u32.to_le_bytes());
        file.extend_from_slice(&len.to_le_bytes());
        file.extend_from_slice(&24u32.to_le_bytes());
        file.extend_from_slice(&offset.to_le_bytes());
        offset += len.next_multiple_of(32);
    }
    for (_, len) in tensors {
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend((0..*len).map(|i| (i % 251) as u8));
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file
}

fn values(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < limit, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !matches!(stat.rsplit(") ").next().unwrap_or("Z").as_bytes()[0], b'Z' | b'X')
    })
}

/// Whether mounts can be tested; if not, only because that was asked for.
fn mounts() -> bool {
    let skip = std::env::var_os("WEIGHTFS_SKIP_MOUNT_TESTS").is_some_and(|v| v == "1");
    if skip {
        eprintln!("SKIPPED: WEIGHTFS_SKIP_MOUNT_TESTS=1");
    }
    !skip
}
