"""The tree of a mount: what is there, sizes, modes, owners, times, inodes, attributes, refusals."""

import errno
import os
import stat
import subprocess

import pytest

import gguf_file
import safetensors_file
from mounting import python, shell, xattr

SOURCE_TIME = 1_600_000_000_123_456_789


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    model = gguf_file.plain()
    model.path = model.write(tmp_path_factory.mktemp("model") / "tiny.gguf")
    os.utime(model.path, ns=(SOURCE_TIME, SOURCE_TIME))
    return model


@pytest.fixture(scope="module")
def tiny(source, shared_mount):
    return shared_mount(source.path)


def entries(mount):
    """Every path below the mount with its lstat."""
    found = {}
    for folder, directories, files in os.walk(mount.path):
        for name in directories + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, mount.path)] = os.lstat(path)
    return found


def test_the_root_lists_the_model(tiny):
    listed = set(os.listdir(tiny.path))
    assert {"model.json", "metadata.json", "metadata", "tensors", "source", ".weightfs"} <= listed
    assert "source-names" not in listed  # no map is in force
    assert "SHA256SUMS" not in listed and "tensors.sfv" not in listed  # not sealed


def test_each_tensor_is_a_file_with_its_description(tiny):
    assert sorted(os.listdir(tiny / "tensors")) == [
        "output.weight.bin",
        "output.weight.json",
        "token_embd.weight.bin",
        "token_embd.weight.json",
        "token_embd.weight.npy",
    ]


def test_tensor_bytes_are_the_stored_ones(tiny, source):
    for name in ("token_embd.weight", "output.weight"):
        assert tiny.bin(name) == source.data_of(name)


def test_source_is_the_whole_file(tiny, source):
    assert os.listdir(tiny / "source") == ["tiny.gguf"]
    assert (tiny / "source/tiny.gguf").read_bytes() == source.path.read_bytes()


def test_sizes_are_exact_before_anything_is_read(source, mount):
    mounted = mount(source.path)
    sizes = {name: found.st_size for name, found in entries(mounted).items() if stat.S_ISREG(found.st_mode) and not name.startswith(".weightfs")}
    assert sizes["tensors/token_embd.weight.bin"] == 8 * 32 * 4
    assert sizes["tensors/output.weight.bin"] == 8 * 34
    assert sizes["source/tiny.gguf"] == source.path.stat().st_size
    for name, size in sizes.items():
        assert len((mounted / name).read_bytes()) == size, name


def test_every_entry_has_its_mode_owner_and_time(tiny):
    for name, found in entries(tiny).items():
        wanted = 0o555 if stat.S_ISDIR(found.st_mode) else 0o444
        assert stat.S_IMODE(found.st_mode) == wanted, name
        assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid()), name
        if not name.startswith(".weightfs/"):
            assert found.st_mtime_ns == SOURCE_TIME, name
    assert stat.S_IMODE(os.stat(tiny.path).st_mode) == 0o555


def test_uid_gid_and_umask_options(source, mount):
    mounted = mount(source.path, "uid=1234,gid=2345,umask=077")
    for name, found in entries(mounted).items():
        assert stat.S_IMODE(found.st_mode) == (0o500 if stat.S_ISDIR(found.st_mode) else 0o400), name
        assert (found.st_uid, found.st_gid) == (1234, 2345), name


def test_inode_numbers_are_unique_and_the_same_in_another_mount(tiny, source, mount):
    first = {name: found.st_ino for name, found in entries(tiny).items()}
    assert len(set(first.values())) == len(first)
    again = mount(source.path)
    assert {name: found.st_ino for name, found in entries(again).items()} == first
    assert os.stat(again.path).st_ino == os.stat(tiny.path).st_ino


