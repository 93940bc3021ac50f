"""What the bytes mean: types, byte orders, shapes, scalars, empty tensors, npy."""

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import safetensors_file
from gguf_file import TENSOR_TYPES, Gguf, nbytes_of, pattern

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
BLOCK_FIELDS = {  # two-byte fields of a block that a big-endian file has swapped, and the block's size
    "Q4_0": ([0], 18),
    "Q8_0": ([0], 34),
    "Q4_K": ([0, 2], 144),
    "Q6_K": ([208], 210),
    "MXFP4": ([], 17),
    "NVFP4": ([], 36),
}
ELEMENT_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8, "I8": 1, "I16": 2, "I32": 4, "I64": 8}


def swapped(dtype, data):
    """The payload in the other byte order, written again in plain words."""
    if dtype in ELEMENT_BYTES:
        return np.frombuffer(data, f"<u{ELEMENT_BYTES[dtype]}").byteswap().tobytes()
    fields, size = BLOCK_FIELDS[dtype]
    out = bytearray(data)
    for block in range(0, len(data), size):
        for place in fields:
            out[block + place], out[block + place + 1] = data[block + place + 1], data[block + place]
    return bytes(out)


@pytest.fixture(scope="module")
def every_type(tmp_path_factory, shared_mount):
    model = Gguf()
    for dtype, (_, elements, _) in TENSOR_TYPES.items():
        model.tensor(f"t.{dtype}", dtype, (2, elements))
    mounted = shared_mount(model.write(tmp_path_factory.mktemp("model") / "m.gguf"))
    mounted.file = model
    return mounted


def test_every_gguf_type_is_among_these(weightfs):
    every = weightfs.run("ls", GOLDEN / "gguf/hand-types-le.gguf", "--json").json()["tensors"]
    assert {tensor["dtype"] for tensor in every} == set(TENSOR_TYPES)


@pytest.mark.parametrize("dtype", TENSOR_TYPES)
def test_every_gguf_type_is_served_raw_and_named(every_type, dtype):  # C10
    _, elements, size = TENSOR_TYPES[dtype]
    assert every_type.bin(f"t.{dtype}") == every_type.file.data_of(f"t.{dtype}")
    found = every_type.json(f"tensors/t.{dtype}.json")
    assert (found["dtype"], found["shape"], found["nbytes"], found["elements"]) == (dtype, [2, elements], 2 * size, 2 * elements)
    assert found["block"] == {"elements": elements, "bytes": size}
    numpy_has = dtype in ("F16", "F32", "F64", "I8", "I16", "I32", "I64")
    assert (every_type / f"tensors/t.{dtype}.npy").exists() == numpy_has


@pytest.fixture(scope="module")
def both_ends(tmp_path_factory, shared_mount):
    big = Gguf(big=True).key("general.architecture", "str", "llama").key("k.long", "u64", 2**40 + 1).key("k.f", "f64", 0.1)
    true = {}
    for dtype in [*ELEMENT_BYTES, *BLOCK_FIELDS]:
        shape = (3, max(TENSOR_TYPES[dtype][1], 5) if TENSOR_TYPES[dtype][1] == 1 else TENSOR_TYPES[dtype][1] * 2)
        true[dtype] = pattern(nbytes_of(dtype, shape), seed=len(true) + 3)
        big.tensor(f"t.{dtype}", dtype, shape, swapped(dtype, true[dtype]))
    big.tensor("large.F32", "F32", (300_001,), swapped("F32", pattern(1_200_004, seed=99)))
    big.tensor("large.Q4_K", "Q4_K", (999, 256), swapped("Q4_K", pattern(999 * 144, seed=98)))
    true["large.F32"], true["large.Q4_K"] = pattern(1_200_004, seed=99), pattern(999 * 144, seed=98)
    mounted = shared_mount(big.write(tmp_path_factory.mktemp("model") / "big.gguf"))
    mounted.file, mounted.true = big, true
    return mounted


@pytest.mark.parametrize("dtype", [*ELEMENT_BYTES, *BLOCK_FIELDS])
def test_big_endian_is_served_little_endian(both_ends, dtype):
    assert both_ends.bin(f"t.{dtype}") == both_ends.true[dtype]
    found = both_ends.json(f"tensors/t.{dtype}.json")
    assert (found["byte_order"], found["stored_byte_order"]) == ("little", "big")
    if dtype in ("F32", "F16", "F64", "I8", "I16", "I32", "I64"):
        loaded = np.load(both_ends / f"tensors/t.{dtype}.npy")
        assert loaded.tobytes() == both_ends.true[dtype] and loaded.dtype.newbyteorder("<") == loaded.dtype


@pytest.mark.parametrize("name", ["large.F32", "large.Q4_K"])
def test_swapped_bytes_are_right_at_any_offset(both_ends, name):
    data = both_ends.true[name]
    with open(both_ends / f"tensors/{name}.bin", "rb", buffering=0) as file:
        for offset in [0, 1, 2, 3, 143, 144, 145, 4095, 65535, 65537, 131_071, len(data) - 3]:
            for length in (1, 2, 3, 7, 150, 70_001):
                assert os.pread(file.fileno(), length, offset) == data[offset : offset + length], (offset, length)


