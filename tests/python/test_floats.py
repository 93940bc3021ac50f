"""The float views: every value as the reference packages decode it, in every dtype."""

import hashlib
import json
import os

import gguf
import ml_dtypes
import numpy as np
import pytest

import safetensors_file
from gguf_file import TENSOR_TYPES, Gguf, pattern
from mounting import python

# Types that gguf 0.19.0 can decode.
DECODED = [
    name
    for name in TENSOR_TYPES
    if name in ("F32", "F16", "BF16") or getattr(gguf.GGMLQuantizationType, name, None) in gguf.quants._type_traits  # noqa: SLF001
]
INTEGERS = ["I8", "I16", "I32", "I64"]
BLOCKS = 300


@pytest.fixture(scope="module")
def views(tmp_path_factory, shared_mount):
    model = Gguf()
    for number, dtype in enumerate(DECODED + INTEGERS):
        _, elements, size = TENSOR_TYPES[dtype]
        model.tensor(dtype, dtype, (3, BLOCKS * elements), pattern(3 * BLOCKS * size, seed=number))
    mounted = shared_mount(model.write(tmp_path_factory.mktemp("model") / "m.gguf"))
    if not (mounted / "f32").exists():
        pytest.skip("this weightfs has no float views yet")
    mounted.file = model
    return mounted


def decoded(dtype, data):
    kind = gguf.GGMLQuantizationType[dtype]
    raw = np.frombuffer(data, np.uint8).reshape(3, -1)
    if dtype == "F32":
        return raw.view("<f4")
    if dtype == "F16":
        return raw.view("<f2").astype("<f4")
    if dtype == "BF16":
        return raw.view(ml_dtypes.bfloat16).astype("<f4")
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(raw, kind)


def same(found, wanted):
    """Equal bit for bit, any NaN being any NaN."""
    bits = np.uint32 if found.dtype.itemsize == 4 else np.uint16
    return np.array_equal(np.where(np.isnan(found), bits(0), found.view(bits)), np.where(np.isnan(wanted), bits(0), wanted.view(bits)))


@pytest.mark.parametrize("dtype", DECODED)
def test_f32_is_what_the_reference_decodes(views, dtype):
    wanted = decoded(dtype, views.file.data_of(dtype))
    assert same(np.fromfile(views / f"f32/{dtype}.bin", "<f4").reshape(3, -1), wanted)
    loaded = np.load(views / f"f32/{dtype}.npy")
    assert loaded.shape == wanted.shape and same(loaded, wanted)
    about = views.json(f"f32/{dtype}.json")
    assert (about["dtype"], about["converted_from"], about["nbytes"]) == ("F32", dtype, wanted.nbytes)


@pytest.mark.parametrize("dtype", DECODED)
def test_f16_and_bf16_are_f32_rounded_to_nearest_even(views, dtype):
    wanted = decoded(dtype, views.file.data_of(dtype))
    with np.errstate(all="ignore"):
        half, brain = wanted.astype("<f2"), wanted.astype(ml_dtypes.bfloat16)
    assert same(np.fromfile(views / f"f16/{dtype}.bin", "<f2").reshape(3, -1), half)
    assert same(np.load(views / f"f16/{dtype}.npy"), half)
    found = np.fromfile(views / f"bf16/{dtype}.bin", ml_dtypes.bfloat16).reshape(3, -1)
    assert same(found, brain)
    assert not (views / f"bf16/{dtype}.npy").exists()


