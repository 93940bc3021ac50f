"""What a system lacks that cannot mount: said in four lines, with what to do, and nothing is left."""

import os
from pathlib import Path

import gguf_file
import namespace
import pytest
from conftest import needs_mounts

DATA = gguf_file.plain().data_of("output.weight")


@pytest.fixture
def refused(root, weightfs, tmp_path):
    """refused(SETUP): mount in a namespace prepared by it; what is said."""
    needs_mounts()
    gguf_file.plain().write(tmp_path / "tiny.gguf")
    for name in ("mnt", "node"):
        (tmp_path / name).mkdir()

    def run(setup, command='"$PROGRAM" tiny.gguf mnt'):
        script = f"({setup}) || exit 99\n{command}\ncode=$?\nls -A mnt\nexit $code"
        done = namespace.run(weightfs, script, cwd=tmp_path, code=1)
        assert done.stdout == "", "something is mounted"
        assert done.stderr.startswith("weightfs: ") and len(done.stderr.splitlines()) <= 4, done.stderr
        return done.stderr

    return run


@pytest.mark.parametrize(
    "what, make, words",
    [
        ("nothing", "mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3", ["does not exist", "--device /dev/fuse", "modprobe fuse"]),
        ("a file", ": >node/f && mount --bind node/f /dev/fuse", ["no device", "--device /dev/fuse"]),
        ("a directory", "mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 && mkdir /dev/fuse", ["--device /dev/fuse", "directory"]),
        ("a device without a driver", "mknod node/f c 10 254 && mount --bind node/f /dev/fuse", ["modprobe fuse"]),
        ("on nodev", "mount -t tmpfs -o nodev t node && mknod -m 666 node/fuse c 10 229 && mount --bind node/fuse /dev/fuse", ["nodev", "root"]),
    ],
)
def test_what_there_is_in_the_place_of_the_device(refused, what, make, words):  # C44
    said = refused(make)
    assert "/dev/fuse" in said and all(word in said for word in words), said


def test_a_container_whose_group_may_not_use_the_device(refused, tmp_path):
    devices = Path("/sys/fs/cgroup/devices")
    if not (devices / "devices.deny").exists():
        pytest.skip("there are no device groups of the first kind here")
    group = devices / f"weightfs-test-{os.getpid()}"
    group.mkdir()
    try:
        said = refused(f"echo 'c 10:229 rwm' >{group}/devices.deny && cat /proc/$$/stat >/dev/null", f'echo $$ >{group}/cgroup.procs; "$PROGRAM" tiny.gguf mnt')
    finally:
        group.rmdir()
    assert "--device /dev/fuse" in said and "SYS_ADMIN" in said, said


def test_a_user_namespace_on_a_tree_that_is_not_its_own(refused):
    """As in a container without rights: all capabilities, but none over these mounts."""
    said = refused("true", 'unshare -U --map-root-user "$PROGRAM" tiny.gguf mnt')
    assert "SYS_ADMIN" in said, said


def test_a_user_namespace_with_mounts_of_its_own_needs_nothing_else(root, weightfs, tmp_path):
    needs_mounts()
    gguf_file.plain().write(tmp_path / "tiny.gguf")
    (tmp_path / "mnt").mkdir()
    script = 'exec unshare -U --map-root-user -m sh -c \'PATH=/nonexistent "$PROGRAM" tiny.gguf mnt && cat mnt/tensors/output.weight.bin | wc -c; "$PROGRAM" umount mnt\''
    assert int(namespace.run(weightfs, script, cwd=tmp_path).stdout) == len(DATA)


def test_everything_else_works_without_the_device(weightfs, root, tmp_path):  # C44
    gguf_file.plain().write(tmp_path / "tiny.gguf")
    hide = "mount -t tmpfs tmpfs /dev && mknod -m 666 /dev/null c 1 3 || exit 99\n"
    commands = ["ls tiny.gguf", "info tiny.gguf", "map tiny.gguf", "cat tiny.gguf output.weight", "seal tiny.gguf", "verify tiny.gguf", "stats tiny.gguf", "diff tiny.gguf tiny.gguf", "provenance tiny.gguf", "completions bash"]
    namespace.run(weightfs, hide + "\n".join(f'"$PROGRAM" {command} >/dev/null || exit {10 + i}' for i, command in enumerate(commands)), cwd=tmp_path)
