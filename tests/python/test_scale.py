"""Many tensors, large files, little memory."""

import json
import os
import struct
import time

import pytest

import safetensors_file
from gguf_file import Gguf, pad
from mounting import shell

MIB = 1 << 20
MANY = 100_000


def sparse_gguf(path, count, nbytes):
    """A GGUF of count F32 tensors of nbytes each, without writing their data; shape [1024, n]."""
    shape = struct.pack("<QQ", nbytes // 4096, 1024)
    records = []
    for number in range(count):
        name = f"blk.{number // 10}.tensor_{number % 10}.weight".encode()
        records.append(struct.pack("<Q", len(name)) + name + struct.pack("<I", 2) + shape + struct.pack("<IQ", 0, number * nbytes))
    head, _ = Gguf(n_tensors=count).key("general.architecture", "str", "llama").header()
    head += b"".join(records)
    start = pad(len(head), 32)
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(start + count * nbytes)
    return start


def test_the_listing_of_100_000_tensors(mount, tmp_path):  # C53
    header, place = {}, 0
    for number in range(MANY):
        header[f"layers.{number}.weight"] = {"dtype": "F32", "shape": [4], "data_offsets": [place, place + 16]}
        place += 16
    data = b"".join(struct.pack("<4I", n, n, n, n) for n in range(MANY))
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors_file.encode(header, data))
    start = time.monotonic()
    mounted = mount(path)
    assert time.monotonic() - start < 2
    start = time.monotonic()
    listed = shell('ls -U "$1"', mounted / "tensors").text.splitlines()
    assert time.monotonic() - start < 4
    assert len(listed) == len(set(listed)) == 3 * MANY
    for number in (0, 1, 77_777, MANY - 1):
        assert mounted.bin(f"layers.{number}.weight") == struct.pack("<4I", *[number] * 4)
    assert mounted.status["bytes_served"] < 100_000  # listing reads no data
    assert mounted.rss_anon() < 48 * MIB


