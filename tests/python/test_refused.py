"""Contract 3.5: what is refused, with a message that helps, and what is served with a warning."""

import json
import os
import resource
import struct
import subprocess

import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf
from safetensors_file import encode

U64 = struct.Struct("<Q")


def f32(count=1):
    return bytes(4 * count)


def gguf(**header):
    return Gguf(**header).key("general.architecture", "str", "llama")


def one(name="a", dtype="F32", shape=(4,), **more):
    return gguf().tensor(name, dtype, shape, **more)


def claims(**header):
    """A sound file whose header claims other counts."""
    return Gguf(**header).tensor("a", "F32", (4,))


def raw_dims(dims, dtype=0, data=b"", offset=0, name=b"a"):
    """A tensor whose dimensions stand in the file as given, innermost first."""
    return Gguf().tensor(name, dtype, tuple(reversed(dims)), data, offset)


def at_offset(offset):
    """One tensor "a" that claims to start there in the data section."""
    head = raw_dims([4]).encode()[:49]  # all but the last field of the tensor's record
    return head + U64.pack(offset) + bytes(64)


SOUND = one().encode()

# name: (bytes, words of which one must be in the message besides the file's name)
BAD_GGUF = {
    "empty file": (b"", ["empty", "0 bytes", "short", "magic", "not a"]),
    "magic only": (b"GGUF", ["24", "short", "end", "header"]),
    "23 bytes": (SOUND[:23], ["24", "short", "end", "header"]),
    "GGML": (b"ggml" + bytes(60), ["not", "magic", "GGUF", "format"]),
    "FUGG": (b"FUGG" + SOUND[4:], ["not", "magic", "GGUF", "format"]),
    "gzip": (b"\x1f\x8b\x08" + bytes(60), ["not", "magic", "GGUF", "format"]),
    "version 0": (gguf(version=0).encode(), ["version"]),
    "version 4": (gguf(version=4).encode(), ["version 4", "unsupported"]),
    "version 0x10000": (b"GGUF" + struct.pack("<I", 0x10000) + SOUND[8:], ["version"]),
    "too many keys": (claims(n_keys=2**63).encode(), ["9223372036854775808", "key"]),
    "too many tensors": (claims(n_tensors=2**64 - 1).encode(), ["18446744073709551615", "tensor"]),
    "more tensors than bytes": (claims(n_tensors=1_000_000).encode(), ["1000000", "tensor", "end"]),
    "empty key": (Gguf().key("", "u32", 1).encode(), ["key"]),
    "duplicate key": (Gguf().key("k.twice", "u32", 1).key("k.twice", "u32", 2).encode(), ["k.twice"]),
    "key over the end": (Gguf().raw_key(b"k", 8, U64.pack(2**63)).encode(), ['"k"', "k:"]),
    "string over the end": (Gguf().raw_key(b"k.long", 8, U64.pack(2**64 - 1)).encode(), ["k.long"]),
    "value type 13": (Gguf().raw_key(b"k.odd", 13, bytes(8)).encode(), ["k.odd", "13"]),
    "array of type 13": (Gguf().raw_key(b"k.odd", 9, struct.pack("<IQ", 13, 0)).encode(), ["k.odd", "13"]),
    "array count 2^63": (Gguf().raw_key(b"k.many", 9, struct.pack("<IQ", 8, 2**63)).encode(), ["k.many"]),
    "array count 2^61": (Gguf().raw_key(b"k.many", 9, struct.pack("<IQ", 12, 2**61)).encode(), ["k.many"]),
    "array over the end": (Gguf().raw_key(b"k.many", 9, struct.pack("<IQ", 4, 1000)).encode(), ["k.many"]),
    "alignment 0": (one().key("general.alignment", "u32", 0).encode(), ["general.alignment", "0"]),
    "alignment 3": (one().key("general.alignment", "u32", 3).encode(), ["general.alignment", "3"]),
    "alignment as u64": (one().key("general.alignment", "u64", 32).encode(), ["general.alignment", "u64"]),
    "alignment over the end": (one().key("general.alignment", "u32", 2**31).encode(), ["a"]),
    "duplicate tensor": (gguf().tensor("twice", "F32", (4,)).tensor("twice", "F32", (4,)).encode(), ["twice"]),
    "type 4": (raw_dims([32], dtype=4).encode(), ["4"]),
    "type 31": (raw_dims([32], dtype=31).encode(), ["31"]),
    "type 99": (raw_dims([32], dtype=99, data=bytes(64)).encode(), ["99"]),
    "type -1": (raw_dims([32], dtype=2**32 - 1, data=bytes(64)).encode(), ["4294967295", "-1"]),
    "nine dimensions": (raw_dims([1] * 9, data=f32()).encode(), ["9", "dimensions"]),
    "2^32-1 dimensions": (SOUND.replace(struct.pack("<I", 1) + U64.pack(4), struct.pack("<I", 2**32 - 1) + U64.pack(4)), ["4294967295", "dimensions"]),
    "dimension 2^64-1": (raw_dims([2**64 - 1]).encode(), ["a", "18446744073709551615"]),
    "product wraps to 0": (raw_dims([2**32, 2**32]).encode(), ["a", "overflow", "4294967296"]),
    "product of three wraps": (raw_dims([2**21, 2**21, 2**22]).encode(), ["a", "overflow"]),
    "bytes wrap": (raw_dims([4, 2**30 - 1, 2**30 + 1]).encode(), ["a"]),
    "row of half a block": (raw_dims([16], dtype=2, data=bytes(18)).encode(), ["16", "32", "block"]),
    "offset unaligned": (one(offset=4).encode(), ["4", "32", "align"]),
    "offset past the end": (at_offset(2**40), ["a"]),
    "offset near 2^64": (at_offset(2**64 - 32), ["a"]),
    "overlap": (gguf().tensor("first", "F32", (16,), offset=0).tensor("second", "F32", (16,), offset=32).encode(), ["first", "second"]),
    "same bytes twice": (gguf().tensor("first", "F32", (8,), offset=0).tensor("second", "F32", (8,), offset=0).encode(), ["first", "second"]),
    "cut in the data": (one(shape=(4096,)).encode()[:-5000], ["a"]),
    "cut before the data": (SOUND[:70], ["a", "end", "tensor"]),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 253113024\n", ["LFS"]),
}

