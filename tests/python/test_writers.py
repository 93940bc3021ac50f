"""The writers of the test inputs, checked against the reference packages."""

import gguf
import numpy as np
import pytest
import safetensors

import gguf_file
import safetensors_file
from gguf_file import PACKAGE_LACKS, TENSOR_TYPES, Gguf


def read(path):
    return gguf.GGUFReader(path)


def test_block_sizes_are_those_of_the_gguf_package():
    ours = {name: (size[1], size[2]) for name, size in TENSOR_TYPES.items() if name not in PACKAGE_LACKS}
    theirs = {kind.name: size for kind, size in gguf.GGML_QUANT_SIZES.items() if kind.name in ours}
    assert ours == theirs
    assert all(TENSOR_TYPES[name][0] == gguf.GGMLQuantizationType[name] for name in ours)


@pytest.mark.parametrize("big", [False, True])
def test_gguf_values_and_tensors(tmp_path, big):
    model = Gguf(big=big)
    model.key("general.architecture", "str", "llama")
    numbers = {"u8": 200, "i8": -5, "u16": 60000, "i16": -3000, "u32": 4000000000, "i32": -9, "u64": 2**63, "i64": -(2**62), "f32": 0.5, "f64": 0.1}
    for kind, number in numbers.items():
        model.key(f"k.{kind}", kind, number)
    model.key("k.bool", "bool", 1)
    model.key("k.words", "arr:str", ["a", "\N{LLAMA}"])
    model.key("k.floats", "arr:f32", [1.0, 2.5])
    values = np.arange(15, dtype=">f4" if big else "<f4").reshape(3, 5)
    model.tensor("a", "F32", (3, 5), values)
    model.tensor("q", "Q8_0", (2, 64))
    reader = read(model.write(tmp_path / "m.gguf"))
    for kind, number in numbers.items():
        assert reader.fields[f"k.{kind}"].contents() == number
    assert reader.fields["k.bool"].contents() is True or reader.fields["k.bool"].contents() == 1
    assert reader.fields["k.words"].contents() == ["a", "\N{LLAMA}"]
    assert reader.fields["k.floats"].contents() == [1.0, 2.5]
    a, q = reader.tensors
    assert (a.name, list(a.shape), a.data_offset) == ("a", [5, 3], model.place_of("a"))
    assert np.array_equal(np.asarray(a.data, dtype=np.float32), np.arange(15, dtype=np.float32).reshape(3, 5))
    assert (q.name, list(q.shape), q.data_offset) == ("q", [64, 2], model.place_of("q"))
    assert q.data.tobytes() == model.data_of("q")


@pytest.mark.parametrize("alignment", [1, 32, 4096])
def test_gguf_alignment(tmp_path, alignment):
    model = gguf_file.aligned(alignment).tensor("a", "I8", (5,)).tensor("b", "I16", (3,))
    reader = read(model.write(tmp_path / "m.gguf"))
    for tensor in reader.tensors:
        assert tensor.data_offset % alignment == 0
        assert tensor.data.tobytes() == model.data_of(tensor.name)


def test_gguf_every_type_that_the_package_knows(tmp_path):
    model = Gguf()
    for name, (_, elements, _) in TENSOR_TYPES.items():
        if name not in PACKAGE_LACKS:
            model.tensor(f"t.{name}", name, (2, elements))
    for tensor in read(model.write(tmp_path / "m.gguf")).tensors:
        assert tensor.name == f"t.{tensor.tensor_type.name}"
        assert tensor.data.tobytes() == model.data_of(tensor.name)


def test_gguf_split_parts(tmp_path):
    first = gguf_file.plain()
    paths = gguf_file.split([first, Gguf().tensor("z", "F16", (2, 2))], "m", tmp_path)
    assert [path.name for path in paths] == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    readers = [read(path) for path in paths]
    assert [reader.fields["split.no"].contents() for reader in readers] == [0, 1]
    assert {int(reader.fields["split.count"].contents()) for reader in readers} == {2}
    assert {int(reader.fields["split.tensors.count"].contents()) for reader in readers} == {3}


def test_gguf_version_1_is_version_2_with_narrow_lengths(tmp_path):
    # no package reads version 1, so this is told by its size: 4 bytes for each length and count
    one, two = gguf_file.plain(version=1), gguf_file.plain(version=2)
    read(two.write(tmp_path / "m.gguf"))
    lengths = 2 + 3 * 2 + 2 + 2 * 2  # counts; keys with their strings; tensor names; dimensions
    bare = [len(m.header()[0].rstrip(b"\0")) for m in (one, two)]
    assert bare[1] - bare[0] == 4 * lengths


def test_safetensors_opens_in_the_reference_reader(tmp_path):
    model = safetensors_file.plain()
    path = model.write(tmp_path / "m.safetensors")
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt"}
        assert file.offset_keys() == ["embed.weight", "layer.weight", "layer.bias"]
        assert file.get_tensor("embed.weight").tobytes() == model.data_of("embed.weight")
        assert file.get_tensor("layer.weight").shape == (3, 5)
    start = model.place_of("layer.weight")
    assert path.read_bytes()[start : start + 30] == model.data_of("layer.weight")


def test_safetensors_every_dtype(tmp_path):
    model = safetensors_file.Safetensors()
    for dtype in safetensors_file.DTYPES:
        model.tensor(f"t.{dtype}", dtype, (2, 4))
    found = dict(safetensors.deserialize(model.encode()))
    assert {name: entry["dtype"] for name, entry in found.items()} == {f"t.{dtype}": dtype for dtype in safetensors_file.DTYPES}
    assert all(bytes(entry["data"]) == model.data_of(name) for name, entry in found.items())


def test_safetensors_unaligned_data_is_still_sound(tmp_path):
    model = safetensors_file.plain()
    model.align = False
    assert model.place_of("embed.weight") % 2 == 1
    with safetensors.safe_open(model.write(tmp_path / "m.safetensors"), "np") as file:
        assert file.get_tensor("embed.weight").tobytes() == model.data_of("embed.weight")


def test_snapshot_is_symlinks_to_blobs(tmp_path):
    source = safetensors_file.plain().write(tmp_path / "m.safetensors")
    folder = safetensors_file.snapshot({"model.safetensors": source}, tmp_path / "hub")
    link = folder / "model.safetensors"
    assert link.is_symlink() and link.resolve().parent.name == "blobs"
    assert link.read_bytes() == source.read_bytes()