@pytest.mark.slow
@pytest.mark.patience(240)
def test_a_tebibyte_of_100_000_tensors_in_little_memory(weightfs, mount, tmp_path):
    nbytes = (1 << 40) // MANY // 4096 * 4096
    path = tmp_path / "m.gguf"
    start = sparse_gguf(path, MANY, nbytes)
    assert path.stat().st_size > 0.99 * (1 << 40) and path.stat().st_blocks * 512 < 64 * MIB
    begin = time.monotonic()
    mounted = mount(path)
    ready = time.monotonic() - begin
    assert ready < 3
    begin = time.monotonic()
    listed = os.listdir(mounted / "tensors")
    assert time.monotonic() - begin < 4 and len(listed) == 3 * MANY
    assert int(shell('find "$1" -type f | wc -l', mounted / "tensors", timeout=120).text) == 3 * MANY
    for number in range(0, MANY, 9_973):
        name = f"blk.{number // 10}.tensor_{number % 10}.weight"
        file = mounted / f"tensors/{name}.bin"
        assert file.stat().st_size == nbytes
        with open(file, "rb", buffering=0) as opened:
            assert os.pread(opened.fileno(), MIB, nbytes - MIB) == bytes(MIB)
        about = mounted.json(f"tensors/{name}.json")
        assert about["source"]["offset"] == start + number * nbytes
        assert about["shape"] == [1024, nbytes // 4096]
    readers = " ".join(f'(dd if="$1/blk.{n}.tensor_0.weight.bin" of=/dev/null bs=1M status=none) &' for n in range(8))
    shell(f"{readers} wait", mounted / "tensors", timeout=120)
    assert mounted.rss_anon() < 48 * MIB
    assert mounted.status["rss_bytes"] > 0


@pytest.mark.slow
@pytest.mark.patience(120)
def test_a_sealed_mount_of_100_000_tensors(weightfs, mount, tmp_path):  # C53
    path = tmp_path / "m.gguf"
    sparse_gguf(path, MANY, 4096)
    weightfs.run("seal", path, timeout=120)
    begin = time.monotonic()
    mounted = mount(path)
    assert time.monotonic() - begin < 2
    assert mounted.model["sealed"] is True
    assert mounted.bin("blk.9999.tensor_9.weight") == bytes(4096)
    assert mounted.rss_anon() < 48 * MIB


@pytest.mark.slow
@pytest.mark.patience(120)
def test_the_memory_of_many_models_that_are_read_whole(mount, tmp_path):
    """4 bytes a chunk, and what README says a model takes besides."""
    chunks, some, all_of_them = 64, 100, 500
    model = Gguf().key("general.architecture", "str", "llama").tensor("a", "F32", (16384 * chunks,), bytes(65536 * chunks)).encode()
    for number in range(all_of_them):
        path = tmp_path / f"models/m{number:03}"
        path.mkdir(parents=True)
        with open(path / "m.gguf", "wb") as file:  # zeros behind the header
            file.write(model[:4096])
            file.truncate(len(model))
    mounted = mount(tmp_path / "models", flags=["--recursive"])
    assert mounted.rss_anon() < 4 * MIB + all_of_them * 8192

    def growth(script):
        """Of one model, when the tables that all share and the threads are there."""
        shell(f'cd "$1" && {script}', mounted.path / ".")
        before = mounted.rss_anon()
        shell(f'cd "$1" && {script.replace("m0", "m[1-4]")}', mounted.path / ".", timeout=120)
        return (mounted.rss_anon() - before) / (all_of_them - some)

    assert growth("cat m0*/tensors/a.bin >/dev/null") < 4 * chunks + 1024
    assert growth("find m0* -type f -size -512k -exec cat {} + >/dev/null") < 16 * 1024


def test_paddings_do_not_swell_the_seal(weightfs, mount, tmp_path):
    """One behind each tensor: they are covered, and told in a line where they are zeros."""
    count, records = 5000, b""
    for number in range(count):
        name = f"blk.{number}.weight".encode()
        records += struct.pack("<Q", len(name)) + name + struct.pack("<IQIQ", 1, 4, 0, 32 * number)
    head, _ = Gguf(n_tensors=count).key("general.architecture", "str", "llama").header()
    head += records
    start = pad(len(head), 32)
    data = b"".join(struct.pack("<4f", n, 1, 2, 3) + bytes(16) for n in range(count))
    path = tmp_path / "m.gguf"
    path.write_bytes(head + bytes(start - len(head)) + data)
    weightfs.run("seal", path)
    seal = path.with_name("m.gguf.weightfs.json")
    assert seal.stat().st_size < 240 * count
    regions = json.loads(seal.read_bytes())["body"]["regions"]
    assert [part["kind"] for part in regions] == ["header", "trailing", "padding"]
    assert (regions[2]["zeros"], regions[2]["nbytes"]) == (count - 1, 16 * (count - 1))
    assert mount(path).bin("blk.4999.weight") == struct.pack("<4f", 4999, 1, 2, 3)
    weightfs.run("verify", path)
    bad = bytearray(path.read_bytes())
    bad[start + 32 * 1234 + 20] = 7
    path.write_bytes(bad)
    (entry,) = weightfs.run("verify", "--json", path, code=3).json()["models"][0]["bad"]
    assert entry["tensor"] is None
    assert entry["source"] == {"file": "m.gguf", "offset": start + 32 * 1234 + 16, "length": 16}
    # Anything else there is told one by one when it is sealed, and then it is what is expected.
    weightfs.run("seal", "--force", path)
    regions = json.loads(seal.read_bytes())["body"]["regions"]
    assert [part.get("zeros") for part in regions] == [None, None, None, count - 2]
    weightfs.run("verify", path)


@pytest.mark.slow
@pytest.mark.patience(120)
@pytest.mark.parametrize("over", [0, 1])
def test_a_header_of_the_longest_length_and_of_a_byte_more(mount, tmp_path, over):
    """model.safetensors is there as long as no dtype's header passes 100,000,000 bytes."""
    names = [f"{number:05}".ljust(60_000, "x") for number in range(1665)]

    def longest(names):
        def text(dtype, nbytes):
            entries = {"__metadata__": {"format": "pt"}}
            for at in range(len(names)):
                span = [nbytes * at, nbytes * (at + 1)]
                entries[f"{at:05}"] = {"dtype": dtype, "shape": [4], "data_offsets": span}
            short = len(json.dumps(entries, separators=(",", ":")))
            return short + sum(len(name) - 5 for name in names)

        return max(text("F32", 16), text("F16", 8), text("BF16", 8))

    # Data is aligned to 64 bytes, so that a header of more than this is padded past the limit.
    room = (100_000_000 + 8) // 64 * 64 - 8 + over
    names.append("99999")
    names[-1] = names[-1].ljust(5 + room - longest(names), "x")
    assert longest(names) == room and len(names[-1]) < 65_536
    records = b"".join(
        struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQIQ", 1, 4, 0, 32 * number)
        for number, name in enumerate(names)
    )
    head, _ = Gguf(n_tensors=len(names)).key("general.architecture", "str", "llama").header()
    path = tmp_path / "m.gguf"
    with open(path, "wb") as file:
        file.write(head + records)
        file.truncate(pad(len(head + records), 32) + 32 * len(names))
    mounted = mount(path)
    assert (mounted / "model.safetensors").exists() == (mounted / "bf16/model.safetensors").exists() == (not over)
    assert any("too long" in text for text in mounted.model["warnings"]) == bool(over)
    if not over:
        with open(mounted / "bf16/model.safetensors", "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(length))
        assert length <= 100_000_000 and len(header) == len(names) + 1
