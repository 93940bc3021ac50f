"""Seals, damage, and what a reader gets of a damaged file."""

import base64
import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import time
import zlib

import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf, pattern
from mounting import Weightfs, is_mounted, python, shell, xattr

KIB = 1024
CHUNK = 64 * KIB
SIZE = 300 * KIB + 12  # five chunks, the last of them short


def model():
    return (
        Gguf()
        .key("general.architecture", "str", "llama")
        .tensor("first", "F32", (SIZE // 4,), pattern(SIZE, seed=1))
        .tensor("second", "F32", (SIZE // 4,), pattern(SIZE, seed=2))
        .tensor("small", "F32", (3,), pattern(12, seed=3))
    )


class Sealed:
    """A sealed model on disk, and ways to damage it."""

    def __init__(self, weightfs, path, *arguments):
        self.file = model()
        self.path = self.file.write(path)
        self.seal = path.with_name(path.name + ".weightfs.json")
        weightfs.run("seal", self.path, *arguments)

    def flip(self, place, bit=5):
        """Flip one bit at this offset of the file, and keep its times."""
        times = self.path.stat()
        with open(self.path, "r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit]))
        os.utime(self.path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def flip_in(self, name, place):
        self.flip(self.file.place_of(name) + place)


@pytest.fixture
def sealed(weightfs, tmp_path):
    return Sealed(weightfs, tmp_path / "m.gguf")


def crc(data):
    return f"{zlib.crc32(data):08x}"


# --- the seal itself -------------------------------------------------------------------
def test_a_seal_is_one_json_file_beside_the_model(sealed):
    raw = sealed.seal.read_bytes()
    found = json.loads(raw)
    assert list(found)[:3] == ["weightfs_manifest", "body_sha256", "body"]
    assert found["weightfs_manifest"] == 1
    start = raw.index(b'"body":') + len(b'"body":')
    start += len(raw[start:]) - len(raw[start:].lstrip())
    body, length = json.JSONDecoder().raw_decode(raw[start:].decode())
    assert body == found["body"]
    assert hashlib.sha256(raw[start:].decode()[:length].encode()).hexdigest() == found["body_sha256"]
    assert sorted(os.listdir(sealed.path.parent)) == ["home", "m.gguf", "m.gguf.weightfs.json"]


def test_a_seal_covers_every_byte_once(sealed):
    body = json.loads(sealed.seal.read_bytes())["body"]
    spans = [(part["offset"], part["nbytes"]) for part in body["regions"] + body["tensors"] if part["nbytes"]]
    place = 0
    for offset, nbytes in sorted(spans):
        assert offset == place
        place += nbytes
    assert place == sealed.path.stat().st_size


def test_the_sums_in_a_seal(sealed):
    body = json.loads(sealed.seal.read_bytes())["body"]
    raw = sealed.path.read_bytes()
    assert body["sources"][0]["sha256"] == hashlib.sha256(raw).hexdigest()
    assert body["sources"][0]["size"] == len(raw)
    assert body["chunk"]["size"] == CHUNK
    for part in body["regions"] + body["tensors"]:
        data = raw[part["offset"] : part["offset"] + part["nbytes"]]
        assert part["crc32"] == crc(data)
        chunks = [zlib.crc32(data[at : at + CHUNK]) for at in range(0, len(data), CHUNK)]
        assert list(struct.unpack(f"<{len(chunks)}I", base64.b64decode(part["crcs"]))) == chunks
    by_name = {part["name"]: part for part in body["tensors"]}
    for name in ("first", "second", "small"):
        assert by_name[name]["sha256"] == hashlib.sha256(sealed.file.data_of(name)).hexdigest()
        assert by_name[name]["offset"] == sealed.file.place_of(name)


def test_a_sealed_mount_says_so(sealed, mount):
    mounted = mount(sealed.path)
    found = mounted.model
    assert found["sealed"] is True and found["trust"] == "sidecar"
    assert found["sources"][0]["sha256"] == hashlib.sha256(sealed.path.read_bytes()).hexdigest()
    for name in ("first", "small"):
        data = sealed.file.data_of(name)
        checksum = mounted.json(f"tensors/{name}.json")["checksum"]
        assert checksum == {"crc32": crc(data), "sha256": hashlib.sha256(data).hexdigest(), "chunk_bytes": CHUNK}
        path = mounted / f"tensors/{name}.bin"
        assert xattr(path, "crc32") == checksum["crc32"] and xattr(path, "sha256") == checksum["sha256"]
        assert xattr(path, "trust") == "sidecar"
        assert mounted.bin(name) == data
    assert mounted.status["chunks_checked"] >= 6
    assert mounted.status["mismatches"] == 0


def test_the_list_of_sha256_sums_is_checked_by_the_stock_tool(sealed, mount):
    mounted = mount(sealed.path)
    said = shell('cd "$1" && sha256sum -c SHA256SUMS', mounted.path).text.splitlines()
    assert said == ["source/m.gguf: OK", "tensors/first.bin: OK", "tensors/second.bin: OK", "tensors/small.bin: OK"]


def test_the_list_of_crc32_sums(sealed, mount):
    lines = (mount(sealed.path) / "tensors.sfv").read_text().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith(";"))
    assert {name.rpartition("/")[2]: value.lower() for name, value in found.items()} == {f"{name}.bin": crc(sealed.file.data_of(name)) for name in ("first", "second", "small")}


def test_the_list_of_sha256_sums_leaves_out_what_is_not_stored_so(weightfs, mount, tmp_path):
    path = Gguf(big=True).tensor("odd\nname", "I8", (3,)).tensor("swapped", "F32", (3,)).write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    mounted = mount(path)
    said = shell('cd "$1" && sha256sum -c SHA256SUMS', mounted.path).text.splitlines()
    assert said == ["source/m.gguf: OK", "tensors/odd%0Aname.bin: OK"]
    assert mounted.json("tensors/swapped.json")["checksum"] is None


def test_an_unsealed_mount_says_so(mount, tmp_path):
    mounted = mount(model().write(tmp_path / "m.gguf"))
    assert "seal" in mounted.result.err and mounted.result.err.startswith("weightfs: ")
    assert (mounted.model["sealed"], mounted.model["trust"], mounted.status["trust"]) == (False, "tofu", "tofu")
    assert not (mounted / "SHA256SUMS").exists()


def test_seal_leaves_a_seal_that_fits(weightfs, sealed):
    before = sealed.seal.stat()
    weightfs.run("seal", sealed.path)
    after = sealed.seal.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_seal_does_not_replace_one_that_does_not_fit(weightfs, sealed):
    before = sealed.seal.read_bytes()
    sealed.flip_in("first", 100)
    weightfs.run("seal", sealed.path, code=5)
    assert sealed.seal.read_bytes() == before
    weightfs.run("seal", sealed.path, "--force")
    assert sealed.seal.read_bytes() != before
    weightfs.run("verify", sealed.path)


@pytest.mark.parametrize("word, size", [("4KiB", 4096), ("1MiB", 1 << 20), ("16MiB", 1 << 24), ("4096", 4096)])
def test_chunk_sizes(weightfs, mount, tmp_path, word, size):
    sealed = Sealed(weightfs, tmp_path / "m.gguf", "--chunk-size", word)
    assert json.loads(sealed.seal.read_bytes())["body"]["chunk"]["size"] == size
    mounted = mount(sealed.path)
    assert mounted.json("tensors/first.json")["checksum"]["chunk_bytes"] == size
    assert mounted.bin("first") == sealed.file.data_of("first")


@pytest.mark.parametrize("word", ["2KiB", "32MiB", "5000", "0", "large"])
def test_chunk_sizes_that_are_none(weightfs, tmp_path, word):
    path = model().write(tmp_path / "m.gguf")
    weightfs.run("seal", path, "--chunk-size", word, code=2)
    assert not path.with_name("m.gguf.weightfs.json").exists()


def test_seal_to_another_file(weightfs, mount, tmp_path):
    path = model().write(tmp_path / "m.gguf")
    weightfs.run("seal", path, "--output", tmp_path / "kept.json")
    assert not path.with_name("m.gguf.weightfs.json").exists()
    assert mount(path, f"seal={tmp_path / 'kept.json'}").model["sealed"] is True
    assert mount(path).model["sealed"] is False


def test_seal_without_sha256(weightfs, mount, tmp_path):
    sealed = Sealed(weightfs, tmp_path / "m.gguf", "--no-sha256")
    checksum = mount(sealed.path).json("tensors/first.json")["checksum"]
    assert checksum["crc32"] == crc(sealed.file.data_of("first"))
    assert not checksum.get("sha256")
    weightfs.run("verify", sealed.path)


def test_seal_of_several_models_and_of_safetensors(weightfs, tmp_path):
    one = safetensors_file.plain().write(tmp_path / "a.safetensors")
    two = model().write(tmp_path / "b.gguf")
    weightfs.run("seal", one, two)
    weightfs.run("verify", one, two)
    assert (tmp_path / "a.safetensors.weightfs.json").exists()


def test_seal_of_a_link_lies_beside_the_link(weightfs, tmp_path):
    (tmp_path / "store").mkdir()
    model().write(tmp_path / "store/blob")
    (tmp_path / "m.gguf").symlink_to("store/blob")
    weightfs.run("seal", tmp_path / "m.gguf")
    assert (tmp_path / "m.gguf.weightfs.json").exists() and os.listdir(tmp_path / "store") == ["blob"]
    weightfs.run("verify", tmp_path / "m.gguf")


def test_a_copy_of_model_and_seal_is_no_damage(weightfs, sealed, mount, tmp_path):
    (tmp_path / "other").mkdir()
    shell('cp "$1" "$1.weightfs.json" "$2"', sealed.path, tmp_path / "other")
    copy = tmp_path / "other/m.gguf"
    weightfs.run("verify", copy)
    mounted = mount(copy)
    assert mounted.model["sealed"] is True and mounted.bin("second") == sealed.file.data_of("second")


# --- verify ----------------------------------------------------------------------------
def test_verify_of_a_sound_model(weightfs, sealed):
    weightfs.run("verify", sealed.path)
    found = weightfs.run("verify", sealed.path, "--json").json()["models"]
    assert len(found) == 1 and found[0]["result"] == "good" and found[0]["bad"] == []
    assert found[0]["model"].endswith("m.gguf")


def test_verify_names_tensor_chunk_and_offset(weightfs, sealed):  # C02
    place = 200_000
    sealed.flip_in("first", place)
    result = weightfs.run("verify", sealed.path, code=3)
    said = result.err + result.text
    assert "first" in said
    found = weightfs.run("verify", sealed.path, "--json", code=3).json()["models"][0]
    start = place // CHUNK * CHUNK
    raw = sealed.path.read_bytes()
    at = sealed.file.place_of("first") + start
    assert found["result"] == "damaged"
    assert len(found["bad"]) == 1
    bad = found["bad"][0]
    assert (bad["tensor"], bad["chunk"]) == ("first", place // CHUNK)
    assert bad["source"] == {"file": "m.gguf", "offset": at, "length": CHUNK}
    assert bad["expected"] == crc(sealed.file.data_of("first")[start : start + CHUNK])
    assert bad["found"] == crc(raw[at : at + CHUNK])


def test_verify_finds_every_damaged_chunk(weightfs, sealed):
    for name, place in (("first", 0), ("first", SIZE - 1), ("second", CHUNK), ("small", 5)):
        sealed.flip_in(name, place)
    found = weightfs.run("verify", sealed.path, "--json", code=3).json()["models"][0]["bad"]
    assert [(bad["tensor"], bad["chunk"]) for bad in found] == [("first", 0), ("first", 4), ("second", 1), ("small", 0)]
    assert found[1]["source"]["length"] == SIZE - 4 * CHUNK


@pytest.mark.parametrize("where", ["header", "padding"])
def test_verify_finds_damage_in_header_and_padding(weightfs, sealed, where):
    raw = sealed.path.read_bytes()
    place = raw.index(b"llama") if where == "header" else sealed.file.place_of("small") + 12 + 3
    assert where == "header" or raw[place - 3 : place + 17] == bytes(20)
    sealed.flip(place, bit=0)
    found = weightfs.run("verify", sealed.path, "--json", code=3).json()["models"][0]["bad"]
    assert [bad["tensor"] for bad in found] == [None]
    source = found[0]["source"]
    assert source["file"] == "m.gguf" and source["offset"] <= place < source["offset"] + source["length"]


def test_verify_of_an_unsealed_model(weightfs, tmp_path):
    path = model().write(tmp_path / "m.gguf")
    assert "m.gguf" in weightfs.run("verify", path, code=4).err
    found = weightfs.run("verify", path, "--json", code=4).json()["models"][0]
    assert (found["result"], found["bad"]) == ("unsealed", [])


def test_verify_of_another_files_seal(weightfs, sealed, tmp_path):
    other = Gguf().tensor("other", "F32", (9,)).write(tmp_path / "o.gguf")
    shutil.copy(sealed.seal, tmp_path / "o.gguf.weightfs.json")
    weightfs.run("verify", other, code=5)
    assert weightfs.run("verify", other, "--json", code=5).json()["models"][0]["result"] == "seal"


def test_verify_against_an_expected_digest(weightfs, tmp_path):
    path = model().write(tmp_path / "m.gguf")
    true = hashlib.sha256(path.read_bytes()).hexdigest()
    weightfs.run("verify", path, "--expect-sha256", true)
    weightfs.run("verify", path, "--expect-sha256", true.upper())
    weightfs.run("verify", path, "--expect-sha256", "0" * 64, code=3)
    weightfs.run("verify", path, "--expect-sha256", "xyz", code=2)


def test_the_first_of_several_codes(weightfs, tmp_path):
    sound, bad = Sealed(weightfs, tmp_path / "sound.gguf"), Sealed(weightfs, tmp_path / "bad.gguf")
    bad.flip_in("first", 0)
    unsealed = model().write(tmp_path / "unsealed.gguf")
    weightfs.run("verify", sound.path, unsealed, code=4)
    weightfs.run("verify", unsealed, bad.path, sound.path, code=3)
    weightfs.run("verify", unsealed, bad.path, tmp_path / "missing.gguf", code=1)
    results = weightfs.run("verify", unsealed, bad.path, sound.path, "--json", code=3).json()["models"]
    assert [found["result"] for found in results] == ["unsealed", "damaged", "good"]


# --- reading a damaged file ------------------------------------------------------------
MODES = ["io=mmap,cache=direct", "io=mmap,cache=page", "io=pread,cache=direct", "io=pread,cache=page", "verify=once"]


def read_until_error(path, block):
    """What read() gives before it fails, and the error's number."""
    got = b""
    with open(path, "rb", buffering=0) as file:
        while True:
            try:
                piece = file.read(block)
            except OSError as failed:
                return got, failed.errno
            if not piece:
                return got, None
            got += piece


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block", [1000, 4096, 128 * KIB, 1 << 20])
def test_a_reader_gets_exactly_the_good_prefix(sealed, mount, mode, block):  # C02
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path, mode)
    path, data = mounted / "tensors/first.bin", sealed.file.data_of("first")
    got, error = read_until_error(path, block)
    assert error == errno.EIO
    assert len(got) == 3 * CHUNK and got == data[: 3 * CHUNK]
    assert path.stat().st_size == SIZE


@pytest.mark.parametrize("verify", ["always", "once", "off"])
def test_what_a_reader_gets_in_front_of_damage_is_counted_and_nothing_else(sealed, mount, verify):
    """The good prefix counts once, in whole models and in other dtypes too; an error does not."""
    sealed.flip_in("second", 3 * CHUNK + 7)
    mounted = mount(sealed.path, "cache=direct", f"verify={verify}")
    files = ["tensors/second.bin", "tensors/first.bin", "f16/second.bin", "f16/first.npy", "model.safetensors", "model.gguf"]
    served = 0
    for name in files:
        got, error = read_until_error(mounted / name, 1 << 20)
        assert error == (None if verify == "off" or "first" in name else errno.EIO)
        served += len(got)
        assert mounted.status["bytes_served"] == served, name
        assert f"weightfs_bytes_served_total {served}" in (mounted / ".weightfs/metrics").read_text().splitlines()



@pytest.mark.parametrize("mode", MODES)
def test_everything_beside_the_bad_chunk_is_served(sealed, mount, mode):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path, mode)
    data = sealed.file.data_of("first")
    for _ in range(3):  # also after the failure is known
        with open(mounted / "tensors/first.bin", "rb", buffering=0) as file:
            for at in range(0, SIZE, 4096):
                if at // CHUNK == 3:
                    with pytest.raises(OSError) as failed:
                        os.pread(file.fileno(), 4096, at)
                    assert failed.value.errno == errno.EIO
                else:
                    assert os.pread(file.fileno(), 4096, at) == data[at : at + 4096], at
            assert os.pread(file.fileno(), 1 << 20, 4 * CHUNK) == data[4 * CHUNK :]
    assert mounted.bin("second") == sealed.file.data_of("second")
    assert mounted.bin("small") == sealed.file.data_of("small")


@pytest.mark.parametrize("place", [0, CHUNK - 1, CHUNK, SIZE - 1])
def test_damage_at_the_edges_of_chunks(sealed, mount, place):
    sealed.flip_in("second", place)
    mounted = mount(sealed.path)
    got, error = read_until_error(mounted / "tensors/second.bin", 1 << 20)
    good = place // CHUNK * CHUNK
    assert (len(got), error) == (good, errno.EIO) and got == sealed.file.data_of("second")[:good]


@pytest.mark.parametrize("mode", MODES)
def test_stock_tools_on_damage(sealed, mount, mode, tmp_path):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path, mode)
    path, data = mounted / "tensors/first.bin", sealed.file.data_of("first")
    done = shell('cat "$1"', path, code=1)
    assert done.out == data[: 3 * CHUNK] and "Input/output error" in done.err
    assert "Input/output error" in shell('cp "$1" "$2"', path, tmp_path / "copy", code=1).err
    assert shell('dd if="$1" bs=65536 skip=4 status=none', path).out == data[4 * CHUNK :]
    assert shell('head -c 196608 "$1"', path).out == data[: 3 * CHUNK]
    assert "Input/output error" in shell('sha256sum "$1"', path, code=1).err


@pytest.mark.parametrize("mode", MODES)
def test_sendfile_never_sends_a_bad_byte(sealed, mount, mode, tmp_path):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path, mode)
    data, error = sealed.file.data_of("first"), None
    with open(mounted / "tensors/first.bin", "rb") as file, open(tmp_path / "sent", "wb") as out:
        place = 0
        try:
            while n := os.sendfile(out.fileno(), file.fileno(), place, SIZE):
                place += n
        except OSError as failed:
            error = failed.errno
    got = (tmp_path / "sent").read_bytes()
    assert error == errno.EIO and len(got) <= 3 * CHUNK and got == data[: len(got)]
    assert (mounted / "tensors/first.bin").stat().st_size == SIZE


@pytest.mark.parametrize("mode", MODES)
def test_a_mapping_dies_on_the_bad_pages_only(sealed, mount, mode, tmp_path):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path, mode)
    (tmp_path / "true").write_bytes(sealed.file.data_of("first"))
    code = """
import mmap, os, sys
true = open(sys.argv[2], "rb").read()
fd = os.open(sys.argv[1], os.O_RDONLY)
view = mmap.mmap(fd, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
assert len(view) == len(true)
for at in range(0, len(true), 4096):
    if at // 65536 != 3:
        assert view[at : at + 4096] == true[at : at + 4096], at
print("good", flush=True)
if len(sys.argv) > 3:
    view[int(sys.argv[3])]
    print("served a bad page")
"""
    assert python(code, mounted / "tensors/first.bin", tmp_path / "true").split() == ["good"]
    for place in (3 * CHUNK, 200_000, 4 * CHUNK - 1):
        assert python(code, mounted / "tensors/first.bin", tmp_path / "true", place, returncode=-7).split() == ["good"]
    assert mounted.bin("second") == sealed.file.data_of("second")


def test_damage_in_the_source_view_too(sealed, mount):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path)
    start = sealed.file.place_of("first") + 3 * CHUNK
    true = sealed.file.encode()
    with open(mounted / "source/m.gguf", "rb", buffering=0) as file:
        with pytest.raises(OSError) as failed:
            os.pread(file.fileno(), 10, start + 5)
        assert failed.value.errno == errno.EIO
        assert os.pread(file.fileno(), 1000, 0) == true[:1000]
        assert os.pread(file.fileno(), 4096, start + CHUNK) == true[start + CHUNK : start + CHUNK + 4096]
    got, error = read_until_error(mounted / "source/m.gguf", 1 << 20)
    assert error == errno.EIO and got == true[:start]


