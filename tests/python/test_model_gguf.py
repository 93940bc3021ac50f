"""model.gguf: the reference package and a plain comparison find in it what the source holds."""

import errno
import os

import gguf
import numpy as np
import pytest

import safetensors_file
from gguf_file import PACKAGE_LACKS, TENSOR_TYPES, Gguf, pattern
from mounting import python, shell

# Types whose layout in big-endian files somebody has defined; one more is enough for none.
TURNED = ["F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4"]

# Opens both files and compares all that the package can tell of them.
SAME = """
import sys, gguf
import numpy as np
through, plain = (gguf.GGUFReader(path) for path in sys.argv[1:3])
# what the package counts itself, and what a test sets or leaves out
apart = {"GGUF.version", "GGUF.kv_count", *sys.argv[3:]}
assert through.endianess == gguf.GGUFEndian.LITTLE
keys = [key for key in plain.fields if not key.startswith("split.") and key not in apart]
assert [key for key in through.fields if key not in apart] == keys, list(through.fields)
for key in keys:
    a, b = through.fields[key], plain.fields[key]
    assert a.types == b.types, key
    a, b = a.contents(), b.contents()
    assert a == b or repr(a) == repr(b), key
assert [t.name for t in through.tensors] == [t.name for t in plain.tensors]
for a, b in zip(through.tensors, plain.tensors):
    assert (a.tensor_type, a.shape.tolist()) == (b.tensor_type, b.shape.tolist()), a.name
    assert a.data.tobytes() == b.data.tobytes(), a.name
assert through.fields["GGUF.version"].contents() == 3
"""


def keyed(model):
    """A key of each type, and arrays long enough to be read on their own."""
    model.key("general.architecture", "str", "llama")
    for kind, value in (("u8", 200), ("i8", -3), ("u16", 60000), ("i16", -300), ("u32", 4_000_000_000), ("i32", -70000)):
        model.key(f"key.{kind}", kind, value)
    model.key("key.u64", "u64", 2**63 + 1).key("key.i64", "i64", -(2**40)).key("key.f32", "f32", 0.5).key("key.f64", "f64", float("nan"))
    model.key("key.bool", "bool", True).key("key.empty", "str", "").key("tokenizer.chat_template", "str", "{{ x }}\n\U0001f600" * 3000)
    model.key("tokenizer.ggml.tokens", "arr:str", [f"token{i}" for i in range(17_000)])
    model.key("tokenizer.ggml.scores", "arr:f32", [i / 4 for i in range(17_000)])
    return model.key("key.few", "arr:i16", [-1, 2, 3]).key("key.words", "arr:str", ["a", "", "\u20ac"])


def tensors(model, types, blocks=40):
    for number, dtype in enumerate(types):
        _, elements, size = TENSOR_TYPES[dtype]
        model.tensor(dtype, dtype, (3, blocks * elements), pattern(3 * blocks * size, seed=number))
    return model


def turned(model):
    """The same tensors in a little-endian file: numbers, and the fields of blocks, the other way round."""
    fields = {"Q4_0": [(0, 2)], "Q8_0": [(0, 2)], "Q4_K": [(0, 2), (2, 2)], "Q6_K": [(208, 2)], "MXFP4": []}
    little = Gguf()
    for tensor in model.tensors:
        _, elements, size = TENSOR_TYPES[tensor.dtype]
        blocks = np.frombuffer(tensor.data, np.uint8).reshape(-1, size).copy()
        for at, width in fields.get(tensor.dtype, [(0, size)] if elements == 1 else []):
            blocks[:, at : at + width] = blocks[:, at : at + width][:, ::-1]
        little.tensor(tensor.name, tensor.dtype, tensor.shape, blocks)
    return little


