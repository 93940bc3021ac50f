"""Reading through the mount with the tools and calls that people use, in every mode."""

import hashlib
import os
import random
import shutil
import threading

import numpy as np
import pytest
import safetensors

import safetensors_file
from gguf_file import Gguf, pattern
from mounting import python, shell

MIB = 1 << 20
BIG = 3 * MIB + 13  # no multiple of anything
MODES = ["auto", "io=mmap,cache=direct", "io=mmap,cache=page", "io=pread,cache=direct", "io=pread,cache=page", "verify=off", "verify=once", "threads=1"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    model = Gguf().key("general.architecture", "str", "llama")
    model.tensor("small", "F32", (3, 5), np.arange(15, dtype="<f4"))
    model.tensor("big", "I8", (BIG,), pattern(BIG, seed=7))
    model.tensor("matrix", "F32", (1000, 700), pattern(2_800_000, seed=8))
    model.tensor("quantised", "Q4_K", (64, 4096))
    model.path = model.write(tmp_path_factory.mktemp("model") / "m.gguf")
    return model


@pytest.fixture(scope="module", params=MODES)
def mounted(request, source, shared_mount):
    return shared_mount(source.path, *([] if request.param == "auto" else [request.param]))


@pytest.fixture(scope="module")
def big(mounted):
    return mounted / "tensors/big.bin"


def test_cat(mounted, source):
    for name in ("small", "big", "matrix", "quantised"):
        assert shell('cat "$1"', mounted / f"tensors/{name}.bin").out == source.data_of(name)


def test_cmp_and_cp(mounted, big, source, tmp_path):
    (tmp_path / "true").write_bytes(source.data_of("big"))
    shell('cmp "$1" "$2"', big, tmp_path / "true")
    shell('cp "$1" "$2" && cmp "$2" "$3"', big, tmp_path / "copy", tmp_path / "true")
    shell('cmp "$1" "$2"', mounted / "source/m.gguf", source.path)


@pytest.mark.parametrize("block", [1, 511, 4096, 65536, MIB, 8 * MIB])
def test_dd_with_skip(big, source, block):
    data = source.data_of("big")
    for skip in (0, 1, 4095, 65535, 65536, 1_234_567, BIG - 1, BIG):
        count = max(1, 40_000 // block)
        done = shell('dd if="$1" bs="$2" skip="$3" count="$4" iflag=skip_bytes status=none', big, block, skip, count)
        assert done.out == data[skip : skip + block * count], (block, skip)


def test_head_tail_and_checksum(big, source):
    data = source.data_of("big")
    assert shell('head -c 100000 "$1"', big).out == data[:100_000]
    assert shell('tail -c 100000 "$1"', big).out == data[-100_000:]
    assert shell('sha256sum <"$1"', big).text.split()[0] == hashlib.sha256(data).hexdigest()


def test_pread_anywhere(big, source):
    data, dice = source.data_of("big"), random.Random(1)
    with open(big, "rb", buffering=0) as file:
        for _ in range(400):
            offset, length = dice.randrange(BIG + 10), dice.choice([1, 3, 100, 4096, 70_000, 300_000])
            assert os.pread(file.fileno(), length, offset) == data[offset : offset + length]


def test_the_end_of_a_file(big, source):
    data = source.data_of("big")
    with open(big, "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 100, BIG) == b""
        assert os.pread(file.fileno(), 100, BIG - 1) == data[-1:]
        assert os.pread(file.fileno(), 100, BIG + 5) == b""
        assert os.pread(file.fileno(), 100, 1 << 40) == b""
        assert file.seek(0, os.SEEK_END) == BIG
        assert file.read() == b""


def test_sendfile_copyfile_and_copy_file_range(big, source, tmp_path):
    data = source.data_of("big")
    shutil.copyfile(big, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data
    with open(big, "rb") as file, open(tmp_path / "sent", "wb") as out:
        place = 0
        while n := os.sendfile(out.fileno(), file.fileno(), place, BIG):
            place += n
    assert (tmp_path / "sent").read_bytes() == data
    assert shell('cat <"$1" | cat', big).out == data


def test_readv(big, source):
    data = source.data_of("big")
    with open(big, "rb", buffering=0) as file:
        parts = [bytearray(1000), bytearray(70_001), bytearray(5)]
        assert os.preadv(file.fileno(), parts, 12_345) == 71_006
    assert b"".join(parts) == data[12_345 : 12_345 + 71_006]


@pytest.mark.parametrize("flags, protection", [("MAP_SHARED", "PROT_READ"), ("MAP_PRIVATE", "PROT_READ"), ("MAP_PRIVATE", "PROT_READ|mmap.PROT_WRITE")])
def test_mmap(mounted, source, flags, protection, tmp_path):  # C05
    code = f"""
import mmap, os, sys
data = open(sys.argv[2], "rb").read()
fd = os.open(sys.argv[1], os.O_RDONLY)
with mmap.mmap(fd, 0, flags=mmap.{flags}, prot=mmap.{protection}) as view:
    assert len(view) == len(data)
    assert view[5000:9000] == data[5000:9000]
    assert view[-1:] == data[-1:]
    assert view[:] == data
    if {"WRITE" in protection}:
        view[4090:4100] = b"x" * 10
        assert view[4080:4110] == data[4080:4090] + b"x" * 10 + data[4100:4110]
assert os.pread(fd, len(data), 0)[:5000] == data[:5000]
"""
    for name in ("big", "matrix", "quantised"):
        (tmp_path / name).write_bytes(source.data_of(name))
        python(code, mounted / f"tensors/{name}.bin", tmp_path / name)
    python(code, mounted / "source/m.gguf", source.path)
    for name in ("tensors/matrix.npy", "tensors/matrix.json", "model.json", "metadata.json"):
        (tmp_path / "true").write_bytes((mounted / name).read_bytes())
        if (mounted / name).stat().st_size > 5000 or protection == "PROT_READ":
            python(code, mounted / name, tmp_path / "true")


def test_numpy(mounted, source):
    code = """
import sys
import numpy as np
true = np.frombuffer(open(sys.argv[2], "rb").read()[int(sys.argv[3]):][:2800000], "<f4").reshape(1000, 700)
for mode in (None, "r", "c"):
    loaded = np.load(sys.argv[1] + "/matrix.npy", mmap_mode=mode)
    assert loaded.dtype == np.dtype("<f4") and loaded.shape == (1000, 700) and not np.isfortran(loaded)
    assert loaded.tobytes() == true.tobytes()
    assert loaded[17, 3:9].tobytes() == true[17, 3:9].tobytes()
raw = np.memmap(sys.argv[1] + "/matrix.bin", dtype="<f4", mode="r", shape=(1000, 700))
assert raw.tobytes() == true.tobytes()
assert np.fromfile(sys.argv[1] + "/matrix.bin", "<f4").tobytes() == true.tobytes()
"""
    python(code, mounted / "tensors", source.path, source.place_of("matrix"))


def test_an_npy_is_its_header_and_the_bytes(mounted, source):
    raw = (mounted / "tensors/small.npy").read_bytes()
    assert raw[:6] == b"\x93NUMPY"
    assert raw[-60:] == source.data_of("small")
    assert (len(raw) - 60) % 64 == 0
    assert np.array_equal(np.load(mounted / "tensors/small.npy"), np.arange(15, dtype=np.float32).reshape(3, 5))


def test_many_readers_at_once(big, source):
    data, dice, failures = source.data_of("big"), random.Random(2), []

    def work(seed):
        mine = random.Random(seed)
        try:
            with open(big, "rb", buffering=0) as file:
                for _ in range(60):
                    offset, length = mine.randrange(BIG), mine.choice([10, 5000, 200_000])
                    if os.pread(file.fileno(), length, offset) != data[offset : offset + length]:
                        failures.append((seed, offset, length))
        except OSError as failed:
            failures.append(failed)

    threads = [threading.Thread(target=work, args=(dice.random(),), daemon=True) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads) and failures == []


def test_a_descriptor_outlives_other_opens(big, source):
    with open(big, "rb", buffering=0) as first:
        for _ in range(20):
            with open(big, "rb", buffering=0) as other:
                assert other.read(10) == source.data_of("big")[:10]
        assert os.pread(first.fileno(), 10, BIG - 10) == source.data_of("big")[-10:]


@pytest.mark.parametrize("options", [[], ["cache=direct"], ["cache=page"], ["io=pread"]])
def test_safe_open_on_the_source(mount, tmp_path, options):
    model = safetensors_file.plain()
    model.tensor("wide", "F32", (300, 1000))
    mounted = mount(model.write(tmp_path / "m.safetensors"), *options)
    code = """
import sys
import safetensors
with safetensors.safe_open(sys.argv[1], "np") as through, safetensors.safe_open(sys.argv[2], "np") as plain:
    assert sorted(through.keys()) == sorted(plain.keys()) and through.metadata() == plain.metadata()
    for name in ("embed.weight", "layer.weight", "wide"):
        assert through.get_tensor(name).tobytes() == plain.get_tensor(name).tobytes()
    assert through.get_slice("wide")[10:20, 5:7].tobytes() == plain.get_slice("wide")[10:20, 5:7].tobytes()
"""
    python(code, mounted / "source/m.safetensors", tmp_path / "m.safetensors")
    assert safetensors.deserialize((mounted / "source/m.safetensors").read_bytes())


def test_gguf_reader_on_the_source(mounted, source):
    code = """
import sys
import gguf
through, plain = gguf.GGUFReader(sys.argv[1]), gguf.GGUFReader(sys.argv[2])
assert [t.name for t in through.tensors] == [t.name for t in plain.tensors]
assert all(a.data.tobytes() == b.data.tobytes() for a, b in zip(through.tensors, plain.tensors))
"""
    python(code, mounted / "source/m.gguf", source.path)


def test_diff_names_the_tensor_that_differs(mount, tmp_path):  # C59
    one, two = Gguf(), Gguf()
    for name in ("same", "changed"):
        one.tensor(name, "F32", (64,), pattern(256, seed=1))
        two.tensor(name, "F32", (64,), pattern(256, seed=1 if name == "same" else 2))
    first, second = mount(one.write(tmp_path / "1.gguf")), mount(two.write(tmp_path / "2.gguf"))
    said = shell('diff -rq "$1" "$2"', first / "tensors", second / "tensors", code=1).text
    assert "changed.bin" in said and "same.bin" not in said


def test_large_reads_arrive_in_large_requests(root, mount, tmp_path):  # C46
    size = 64 * MIB
    model = Gguf()
    path = tmp_path / "m.gguf"
    model.tensor("wide", "F32", (size // 4,), bytes(size))
    model.write(path)
    mounted = mount(path)
    before = mounted.status["reads"]
    shell('dd if="$1" of=/dev/null bs=1M status=none', mounted / "tensors/wide.bin")
    assert mounted.status["reads"] - before <= 80


def test_parallel_page_faults_do_not_hang(mount, tmp_path):  # C13
    model = Gguf()
    for number in range(100):
        model.tensor(f"t{number}", "F32", (256 * 1024,), pattern(MIB, seed=number))
    path = model.write(tmp_path / "m.gguf")
    code = """
import mmap, os, random, sys, threading
views, true = [], open(sys.argv[2], "rb").read()
start = int(sys.argv[3])
for n in range(100):
    fd = os.open(f"{sys.argv[1]}/t{n}.bin", os.O_RDONLY)
    views.append(mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))
bad = []
def work(seed):
    dice = random.Random(seed)
    for _ in range(100):
        n, page = dice.randrange(100), dice.randrange(256) * 4096
        place = start + (n << 20) + page
        if views[n][page : page + 4096] != true[place : place + 4096]:
            bad.append((n, page))
threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not bad, bad
"""
    for options in ([], ["cache=page"], ["io=pread"]):
        mounted = mount(path, *options)
        assert mounts_name(mounted) != "hf-mount"
        python(code, mounted / "tensors", path, model.place_of("t0"))


def mounts_name(mounted):
    return shell('findmnt -no SOURCE "$1"', mounted.path).text.strip()
