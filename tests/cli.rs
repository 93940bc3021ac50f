//! The program as people and scripts meet it: exit codes, messages, pipes, mounts that come, stay
//! and go. Mounting needs /dev/fuse; WEIGHTFS_SKIP_MOUNT_TESTS=1 skips those tests, aloud.
#![allow(clippy::unwrap_used)]

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
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::write(
            place.path("m.gguf"),
            gguf(&[("a.weight", 70_000), ("b", 3)]),
        )
        .unwrap();
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
            (ours
                && cwd_or_log
                    .split(|&b| b == 0)
                    .any(|var| var == home.as_bytes()))
            .then_some(pid)
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
            if !Command::new("umount")
                .arg("-l")
                .arg(&mnt)
                .status()
                .is_ok_and(|s| s.success())
            {
                break;
            }
        }
    }
}

fn mounted_at(point: &Path) -> bool {
    let point = format!(" {} ", point.display());
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .any(|line| line.contains(&point))
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
    assert!(
        Command::new("kill")
            .args([signal, &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !matches!(
            stat.rsplit(") ").next().unwrap_or("Z").as_bytes()[0],
            b'Z' | b'X'
        )
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

mod words {
    use super::*;

    #[test]
    fn usage_errors_end_with_2() {
        let place = Place::new();
        for (args, word) in [
            (&[][..], "MODEL"),
            (&["ls"], "MODEL"),
            (&["m.gguf"], "MOUNTPOINT"),
            (&["ls", "m.gguf", "--frob"], "--frob"),
            (&["m.gguf", "mnt", "-o", "frob"], "frob"),
            (&["m.gguf", "mnt", "-o", "verify=perhaps"], "perhaps"),
            (&["m.gguf", "mnt", "--set", "split.count=3"], "split.count"),
            (&["m.gguf", "mnt", "--ready-fd", "0"], "0"),
            (&["cat", "m.gguf", "b", "--as", "q4"], "q4"),
            (&["seal", "m.gguf", "--chunk-size", "3KiB"], "power of two"),
            (&["seal", "m.gguf", "m.gguf", "--output", "x"], "--output"),
            (&["verify", "m.gguf", "--expect-sha256", "00"], "64"),
            (&["completions", "tcsh"], "tcsh"),
        ] {
            place.run(args).failed(2, &[word]);
        }
    }

    #[test]
    fn help_and_version_go_to_stdout() {
        let place = Place::new();
        let version = place.run(&["--version"]);
        assert_eq!(
            version.done().out,
            format!("weightfs {}\n", env!("CARGO_PKG_VERSION"))
        );
        assert!(
            place
                .run(&["--help"])
                .done()
                .out
                .contains("weightfs MODEL MOUNTPOINT")
        );
        for command in [
            "mount",
            "umount",
            "ls",
            "info",
            "cat",
            "seal",
            "verify",
            "map",
            "status",
            "completions",
        ] {
            let help = place.run(&[command, "--help"]);
            assert!(help.done().out.contains("Usage: weightfs"), "{help:?}");
            assert_eq!(help.err, "");
        }
    }

    #[test]
    fn completions_are_scripts() {
        let place = Place::new();
        for (shell, part) in [
            ("bash", "complete -F"),
            ("zsh", "#compdef weightfs"),
            ("fish", "complete -c weightfs"),
        ] {
            let said = place.run(&["completions", shell]);
            assert!(said.done().out.contains(part), "{shell}");
        }
        let mut bash = Command::new("bash")
            .arg("-n")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let script = place.run(&["completions", "bash"]).out;
        bash.stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        assert!(bash.wait().unwrap().success());
    }

    #[test]
    fn what_is_not_there_is_named() {
        let place = Place::new();
        place.run(&["ls", "none.gguf"]).failed(1, &["none.gguf"]);
        place.run(&["none.gguf", "mnt"]).failed(1, &["none.gguf"]);
        place
            .run(&["m.gguf", "nowhere"])
            .failed(1, &["nowhere", "mkdir"]);
        place
            .run(&["m.gguf", "m.gguf"])
            .failed(1, &["m.gguf", "directory"]);
        place
            .run(&["umount", "mnt"])
            .failed(1, &["mnt", "nothing is mounted"]);
        place
            .run(&["umount", "/proc"])
            .failed(1, &["/proc", "not a weightfs mount"]);
        place
            .run(&["status", "mnt"])
            .failed(1, &["mnt", "no model is mounted"]);
        place
            .run(&["m.gguf", "mnt", "-o", "log=/proc/none/x"])
            .failed(1, &["/proc/none/x"]);
        assert!(!place.is_mounted());
    }

    #[test]
    fn a_mount_point_above_the_model_is_refused() {
        let place = Place::new();
        place
            .run(&["m.gguf", "."])
            .failed(1, &["m.gguf", "mount would hide"]);
        std::os::unix::fs::symlink(place.path("m.gguf"), place.path("mnt/link.gguf")).unwrap();
        place
            .run(&["mnt/link.gguf", "mnt"])
            .failed(1, &["link.gguf", "mount would hide"]);
        assert!(!place.is_mounted());
    }
}

mod reading {
    use super::*;

    #[test]
    fn ls_lines_up_and_adds_up() {
        let place = Place::new();
        let said = place.run(&["ls", "m.gguf"]);
        let lines: Vec<_> = said.done().out.lines().collect();
        assert_eq!(
            lines,
            [
                "NAME      DTYPE  SHAPE        SIZE",
                "a.weight  I8     [70000]  68.4 KiB",
                "b         I8     [3]           3 B",
                "2 tensors, 70.0 k parameters, 68.4 KiB",
            ]
        );
    }

    #[test]
    fn info_shows_a_portrait() {
        let place = Place::new();
        let said = place.run(&["info", "m.gguf"]);
        for part in [
            "m.gguf",
            "GGUF version 3, little-endian",
            "llama",
            "70003",
            "I8",
            "100.0 %",
            "general.architecture",
        ] {
            assert!(
                said.done().out.contains(part),
                "no {part:?} in {}",
                said.out
            );
        }
        assert!(!said.out.contains('\x1b'));
    }

    #[test]
    fn json_is_one_document_and_ends_its_line() {
        let place = Place::new();
        for args in [
            &["ls", "m.gguf", "--json"][..],
            &["info", "m.gguf", "--json"],
            &["map", "m.gguf", "--json"],
        ] {
            let said = place.run(args);
            assert!(said.done().out.ends_with("}\n"), "{said:?}");
            serde_json::from_str::<serde_json::Value>(&said.out).unwrap();
        }
    }

    #[test]
    fn cat_writes_the_bytes_by_either_name() {
        let place = Place::new();
        for name in ["a.weight", "a.weight.bin", "tensors/a.weight.bin"] {
            let output = place.command(&["cat", "m.gguf", name]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            assert_eq!(output.stdout, values(70_000));
        }
        let npy = place
            .command(&["cat", "m.gguf", "b", "--as", "npy"])
            .output()
            .unwrap();
        assert!(npy.stdout.starts_with(b"\x93NUMPY") && npy.stdout.ends_with(&values(3)));
        place
            .run(&["cat", "m.gguf", "a.wieght"])
            .failed(1, &["a.wieght", "did you mean a.weight?"]);
    }

    #[test]
    fn a_reader_that_leaves_is_no_error() {
        let place = Place::new();
        fs::write(place.path("big.gguf"), gguf(&[("x", 8 << 20)])).unwrap();
        for args in [
            &["cat", "big.gguf", "x"][..],
            &["completions", "bash"],
            &["mount", "--help"],
        ] {
            let mut child = place
                .command(args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            drop(child.stdout.take());
            let output = child.wait_with_output().unwrap();
            assert_eq!(
                (output.status.code(), output.stderr.as_slice()),
                (Some(0), &b""[..]),
                "{args:?}"
            );
        }
    }

    #[test]
    fn names_from_a_file_never_reach_the_terminal_raw() {
        let place = Place::new();
        fs::write(place.path("evil.gguf"), gguf(&[("\x1b[2Jx\u{202e}", 1)])).unwrap();
        let said = place.run(&["ls", "evil.gguf"]);
        assert!(said.done().out.contains("\\x1b[2Jx\\u{202e}"), "{said:?}");
        let said = place.run(&["cat", "evil.gguf", "\x1b[2Jy"]);
        said.failed(1, &["\\x1b[2Jy"]);
        assert!(!said.err.contains('\x1b'));
    }
}

mod mounting {
    use super::*;

    fn mounted(place: &Place, more: &[&str]) -> u32 {
        let args = [&["m.gguf", "mnt"], more].concat();
        place.run(&args).done();
        assert!(place.is_mounted());
        assert_eq!(
            fs::read(place.path("mnt/tensors/a.weight.bin")).unwrap(),
            values(70_000)
        );
        place.daemon().expect("the daemon keeps its command line")
    }

    fn gone(place: &Place, daemon: u32) {
        wait_until("the end of the mount", || !place.is_mounted());
        wait_until("the end of the daemon", || !is_alive(daemon));
    }

    #[test]
    fn comes_to_the_background_and_goes_with_umount() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        let daemon = mounted(&place, &["-o", "rw,nosuid,nodev"]);
        let link = |name: &str| fs::read_link(format!("/proc/{daemon}/{name}")).unwrap();
        assert_eq!(link("cwd"), Path::new("/"));
        for fd in ["fd/0", "fd/1", "fd/2"] {
            assert_eq!(link(fd), Path::new("/dev/null"));
        }
        let status: serde_json::Value =
            serde_json::from_str(&place.run(&["status", "mnt", "--json"]).done().out).unwrap();
        let log = status["log"].as_str().unwrap();
        assert!(
            log.starts_with(place.path("home/.local/state/weightfs").to_str().unwrap()),
            "{log}"
        );
        assert!(fs::read_to_string(log).unwrap().contains("mounted on"));
        assert!(
            place
                .run(&["status", "mnt"])
                .done()
                .out
                .contains("unverified")
        );
        place.run(&["m.gguf", "mnt"]).failed(1, &["mnt", "already"]);
        place.run(&["umount", "mnt"]).done();
        gone(&place, daemon);
    }

    #[test]
    fn signals_unmount() {
        if !mounts() {
            return;
        }
        for signal in ["-INT", "-TERM", "-HUP"] {
            let place = Place::new();
            let daemon = mounted(&place, &[]);
            kill(daemon, signal);
            gone(&place, daemon);
        }
    }

    #[test]
    fn a_signal_lets_open_files_finish() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        let daemon = mounted(&place, &[]);
        let mut file = fs::File::open(place.path("mnt/tensors/a.weight.bin")).unwrap();
        kill(daemon, "-TERM");
        wait_until("the end of the mount", || !place.is_mounted());
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(read, values(70_000));
        assert!(is_alive(daemon));
        drop(file);
        gone(&place, daemon);
    }

    #[test]
    fn a_second_signal_does_not_wait() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        let daemon = mounted(&place, &[]);
        let _file = fs::File::open(place.path("mnt/tensors/a.weight.bin")).unwrap();
        kill(daemon, "-TERM");
        wait_until("the end of the mount", || !place.is_mounted());
        kill(daemon, "-TERM");
        gone(&place, daemon);
    }

    #[test]
    fn busy_is_said_and_lazy_helps() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        let daemon = mounted(&place, &[]);
        let file = fs::File::open(place.path("mnt/model.json")).unwrap();
        place.run(&["umount", "mnt"]).failed(1, &["mnt", "--lazy"]);
        place.run(&["umount", "--lazy", "mnt"]).done();
        assert!(!place.is_mounted());
        drop(file);
        gone(&place, daemon);
    }

    #[test]
    fn a_dead_mount_is_cleared_and_mounted_over() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        kill(mounted(&place, &[]), "-KILL");
        wait_until("a dead mount", || fs::read_dir(place.path("mnt")).is_err());
        place
            .run(&["status", "mnt"])
            .failed(1, &["weightfs umount"]);
        let daemon = mounted(&place, &[]);
        kill(daemon, "-KILL");
        wait_until("a dead mount", || fs::read_dir(place.path("mnt")).is_err());
        place.run(&["umount", "mnt"]).done();
        assert!(!place.is_mounted());
    }

    #[test]
    fn auto_unmount_outlives_the_daemon() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        let daemon = mounted(&place, &["-o", "auto_unmount"]);
        kill(daemon, "-KILL");
        gone(&place, daemon);
    }

    #[test]
    fn an_idle_mount_leaves() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        let daemon = mounted(&place, &["-o", "idle=1"]);
        gone(&place, daemon);
    }

    #[test]
    fn needs_no_path_and_no_home() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        let mut command = place.command(&["m.gguf", "mnt", "-o", "rw,dev,suid"]);
        command.env_clear().env("TMPDIR", place.path(""));
        Said::from(command.output().unwrap()).done();
        assert!(place.is_mounted());
        place.run(&["umount", "mnt"]).done();
    }

    #[test]
    fn the_foreground_tells_when_it_is_ready() {
        if !mounts() {
            return;
        }
        let place = Place::new();
        let socket = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let ready = place.path("ready");
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!(
                "exec '{WEIGHTFS}' -f m.gguf mnt --ready-fd 7 7>'{}'",
                ready.display()
            ))
            .current_dir(place.dir.path())
            .env("HOME", place.path("home"))
            .env("NOTIFY_SOCKET", place.path("notify"))
            .stderr(Stdio::piped());
        command.process_group(0);
        let child = Foreground(command.spawn().unwrap());
        let mut message = [0; 256];
        let n = socket.recv(&mut message).unwrap();
        let message = String::from_utf8_lossy(&message[..n]).into_owned();
        assert!(
            message.contains("READY=1") && message.contains(&format!("MAINPID={}", child.0.id())),
            "{message}"
        );
        wait_until("the line on descriptor 7", || {
            fs::read(&ready).unwrap() == b"READY=1\n"
        });
        assert!(place.is_mounted());
        kill(child.0.id(), "-INT");
        let mut child = child;
        assert_eq!(child.0.wait().unwrap().code(), Some(0));
        assert!(!place.is_mounted());
    }

    /// Killed when a test fails, lest it outlives the test.
    struct Foreground(Child);

    impl Drop for Foreground {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn without_the_device_the_cure_is_named() {
        if !mounts() || !is_root() {
            return;
        }
        let place = Place::new();
        let script = format!("mount -t tmpfs none /dev && exec '{WEIGHTFS}' m.gguf mnt");
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .current_dir(place.dir.path())
            .env("HOME", place.path("home"))
            .output()
            .unwrap();
        Said::from(output).failed(1, &["/dev/fuse", "--device /dev/fuse", "SYS_ADMIN"]);
    }

    #[test]
    fn without_the_right_to_mount_the_cure_is_named() {
        if !mounts() || !is_root() {
            return;
        }
        let place = Place::new();
        // Root without CAP_SYS_ADMIN, as in a container; fusermount3 is set-user-id root but gains nothing.
        let output = Command::new("setpriv")
            .args([
                "--bounding-set=-sys_admin",
                "--inh-caps=-sys_admin",
                "--no-new-privs",
                WEIGHTFS,
            ])
            .args([OsStr::new("m.gguf"), OsStr::new("mnt")])
            .current_dir(place.dir.path())
            .env("HOME", place.path("home"))
            .output()
            .unwrap();
        Said::from(output).failed(1, &["--cap-add SYS_ADMIN"]);
        assert!(!place.is_mounted());
    }

    fn is_root() -> bool {
        fs::read_to_string("/proc/self/status")
            .unwrap()
            .contains("\nUid:\t0\t0\t")
    }
}