def test_damage_in_an_npy(sealed, mount):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path)
    path = mounted / "tensors/first.npy"
    header = path.stat().st_size - SIZE
    got, error = read_until_error(path, 1 << 20)
    assert error == errno.EIO
    assert len(got) == header + 3 * CHUNK and got[header:] == sealed.file.data_of("first")[: 3 * CHUNK]


def test_damage_is_one_line_in_the_log(sealed, mount):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path)
    for _ in range(20):
        read_until_error(mounted / "tensors/first.bin", 1 << 20)
    at = sealed.file.place_of("first") + 3 * CHUNK
    expected = crc(sealed.file.data_of("first")[3 * CHUNK : 4 * CHUNK])
    found = crc(sealed.path.read_bytes()[at : at + CHUNK])
    lines = [line for line in mounted.log().splitlines() if expected in line]
    assert len(lines) == 1, mounted.log()
    assert "first" in lines[0] and found in lines[0] and re.search(r"\b3\b", lines[0])
    assert str(at) in lines[0] or f"{at:x}" in lines[0]


def test_damage_in_status_and_attributes(sealed, mount):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path)
    assert mounted.status["mismatches"] == 0
    read_until_error(mounted / "tensors/first.bin", 1 << 20)
    mounted.bin("second")
    status = mounted.status
    assert status["mismatches"] >= 1
    at = sealed.file.place_of("first") + 3 * CHUNK
    assert len(status["bad"]) == 1
    bad = status["bad"][0]
    assert (bad["tensor"], bad["chunk"], bad["source_offset"]) == ("first", 3, at)
    assert bad["expected"] == crc(sealed.file.data_of("first")[3 * CHUNK : 4 * CHUNK])
    assert bad["found"] == crc(sealed.path.read_bytes()[at : at + CHUNK])
    assert xattr(mounted / "tensors/first.bin", "state") in ("degraded", "open")
    assert xattr(mounted / "tensors/second.bin", "state") in ("verified", "unverified")
    assert status["state"] != "verified"


