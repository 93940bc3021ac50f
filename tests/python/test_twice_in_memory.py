"""The page cache holds a model once: what the mount keeps, the source need not."""

import ctypes
import mmap
import os

import pytest

from safetensors_file import Safetensors

MIB = 1 << 20
SIZE = 48 * MIB
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def resident(path):
    """Bytes of a file that the kernel holds in its page cache; nothing is read for it."""
    size = os.stat(path).st_size
    fd = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    finally:
        os.close(fd)
    return sum(page & 1 for page in pages) * mmap.PAGESIZE


def forget(path):
    """Has the kernel drop a file from its page cache."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that no cache holds; its tensor begins and ends in the middle of pages."""
    file = tmp_path_factory.mktemp("twice") / "m.safetensors"
    data = os.urandom(SIZE + 12_345)
    Safetensors().tensor("w", "U8", [len(data)], data).write(file)
    forget(file)
    if resident(file):
        pytest.skip("this file system does not forget")
    return file, data


@pytest.fixture
def cold(model):
    forget(model[0])
    assert resident(model[0]) == 0
    return model


def read(path):
    with open(path, "rb") as file:
        return b"".join(iter(lambda: file.read(MIB), b""))


def scan(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        return view[:]


@pytest.mark.parametrize("how", [read, scan])
@pytest.mark.parametrize("verify", ["always", "off"])
@pytest.mark.parametrize("view", ["tensors/w.bin", "model.safetensors"])
def test_what_the_mount_keeps_is_not_kept_of_the_source_as_well(mount, cold, how, verify, view):
    file, data = cold
    mounted = mount(file, "cache=page", f"verify={verify}")
    assert how(mounted / view).endswith(data)
    assert resident(mounted / view) > 0.9 * SIZE, "the mount keeps it: that is what was asked for"
    assert resident(file) + resident(mounted / view) < 1.2 * SIZE
    assert how(mounted / view).endswith(data)


def test_by_default_only_the_source_is_kept(mount, cold):
    file, data = cold
    mounted = mount(file)
    assert read(mounted / "tensors/w.bin") == data
    assert resident(file) + resident(mounted / "tensors/w.bin") < 1.2 * SIZE
    assert scan(mounted / "tensors/w.bin") == data
    assert resident(file) > 0.9 * SIZE, "the next one who maps it finds it there"


def test_pages_that_were_there_before_are_somebody_else_s(mount, cold):
    file, data = cold
    assert len(file.read_bytes()) > SIZE
    mounted = mount(file, "cache=page")
    assert read(mounted / "tensors/w.bin") == data
    assert resident(file) > 0.9 * SIZE


def test_bits_that_are_asked_for_here_and_there_are_right(mount, cold):
    file, data = cold
    mounted = mount(file, "cache=page")
    with open(mounted / "tensors/w.bin", "rb") as opened, mmap.mmap(
        opened.fileno(), 0, prot=mmap.PROT_READ
    ) as view:
        at = 1
        for _ in range(300):
            at = at * 48_271 % (2**31 - 1)
            begin = at % (SIZE - 100)
            assert view[begin : begin + 100] == data[begin : begin + 100]