def test_listings_carry_the_inodes_and_types_that_stat_tells(tiny):
    for folder in (tiny.path, tiny / "tensors", tiny / "metadata", tiny / "source", tiny / ".weightfs"):
        with os.scandir(folder) as found:
            for entry in found:
                about = os.lstat(entry.path)
                assert entry.inode() == about.st_ino, entry.path
                assert entry.is_dir(follow_symlinks=False) == stat.S_ISDIR(about.st_mode), entry.path


def test_ls_shows_dot_and_dot_dot(tiny):
    assert shell('ls -a "$1"', tiny / "tensors").text.splitlines()[:2] == [".", ".."]


def test_statfs_tells_name_length_and_size(tiny, source):
    about = os.statvfs(tiny.path)
    size = source.path.stat().st_size
    assert about.f_namemax == 255
    assert about.f_bfree == 0 and about.f_bavail == 0
    assert size <= about.f_blocks * about.f_frsize < size + about.f_frsize


def test_du_counts_the_blocks_of_each_file(tiny):
    for name, found in entries(tiny).items():
        if stat.S_ISREG(found.st_mode) and not name.startswith(".weightfs"):
            assert found.st_blocks == -(-found.st_size // 512), name
    assert shell('du -b "$1"', tiny / "tensors/token_embd.weight.bin").text.split()[0] == "1024"


def test_find_sees_the_same_tree_as_the_listings(tiny):
    done = shell('find "$1" -type f', tiny.path)
    assert done.err == ""
    assert len(done.text.splitlines()) == sum(stat.S_ISREG(found.st_mode) for found in entries(tiny).values())


def test_the_whole_tree_can_be_copied(tiny, source, tmp_path):
    shell('cp -r "$1" "$2"', tiny.path, tmp_path / "copy")
    assert (tmp_path / "copy/tensors/token_embd.weight.bin").read_bytes() == source.data_of("token_embd.weight")
    assert (tmp_path / "copy/source/tiny.gguf").read_bytes() == source.path.read_bytes()
    assert (tmp_path / "copy/.weightfs/status.json").stat().st_size > 0


def test_extended_attributes(tiny):
    path = tiny / "tensors/token_embd.weight.bin"
    assert xattr(path, "dtype") == "F32"
    assert xattr(tiny / "tensors/output.weight.bin", "dtype") == "Q8_0"
    assert [int(n) for n in xattr(path, "shape").strip("[]()").replace("x", ",").split(",")] == [8, 32]
    assert xattr(path, "state") in ("unverified", "verified")
    assert xattr(path, "trust") in ("tofu", "none")
    for name in ("crc32", "sha256", "no_such"):
        with pytest.raises(OSError) as failed:
            xattr(path, name)
        assert failed.value.errno == errno.ENODATA, name


def test_extended_attributes_are_listed(tiny):
    listed = set(os.listxattr(tiny / "tensors/token_embd.weight.bin"))
    assert {f"user.weightfs.{name}" for name in ("dtype", "shape", "state", "trust")} <= listed
    assert "user.weightfs.crc32" not in listed  # unsealed: there is none to read


def expect(number, call, *args, **options):
    with pytest.raises(OSError) as failed:
        call(*args, **options)
    assert failed.value.errno == number, os.strerror(failed.value.errno)


def test_every_write_is_refused_as_read_only(tiny):
    path = tiny / "tensors/token_embd.weight.bin"
    new = tiny / "tensors/new"
    expect(errno.EROFS, os.open, path, os.O_WRONLY)
    expect(errno.EROFS, os.open, path, os.O_RDWR)
    expect(errno.EROFS, os.open, path, os.O_RDONLY | os.O_TRUNC)
    expect(errno.EROFS, os.open, new, os.O_CREAT | os.O_WRONLY)
    expect(errno.EROFS, os.truncate, path, 0)
    expect(errno.EROFS, os.unlink, path)
    expect(errno.EROFS, os.rename, path, new)
    expect(errno.EROFS, os.mkdir, new)
    expect(errno.EROFS, os.rmdir, tiny / "tensors")
    expect(errno.EROFS, os.symlink, "x", new)
    expect(errno.EROFS, os.link, path, new)
    expect(errno.EROFS, os.chmod, path, 0o644)
    expect(errno.EROFS, os.utime, path)
    expect(errno.EROFS, os.setxattr, path, "user.weightfs.dtype", b"F16")
    expect(errno.EROFS, os.removexattr, path, "user.weightfs.dtype")
    if os.getuid() == 0:
        expect(errno.EROFS, os.chown, path, 1, 1)
    assert path.stat().st_size == 1024


def test_missing_names_are_enoent(tiny):
    for name in ("nothing", "tensors/nothing.bin", "tensors/output.weight.npy", "tensors/token_embd.weight", "tensors/TOKEN_EMBD.weight.bin", "f32/nothing.bin"):
        expect(errno.ENOENT, os.stat, tiny / name)
    expect(errno.ENOTDIR, os.stat, tiny / "model.json/x")


@pytest.mark.parametrize("length", [256, 300, 1000, 3000])
def test_names_over_255_bytes_are_enametoolong(tiny, length):
    expect(errno.ENAMETOOLONG, os.stat, tiny / ("a" * length))
    expect(errno.ENAMETOOLONG, os.stat, tiny / "tensors" / ("a" * length))


def test_names_of_255_bytes_are_only_missing(tiny):
    expect(errno.ENOENT, os.stat, tiny / ("a" * 255))


def test_files_are_no_directories_and_directories_no_files(tiny):
    expect(errno.EISDIR, (tiny / "tensors").read_bytes)
    expect(errno.ENOTDIR, os.listdir, tiny / "model.json")


def test_a_listing_can_be_read_again_from_the_start(tiny):
    code = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
def drain():
    names = []
    while True:  # room for one or two entries a call, so that the offsets are used
        buffer = ctypes.create_string_buffer(80)
        n = libc.syscall(217, fd, buffer, 80)
        assert n >= 0, os.strerror(ctypes.get_errno())
        if n == 0:
            return names
        place = 0
        while place < n:
            length = int.from_bytes(buffer.raw[place + 16 : place + 18], "little")
            names.append(buffer.raw[place + 19 : place + length].split(b"\\0")[0].decode())
            place += length
first = drain()
os.lseek(fd, 0, 0)
assert drain() == first
print("\\n".join(sorted(first)))
"""
    if os.uname().machine != "x86_64":
        pytest.skip("the system call number is that of x86_64")
    assert python(code, tiny / "tensors").split() == sorted([".", "..", *os.listdir(tiny / "tensors")])


def test_a_safetensors_model_has_the_same_tree(mount, tmp_path):
    model = safetensors_file.plain()
    mounted = mount(model.write(tmp_path / "tiny.safetensors"))
    assert mounted.names() == ["embed.weight", "layer.bias", "layer.weight"]
    for name in mounted.names():
        assert mounted.bin(name) == model.data_of(name)
    assert sorted(name for name in os.listdir(mounted / "tensors") if name.endswith(".npy")) == ["embed.weight.npy", "layer.weight.npy"]
    assert (mounted / "source/tiny.safetensors").read_bytes() == model.encode()
    assert (mounted / "metadata/format").read_bytes() == b"pt"


def test_nothing_but_the_status_changes_while_mounted(tiny):
    before = {name: found[:8] for name, found in entries(tiny).items() if not name.startswith(".weightfs")}
    texts = {name: (tiny / name).read_bytes() for name in ("model.json", "metadata.json", "tensors/output.weight.json")}
    for _ in range(3):
        subprocess.run(["cat", tiny / "tensors/output.weight.bin"], stdout=subprocess.DEVNULL, check=True, timeout=20)
    assert {name: found[:8] for name, found in entries(tiny).items() if not name.startswith(".weightfs")} == before
    assert {name: (tiny / name).read_bytes() for name in texts} == texts