def test_weightfs_cat_on_damage(weightfs, sealed):
    sealed.flip_in("first", 200_000)
    result = weightfs.run("cat", sealed.path, "first", code=1)
    assert result.out == sealed.file.data_of("first")[: 3 * CHUNK]
    assert "first" in result.err
    assert weightfs.run("cat", sealed.path, "second").out == sealed.file.data_of("second")


def test_serving_damage_when_asked_to(sealed, mount):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path, "on_corruption=log")
    raw = sealed.path.read_bytes()
    at = sealed.file.place_of("first")
    assert mounted.bin("first") == raw[at : at + SIZE] != sealed.file.data_of("first")
    assert "first" in mounted.log()
    assert mounted.status["mismatches"] >= 1


def test_no_check_when_asked_for_none(sealed, mount):
    sealed.flip_in("first", 200_000)
    mounted = mount(sealed.path, "verify=off")
    at = sealed.file.place_of("first")
    assert mounted.bin("first") == sealed.path.read_bytes()[at : at + SIZE]
    assert mounted.model["verify"] == "off"


def test_damage_of_a_safetensors_file(weightfs, mount, tmp_path):
    file = safetensors_file.Safetensors().tensor("a", "F32", (SIZE // 4,)).tensor("b", "U8", (150_000,))
    path = file.write(tmp_path / "m.safetensors")
    weightfs.run("seal", path)
    raw = bytearray(path.read_bytes())
    raw[file.place_of("b") + 70_000] ^= 1
    path.write_bytes(raw)
    found = weightfs.run("verify", path, "--json", code=3).json()["models"][0]["bad"]
    assert [(bad["tensor"], bad["chunk"]) for bad in found] == [("b", 1)]
    mounted = mount(path)
    assert mounted.bin("a") == file.data_of("a")
    got, error = read_until_error(mounted / "tensors/b.bin", 1 << 20)
    assert error == errno.EIO and got == file.data_of("b")[:CHUNK]


@pytest.mark.slow
def test_random_flips_are_all_found_and_stay_in_their_chunk(weightfs, mount, tmp_path):
    sealed = Sealed(weightfs, tmp_path / "m.gguf", "--chunk-size", "4KiB")
    dice = random.Random(3)
    for _ in range(60):
        name = dice.choice(["first", "second"])
        place, bit = dice.randrange(SIZE), dice.randrange(8)
        sealed.flip(sealed.file.place_of(name) + place, bit)
        mounted = mount(sealed.path)
        data = sealed.file.data_of(name)
        chunk = place // 4096
        with open(mounted / f"tensors/{name}.bin", "rb", buffering=0) as file:
            with pytest.raises(OSError) as failed:
                os.pread(file.fileno(), 1, place)
            assert failed.value.errno == errno.EIO
            assert os.pread(file.fileno(), SIZE, 0) == data[: chunk * 4096] if chunk else True
            after = (chunk + 1) * 4096
            assert os.pread(file.fileno(), SIZE, after) == data[after:]
        mounted.close()
        sealed.flip(sealed.file.place_of(name) + place, bit)
    weightfs.run("verify", sealed.path)


# --- seals that do not fit -------------------------------------------------------------
def test_require_refuses_an_unsealed_model(mount, tmp_path):
    said = mount.refused(model().write(tmp_path / "m.gguf"), "seal=require", code=4)
    assert "m.gguf" in said


def test_require_takes_a_sealed_model(sealed, mount):
    assert mount(sealed.path, "seal=require").model["sealed"] is True


def test_the_seal_of_another_file_refuses_the_mount(sealed, mount, tmp_path):
    other = Gguf().tensor("other", "F32", (9,)).write(tmp_path / "o.gguf")
    shutil.copy(sealed.seal, tmp_path / "o.gguf.weightfs.json")
    assert "seal=none" in mount.refused(other, code=5)
    mounted = mount(other, "seal=none")
    assert mounted.model["sealed"] is False


def swap_names(file):
    """The same size, other contents of the header."""
    return file.encode().replace(b"first", b"f1rst")


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.encode() + b"x",
        lambda file: file.encode()[:-1],
        swap_names,
        lambda file: file.encode().replace(b"llama", b"lamma"),
        lambda file: file.encode().replace(struct.pack("<Q", SIZE // 4), struct.pack("<Q", SIZE // 4 - 1), 1),
    ],
    ids=["longer", "shorter", "a name", "a metadata value", "a shape"],
)
def test_a_changed_header_or_size_refuses_the_mount(sealed, mount, change):
    sealed.path.write_bytes(change(sealed.file))
    mount.refused(sealed.path, code=5)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:-10],
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"not json",
        lambda raw: b"{}",
        lambda raw: raw.replace(b'"weightfs_manifest": 1', b'"weightfs_manifest": 2').replace(b'"weightfs_manifest":1', b'"weightfs_manifest":2'),
        lambda raw: raw.replace(b'"first"', b'"f1rst"'),
        lambda raw: raw.replace(b"crc32", b"crc33"),
    ],
    ids=["empty", "cut", "half", "no json", "no seal", "other version", "edited name", "edited key"],
)
def test_an_invalid_seal_refuses_mount_and_verify(weightfs, sealed, mount, damage):
    raw = sealed.seal.read_bytes()
    changed = damage(raw)
    assert changed != raw
    sealed.seal.write_bytes(changed)
    assert "m.gguf" in mount.refused(sealed.path, code=5)
    weightfs.run("verify", sealed.path, code=5)
    assert mount(sealed.path, "seal=none").model["sealed"] is False


