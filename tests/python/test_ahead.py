"""Bytes that are made ready before they are asked for, and files that the kernel reads by itself."""

import errno
import mmap
import os
import threading
import time

import pytest

from safetensors_file import Safetensors

MIB = 1 << 20
ROOT = os.getuid() == 0


@pytest.fixture
def model(tmp_path, weightfs):
    """One sealed tensor of some megabytes that does not end with a block of any size."""
    file = tmp_path / "m.safetensors"
    data = (bytes(range(251)) * (10 * MIB // 251))[: 9 * MIB + 221_568]
    Safetensors().tensor("w", "U8", [len(data)], data).write(file)
    weightfs.run("seal", file)
    return file, data


def aligned(size):
    """A buffer that begins on a page, so that the kernel asks for all of it at once."""
    return memoryview(mmap.mmap(-1, size))


def test_a_read_past_the_end_gives_nothing_and_harms_nobody(mount, model):
    file, data = model
    mounted = mount(file, "cache=direct")
    block = aligned(MIB)
    fd = os.open(mounted / "tensors/w.bin", os.O_RDONLY)
    try:
        for _ in range(8):
            at = 0
            while at + MIB < len(data):
                assert os.preadv(fd, [block], at) == MIB
                at += MIB
                threading.Event().wait(0.001)  # time to make the last answer
            for past in (5, 1, 100_000, 0):
                assert os.pread(fd, 100, len(data) + past) == b""
            assert os.pread(fd, MIB, at) == data[at:]
    finally:
        os.close(fd)
    assert "internal error" not in mounted.log()


@pytest.mark.parametrize("cache", ["auto", "page", "direct"])
@pytest.mark.parametrize("how", ["read", "mapped"])
def test_a_file_that_was_open_before_it_was_all_checked_can_be_opened_again(mount, model, cache, how):
    file, _ = model
    whole = file.read_bytes()
    mounted = mount(file, "verify=once", f"cache={cache}")
    path = mounted / "source" / file.name
    with open(path, "rb") as first:
        view = mmap.mmap(first.fileno(), 0, prot=mmap.PROT_READ) if how == "mapped" else None
        assert first.read() == whole
        # The kernel refuses an open that is not like those there are.
        for _ in range(3):
            assert path.read_bytes() == whole
        with open(path, "rb") as second, mmap.mmap(second.fileno(), 0, prot=mmap.PROT_READ) as map:
            assert map[:] == whole
        with mmap.mmap(first.fileno(), 0, prot=mmap.PROT_READ) as map:
            assert map[:] == whole
        if view:
            view.close()
    # Nobody has it open any more: now it may be passed through.
    reads = mounted.status["reads"]
    assert path.read_bytes() == whole
    if ROOT and mounted.status["reads"] > reads:
        pytest.skip("this kernel does not pass reads through")


@pytest.mark.parametrize("verify", ["once", "off"])
def test_many_may_open_and_map_a_source_at_once(mount, model, verify):
    file, _ = model
    whole = file.read_bytes()
    mounted = mount(file, f"verify={verify}", "cache=page")
    path = mounted / "source" / file.name
    failed = []

    def opens(turn):
        try:
            for i in range(12):
                with open(path, "rb") as source:
                    if (i + turn) % 3:
                        at = (i * 7919 + turn) % len(whole)
                        assert os.pread(source.fileno(), 5000, at) == whole[at : at + 5000]
                    else:
                        with mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ) as map:
                            assert map[:] == whole
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=opens, args=(turn,)) for turn in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[:3]


@pytest.mark.parametrize("dtype, to", [("F64", "f16"), ("F64", "f32"), ("F32", "bf16")])
def test_a_view_narrower_than_its_tensor_takes_no_more_memory(mount, tmp_path, dtype, to):
    file = tmp_path / "wide.safetensors"
    size = {"F64": 8, "F32": 4}[dtype]
    count = 4 * MIB // size * 4
    Safetensors().tensor("w", dtype, [count], bytes(count * size)).write(file)
    mounted = mount(file, "threads=8")
    peak = [0]

    def read(turn):
        fd = os.open(mounted / to / "w.bin", os.O_RDONLY)
        block = aligned(MIB)
        at = turn * 4096
        while os.preadv(fd, [block], at):
            at += MIB
            peak[0] = max(peak[0], mounted.rss_anon())
        os.close(fd)

    for _ in range(4):
        threads = [threading.Thread(target=read, args=(turn,)) for turn in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert peak[0] < 48 * MIB, peak[0] / MIB


def test_bad_chunks_of_a_local_model_keep_only_their_readers_waiting(mount, tmp_path, weightfs):
    """Each is looked at again for a fifth of a second; there are more of them than threads."""
    many, size = 48, 300_000
    file = tmp_path / "m.safetensors"
    model = Safetensors()
    for n in range(many):
        model.tensor(f"t{n}", "U8", [size], bytes([n]) * size)
    model.write(file)
    weightfs.run("seal", file)
    whole = bytearray(file.read_bytes())
    first = len(whole) - many * size
    for n in range(many):
        whole[first + n * size + 70_000] ^= 1
    file.write_bytes(whole)
    mounted = mount(file, "threads=2", "io=mmap")
    outcomes, slowest = [], 0.0

    def read(n):
        with open(mounted / f"tensors/t{n}.bin", "rb", buffering=0) as tensor:
            try:
                outcomes.append(len(os.pread(tensor.fileno(), 4096, 70_000 - 100)))
            except OSError as error:
                outcomes.append(error.errno)

    readers = [threading.Thread(target=read, args=[n]) for n in range(many)]
    for reader in readers:
        reader.start()
    begin = time.monotonic()
    while any(reader.is_alive() for reader in readers):
        before = time.monotonic()
        os.stat(mounted / f"tensors/t{int(before * 1e6) % many}.json")
        os.listdir(mounted / "metadata")
        (mounted / ".weightfs/status.json").read_bytes()
        slowest = max(slowest, time.monotonic() - before)
    took = time.monotonic() - begin
    print(f"{many} readers in {took:.2f} s; stat, readdir and status in {slowest * 1000:.0f} ms at most")
    assert outcomes == [errno.EIO] * many
    # They would wait for all of it.
    assert took < 0.5 or slowest < took / 4
