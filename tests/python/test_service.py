"""scripts/packaging/weightfs@.service: sound, told when ready, and really run by systemd."""

import shutil
import signal
import socket
import subprocess

import gguf_file
import pytest
from conftest import ROOT, binary, needs_mounts
from machine import Machine, NoMachine
from mounting import is_mounted, wait_until

UNIT = ROOT / "scripts/packaging/weightfs@.service"
EXAMPLE = ROOT / "scripts/packaging/example.conf"
DATA = gguf_file.plain().data_of("output.weight")


def settings(section):
    """[(NAME, VALUE)] of a section, in order."""
    found, here = [], None
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            here = line.strip("[]")
        elif "=" in line and not line.startswith("#") and here == section:
            name, _, value = line.partition("=")
            found.append((name, value))
    return found


def setting(name):
    (value,) = (value for found, value in settings("Service") if found == name)
    return value


(DEFAULT_OPTIONS,) = (value.removeprefix("OPTIONS=") for name, value in settings("Service") if name == "Environment" and value.startswith("OPTIONS="))


# --- what systemd thinks of it -----------------------------------------------------------
def analyze(weightfs, tmp_path, *words, unit=None):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (unit or UNIT.read_text()).replace("/usr/bin/weightfs", weightfs.binary)
    (tmp_path / "weightfs@tiny.service").write_text(text)
    done = subprocess.run(["systemd-analyze", *words, tmp_path / "weightfs@tiny.service"], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_systemd_finds_nothing_wrong_with_the_unit(weightfs, tmp_path):
    code, said = analyze(weightfs, tmp_path, "verify", "--man=no")
    assert (code, said) == (0, "")
    wrong = UNIT.read_text().replace("DevicePolicy=closed", "DevicePolicy=ajar")
    code, said = analyze(weightfs, tmp_path, "verify", "--man=no", unit=wrong)
    assert "ajar" in said  # it does look


def test_the_service_is_no_more_exposed_than_a_mount_must_be(weightfs, tmp_path):
    code, said = analyze(weightfs, tmp_path, "security", "--offline=true", "--no-pager", "--threshold=45")
    assert code == 0, said


HIDING = """BindPaths BindReadOnlyPaths DynamicUser ExecPaths ExtensionImages InaccessiblePaths MountAPIVFS MountFlags MountImages
NoExecPaths PrivateDevices PrivateIPC PrivateMounts PrivateNetwork PrivateTmp ProcSubset ProtectControlGroups ProtectHome ProtectHostname
ProtectKernelLogs ProtectKernelModules ProtectKernelTunables ProtectProc ProtectSystem ReadOnlyPaths ReadWritePaths RootDirectory RootImage
TemporaryFileSystem""".split()


def test_nothing_in_the_unit_hides_the_mount_from_the_others():
    """Each of these gives a service a mount namespace of its own; what is mounted there stays there."""
    assert not {name for name, _ in settings("Service")} & set(HIDING)


def test_the_example_sets_what_the_unit_uses():
    words = dict(line.split("=", 1) for line in EXAMPLE.read_text().splitlines() if line and not line.startswith("#"))
    used = {word.strip("${}") for word in setting("ExecStart").split() if word.startswith("${")}
    assert set(words) == used == {"MODEL", "MOUNTPOINT", "OPTIONS"}


# --- the line it starts, without systemd -------------------------------------------------
def command(weightfs, **values):
    """ExecStart as systemd would run it: ${NAME} is one word, whatever is in it."""
    words = setting("ExecStart").split()
    assert words[0] == "/usr/bin/weightfs"
    return [weightfs.binary, *(values[word[2:-1]] if word.startswith("${") else word for word in words[1:])]


@pytest.fixture
def service(weightfs, tmp_path):
    """service(MODEL, MOUNTPOINT, OPTIONS): the started process, and the socket where it tells."""
    needs_mounts()
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.settimeout(20)
    told.bind(str(tmp_path / "notify"))
    children = []

    def start(model, point, options):
        words = command(weightfs, MODEL=str(model), MOUNTPOINT=str(point), OPTIONS=options)
        env = {"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": str(tmp_path / "notify"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        children.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env))
        return children[-1], told

    yield start
    told.close()
    for child in children:
        if child.poll() is None:
            child.terminate()
        child.communicate(timeout=20)


def test_ready_is_told_when_the_mount_answers_and_stopping_when_it_goes(service, tmp_path):
    point = tmp_path / "a mount point"
    point.mkdir()
    model = gguf_file.plain().write(tmp_path / "my model, v1.gguf")
    child, told = service(model, point, DEFAULT_OPTIONS)
    state = dict(line.split("=", 1) for line in told.recv(4096).decode().splitlines())
    assert state["READY"] == "1" and int(state["MAINPID"]) == child.pid
    assert (point / "source/my model, v1.gguf").read_bytes() == model.read_bytes()
    with open(point / "tensors/output.weight.bin", "rb") as file:
        child.send_signal(signal.SIGTERM)
        assert told.recv(4096) == b"STOPPING=1"
        wait_until(lambda: not is_mounted(point), 10, "the unmount")
        assert child.poll() is None and file.read() == DATA  # open files are read to their end
    assert child.wait(20) == 0


def test_a_start_that_fails_tells_nothing_and_says_why(service, tmp_path):
    (tmp_path / "mnt").mkdir()
    for model, options, code in (("gone.gguf", "rw", 1), ("tiny.gguf", "frobnicate", 2), ("tiny.gguf", "seal=require", 4), ("", "", 2)):
        gguf_file.plain().write(tmp_path / "tiny.gguf")
        child, told = service(tmp_path / model if model else "", tmp_path / "mnt", options)
        _, said = child.communicate(timeout=20)
        assert child.returncode == code and said.startswith("weightfs: "), said
        told.setblocking(False)
        with pytest.raises(BlockingIOError):
            told.recv(4096)
    assert {2, 4} <= {int(code) for code in setting("RestartPreventExitStatus").split()}


# --- systemd itself ------------------------------------------------------------------------
@pytest.fixture(scope="module")
def booted(tmp_path_factory):
    """A system that has come up, with the unit and the program in their places."""
    needs_mounts()
    directory = tmp_path_factory.mktemp("booted")
    shutil.copy(binary(), directory / "weightfs")
    shutil.copy(UNIT, directory)
    (directory / "overlay").mkdir()
    try:
        machine = Machine(directory / "overlay", boot=True)
    except NoMachine as reason:
        pytest.skip(f"no systemd to try it with: {reason}")
    machine.run('cp "$1/weightfs" /usr/bin/ && cp "$1/weightfs@.service" /lib/systemd/system/ && systemctl daemon-reload', directory)
    yield machine
    machine.close()


@pytest.fixture
def configured(booted, tmp_path):
    """configured(OPTIONS): /etc/weightfs/tiny.conf, a model and where to mount it; the mount point."""
    gguf_file.plain().write(tmp_path / "my model, v1.gguf")
    (tmp_path / "a mount point").mkdir()

    def write(options):
        conf = f"MODEL='{tmp_path}/my model, v1.gguf'\nMOUNTPOINT='{tmp_path}/a mount point'\nOPTIONS='{options}'\n"
        booted.run('mkdir -p /etc/weightfs && printf %s "$1" >/etc/weightfs/tiny.conf', conf)
        return tmp_path / "a mount point"

    yield write
    booted.run("systemctl stop weightfs@tiny; systemctl reset-failed weightfs@tiny", code=None)


def main_pid(machine):
    return int(machine.run("systemctl show -p MainPID --value weightfs@tiny").stdout)


def test_the_service_serves_all_others_hardened_as_it_is(booted, configured):
    point = configured("allow_other,umask=022,set=x.y=[1\\,2],verify=once")
    booted.run("systemctl start weightfs@tiny")
    done = booted.run('cat "$1/tensors/output.weight.bin" | wc -c; cat "$1/metadata/x.y.json" "$1/.weightfs/status.json"', point)
    assert done.stdout.startswith(f"{len(DATA)}\n[\n  1,\n  2\n]\n") and '"confined": "no_new_privs,landlock"' in done.stdout
    pid = main_pid(booted)
    done = booted.run('cat /proc/$1/status; cat /sys/class/bdi/$(mountpoint -d "$2")/read_ahead_kb', pid, point)
    assert "NoNewPrivs:\t1\n" in done.stdout and "Seccomp:\t2\n" in done.stdout
    assert done.stdout.endswith("\n1024\n")
    # What was seen of the unsealed model is kept, in /var/cache.
    booted.run("systemctl stop weightfs@tiny && [ $(ls /var/cache/weightfs/tofu | wc -l) = 1 ]")
    said = booted.run("journalctl --no-pager -u weightfs@tiny").stdout
    assert f"mounted on {point}" in said and f"unmounted {point}" in said


def test_a_killed_service_is_started_again_over_its_dead_mount(booted, configured):
    point = configured("ro")
    booted.run("systemctl start weightfs@tiny")
    pid = main_pid(booted)
    booted.run("kill -9 $1", pid)
    wait_until(lambda: main_pid(booted) not in (0, pid), 20, "the restart")
    wait_until(lambda: booted.run("systemctl is-active weightfs@tiny", code=None).returncode == 0, 20, "the second mount")
    done = booted.run('cat "$1/tensors/output.weight.bin" | wc -c; findmnt --mountpoint "$1" -no FSTYPE', point)
    assert done.stdout.split() == [str(len(DATA)), "fuse.weightfs"]


def test_a_wrong_option_is_told_and_not_tried_again(booted, configured):
    configured("frobnicate")
    booted.run("systemctl start weightfs@tiny", code=1)
    done = booted.run("systemctl show -p Result,ExecMainStatus,NRestarts,ActiveState weightfs@tiny")
    assert set(done.stdout.split()) == {"Result=exit-code", "ExecMainStatus=2", "NRestarts=0", "ActiveState=failed"}
    assert '"frobnicate"' in booted.run("journalctl --no-pager -u weightfs@tiny").stdout