@pytest.mark.slow
def test_every_byte_of_a_seal_counts(weightfs, tmp_path):
    path = Gguf().tensor("a", "F32", (2,)).write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    seal = tmp_path / "m.gguf.weightfs.json"
    raw = seal.read_bytes()
    start = raw.index(b'"body":') + 7
    for place in random.Random(4).sample(range(start, raw.rindex(b"}")), 150):
        changed = bytearray(raw)
        changed[place] ^= 4
        seal.write_bytes(changed)
        assert weightfs.run("verify", path, code=None).code == 5, (place, raw[place - 10 : place + 10])


def test_a_seal_made_in_a_cache_is_found_there(weightfs, mount, tmp_path):
    path = model().write(tmp_path / "m.gguf")
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest() + ".json"
    folder = weightfs.home / "cache/weightfs/seals"
    folder.mkdir(parents=True)
    weightfs.run("seal", path, "--output", folder / name)
    assert mount(path).model["sealed"] is True
    weightfs.run("verify", path)


def test_old_temporary_files_of_a_killed_seal_are_removed(weightfs, sealed, tmp_path):
    path = Gguf().tensor("a", "F32", (16 << 20,), bytes(64 << 20)).write(tmp_path / "large.gguf")
    for wait in (0.0, 0.01, 0.05, 0.1):
        child = weightfs.start("seal", path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        result = weightfs.run("verify", path, code=None)
        assert result.code in (0, 4), result.err  # a whole seal or none, never half of one
        (tmp_path / "large.gguf.weightfs.json").unlink(missing_ok=True)
    left = [name for name in os.listdir(tmp_path) if name not in ("home", "large.gguf", "m.gguf", "m.gguf.weightfs.json")]
    for name in left:
        os.utime(tmp_path / name, (1, 1))
    weightfs.run("seal", path)
    assert sorted(os.listdir(tmp_path)) == ["home", "large.gguf", "large.gguf.weightfs.json", "m.gguf", "m.gguf.weightfs.json"]


def test_a_seal_is_not_written_through_a_mount(sealed, mount, tmp_path):
    mounted = mount(sealed.path)
    other = Weightfs(mounted.weightfs.binary, tmp_path / "home2")
    other.run("seal", mounted / "source/m.gguf")  # a read-only place: into the cache
    assert len(os.listdir(tmp_path / "home2/cache/weightfs/seals")) == 1
    other.run("verify", mounted / "source/m.gguf")
    assert is_mounted(mounted.path)


def test_whole_file_seal_of_shards(weightfs, mount, tmp_path):
    index = safetensors_file.sharded([safetensors_file.plain(), safetensors_file.Safetensors().tensor("z", "F32", (100_000,))], tmp_path)
    weightfs.run("seal", index)
    assert (tmp_path / "model.safetensors.index.json.weightfs.json").exists()
    shard = tmp_path / "model-00002-of-00002.safetensors"
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    bad = weightfs.run("verify", tmp_path, "--json", code=3).json()["models"][0]["bad"]
    assert [(found["tensor"], found["chunk"], found["source"]["file"]) for found in bad] == [("z", 400_000 // CHUNK, shard.name)]
    mounted = mount(tmp_path)
    assert mounted.bin("embed.weight") and read_until_error(mounted / "tensors/z.bin", 1 << 20)[1] == errno.EIO


def test_sealing_a_split_model_by_any_part_is_one_seal(weightfs, tmp_path):
    parts = gguf_file.split([gguf_file.plain(), Gguf().tensor("z", "F32", (9,))], "m", tmp_path)
    weightfs.run("seal", parts[1])
    assert (tmp_path / "m-00001-of-00002.gguf.weightfs.json").exists()
    for part in parts:
        weightfs.run("verify", part)