@pytest.mark.parametrize("cache", ["direct", "page"])
def test_a_file_of_the_reference_writer_is_itself(mount, tmp_path, cache):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("a name")
    writer.add_token_list([f"token{i}" for i in range(20_000)])
    writer.add_token_scores([float(i) for i in range(20_000)])
    writer.add_tensor("odd", np.arange(21, dtype=np.float32).reshape(3, 7))
    writer.add_tensor("half", np.arange(3000, dtype=np.float16))
    writer.add_tensor("one", np.array(1.5, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    mounted = mount(path, f"cache={cache}")
    shell('cmp "$1" "$2"', mounted / "model.gguf", path)
    assert (mounted / "model.gguf").stat().st_size == path.stat().st_size
    python(SAME, mounted / "model.gguf", path)


@pytest.mark.parametrize("version", [2, 3])
def test_little_endian_files(mount, tmp_path, version):
    model = tensors(keyed(Gguf(version=version)), [t for t in TENSOR_TYPES if t not in PACKAGE_LACKS])
    path = model.write(tmp_path / "m.gguf")
    mounted = mount(path)
    python(SAME, mounted / "model.gguf", path)
    model.version = 3
    assert (mounted / "model.gguf").read_bytes() == model.encode()


def test_big_endian_files_are_turned(mount, tmp_path):
    big = tensors(keyed(Gguf(big=True)), TURNED)
    mounted = mount(big.write(tmp_path / "big.gguf"))
    little = turned(big)
    little.keys = keyed(Gguf()).keys
    python(SAME, mounted / "model.gguf", little.write(tmp_path / "little.gguf"))
    shell('cmp "$1" "$2"', mounted / "model.gguf", tmp_path / "little.gguf")


def test_version_1_is_written_anew(mount, tmp_path):
    old = tensors(keyed(Gguf(version=1)), ["F32", "Q4_K"])
    mounted = mount(old.write(tmp_path / "old.gguf"))
    new = tensors(keyed(Gguf()), ["F32", "Q4_K"])
    shell('cmp "$1" "$2"', mounted / "model.gguf", new.write(tmp_path / "new.gguf"))


def test_a_split_model_is_joined(mount, tmp_path):
    names = [f"m-{number:05}-of-00002.gguf" for number in (1, 2)]
    first, second = tensors(keyed(Gguf()), ["F32", "Q4_K"]), tensors(Gguf(), ["Q6_K", "F16"])
    whole = tensors(keyed(Gguf()), ["F32", "Q4_K"])
    whole.tensors += second.tensors
    for number, part in enumerate((first, second)):
        part.key("split.no", "u16", number).key("split.count", "u16", 2).key("split.tensors.count", "i32", 4)
        part.write(tmp_path / names[number])
    mounted = mount(tmp_path / names[0])
    shell('cmp "$1" "$2"', mounted / "model.gguf", whole.write(tmp_path / "whole.gguf"))
    assert not any(key.startswith("split.") for key in gguf.GGUFReader(tmp_path / "whole.gguf").fields)


def test_overrides_are_in_it_and_the_source_is_not_touched(mount, tmp_path):
    path = tensors(keyed(Gguf()), ["F32"]).write(tmp_path / "m.gguf")
    before = path.read_bytes()
    (tmp_path / "template").write_text("{% new %}" * 5000)
    settings = ["key.u16=7", f"tokenizer.chat_template=@{tmp_path / 'template'}", "brand.new=true"]
    flags = [word for setting in settings for word in ("--set", setting)]
    mounted = mount(path, flags=flags)
    python(SAME, mounted / "model.gguf", path, "key.u16", "tokenizer.chat_template", "brand.new")
    code = """
import sys, gguf
fields = gguf.GGUFReader(sys.argv[1]).fields
assert fields["key.u16"].contents() == 7 and fields["key.u16"].types == [gguf.GGUFValueType.UINT16]
assert fields["tokenizer.chat_template"].contents() == "{% new %}" * 5000
assert fields["brand.new"].contents() is True
"""
    python(code, mounted / "model.gguf")
    assert path.read_bytes() == before


def test_names_are_the_stored_ones(mount, tmp_path):
    path = Gguf().key("general.architecture", "str", "llama").tensor("token_embd.weight", "F32", (4, 8)).write(tmp_path / "m.gguf")
    (tmp_path / "map.json").write_text('{"weightfs_map": 1, "pairs": {"token_embd.weight": "other"}}')
    mounted = mount(path, f"map={tmp_path / 'map.json'}")
    assert mounted.names() == ["other"]
    shell('cmp "$1" "$2"', mounted / "model.gguf", path)


def test_without_tensors(mount, tmp_path):
    path = keyed(Gguf()).write(tmp_path / "m.gguf")
    mounted = mount(path)
    python(SAME, mounted / "model.gguf", path)


def test_where_there_is_none(mount, tmp_path):
    mounted = mount(tensors(Gguf(big=True), ["F32", "Q5_K"]).write(tmp_path / "big.gguf"))
    assert not (mounted / "model.gguf").exists() and "model.gguf" not in os.listdir(mounted.path)
    assert any("model.gguf" in warning and "Q5_K" in warning for warning in mounted.model["warnings"])
    mounted = mount(safetensors_file.plain().write(tmp_path / "m.safetensors"))
    assert not (mounted / "model.gguf").exists()
    assert not any("model.gguf" in warning for warning in mounted.model["warnings"])


@pytest.mark.parametrize("big", [False, True])
def test_damage_ends_a_read_after_the_good_prefix(weightfs, mount, tmp_path, big):
    model = keyed(Gguf(big=big)).tensor("a", "F32", (100, 1000)).tensor("q", "Q8_0", (64, 4096)).tensor("last", "I8", (5,))
    path = model.write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    raw = bytearray(path.read_bytes())
    bad = model.place_of("q") + 150_000
    raw[bad] ^= 1
    path.write_bytes(raw)
    mounted = mount(path, "cache=direct")
    chunk = model.place_of("q") + 131_072
    # of a turned tensor only whole blocks before the damage can be told
    good = chunk if not big else model.place_of("q") + 131_072 // 34 * 34
    with open(mounted / "model.gguf", "rb", buffering=0) as file:
        start = chunk - 200_000
        assert len(os.pread(file.fileno(), 1 << 20, start)) == good - start
        with pytest.raises(OSError) as failed:
            os.pread(file.fileno(), 1, bad)
        assert failed.value.errno == errno.EIO
        size = os.fstat(file.fileno()).st_size
        assert size == len(raw)
        behind = os.pread(file.fileno(), 1 << 20, chunk + 2 * 65_536)
        assert len(behind) == size - chunk - 2 * 65_536
        if not big:
            assert behind == raw[chunk + 2 * 65_536 :]


def test_it_can_be_mapped(mount, tmp_path):
    path = tensors(keyed(Gguf()), ["F32", "Q4_K"], blocks=4000).write(tmp_path / "m.gguf")
    mounted = mount(path)
    code = """
import mmap, sys
with open(sys.argv[1], "rb") as a, open(sys.argv[2], "rb") as b:
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        with mmap.mmap(a.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as view:
            assert view[:] == b.read()
            b.seek(0)
"""
    python(code, mounted / "model.gguf", path)


def test_a_mount_of_it_shows_the_same_tensors(weightfs, mount, tmp_path):
    big = tensors(keyed(Gguf(big=True)), TURNED)
    outer = mount(big.write(tmp_path / "big.gguf"))
    inner = mount(outer / "model.gguf")
    assert inner.names() == outer.names()
    for name in inner.names():
        assert inner.bin(name) == outer.bin(name)
    assert inner.model["byte_order"] == "little" and not inner.model["warnings"]
    inner.unmount()  # before the mount it reads from