@pytest.mark.parametrize("dtype", ["Q4_K", "Q6_K", "Q8_0", "F16", "IQ2_XXS"])
def test_any_range_of_a_view_is_that_slice_of_it(views, dtype):
    path = views / f"f32/{dtype}.bin"
    whole = path.read_bytes()
    with open(path, "rb", buffering=0) as file:
        for offset in (0, 1, 2, 3, 5, 127, 1023, 1025, len(whole) // 2 + 1, len(whole) - 5):
            for length in (1, 2, 3, 5, 1000, 4097, 70_003):
                assert os.pread(file.fileno(), length, offset) == whole[offset : offset + length]


def test_integers_have_no_float_view(views):
    for dtype in INTEGERS:
        assert not (views / f"f32/{dtype}.bin").exists()


@pytest.mark.parametrize("folder", [".", "f32", "f16", "bf16"])
def test_model_safetensors_opens_and_holds_every_tensor(views, folder, tmp_path):
    wanted = {}
    for dtype in DECODED:
        with np.errstate(all="ignore"):
            values = decoded(dtype, views.file.data_of(dtype))
            if folder == "f16":
                values = values.astype("<f2")
            elif folder == "bf16":
                values = values.astype(ml_dtypes.bfloat16)
            elif folder == "." and dtype in ("F16", "BF16"):
                values = values.astype("<f2" if dtype == "F16" else ml_dtypes.bfloat16)
        wanted[dtype] = hashlib.sha256(np.where(np.isnan(values), values.dtype.type(0), values).tobytes()).hexdigest()
    (tmp_path / "wanted.json").write_text(json.dumps(wanted))
    code = """
import hashlib, json, sys
import ml_dtypes  # gives numpy its bfloat16
import numpy as np
from safetensors import safe_open
wanted = json.load(open(sys.argv[2]))
with safe_open(sys.argv[1], "np") as file:
    assert file.metadata()["format"] == "pt"
    assert sorted(file.keys()) == sorted([*wanted, "I8", "I16", "I32", "I64"])
    for name in wanted:
        values = file.get_tensor(name)
        clean = np.where(np.isnan(values), values.dtype.type(0), values)
        assert hashlib.sha256(clean.tobytes()).hexdigest() == wanted[name], name
"""
    python(code, views / folder / "model.safetensors", tmp_path / "wanted.json")


def test_float_views_of_safetensors(mount, tmp_path):
    model = safetensors_file.Safetensors()
    kinds = {
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    }
    every = bytes(range(256))
    for dtype in kinds:
        model.tensor(dtype, dtype, (256,), every)
    model.tensor("F64", "F64", (64,), np.array([1 + 2.0**-11 + 2.0**-40] * 64, "<f8"))  # rounding twice would show
    model.tensor("nibbles", "F4", (512,), every)
    mounted = mount(model.write(tmp_path / "m.safetensors"))
    if not (mounted / "f32").exists():
        pytest.skip("this weightfs has no float views yet")
    for dtype, kind in kinds.items():
        wanted = np.frombuffer(every, kind).astype("<f4")
        assert same(np.load(mounted / f"f32/{dtype}.npy"), wanted), dtype
    assert np.load(mounted / "f16/F64.npy")[0] == np.float16(np.float64(1 + 2.0**-11 + 2.0**-40))
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], "<f4")
    raw = np.frombuffer(every, np.uint8)
    assert same(np.load(mounted / "f32/nibbles.npy"), table[np.stack([raw & 15, raw >> 4], 1).ravel()])


def test_damage_reaches_every_view(weightfs, mount, tmp_path):
    model = Gguf().tensor("q", "Q8_0", (64, 4096)).tensor("ok", "Q8_0", (2, 32))
    path = model.write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    raw = bytearray(path.read_bytes())
    raw[model.place_of("q") + 150_000] ^= 1
    path.write_bytes(raw)
    mounted = mount(path)
    if not (mounted / "f32").exists():
        pytest.skip("this weightfs has no float views yet")
    for name in ("f32/q.bin", "f16/q.bin", "bf16/q.bin", "f32/q.npy", "model.safetensors", "f32/model.safetensors"):
        with pytest.raises(OSError) as failed:
            (mounted / name).read_bytes()
        assert failed.value.errno == 5, name
    # two chunks of stored bytes are good before the bad one: the blocks that they hold whole
    good = 131_072 // 34 * 32 * 4
    with open(mounted / "f32/q.bin", "rb", buffering=0) as file:
        assert len(os.pread(file.fileno(), good, 0)) == good
    assert len((mounted / "f32/ok.bin").read_bytes()) == 256
