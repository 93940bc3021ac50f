"""Mounting, being mounted, unmounting, dying."""

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

import gguf_file
from gguf_file import Gguf, pattern
from mounting import alive, daemons, force_unmount, is_mounted, mounts, shell, wait_until


@pytest.fixture
def tiny(tmp_path):
    return gguf_file.plain().write(tmp_path / "tiny.gguf")


# --- mounting --------------------------------------------------------------------------
def test_mount_returns_when_the_mount_answers(weightfs, mount, tiny):
    point = mount.point()
    weightfs.run(tiny, point)
    assert is_mounted(point)
    assert (point / "model.json").stat().st_size > 0


def test_the_word_mount_may_stand_in_front(mount, tiny):
    assert mount(tiny, command=["mount"]).names() == ["output.weight", "token_embd.weight"]


def test_options_may_stand_anywhere_and_be_repeated(weightfs, mount, tiny):
    point = mount.point()
    weightfs.run("-o", "verify=once,umask=022", tiny, "-o", "io=pread", point, "-o", "ro")
    assert os.stat(point / "model.json").st_mode & 0o777 == 0o444
    assert b'"once"' in (point / "model.json").read_bytes()


def test_relative_paths(weightfs, mount, tiny):
    point = mount.point()
    weightfs.run(tiny.name, point.name, cwd=tiny.parent)
    assert (point / "source/tiny.gguf").read_bytes() == tiny.read_bytes()
    weightfs.run("umount", point.name, cwd=tiny.parent)
    assert not is_mounted(point)


def test_a_model_through_a_relative_link(mount, tiny):
    link = tiny.with_name("link.gguf")
    link.symlink_to("tiny.gguf")
    assert os.listdir(mount(link) / "source") == ["link.gguf"]


def test_the_mount_table(mount, tiny):
    mounted = mount(tiny)
    kind, source, options = mounts()[os.path.realpath(mounted.path)]
    assert kind == "fuse.weightfs"
    assert source != "hf-mount" and source
    assert {"ro", "nosuid", "nodev"} <= set(options.split(","))


def test_fsname_with_a_comma_and_a_backslash(mount, tiny):
    for option, name in (("fsname=plain", "plain"), (r"fsname=a\,b", "a,b"), (r"fsname=a\\b", r"a\134b")):
        point = os.path.realpath(mount(tiny, option).path)
        assert mounts()[point][1] == name


def test_a_value_with_an_escaped_comma(mount, tiny, tmp_path):
    mounted = mount(tiny, f"log={tmp_path}/with\\,comma.log")
    assert (tmp_path / "with,comma.log").exists()
    assert mounted.status["log"] == f"{tmp_path}/with,comma.log"


def test_the_default_log_is_where_status_says(weightfs, mount, tiny):
    point = mount.point()
    weightfs.run(tiny, point)
    log = json.loads((point / ".weightfs/status.json").read_text())["log"]
    assert log.startswith(str(weightfs.home / "state"))
    assert os.path.exists(log)


def test_a_daemon_that_has_no_place_for_a_log_says_so(weightfs, mount, tiny, tmp_path):
    """All places are named, and status does not point at a stderr that leads nowhere."""
    (tmp_path / "file").write_text("")
    nowhere = [str(tmp_path / "file" / name) for name in ("state", "home", "tmp")]
    env = dict(zip(("XDG_STATE_HOME", "HOME", "TMPDIR"), nowhere))
    point = mount.point()
    mount.points.append(point)
    said = weightfs.run(tiny, point, env=env).err
    line = next(line for line in said.splitlines() if "no log" in line)
    assert [place in line for place in nowhere] == [True] * 3, line
    assert json.loads((point / ".weightfs/status.json").read_text())["log"] == "none"
    lines = weightfs.run("status", point).text.splitlines()
    assert ["log", "none"] in [line.split() for line in lines]


WORDS = (
    "ro rw dev nodev suid nosuid exec noexec atime noatime relatime norelatime strictatime nostrictatime diratime nodiratime lazytime nolazytime "
    "iversion noiversion sync async dirsync mand nomand silent loud symfollow nosymfollow default_permissions group nogroup "
    "nofail _netdev defaults auto noauto user nouser users nousers owner noowner x-systemd.automount X-mount.mkdir comment=words max_read=131072"
).split()


@pytest.mark.parametrize("word", WORDS)
def test_words_that_mount_passes_are_accepted(weightfs, mount, tiny, word):
    point = mount.point()
    weightfs.run(tiny, point, "-o", word)
    assert (point / "model.json").exists()
    with pytest.raises(OSError) as failed:
        open(point / "new", "w")
    assert failed.value.errno == errno.EROFS  # whatever they say