def entry(start, end, dtype="F32", shape=None):
    return {"dtype": dtype, "shape": [(end - start) // 4] if shape is None else shape, "data_offsets": [start, end]}


def text(header, data=b""):
    return encode(header.encode(), data)


BAD_SAFETENSORS = {
    "7 bytes": (b"\x02\0\0\0\0\0\0", ["short", "8", "not"]),
    "header over the end": (U64.pack(1000) + b"{}", ["1000"]),
    "header over the limit": (U64.pack(2**40) + b"{}" + bytes(100), ["1099511627776", "header", "not"]),
    "header length 2^64-1": (U64.pack(2**64 - 1) + b"{}" + bytes(100), ["header", "not"]),
    "no JSON": (text("{nothing}"), ["JSON", "json", "line"]),
    "no object": (text("[1,2]"), ["object", "map", "{", "not"]),
    "cut JSON": (text('{"a":{"dtype":"F32"'), ["JSON", "json", "EOF", "end"]),
    "header not UTF-8": (encode(b'{"\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', f32()), ["UTF-8", "utf-8", "unicode"]),
    "missing dtype": (text('{"a":{"shape":[1],"data_offsets":[0,4]}}', f32()), ["dtype"]),
    "missing offsets": (text('{"a":{"dtype":"F32","shape":[1]}}', f32()), ["data_offsets"]),
    "negative shape": (text('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', f32()), ["a", "-1"]),
    "shape 2^64": (text('{"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}}', f32()), ["a", "18446744073709551616", "1844674407370955"]),
    "shape overflow": (encode({"a": entry(0, 4, shape=[2**32, 2**32])}, f32()), ["a", "overflow"]),
    "size not the shape's": (encode({"a": entry(0, 4, shape=[2])}, f32()), ["a", "8", "4"]),
    "end before start": (encode({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, f32()), ["a"]),
    "past the end": (encode({"a": entry(0, 8)}, f32()), ["a", "8"]),
    "hole": (encode({"a": entry(0, 4), "b": entry(8, 12)}, f32(3)), ["b", "hole", "gap", "4"]),
    "hole at the start": (encode({"a": entry(4, 8)}, f32(2)), ["a", "hole", "gap", "4"]),
    "trailing bytes": (encode({"a": entry(0, 4)}, f32(2)), ["trailing", "after", "4"]),
    "overlap": (encode({"a": entry(0, 8), "b": entry(4, 12)}, f32(3)), ["a", "b"]),
    "duplicate name": (text('{"twice":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"twice":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', f32(2)), ["twice"]),
    "duplicate key in an entry": (text('{"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}}', f32()), ["dtype", "duplicate"]),
    "duplicate metadata": (text('{"__metadata__":{"k":"1","k":"2"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', f32()), ["k", "duplicate"]),
    "metadata no string": (text('{"__metadata__":{"k":1},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', f32()), ["__metadata__", "string", "k"]),
    "F4 of odd bits": (encode({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, bytes(2)), ["a", "byte", "bits"]),
    "cut in the data": (safetensors_file.plain().encode()[:-3], ["layer.bias"]),
    "git lfs pointer": (BAD_GGUF["git lfs pointer"][0], ["LFS"]),
}

CASES = [(f"{name}.gguf", *case) for name, case in BAD_GGUF.items()] + [(f"{name}.safetensors", *case) for name, case in BAD_SAFETENSORS.items()]


def limits():
    """More than 256 MiB beside the program's own is not needed to say no."""
    resource.setrlimit(resource.RLIMIT_DATA, (512 << 20, 512 << 20))


@pytest.mark.parametrize("name, data, words", CASES, ids=[case[0] for case in CASES])
def test_refused(weightfs, tmp_path, name, data, words):
    path = tmp_path / name.replace(" ", "-")
    path.write_bytes(data)
    result = weightfs.run("ls", path, code=1, preexec_fn=limits, timeout=20)
    assert result.out == b""
    assert result.err.startswith("weightfs: ") and len(result.err.splitlines()) <= 4
    assert path.name in result.err
    rest = result.err.replace(str(path), "").replace(path.name, "")
    assert any(word in rest for word in words), result.err


@pytest.mark.parametrize("name", ["overlap.gguf", "hole.safetensors", "empty file.gguf"])
def test_refused_by_mount_too(mount, tmp_path, name):
    data = next(case[1] for case in CASES if case[0] == name)
    path = tmp_path / name.replace(" ", "-")
    path.write_bytes(data)
    assert path.name in mount.refused(path)


def test_unsupported_is_not_called_corrupt(weightfs, tmp_path):
    for data in (BAD_GGUF["version 4"][0], BAD_GGUF["type 99"][0], BAD_GGUF["type 31"][0]):
        (tmp_path / "m.gguf").write_bytes(data)
        said = weightfs.run("ls", tmp_path / "m.gguf", code=1).err.lower()
        assert "truncated" not in said and "corrupt" not in said, said


def test_truncated_is_said_where_the_size_shows_it(weightfs, tmp_path):
    data = one(shape=(4096,)).encode()
    (tmp_path / "m.gguf").write_bytes(data[: len(data) // 2])
    said = weightfs.run("ls", tmp_path / "m.gguf", code=1).err.lower()
    assert "truncated" in said or "end" in said or "past" in said, said


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_a_header_cut_at_every_byte_is_a_clean_error(weightfs, tmp_path, kind):
    if kind == "gguf":
        model = gguf().key("k.words", "arr:str", ["one", "two"]).tensor("a", "F32", (2, 2))
        data, size = model.encode(), model.data_start()
    else:
        model = safetensors_file.plain()
        data, size = model.encode(), model.place_of("embed.weight")
    path = tmp_path / f"cut.{kind}"
    for length in range(0, size):
        path.write_bytes(data[:length])
        done = subprocess.run([weightfs.binary, "ls", path], capture_output=True, text=True, timeout=10, env=weightfs.env)
        assert done.returncode == 1 and "panicked" not in done.stderr, (length, done.stderr)
        assert "cut." in done.stderr


def test_deeply_nested_arrays_are_refused_not_a_crash(weightfs, tmp_path):
    depth = 100_000
    body = b"".join(struct.pack("<IQ", 9, 1) for _ in range(depth)) + struct.pack("<IQ", 4, 0)
    path = Gguf().raw_key(b"k.deep", 9, body).write(tmp_path / "deep.gguf")
    assert "k.deep" in weightfs.run("ls", path, code=1, preexec_fn=limits).err


def test_deeply_nested_json_is_refused_not_a_crash(weightfs, tmp_path):
    (tmp_path / "deep.safetensors").write_bytes(text('{"a":' + "[" * 200_000))
    weightfs.run("ls", tmp_path / "deep.safetensors", code=1, preexec_fn=limits)


def test_many_keys_are_no_quadratic_wait(weightfs, tmp_path):
    seconds = []
    for count in (50_000, 200_000):
        model = Gguf()
        for number in range(count):
            model.key(f"k.{number}", "u8", 1)
        path = model.tensor("a", "F32", (1,)).write(tmp_path / f"{count}.gguf")
        seconds.append(min(weightfs.run("ls", path).seconds for _ in range(5)))
    # Sixteen times as long, were each key compared with all others; the start of the program counts as well.
    assert seconds[1] < 10 * seconds[0] + 0.02, seconds


# --- served with a warning -------------------------------------------------------------
def gap():
    return gguf().tensor("first", "F32", (8,), offset=0).tensor("second", "F32", (8,), offset=96)


def unordered():
    return gguf().tensor("late", "F32", (8,), offset=32).tensor("early", "F32", (8,), offset=0)


WARNED = {
    "trailing bytes": gguf(trailing=b"more").tensor("a", "F32", (8,)),
    "gap": gap(),
    "out of order": unordered(),
    "five dimensions": gguf().tensor("five", "F32", (1, 2, 1, 2, 1)),
}


@pytest.mark.parametrize("name", WARNED)
def test_served_with_a_warning(weightfs, mount, tmp_path, name):
    model = WARNED[name]
    path = model.write(tmp_path / "m.gguf")
    assert len(weightfs.run("ls", path, "--json").json()["model"]["warnings"]) >= 1
    mounted = mount(path)
    assert len(mounted.model["warnings"]) >= 1
    for tensor in model.tensors:
        assert mounted.bin(tensor.name.decode()) == tensor.data


def test_tensor_order_is_that_of_the_data(weightfs, tmp_path):
    path = unordered().write(tmp_path / "m.gguf")
    assert [tensor["name"] for tensor in weightfs.run("ls", path, "--json").json()["tensors"]] == ["early", "late"]


def test_only_the_last_padding_is_missing(mount, tmp_path):
    model = one(shape=(3,))
    model.pad_end = False
    mounted = mount(model.write(tmp_path / "m.gguf"))
    assert mounted.bin("a") == model.data_of("a")
    assert len(mounted.model["warnings"]) >= 1


def test_a_sound_file_has_no_warning(weightfs, tmp_path):
    for path in (gguf_file.plain().write(tmp_path / "m.gguf"), safetensors_file.plain().write(tmp_path / "m.safetensors")):
        assert weightfs.run("ls", path, "--json").json()["model"]["warnings"] == []


def test_safetensors_at_an_odd_address(mount, tmp_path):
    model = safetensors_file.plain()
    model.align = False
    mounted = mount(model.write(tmp_path / "m.safetensors"))
    assert len(mounted.model["warnings"]) >= 1
    for name in mounted.names():
        assert mounted.bin(name) == model.data_of(name)


def test_an_unknown_safetensors_dtype_is_named(weightfs, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(encode({"a": {"dtype": "F3_NEW", "shape": [8], "data_offsets": [0, 3]}}, bytes(3)))
    result = weightfs.run("ls", tmp_path / "m.safetensors", code=None)
    assert "F3_NEW" in result.err + result.out.decode()
    assert result.code in (0, 1)


def test_the_format_is_told_by_content_not_extension(weightfs, tmp_path):
    gguf_file.plain().write(tmp_path / "a.safetensors")
    safetensors_file.plain().write(tmp_path / "b.gguf")
    gguf_file.plain().write(tmp_path / "c")
    assert json.loads(weightfs.run("ls", tmp_path / "a.safetensors", "--json").out)["model"]["format"] == "gguf"
    assert json.loads(weightfs.run("ls", tmp_path / "b.gguf", "--json").out)["model"]["format"] == "safetensors"
    assert json.loads(weightfs.run("ls", tmp_path / "c", "--json").out)["model"]["format"] == "gguf"


def test_other_kinds_of_files_are_no_models(weightfs, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing.gguf", tmp_path / "pipe", "/dev/null", "/proc/self/mem"):
        said = weightfs.run("ls", path, code=1, timeout=5).err
        assert str(path) in said


SPARSE = {
    "a string of a tebibyte": (8, struct.pack("<Q", 2**40 - 300)),
    "an array of a tebibyte": (9, struct.pack("<IQ", 0, 2**40 - 300)),
    "an array in an array of a tebibyte": (9, struct.pack("<IQIQ", 9, 1, 0, 2**40 - 400)),
}


@pytest.mark.parametrize("name", SPARSE)
def test_what_would_take_forever_to_show_is_refused(weightfs, tmp_path, name):
    kind, start = SPARSE[name]
    path = tmp_path / "m.gguf"
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<I", kind) + start)
        file.truncate(2**40)
    said = weightfs.run("ls", path, code=1)
    assert "m.gguf" in said.err and "limit" in said.err
    assert said.pages < 10_000


def test_long_strings_that_grow_when_escaped_stay_out_of_memory(mount, tmp_path):
    path = tmp_path / "m.gguf"
    element = struct.pack("<Q", 1 << 20) + b"\x01" * (1 << 20)
    nested = struct.pack("<IQ", 9, 4) + 4 * (struct.pack("<IQ", 0, 100_000) + b"\xc8" * 100_000)
    path.write_bytes(
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
        + struct.pack("<Q", 1) + b"s" + struct.pack("<I", 9) + struct.pack("<IQ", 8, 32) + 32 * element
        + struct.pack("<Q", 1) + b"n" + struct.pack("<I", 9) + nested
    )
    mounted = mount(path, "threads=8")
    size = (mounted / "metadata/s.json").stat().st_size
    assert size == len("[\n") + 32 * (len('  ""') + 6 * (1 << 20)) + 31 * len(",\n") + len("\n]\n")
    with open(mounted / "metadata/s.json", "rb", buffering=0) as file:
        assert os.pread(file.fileno(), 12, size // 3) in 3 * (r"\u0001" * 3).encode()
        assert os.pread(file.fileno(), 12, size - 5) == b'1"\n]\n'
    found = json.loads((mounted / "metadata/n.json").read_text())
    assert found == [[200] * 100_000] * 4
    assert mounted.rss_anon() < 48 << 20