def test_big_endian_metadata_and_source(both_ends):
    found = both_ends.model
    assert found["byte_order"] == "big"
    assert both_ends.json("metadata.json")["k.long"] == 2**40 + 1
    assert both_ends.json("metadata.json")["k.f"] == 0.1
    assert (both_ends / "source/big.gguf").read_bytes() == both_ends.file.encode()


def test_big_endian_blocks_that_nobody_defines_are_as_stored(mount, tmp_path):
    model = Gguf(big=True).tensor("q", "IQ2_XXS", (2, 256)).tensor("f", "F32", (2,), np.array([1, 2], ">f4"))
    mounted = mount(model.write(tmp_path / "m.gguf"))
    assert mounted.bin("q") == model.data_of("q")
    found = mounted.json("tensors/q.json")
    assert (found["byte_order"], found["stored_byte_order"]) == ("big", "big")
    assert any("q" in warning and "big" in warning for warning in mounted.model["warnings"])
    assert np.load(mounted / "tensors/f.npy").tolist() == [1, 2]
    assert not (mounted / "f32/q.bin").exists()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_version_of_the_format(mount, tmp_path, version):
    model = Gguf(version=version).key("general.architecture", "str", "llama").key("k.words", "arr:str", ["a", "bc"])
    model.tensor("a.weight", "F32", (3, 5)).tensor("b", "Q8_0", (2, 32))
    mounted = mount(model.write(tmp_path / "m.gguf"))
    assert mounted.model["format_version"] == version
    assert mounted.json("metadata.json")["k.words"] == ["a", "bc"]
    assert mounted.names() == ["a.weight", "b"]
    assert mounted.bin("a.weight") == model.data_of("a.weight") and mounted.bin("b") == model.data_of("b")


@pytest.mark.parametrize("alignment", [1, 8, 64, 65536])
def test_alignment(mount, tmp_path, alignment):
    from gguf_file import aligned

    model = aligned(alignment).tensor("a", "I8", (5,)).tensor("b", "I16", (3,)).tensor("c", "F32", (2,))
    mounted = mount(model.write(tmp_path / "m.gguf"))
    for name in "abc":
        assert mounted.bin(name) == model.data_of(name)
        assert mounted.json(f"tensors/{name}.json")["source"]["offset"] == model.place_of(name)


def test_shapes_are_outermost_first(mount, tmp_path):  # C40
    values = np.array([[10 * row + column for column in range(5)] for row in range(3)], "<f4")
    gguf = mount(Gguf().tensor("a", "F32", (3, 5), values).write(tmp_path / "m.gguf"))
    safe = mount(safetensors_file.Safetensors().tensor("a", "F32", (3, 5), values).write(tmp_path / "m.safetensors"))
    for mounted in (gguf, safe):
        assert mounted.json("tensors/a.json")["shape"] == [3, 5]
        loaded = np.load(mounted / "tensors/a.npy")
        assert loaded.shape == (3, 5) and loaded[2].tolist() == [20, 21, 22, 23, 24]
    listed = gguf.weightfs.run("ls", tmp_path / "m.gguf", "--json").json()
    assert listed["tensors"][0]["shape"] == [3, 5]


def test_scalars_and_empty_tensors(mount, tmp_path):
    model = Gguf().tensor("scalar", "F32", (), np.array(2.5, "<f4")).tensor("none", "F32", (0,)).tensor("rows", "F16", (0, 8))
    model.tensor("columns", "F32", (8, 0)).tensor("blocks", "Q4_0", (2, 0)).tensor("last", "I8", (3,))
    mounted = mount(model.write(tmp_path / "m.gguf"))
    assert mounted.json("tensors/scalar.json")["shape"] == [] and mounted.json("tensors/scalar.json")["elements"] == 1
    loaded = np.load(mounted / "tensors/scalar.npy")
    assert loaded.shape == () and loaded == np.float32(2.5)
    for name, shape in {"none": [0], "rows": [0, 8], "columns": [8, 0], "blocks": [2, 0]}.items():
        about = mounted.json(f"tensors/{name}.json")
        assert (about["shape"], about["nbytes"], about["elements"]) == (shape, 0, 0)
        assert (mounted / f"tensors/{name}.bin").stat().st_size == 0 and mounted.bin(name) == b""
        if name != "blocks":
            assert list(np.load(mounted / f"tensors/{name}.npy").shape) == shape
    assert mounted.bin("last") == model.data_of("last")


def test_safetensors_scalars_and_empty_tensors(mount, tmp_path):
    model = safetensors_file.Safetensors().tensor("s", "I64", (), np.array(-7, "<i8")).tensor("e", "F32", (2, 0, 3)).tensor("l", "U8", (3,))
    mounted = mount(model.write(tmp_path / "m.safetensors"))
    assert np.load(mounted / "tensors/s.npy") == -7
    assert np.load(mounted / "tensors/e.npy").shape == (2, 0, 3)
    assert mounted.bin("l") == model.data_of("l")