def test_subtype(weightfs, mount, tiny):
    point = mount.point()
    weightfs.run(tiny, point, "-o", "subtype=other")
    assert mounts()[os.path.realpath(point)][0] in ("fuse.other", "fuse.weightfs")


def test_mount_points_that_are_none(mount, tiny, tmp_path):
    assert "missing" in mount.refused(tiny, point=tmp_path / "missing")
    (tmp_path / "file").write_text("")
    assert "file" in mount.refused(tiny, point=tmp_path / "file")


def test_a_mount_point_that_holds_the_model_is_refused(mount, tmp_path):
    point = mount.point()
    (point / "deep").mkdir()
    path = gguf_file.plain().write(point / "deep/m.gguf")
    mount.refused(path, point=point)
    assert path.read_bytes() == gguf_file.plain().encode()


def test_a_mount_point_behind_a_link(weightfs, mount, tiny, tmp_path):
    point = mount.point()
    (tmp_path / "link").symlink_to(point)
    weightfs.run(tiny, tmp_path / "link")
    assert is_mounted(point)
    weightfs.run("umount", tmp_path / "link")
    assert not is_mounted(point)


def test_several_mounts_of_one_model(mount, tiny):
    first, second = mount(tiny), mount(tiny, "cache=page")
    first.unmount()
    assert second.bin("output.weight") == gguf_file.plain().data_of("output.weight")


def test_a_mount_of_a_file_in_a_mount(mount, tiny):
    outer = mount(tiny)
    inner = mount(outer / "source/tiny.gguf")
    assert inner.bin("output.weight") == gguf_file.plain().data_of("output.weight")
    inner.unmount()
    outer.unmount()


# --- unmounting ------------------------------------------------------------------------
@pytest.mark.parametrize("command", ['"$1" umount "$2"', 'fusermount3 -u "$2"', 'umount "$2"', '"$1" umount --lazy "$2"'])
def test_each_way_to_unmount(mount, tiny, command):
    if command.startswith("umount") and os.getuid() != 0:
        pytest.skip("umount(8) is for root here")
    mounted = mount(tiny)
    shell(command, mounted.weightfs.binary, mounted.path)
    assert not is_mounted(mounted.path)
    wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")
    assert os.listdir(mounted.path) == []


def test_a_busy_mount_is_unmounted_lazily_only(weightfs, mount, tiny):
    mounted = mount(tiny)
    with open(mounted / "tensors/output.weight.bin", "rb", buffering=0) as file:
        assert str(mounted.path) in weightfs.run("umount", mounted.path, code=1).err
        assert is_mounted(mounted.path)
        weightfs.run("umount", mounted.path, "--lazy")
        assert not is_mounted(mounted.path)
        assert os.pread(file.fileno(), 100, 0) == gguf_file.plain().data_of("output.weight")[:100]
    wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")


def test_umount_of_what_is_not_mounted(weightfs, tmp_path):
    (tmp_path / "plain").mkdir()
    assert str(tmp_path / "plain") in weightfs.run("umount", tmp_path / "plain", code=1).err
    weightfs.run("umount", tmp_path / "missing", code=1)


def test_status_of_what_is_not_mounted(weightfs, tmp_path):
    (tmp_path / "plain").mkdir()
    assert str(tmp_path / "plain") in weightfs.run("status", tmp_path / "plain", code=1).err


def test_status_of_what_is_in_a_mount_and_no_mount(weightfs, mount, tiny):
    mounted = mount(tiny)
    for place in (mounted / "model.json", mounted / "tensors"):
        said = weightfs.run("status", place, code=1).err
        assert f"{place}: is in the mount {mounted.path}, but neither" in said, said


def test_umount_takes_down_only_our_mounts(root, weightfs, tmp_path):
    point = tmp_path / "tmpfs"
    point.mkdir()
    shell('mount -t tmpfs tmpfs "$1"', point)
    try:
        weightfs.run("umount", point, code=1)
        assert is_mounted(point)
    finally:
        shell('umount "$1"', point)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_unmount(mount, tiny, number):
    mounted = mount(tiny)
    os.kill(mounted.pid, number)
    wait_until(lambda: not is_mounted(mounted.path), 5, "the unmount")
    wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_unmount_lazily_when_files_are_open(mount, tiny, number):
    mounted = mount(tiny)
    with open(mounted / "tensors/output.weight.bin", "rb", buffering=0):
        os.kill(mounted.pid, number)
        wait_until(lambda: not is_mounted(mounted.path), 5, "the unmount")
    wait_until(lambda: not alive(mounted.pid), 10, "the end of the daemon")


