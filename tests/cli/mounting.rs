//! Mounts that come, stay and go.

use super::*;

fn mounted(place: &Place, more: &[&str]) -> u32 {
    let args = [&["m.gguf", "mnt"], more].concat();
    place.run(&args).done();
    assert!(place.is_mounted());
    assert_eq!(fs::read(place.path("mnt/tensors/a.weight.bin")).unwrap(), values(70_000));
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
    assert!(log.starts_with(place.path("home/.local/state/weightfs").to_str().unwrap()), "{log}");
    assert!(fs::read_to_string(log).unwrap().contains("mounted on"));
    assert!(place.run(&["status", "mnt"]).done().out.contains("unverified"));
    place.run(&["m.gguf", "mnt"]).failed(1, &["mnt", "already"]);
    place.run(&["umount", "mnt"]).done();
    gone(&place, daemon);
}

#[test]
fn a_daemon_keeps_nothing_of_the_shell_it_came_from() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let output = Command::new("sh")
        .args(["-c", &format!("'{WEIGHTFS}' m.gguf mnt 9>held")])
        .current_dir(place.dir.path())
        .env("HOME", place.path("home"))
        .output()
        .unwrap();
    Said::from(output).done();
    let daemon = place.daemon().unwrap();
    let held = place.path("held");
    let open = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().flatten();
    assert!(open.filter_map(|fd| fs::read_link(fd.path()).ok()).all(|file| file != held));
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
    place.run(&["status", "mnt"]).failed(1, &["weightfs umount"]);
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
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let ready = place.path("ready");
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("exec '{WEIGHTFS}' -f m.gguf mnt --ready-fd 7 7>'{}'", ready.display()))
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
    wait_until("the line on descriptor 7", || fs::read(&ready).unwrap() == b"READY=1\n");
    assert!(place.is_mounted());
    kill(child.0.id(), "-INT");
    let mut child = child;
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    assert!(!place.is_mounted());
}

#[test]
fn damage_that_is_served_is_served_loudly() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    place.run(&["seal", "m.gguf"]).done();
    let mut bytes = fs::read(place.path("m.gguf")).unwrap();
    let at = bytes.windows(64).position(|w| *w == values(64)[..]).unwrap() + 9;
    bytes[at] ^= 1;
    fs::write(place.path("m.gguf"), bytes).unwrap();
    let said = place.run(&["m.gguf", "mnt", "-o", "on_corruption=log"]);
    assert!(said.done().err.contains("DAMAGED BYTES ARE SERVED"), "{said:?}");
    let served = fs::read(place.path("mnt/tensors/a.weight.bin")).unwrap();
    assert_eq!((served.len(), served[9]), (70_000, 8));
    let model: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path("mnt/model.json")).unwrap()).unwrap();
    assert!(model["warnings"][0].as_str().unwrap().contains("on_corruption=log"), "{model}");
    let log = fs::read_dir(place.path("home/.local/state/weightfs")).unwrap().next().unwrap();
    let log = fs::read_to_string(log.unwrap().path()).unwrap();
    assert!(log.contains("error DAMAGED BYTES ARE SERVED (on_corruption=log): "), "{log}");
    let status = place.run(&["status", "mnt"]);
    assert!(status.done().out.contains("1 mismatch, 4 retries"), "{status:?}");
    place.run(&["umount", "mnt"]).done();
}

#[test]
fn a_seal_that_is_ignored_is_not_called_missing() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    place.run(&["seal", "m.gguf"]).done();
    let said = place.run(&["m.gguf", "mnt", "-o", "seal=none"]);
    assert!(said.done().err.contains("its seal is ignored"), "{said:?}");
    assert!(!said.err.contains("not sealed"), "{said:?}");
    place.run(&["umount", "mnt"]).done();
}

#[test]
fn a_refused_mount_names_the_model_and_leaves_no_log() {
    let place = Place::new();
    let refused = place.run(&["m.gguf", "mnt", "--set", "a.json=\"x\"", "--set", "a=1"]);
    refused.failed(1, &["m.gguf", "metadata/a.json"]);
    place.run(&["none.gguf", "mnt"]).failed(1, &["none.gguf"]);
    place.run(&["m.gguf", "mnt", "-o", "seal=require,log=own.log"]).failed(4, &["seal=require"]);
    let logs = fs::read_dir(place.path("home/.local/state/weightfs")).unwrap();
    assert_eq!(logs.count(), 0);
    assert!(!place.path("own.log").exists() && !place.is_mounted());
}

#[test]
fn the_foreground_says_each_warning_once() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let command = &mut place.command(&["-f", "m.gguf", "mnt", "-o", "verify=off"]);
    let mut child = Foreground(command.stderr(Stdio::piped()).spawn().unwrap());
    wait_until("the mount", || place.is_mounted());
    place.run(&["umount", "mnt"]).done();
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    assert_eq!(said.matches("nothing is checked").count(), 1, "{said}");
}

#[test]
fn status_says_what_changed() {
    if !mounts() {
        return;
    }
    let place = Place::new();
    let daemon = mounted(&place, &[]);
    let mut bytes = fs::read(place.path("m.gguf")).unwrap();
    bytes.push(0);
    fs::write(place.path("m.gguf"), bytes).unwrap();
    assert!(fs::read(place.path("mnt/tensors/b.bin")).is_err());
    let said = place.run(&["status", "mnt"]);
    for part in ["ESTALE", "m.gguf: changed: ", "since 20", "memory "] {
        assert!(said.done().out.contains(part), "no {part:?} in {}", said.out);
    }
    place.run(&["umount", "mnt"]).done();
    gone(&place, daemon);
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
    // Root without CAP_SYS_ADMIN, as in a container; fusermount3 is set-user-id root but gains
    // nothing.
    let output = Command::new("setpriv")
        .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--no-new-privs", WEIGHTFS])
        .args([OsStr::new("m.gguf"), OsStr::new("mnt")])
        .current_dir(place.dir.path())
        .env("HOME", place.path("home"))
        .output()
        .unwrap();
    Said::from(output).failed(1, &["--cap-add SYS_ADMIN"]);
    assert!(!place.is_mounted());
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t0\t")
}