def test_a_model_without_tensors(mount, tmp_path):
    gguf = mount(Gguf().key("general.architecture", "str", "llama").write(tmp_path / "m.gguf"))
    safe = mount(safetensors_file.Safetensors().write(tmp_path / "m.safetensors"))
    for mounted in (gguf, safe):
        assert os.listdir(mounted / "tensors") == []
        assert mounted.model["tensor_count"] == 0
    empty = mount(Gguf().write(tmp_path / "nothing.gguf"))
    assert empty.json("metadata.json") == {}


NUMPY = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "I16": "<i2",
    "U16": "<u2",
    "F16": "<f2",
    "I32": "<i4",
    "U32": "<u4",
    "F32": "<f4",
    "C64": "<c8",
    "F64": "<f8",
    "I64": "<i8",
    "U64": "<u8",
}


@pytest.fixture(scope="module")
def every_dtype(tmp_path_factory, shared_mount):
    model = safetensors_file.Safetensors()
    for dtype in safetensors_file.DTYPES:
        data = bytes([0, 1, 1, 0] * 2) if dtype == "BOOL" else None
        model.tensor(f"t.{dtype}", dtype, (2, 4), data)
    mounted = shared_mount(model.write(tmp_path_factory.mktemp("model") / "m.safetensors"))
    mounted.file = model
    return mounted


@pytest.mark.parametrize("dtype", safetensors_file.DTYPES)
def test_every_safetensors_dtype(every_dtype, dtype):  # C23
    data = every_dtype.file.data_of(f"t.{dtype}")
    assert every_dtype.bin(f"t.{dtype}") == data
    about = every_dtype.json(f"tensors/t.{dtype}.json")
    assert (about["dtype"], about["shape"], about["nbytes"], about["elements"]) == (dtype, [2, 4], len(data), 8)
    npy = every_dtype / f"tensors/t.{dtype}.npy"
    assert npy.exists() == (dtype in NUMPY)
    # What numpy has no type for is there as F32.
    folder = "tensors" if dtype in NUMPY else "f32"
    assert about["files"]["npy"] == f"{folder}/t.{dtype}.npy" and (every_dtype / about["files"]["npy"]).exists()
    if dtype in NUMPY:
        loaded = np.load(npy)
        assert (loaded.dtype.str, loaded.shape) == (NUMPY[dtype], (2, 4))
        assert loaded.tobytes() == data


def test_bfloat16_can_be_read_as_bytes(every_dtype):
    data = np.frombuffer(every_dtype.bin("t.BF16"), ml_dtypes.bfloat16)
    assert data.shape == (8,)


def test_npy_up_to_64_dimensions(mount, tmp_path):
    model = safetensors_file.Safetensors().tensor("d64", "F32", (1,) * 63 + (2,)).tensor("d65", "F32", (1,) * 64 + (2,))
    model.tensor("d1000", "U8", (1,) * 1000)
    mounted = mount(model.write(tmp_path / "m.safetensors"))
    assert np.load(mounted / "tensors/d64.npy").shape == (1,) * 63 + (2,)
    for name in ("d65", "d1000"):
        assert not (mounted / f"tensors/{name}.npy").exists()
        assert mounted.bin(name) == model.data_of(name)
    assert len(mounted.json("tensors/d1000.json")["shape"]) == 1000


def test_five_dimensions_are_served_with_a_warning(mount, tmp_path):  # C51
    model = Gguf().tensor("video", "F16", (4, 3, 1, 2, 2)).tensor("eight", "I8", (1, 2, 1, 2, 1, 2, 1, 2))
    mounted = mount(model.write(tmp_path / "m.gguf"))
    assert mounted.json("tensors/video.json")["shape"] == [4, 3, 1, 2, 2]
    assert np.load(mounted / "tensors/video.npy").shape == (4, 3, 1, 2, 2)
    assert mounted.bin("eight") == model.data_of("eight")
    assert any("video" in warning for warning in mounted.model["warnings"])


def test_cat_gives_the_same_bytes_without_a_mount(weightfs, tmp_path):
    big = Gguf(big=True).tensor("a", "F32", (3,), np.array([1, 2, 3], ">f4")).tensor("q", "Q8_0", (1, 32))
    path = big.write(tmp_path / "m.gguf")
    assert weightfs.run("cat", path, "a").out == np.array([1, 2, 3], "<f4").tobytes()
    assert weightfs.run("cat", path, "q").out == swapped("Q8_0", big.data_of("q"))
    assert weightfs.run("cat", path, "a", "--as", "stored").out == np.array([1, 2, 3], "<f4").tobytes()
    (tmp_path / "a.npy").write_bytes(weightfs.run("cat", path, "a", "--as", "npy").out)
    assert np.load(tmp_path / "a.npy").tolist() == [1, 2, 3]
    assert json.loads(weightfs.run("ls", path, "--json").out)["model"]["byte_order"] == "big"