def keeper_of(pid):
    """The process beside a daemon that unmounts for it."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parent = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and Path("/proc", entry, "cmdline").read_bytes().startswith(b"fuse-auto-unmount"):
                return int(entry)
    raise AssertionError(f"daemon {pid} has no keeper")


@pytest.mark.parametrize("ending", ["umount", "a second signal"])
def test_a_signal_when_the_keeper_was_killed(weightfs, mount, tiny, ending):
    """A confined daemon cannot unmount without it: the mount answers on, and the log says what to do."""
    mounted = mount(tiny)
    keeper = keeper_of(mounted.pid)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not alive(keeper), 5, "the end of the keeper")
    os.kill(mounted.pid, signal.SIGTERM)
    wait_until(lambda: not is_mounted(mounted.path) or "cannot unmount" in mounted.log(), 5, "the unmount, or why not")
    if is_mounted(mounted.path):
        assert "was killed" in mounted.log() and f"fusermount3 -u {mounted.path}" in mounted.log()
        assert mounted.names() and mounted.bin(mounted.names()[0]), "it is served on"
        if ending == "a second signal":
            os.kill(mounted.pid, signal.SIGTERM)
            wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")
            assert "a dead mount stays behind" in mounted.log()
        weightfs.run("umount", mounted.path)
    assert not is_mounted(mounted.path)
    wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")


def test_signals_to_both_processes_while_it_mounts(weightfs, tiny, tmp_path):
    """As pkill sends them: the child gets its own and its parent's. Nothing stays, alive or dead."""
    point = tmp_path / "mnt"
    point.mkdir()
    for turn in range(60):
        command = subprocess.Popen([weightfs.binary, tiny, point], env=weightfs.env, stderr=subprocess.DEVNULL)
        time.sleep(turn * 0.0005)
        children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split() if command.poll() is None else []
        for pid in [command.pid, *map(int, children)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if command.wait(10) == 0:
            weightfs.run("umount", point, code=None)
        wait_until(lambda: not is_mounted(point) and not any(alive(int(child)) for child in children), 5, "the end of both")


def test_unmount_while_being_read(mount, tmp_path):
    path = Gguf().tensor("a", "F32", (4 << 20,), pattern(16 << 20)).write(tmp_path / "m.gguf")
    mounted = mount(path)
    reader = subprocess.Popen(["sh", "-c", 'while cat "$1" >/dev/null; do :; done 2>/dev/null', "sh", mounted / "tensors/a.bin"])
    time.sleep(0.3)
    os.kill(mounted.pid, signal.SIGTERM)
    wait_until(lambda: not is_mounted(mounted.path), 5, "the unmount")
    reader.wait(20)
    wait_until(lambda: not alive(mounted.pid), 10, "the end of the daemon")


def test_idle(mount, tiny):
    mounted = mount(tiny, "idle=1")
    with open(mounted / "tensors/output.weight.bin", "rb"):
        time.sleep(2.5)
        assert is_mounted(mounted.path)
    wait_until(lambda: not is_mounted(mounted.path), 6, "the unmount for being idle")
    wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")


# --- in the foreground -----------------------------------------------------------------
@pytest.fixture
def foreground(weightfs, mount):
    """foreground(ARGUMENT...): weightfs -f, ended with the test."""
    children = []

    def start(*arguments, **options):
        child = weightfs.start(*arguments, "-f", stderr=subprocess.PIPE, **options)
        children.append(child)
        return child

    yield start
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_foreground_stays_until_a_signal(mount, tiny, foreground, number):
    point = mount.point()
    child = foreground(tiny, point)
    wait_until(lambda: is_mounted(point), 10, "the mount")
    assert (point / "model.json").exists() and child.poll() is None
    child.send_signal(number)
    _, said = child.communicate(timeout=10)
    assert child.returncode == 0, said
    assert not is_mounted(point)
    assert b"mounted" in said.lower()  # -f logs to stderr


def test_foreground_ends_when_unmounted(weightfs, mount, tiny, foreground):
    point = mount.point()
    child = foreground(tiny, point)
    wait_until(lambda: is_mounted(point), 10, "the mount")
    weightfs.run("umount", point)
    assert child.wait(10) == 0


def test_foreground_failure(mount, tmp_path, foreground):
    child = foreground(tmp_path / "missing.gguf", mount.point())
    _, said = child.communicate(timeout=10)
    assert child.returncode == 1 and b"missing.gguf" in said


def test_ready_fd(mount, tiny, foreground):
    point = mount.point()
    reader, writer = os.pipe()
    foreground(tiny, point, "--ready-fd", str(writer), pass_fds=[writer])
    os.close(writer)
    with open(reader, "rb") as told:
        assert told.read()  # ends when the descriptor is closed
    assert is_mounted(point) and (point / "model.json").exists()


def test_notify_socket(mount, tiny, tmp_path, foreground):
    point = mount.point()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.settimeout(10)
        told.bind(str(tmp_path / "notify"))
        foreground(tiny, point, env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert b"READY=1" in told.recv(4096)
    assert is_mounted(point)


# --- the daemon ------------------------------------------------------------------------
def test_the_daemon_is_detached(mount, tiny):
    mounted = mount(tiny)
    assert os.getsid(mounted.pid) == mounted.pid or os.getsid(mounted.pid) != os.getsid(0)
    for fd in (0, 1, 2):
        assert os.readlink(f"/proc/{mounted.pid}/fd/{fd}") == "/dev/null"
    assert os.readlink(f"/proc/{mounted.pid}/cwd") == "/"


def test_the_daemon_keeps_its_command_line(mount, tiny):
    mounted = mount(tiny, "verify=once")
    with open(f"/proc/{mounted.pid}/cmdline", "rb") as file:
        words = file.read().rstrip(b"\0").split(b"\0")
    assert words == [os.fsencode(word) for word in mounted.result.args]


# --- death -----------------------------------------------------------------------------
def die(mounted):
    os.kill(mounted.pid, signal.SIGKILL)
    wait_until(lambda: not alive(mounted.pid))


def test_a_dead_mount_is_cleared_and_mounted_over(mount, tiny):  # C43
    mounted = mount(tiny)
    die(mounted)
    with pytest.raises(OSError) as failed:
        os.listdir(mounted.path)
    assert failed.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    again = mount(tiny, point=mounted.path)
    assert again.bin("output.weight") == gguf_file.plain().data_of("output.weight")
    again.unmount()
    assert not is_mounted(mounted.path)  # not one left beneath


def test_umount_of_a_dead_mount(weightfs, mount, tiny):  # C43
    mounted = mount(tiny)
    die(mounted)
    weightfs.run("umount", mounted.path)
    assert not is_mounted(mounted.path)
    assert os.listdir(mounted.path) == []


def test_umount_of_a_dead_mount_with_open_files(weightfs, mount, tiny):
    mounted = mount(tiny)
    with open(mounted / "tensors/output.weight.bin", "rb", buffering=0):
        die(mounted)
        weightfs.run("umount", mounted.path, "--lazy")
    assert not is_mounted(mounted.path)


def test_auto_unmount(weightfs, mount, tiny):
    """Works alone, or says plainly that it needs allow_other; then both together work."""
    point = mount.point()
    result = weightfs.run(tiny, point, "-o", "auto_unmount", code=None)
    if result.code != 0:
        assert "allow_other" in result.err and not is_mounted(point)
        if os.getuid() != 0:
            return
        weightfs.run(tiny, point, "-o", "auto_unmount,allow_other")
    (pid,) = daemons(str(point))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_mounted(point), 5, "the unmount after the daemon's death")
    assert os.listdir(point) == []


def test_auto_unmount_and_a_plain_umount(root, weightfs, mount, tiny):
    mounted = mount(tiny, "auto_unmount,allow_other")
    mounted.unmount()


# --- without FUSE ----------------------------------------------------------------------
def test_root_needs_no_fusermount3(root, weightfs, mount, tiny):
    point = mount.point()
    weightfs.run(tiny, point, env={"PATH": "/nonexistent"})
    assert is_mounted(point)
    weightfs.run("umount", point, env={"PATH": "/nonexistent"})
    assert not is_mounted(point)


def test_no_mount_permission_names_the_capability(root, weightfs, tiny, tmp_path):  # C44
    (tmp_path / "mnt").mkdir()
    done = subprocess.run(
        [shutil.which("setpriv"), "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", weightfs.binary, tiny, tmp_path / "mnt"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=weightfs.env | {"PATH": "/nonexistent"},
    )
    assert done.returncode == 1, done.stderr
    assert "SYS_ADMIN" in done.stderr.upper() or "fusermount3" in done.stderr, done.stderr
    assert not is_mounted(tmp_path / "mnt")


def test_a_daemon_that_ends_leaves_the_next_mount_alone(mount, weightfs, tiny, tmp_path):
    """The old daemon ends with its last open file; by then the path belongs to somebody else."""
    point = mount(tiny).path
    with open(point / "tensors/output.weight.bin", "rb"):
        weightfs.run("umount", "--lazy", point)
        log = tmp_path / "second.log"
        weightfs.run(tiny, point, "-o", f"log={log}")
    time.sleep(0.5)
    assert is_mounted(point) and (point / "model.json").read_text()
    np_like = open(point / "tensors/output.weight.bin", "rb")  # asks whether it is a terminal
    np_like.close()
    weightfs.run("umount", point)
    time.sleep(0.2)
    said = log.read_text()
    assert "Not Implemented" not in said and "Unmount failed" not in said, said


def test_a_value_may_come_from_a_process(mount, weightfs, tiny):
    point = mount.point()
    script = '"$1" "$2" "$3" -o set=x.y=@<(printf "a\\nb")'
    subprocess.run(["bash", "-c", script, "bash", weightfs.binary, tiny, point], env=weightfs.env, check=True, timeout=60)
    assert (point / "metadata/x.y").read_bytes() == b"a\nb"


def test_a_stopped_daemon_keeps_nobody_waiting(mount, weightfs, tiny):
    mounted = mount(tiny)
    os.kill(mounted.pid, signal.SIGSTOP)
    try:
        said = weightfs.run("status", mounted.path, code=1, timeout=30).err
        assert "does not answer" in said
        said = weightfs.run(tiny, mounted.path, code=1, timeout=30).err
        assert "does not answer" in said
        weightfs.run("umount", "--lazy", mounted.path, timeout=30)
        assert not is_mounted(mounted.path)
    finally:
        os.kill(mounted.pid, signal.SIGCONT)
    wait_until(lambda: not alive(mounted.pid), what="the end of the daemon")


def test_umount_waits_until_the_daemon_has_let_go(mount, weightfs, tiny):
    mounted = mount(tiny)
    mounted.bin("token_embd.weight")
    # One that takes its time, be it with what it saw of the bytes.
    os.kill(mounted.pid, signal.SIGSTOP)
    try:
        unmounting = weightfs.start("umount", mounted.path)
        wait_until(lambda: not is_mounted(mounted.path), what="the end of the mount")
        with pytest.raises(subprocess.TimeoutExpired):
            unmounting.wait(0.5)
    finally:
        os.kill(mounted.pid, signal.SIGCONT)
    assert unmounting.wait(30) == 0
    assert not alive(mounted.pid)
    assert list(Path(weightfs.env["XDG_CACHE_HOME"]).glob("weightfs/tofu/*"))


def test_umount_does_not_wait_for_a_daemon_that_serves_another_mount(root, mount, weightfs, tiny, tmp_path):
    mounted, other = mount(tiny), tmp_path / "other"
    other.mkdir()
    shell('mount --bind "$1" "$2"', mounted.path, other)
    try:
        assert "still mounted elsewhere" in weightfs.run("umount", mounted.path, timeout=20).err
        assert (other / "model.json").exists()
    finally:
        assert weightfs.run("umount", other).err == ""
    assert not alive(mounted.pid)


@pytest.mark.parametrize("name", ["s p", "it's", "-dash", "$(false)", "a\nb\x1b[2J", "plain"])
def test_a_command_in_a_message_can_be_copied(weightfs, tmp_path, name):
    """Whatever the path: given to a shell as it stands, it does what the message says."""
    folder = tmp_path / "models"
    folder.mkdir()
    gguf_file.plain().write(folder / f"{name}.gguf")

    def copied(said, words):
        command = re.search(rf"{words} .*?(?=\)$|$| seals it\))", said, re.MULTILINE)[0]
        env = weightfs.env | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)

    def run(*words, code):
        env = weightfs.env
        done = subprocess.run([weightfs.binary, *words], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stderr

    (tmp_path / "weightfs").symlink_to(weightfs.binary)
    said = run("verify", "--", f"{name}.gguf", code=4)
    copied(said, "weightfs seal")
    assert (folder / f"{name}.gguf.weightfs.json").exists()
    said = run("mount", "--", f"{name}.gguf", name, code=1)
    copied(said, "mkdir")
    assert (folder / name).is_dir()
    (folder / f"{name}.gguf.weightfs.json").unlink()
    try:
        said = run("mount", "--", f"{name}.gguf", name, code=0)
        copied(said, "weightfs seal")
        assert (folder / f"{name}.gguf.weightfs.json").exists()
        said = run("mount", "--", f"{name}.gguf", name, code=1)
        copied(said, "weightfs umount")
        assert not is_mounted(folder / name)
    finally:
        force_unmount(str(folder / name))
