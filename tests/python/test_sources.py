"""The source file changes under a live mount."""

import errno
import os
import shutil
import subprocess
import sys
import time

import pytest

from gguf_file import Gguf, pattern
from mounting import alive, wait_until, xattr

MIB = 1 << 20
SIZE = 8 * MIB
IO = ["io=mmap,cache=direct", "io=mmap,cache=page", "io=pread,cache=direct", "io=pread,cache=page"]
SEALED = ["sealed", "unsealed"]


def model(seed=1):
    return Gguf().key("general.architecture", "str", "llama").tensor("a", "F32", (SIZE // 4,), pattern(SIZE, seed))


@pytest.fixture
def live(weightfs, mount, tmp_path):
    """live(OPTIONS, sealed): a mount of an 8 MiB tensor; its path is live.path."""

    def make(options="io=auto", sealed=False):
        file = model()
        path = file.write(tmp_path / "m.gguf")
        if sealed:
            weightfs.run("seal", path)
        mounted = mount(path, options)
        mounted.file, mounted.source = file, path
        return mounted

    return make


def read_error(path):
    """The errno of opening and reading a little at the end; None when it works."""
    try:
        with open(path, "rb", buffering=0) as file:
            os.pread(file.fileno(), 4096, SIZE - 4096)
    except OSError as failed:
        return failed.errno
    return None


READER = """
import os, sys, time
path, true = sys.argv[1], open(sys.argv[2], "rb").read()
limit = time.monotonic() + float(sys.argv[3])
print("ready", flush=True)
errors = set()
while time.monotonic() < limit:
    try:
        with open(path, "rb", buffering=0) as file:
            place = 0
            while piece := os.pread(file.fileno(), 300000, place):
                assert piece == true[place : place + len(piece)], f"wrong bytes at {place}"
                place += len(piece)
            if place != len(true):
                errors.add("short")
    except OSError as failed:
        errors.add(failed.errno)
print(sorted(map(str, errors)))
"""


def readers(mounted, tmp_path, count=8, seconds=2.0):
    (tmp_path / "true").write_bytes(mounted.file.data_of("a"))
    children = [
        subprocess.Popen([sys.executable, "-c", READER, mounted / "tensors/a.bin", tmp_path / "true", str(seconds)], stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    return children


def finish(children):
    said = []
    for child in children:
        out, _ = child.communicate(timeout=30)
        assert child.returncode == 0, out
        said.append(set(eval(out)))  # noqa: S307, our own child's list of numbers
    return said


def answers_quickly(mounted):
    start = time.monotonic()
    assert (mounted / "tensors/a.bin").stat().st_size == SIZE
    mounted.status
    os.listdir(mounted / "tensors")
    assert time.monotonic() - start < 0.5


@pytest.mark.parametrize("sealed", [True, False], ids=SEALED)
@pytest.mark.parametrize("options", IO)
def test_truncated_under_eight_readers(live, tmp_path, options, sealed):  # C19
    mounted = live(options, sealed)
    children = readers(mounted, tmp_path)
    time.sleep(0.4)
    os.truncate(mounted.source, SIZE // 2)
    answers_quickly(mounted)
    for errors in finish(children):
        assert errors and errors <= {str(errno.ESTALE), str(errno.EIO)}, errors
    assert alive(mounted.pid)
    assert read_error(mounted / "tensors/a.bin") in (errno.ESTALE, errno.EIO)
    answers_quickly(mounted)
    mounted.unmount()


@pytest.mark.parametrize("options", IO)
def test_truncated_to_nothing_and_grown_again(live, options):
    mounted = live(options)
    os.truncate(mounted.source, 0)
    os.truncate(mounted.source, SIZE * 2)
    assert read_error(mounted / "tensors/a.bin") == errno.ESTALE
    assert alive(mounted.pid)
    mounted.unmount()


@pytest.mark.parametrize("options", IO)
def test_status_learns_of_a_rewritten_source_though_nothing_is_read(live, options):
    """What the kernel keeps is read without us: who asks how things stand has the file looked at."""
    for ask in (lambda: mounted.status["state"], lambda: xattr(mounted / "tensors/a.bin", "state")):
        mounted = live(options, True)
        assert mounted.bin("a") == mounted.file.data_of("a")
        before = ask()
        with open(mounted.source, "r+b") as file:
            file.write(b"GGUF")
        local = subprocess.run(["stat", "-f", "-c", "%T", mounted.source], capture_output=True, text=True, check=True).stdout.strip()
        assert ask() == (before if local.startswith("overlay") else "stale")
        mounted.unmount()


@pytest.mark.parametrize("sealed", [True, False], ids=SEALED)
@pytest.mark.parametrize("keep_time", [True, False])
@pytest.mark.parametrize("options", IO[:1] + IO[2:3])
def test_rewritten_in_place(live, options, keep_time, sealed):  # C52
    mounted = live(options, sealed)
    path = mounted / "tensors/a.bin"
    assert mounted.bin("a") == mounted.file.data_of("a")
    times = mounted.source.stat()
    with open(mounted.source, "r+b") as file:
        file.write(model(seed=2).encode())
    if keep_time:
        os.utime(mounted.source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert read_error(path) == errno.ESTALE
    assert read_error(mounted / "source/m.gguf") == errno.ESTALE
    assert path.stat().st_size == SIZE
    assert xattr(path, "state") == "stale"
    assert mounted.status["state"] == "stale"
    assert mounted.status["source_changed"]
    assert alive(mounted.pid)
    mounted.unmount()


def test_an_open_reader_sees_no_mix_of_old_and_new(live):
    mounted = live("cache=direct")
    old = mounted.file.data_of("a")
    with open(mounted / "tensors/a.bin", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), MIB, 0) == old[:MIB]
        with open(mounted.source, "r+b") as source:
            source.write(model(seed=2).encode())
        with pytest.raises(OSError) as failed:
            os.pread(file.fileno(), MIB, 4 * MIB)
        assert failed.value.errno == errno.ESTALE


@pytest.mark.parametrize("options", IO[:1] + IO[2:3])
def test_one_byte_appended(live, options):
    mounted = live(options)
    with open(mounted.source, "ab") as file:
        file.write(b"x")
    assert read_error(mounted / "tensors/a.bin") == errno.ESTALE


def replace_by_rename(path):
    model(seed=2).write(path.with_name("new"))
    os.rename(path.with_name("new"), path)


def rename_away(path):
    os.rename(path, path.with_name("elsewhere"))


def relink(path):
    os.link(path, path.with_name("second-name"))


def move_over_and_back(path):
    os.rename(path, path.with_name("elsewhere"))
    shutil.copyfile(path.with_name("elsewhere"), path)


@pytest.mark.parametrize("sealed", [True, False], ids=SEALED)
@pytest.mark.parametrize("options", IO[:1] + IO[2:3])
@pytest.mark.parametrize(
    "change",
    [replace_by_rename, rename_away, os.unlink, lambda path: os.chmod(path, 0o600), relink, move_over_and_back],
    ids=["replaced", "renamed", "unlinked", "chmod", "linked", "copied over"],
)
def test_the_open_file_is_still_served(live, change, options, sealed):
    mounted = live(options, sealed)
    data = mounted.file.data_of("a")
    assert mounted.bin("a") == data
    change(mounted.source)
    assert mounted.bin("a") == data
    time.sleep(1.1)  # a check that is made once a second has its turn
    assert mounted.bin("a") == data
    assert (mounted / "source/m.gguf").read_bytes() == mounted.file.encode()
    assert xattr(mounted / "tensors/a.bin", "state") != "stale"
    mounted.unmount()


def test_touching_the_file_is_a_change(live):
    mounted = live()
    os.utime(mounted.source, ns=(1, 1))
    assert read_error(mounted / "tensors/a.bin") == errno.ESTALE


def test_reading_the_source_is_no_change(live):
    mounted = live()
    mounted.source.read_bytes()
    subprocess.run(["cp", mounted.source, mounted.source.with_name("copy")], check=True, timeout=20)
    assert read_error(mounted / "tensors/a.bin") is None


@pytest.mark.slow
@pytest.mark.patience(120)
@pytest.mark.parametrize("options", IO)
def test_many_truncations(weightfs, mount, tmp_path, options):
    file = model()
    for turn in range(15):
        path = file.write(tmp_path / f"m{turn}.gguf")
        mounted = mount(path, options)
        mounted.file = file
        children = readers(mounted, tmp_path, count=4, seconds=0.4)
        time.sleep(0.02 * turn)
        os.truncate(path, SIZE * turn // 15)
        finish(children)
        assert alive(mounted.pid), turn
        mounted.unmount()
        path.unlink()


def test_the_daemon_ends_when_the_source_was_damaged(live):
    mounted = live("io=mmap")
    os.truncate(mounted.source, 100)
    assert read_error(mounted / "tensors/a.bin") == errno.ESTALE
    mounted.unmount()
    wait_until(lambda: not alive(mounted.pid))
