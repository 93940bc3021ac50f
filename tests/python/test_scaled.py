"""Weights that are codes with scales: every convention against its formula in numpy's float32."""

import json
import os
import struct
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

from gguf_file import Gguf, pattern
from mounting import python
from safetensors_file import Safetensors, sharded

E4M3, E5M2, E8M0, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu, ml_dtypes.bfloat16
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], "<f4")
TYPES = {"F32": "<f4", "F16": "<f2", "BF16": BF16, "F8_E4M3": E4M3, "F8_E5M2": E5M2, "F8_E8M0": E8M0, "U8": "u1", "I8": "i1", "I32": "<i4", "U32": "<u4", "I64": "<i8"}


def raw(count, seed):
    return np.frombuffer(pattern(count, seed=seed), np.uint8)


def wide(values):
    with np.errstate(all="ignore"):
        return np.asarray(values).astype("<f4")


def spread(scale, shape, blocks):
    """One scale per value: scales repeated over their blocks, the last ones cut."""
    for axis, block in enumerate(blocks):
        scale = np.repeat(scale, block, axis)
    return scale[tuple(slice(0, n) for n in shape)]


def nibbles(data, high_first=False):
    pair = (data >> 4, data & 15) if high_first else (data & 15, data >> 4)
    return np.stack(pair, -1).reshape(*data.shape[:-1], -1)


def exponents(data):
    return wide(data.view(E8M0))


@dataclass
class Case:
    """A weight, its companions and the values it has."""

    shown: str  # name in f32/
    convention: str
    wanted: np.ndarray
    block: object
    tensors: list  # names of the scales, as in the JSON
    stored: dict = field(default_factory=dict)  # name: (dtype, array)
    extra: tuple = ()  # companions that no value needs

    @property
    def code(self):
        return next(iter(self.stored))

    @property
    def companions(self):
        return [name for name in self.stored if name != self.code]


def put(model, cases):
    for case in cases:
        for name, (dtype, array) in case.stored.items():
            model.tensor(name, dtype, array.shape, np.ascontiguousarray(array))
    return model


def scales(shape, dtype="F32", seed=7):
    """Scales that need all their bits, some of them negative, tiny or huge."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape).astype("<f4") * np.exp2(rng.integers(-20, 8, shape)).astype("<f4")
    return values.astype(TYPES[dtype])


def multiplied(name, convention, shape, scale, dtype="F32", suffix="weight_scale", codes="F8_E4M3", blocks=None, block=None, seed=1, axis_scale=None):
    """Codes of `shape` times scales of shape `scale`; `blocks` per axis of the reshaped scale."""
    data = raw(int(np.prod(shape)), seed).reshape(shape)
    factor = scales(scale, dtype, seed)
    full = wide(factor) if axis_scale is None else wide(factor).reshape(axis_scale)
    full = np.broadcast_to(full, shape) if blocks is None else spread(full, shape, blocks)
    with np.errstate(all="ignore"):
        wanted = wide(data.view(TYPES[codes])) * full
    weight = f"{name}.weight"
    return Case(weight, convention, wanted, block, [f"{name}.{suffix}"], {weight: (codes, data.view(TYPES[codes])), f"{name}.{suffix}": (dtype, factor)})


def fp8_cases():
    cases = [
        multiplied("tensor", "fp8-tensor", (3, 40), (), suffix="weight_scale"),
        multiplied("one", "fp8-tensor", (3, 40), (1,), suffix="weight_scale_inv"),
        multiplied("old", "fp8-tensor", (5, 7), (), suffix="scale_weight"),
        multiplied("mistral", "fp8-tensor", (5, 7), (), suffix="qscale_weight", dtype="BF16"),
        multiplied("e5m2", "fp8-tensor", (5, 7), (1, 1), codes="F8_E5M2", dtype="F16"),
        multiplied("vector", "fp8-tensor", (33,), (1,)),
        multiplied("channel", "fp8-channel", (6, 50), (6, 1), dtype="BF16", block=[1, 50]),
        multiplied("row", "fp8-channel", (6, 50), (6,), block=[1, 50], axis_scale=(6, 1)),
        multiplied("column", "fp8-channel", (6, 50), (1, 50), block=[6, 1]),
        multiplied("each", "fp8-channel", (6, 50), (6, 50), block=[1, 1]),
        multiplied("deepseek", "fp8-block", (300, 200), (3, 2), suffix="weight_scale_inv", blocks=(128, 128), block=[128, 128]),
        multiplied("thousand", "fp8-block", (1000, 130), (8, 2), suffix="weight_scale_inv", dtype="BF16", blocks=(128, 128), block=[128, 128]),
        multiplied("small", "fp8-block", (3, 5), (2, 3), suffix="weight_scale_inv", blocks=(2, 2), block=[2, 2]),
        multiplied("e8m0", "fp8-block", (256, 256), (2, 2), suffix="scale", dtype="F8_E8M0", blocks=(128, 128), block=[128, 128]),
        multiplied("group", "fp8-group", (4, 256), (4, 2), blocks=(1, 128), block=[1, 128]),
        multiplied("musubi", "fp8-group", (4, 256), (4, 4, 1), suffix="scale_weight", blocks=(1, 64), block=[1, 64], axis_scale=(4, 4)),
        multiplied("pb", "fp8-block", (256, 384), (2, 1, 3, 1), blocks=(128, 128), block=[128, 128], axis_scale=(2, 3)),
        multiplied("mxfp8", "mxfp8", (5, 96), (5, 3), dtype="F8_E8M0", blocks=(1, 32), block=[1, 32]),
        multiplied("experts", "fp8-expert", (3, 4, 5), (3,), block=[4, 5], axis_scale=(3, 1, 1)),
        multiplied("experts_rows", "fp8-channel", (3, 4, 5), (3, 4), block=[1, 5], axis_scale=(3, 4, 1)),
        multiplied("experts_in", "fp8-channel", (3, 4, 5), (3, 1, 5), block=[4, 1]),
        multiplied("shared_rows", "fp8-channel", (3, 4, 5), (1, 4, 1), block=[1, 5]),
        multiplied("experts_block", "fp8-block", (2, 300, 256), (2, 3, 2), blocks=(1, 128, 128), block=[128, 128]),
        multiplied("int8", "int8-channel", (6, 50), (6, 1), codes="I8", block=[1, 50]),
        multiplied("int8_tensor", "int8-tensor", (6, 50), (), codes="I8", dtype="F16"),
    ]
    # bytes as exponents
    code, exponent = raw(4 * 64, 5).reshape(4, 64), raw(8, 6).reshape(4, 2)
    with np.errstate(all="ignore"):
        wanted = wide(code.view(E4M3)) * spread(exponents(exponent), (4, 64), (1, 32))
    cases.append(
        Case("bytes.weight", "mxfp8", wanted, [1, 32], ["bytes.weight_scale_inv"], {"bytes.weight": ("F8_E4M3", code.view(E4M3)), "bytes.weight_scale_inv": ("U8", exponent)})
    )
    # fused experts
    for name, end in (("a.gate_up_proj", "_scale_inv"), ("a.down_proj", "_scale")):
        case = multiplied("x", "fp8-block", (2, 130, 256), (2, 2, 2), blocks=(1, 128, 128), block=[128, 128])
        case.stored = {name: case.stored["x.weight"], name + end: case.stored["x.weight_scale"]}
        case.shown, case.tensors = name, [name + end]
        cases.append(case)
    # zero points of INT8
    code, zero, scale = raw(200, 8).view("i1").reshape(5, 40), raw(5, 9).view("i1").reshape(5, 1), scales((5, 1), seed=3)
    wanted = (code.astype("<i4") - zero).astype("<f4") * scale
    cases.append(
        Case(
            "asymmetric.weight",
            "int8-channel",
            wanted,
            [1, 40],
            ["asymmetric.weight_scale", "asymmetric.weight_zero_point"],
            {"asymmetric.weight": ("I8", code), "asymmetric.weight_scale": ("F32", scale), "asymmetric.weight_zero_point": ("I8", zero)},
        )
    )
    code, greatest = raw(200, 18).view("i1").reshape(5, 40), np.abs(scales((5,), seed=3))
    cases.append(
        Case(
            "bnb.weight",
            "int8-bitsandbytes",
            (code.astype("<f4") * greatest[:, None]) * np.float32(1 / 127),
            [1, 40],
            ["bnb.SCB"],
            {"bnb.weight": ("I8", code), "bnb.SCB": ("F32", greatest), "bnb.weight_format": ("U8", np.zeros((), "u1"))},
        )
    )
    # what goes away with a weight
    by_name = {case.shown: case for case in cases}
    by_name["tensor.weight"].stored["tensor.input_scale"] = ("F32", np.ones((), "<f4"))
    by_name["old.weight"].stored["old.scale_input"] = ("F32", np.ones((), "<f4"))
    by_name["old.weight"].stored["scaled_fp8"] = ("F8_E4M3", np.zeros(2, E4M3))
    return cases


def fp4_cases():
    cases = []
    for name, shape, columns in (("matrix", (5,), 96), ("stack", (3, 4), 64)):
        code = raw(int(np.prod(shape)) * columns // 2, len(name)).reshape(*shape, -1)
        block = raw(int(np.prod(shape)) * columns // 16, 3).reshape(*shape, -1)
        values = FP4[nibbles(code)]
        blocks = (1,) * len(shape)
        for convention in ("nvfp4-compressed-tensors", "nvfp4-modelopt"):
            count = () if len(shape) == 1 else (shape[0],)
            factor = np.abs(scales(count, seed=11)) + np.float32(0.37)
            over = factor.reshape(*count, *[1] * len(shape)) if count else factor
            with np.errstate(all="ignore"):
                local = wide(block.view(E4M3))
                local = local / over if convention == "nvfp4-compressed-tensors" else local * over
                wanted = values * spread(local, values.shape, (*blocks, 16))
            p = f"{name}.{convention}"
            code_name, over_name = ("weight_packed", "weight_global_scale") if "compressed" in convention else ("weight", "weight_scale_2")
            cases.append(
                Case(
                    f"{p}.weight",
                    convention,
                    wanted,
                    [1, 16],
                    [f"{p}.weight_scale", f"{p}.{over_name}"],
                    {
                        f"{p}.{code_name}": ("U8", code),
                        f"{p}.weight_scale": ("F8_E4M3", block.view(E4M3)),
                        f"{p}.{over_name}": ("F32", factor if count or "modelopt" in convention else factor.reshape(1)),
                        f"{p}.input_global_scale": ("F32", np.ones(1, "<f4")),
                    },
                )
            )
        exponent = raw(int(np.prod(shape)) * columns // 32, 4).reshape(*shape, -1)
        with np.errstate(all="ignore"):
            wanted = values * spread(exponents(exponent), values.shape, (*blocks, 32))
        for p, code_name, scale_name, kind, scale, convention in (
            (f"{name}.ct", "weight_packed", "weight_scale", ("U8", code), ("U8", exponent), "mxfp4-compressed-tensors"),
            (f"{name}.quark", "weight", "weight_scale", ("U8", code), ("F8_E8M0", exponent.view(E8M0)), "mxfp4"),
            (f"{name}.v4", "weight", "scale", ("I8", code.view("i1")), ("F8_E8M0", exponent.view(E8M0)), "mxfp4-deepseek"),
        ):
            cases.append(Case(f"{p}.weight", convention, wanted, [1, 32], [f"{p}.{scale_name}"], {f"{p}.{code_name}": kind, f"{p}.{scale_name}": scale}))
    # 6 bits
    code, exponent = raw(4 * 48, 5).reshape(4, 48), raw(8, 6).reshape(4, 2)
    word = code.reshape(4, -1, 3).astype("<u4")
    word = word[..., 0] | word[..., 1] << 8 | word[..., 2] << 16
    six = np.stack([word >> shift & 63 for shift in (0, 6, 12, 18)], -1).reshape(4, -1).astype("u1")
    with np.errstate(all="ignore"):
        wanted = wide(six.view(ml_dtypes.float6_e2m3fn)) * spread(exponents(exponent), (4, 64), (1, 32))
    cases.append(Case("six.weight", "mxfp6-compressed-tensors", wanted, [1, 32], ["six.weight_scale"], {"six.weight_packed": ("U8", code), "six.weight_scale": ("U8", exponent)}))
    # gpt-oss: experts, rows, blocks of 32
    for name, rows, groups in (("gate_up_proj", 70, 3), ("down_proj", 64, 2)):
        code, exponent = raw(2 * rows * groups * 16, 5).reshape(2, rows, groups, 16), raw(2 * rows * groups, 6).reshape(2, rows, groups)
        with np.errstate(all="ignore"):
            wanted = (FP4[nibbles(code)] * exponents(exponent)[..., None]).reshape(2, rows, -1)
        p = f"model.experts.{name}"
        cases.append(Case(p, "mxfp4-gpt-oss", np.ascontiguousarray(wanted.transpose(0, 2, 1)), [1, 32], [f"{p}_scales"], {f"{p}_blocks": ("U8", code), f"{p}_scales": ("U8", exponent)}))
        p = f"block.0.mlp.{'mlp1' if rows == 70 else 'mlp2'}_weight"
        cases.append(Case(p, "mxfp4-gpt-oss", wanted, [1, 32], [f"{p}.scales"], {f"{p}.blocks": ("U8", code), f"{p}.scales": ("U8", exponent)}))
    return cases


def bits_of(code, bits, word="<u4"):
    """Rows of codes as rows of words: a stream, lowest bits first, padded to whole words."""
    rows = (code[..., None] >> np.arange(bits) & 1).astype("u1").reshape(*code.shape[:-1], -1)
    pad = -rows.shape[-1] % 32
    rows = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, pad)])
    return np.packbits(rows, axis=-1, bitorder="little").view(word)


def packed_cases():
    cases = []
    rng = np.random.default_rng(5)
    for bits, shape, groups, dtype, zero, index in (
        (4, (6, 64), 2, "BF16", False, "<i8"),
        (4, (6, 60), 1, "F32", False, "<i4"),
        (4, (13, 96), 3, "F32", True, "<i8"),
        (8, (5, 64), 2, "F16", True, "<i8"),
        (8, (3, 61), 1, "F32", False, "<i8"),
    ):
        p = f"w{bits}.{shape[0]}x{shape[1]}"
        rows, columns = shape
        code, scale = rng.integers(0, 1 << bits, shape), scales((rows, groups), dtype, seed=rows)
        half = 1 << bits - 1
        point = rng.integers(0, 1 << bits, (rows, groups)) if zero else np.full((rows, groups), half)
        full = (rows, columns)
        value = (code - half) - spread(point - half, full, (1, columns // groups))
        wanted = value.astype("<f4") * spread(wide(scale), full, (1, columns // groups))
        stored = {
            f"{p}.weight_packed": ("I32", bits_of(code, bits, "<i4")),
            f"{p}.weight_scale": (dtype, scale),
            f"{p}.weight_shape": ("I64" if index == "<i8" else "I32", np.array(shape, index)),
        }
        tensors = [f"{p}.weight_scale"]
        if zero:
            stored[f"{p}.weight_zero_point"] = ("I32", np.ascontiguousarray(bits_of(point.T, bits, "<i4").T))
            tensors.append(f"{p}.weight_zero_point")
        cases.append(Case(f"{p}.weight", "pack-quantized", wanted, [1, columns // groups], tensors, stored))
    return cases


def mlx_cases(bits, group, dtype):
    rng = np.random.default_rng(bits)
    cases = []
    for p, shape in (("layers.0.q_proj", (5, group * 3)), ("layers.0.experts", (2, 3, group * 2))):
        lead, columns = shape[:-1], shape[-1]
        code = rng.integers(0, 1 << bits, shape)
        scale, bias = (scales((*lead, columns // group), dtype, seed=s) for s in (2, 3))
        blocks = (*[1] * len(lead), group)
        product = code.astype("<f4") * spread(wide(scale), shape, blocks)
        wanted = product + spread(wide(bias), shape, blocks)
        cases.append(
            Case(
                f"{p}.weight",
                "mlx-affine",
                wanted,
                [1, group],
                [f"{p}.scales", f"{p}.biases"],
                {f"{p}.weight": ("U32", bits_of(code, bits)), f"{p}.scales": (dtype, scale), f"{p}.biases": (dtype, bias)},
            )
        )
    return cases


def mlx_float_cases():
    cases = []
    for mode, group, codes in (("nvfp4", 16, "fp4"), ("mxfp4", 32, "fp4"), ("mxfp8", 32, "fp8")):
        code = raw(4 * (32 if codes == "fp4" else 64), 3).reshape(4, -1)
        values = FP4[nibbles(code)] if codes == "fp4" else wide(code.view(E4M3))
        exponent = raw(4 * (64 // group), 4).reshape(4, -1)
        scale = wide(exponent.view(E4M3)) if mode == "nvfp4" else exponents(exponent)
        for over in (None, np.float32(4.7)) if mode == "nvfp4" else (None,):
            p = f"{mode}{'' if over is None else '.global'}"
            with np.errstate(all="ignore"):
                local = scale if over is None else scale * (over / np.float32(2688))
                wanted = values * spread(local, (4, 64), (1, group))
            stored = {f"{p}.weight": ("U32", code.view("<u4")), f"{p}.scales": ("U8", exponent)}
            tensors = [f"{p}.scales"]
            if over is not None:
                stored[f"{p}.global_scale"] = ("F32", np.array(over))
                tensors.append(f"{p}.global_scale")
            cases.append(Case(f"{p}.weight", f"mlx-{mode}", wanted, [1, group], tensors, stored))
    return cases


def same(found, wanted):
    """Equal bit for bit, any NaN being any NaN, and -0 being 0 only where both are."""
    bits = np.uint32 if found.dtype.itemsize == 4 else np.uint16
    wanted = np.ascontiguousarray(wanted)
    return found.shape == wanted.shape and np.array_equal(
        np.where(np.isnan(found), bits(0), found.view(bits)), np.where(np.isnan(wanted), bits(0), wanted.view(bits))
    )


def check(mounted, case):
    with np.errstate(all="ignore"):
        views = {"f32": case.wanted, "f16": case.wanted.astype("<f2"), "bf16": case.wanted.astype(BF16)}
    shape = case.wanted.shape
    for folder, wanted in views.items():
        found = np.fromfile(mounted / folder / f"{case.shown}.bin", wanted.dtype)
        assert same(found.reshape(shape), wanted), (case.shown, folder)
        about = mounted.json(f"{folder}/{case.shown}.json")
        code_type, code = case.stored[case.code]
        assert about["name"] == case.shown and about["source_name"] == case.code
        assert about["shape"] == list(shape) and about["nbytes"] == wanted.nbytes and about["elements"] == wanted.size
        assert about["dtype"] == folder.upper() and about["converted_from"] == code_type
        assert about["scaled"] is True
        assert about["scale"] == {"convention": case.convention, "tensors": case.tensors, "block": case.block}, about
        if case.code != case.shown:
            assert not (mounted / folder / f"{case.code}.bin").exists()
            assert f"{case.code}.bin" not in os.listdir(mounted / folder)
        assert f"{case.shown}.bin" in os.listdir(mounted / folder)
    assert same(np.load(mounted / f"f32/{case.shown}.npy"), case.wanted)
    stored = mounted.json(f"tensors/{case.code}.json")
    assert stored["shape"] == list(code.shape) and "scale" not in stored
    assert stored["files"]["f32"] == f"f32/{case.shown}.bin"
    assert mounted.bin(case.code) == np.ascontiguousarray(code).tobytes()


def check_slices(path):
    whole = path.read_bytes()
    size = len(whole)
    with open(path, "rb", buffering=0) as file:
        for offset in {0, 1, 2, 3, 5, 63, 64, 127, size // 3, size // 2 + 1, max(size - 9, 0), size - 1}:
            for length in (1, 2, 3, 5, 129, 4097, size):
                assert os.pread(file.fileno(), length, offset) == whole[offset : offset + length], (path, offset, length)


def keys(mounted, folder):
    with open(mounted / folder / "model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


def check_whole(mounted, cases, others=()):
    stored = {name for case in cases for name in case.stored} | set(others)
    root = {key for key in keys(mounted, ".") if key != "__metadata__"}
    assert root == stored
    for folder in ("f32", "f16", "bf16"):
        found = {key for key in keys(mounted, folder) if key != "__metadata__"}
        assert found == {case.shown for case in cases} | set(others), folder
    wanted = {case.shown: case.wanted for case in cases}
    code = """
import sys, ml_dtypes, numpy as np
from safetensors import safe_open
wanted = np.load(sys.argv[2])
with safe_open(sys.argv[1], "np") as file:
    for name in wanted.files:
        a, b = file.get_tensor(name), wanted[name]
        assert a.shape == b.shape and a.dtype == b.dtype, name
        assert np.array_equal(np.where(np.isnan(a), 0, a.view("<u4")), np.where(np.isnan(b), 0, b.view("<u4"))), name
"""
    np.savez(mounted.path.parent / "wanted.npz", **wanted)
    python(code, mounted / "f32/model.safetensors", mounted.path.parent / "wanted.npz")


def has_views(mounted):
    return (mounted / "f32").exists()


GROUPS = {
    "fp8": (fp8_cases, None),
    "fp4": (fp4_cases, None),
    "packed": (packed_cases, {"quant_method": "compressed-tensors", "format": "pack-quantized"}),
    "mlx-floats": (mlx_float_cases, None),
}


@pytest.fixture(scope="module", params=GROUPS)
def group(request, tmp_path_factory, shared_mount):
    make, config = GROUPS[request.param]
    cases = make()
    folder = tmp_path_factory.mktemp(request.param)
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    model = put(Safetensors(), cases).tensor("norm.weight", "BF16", (7,))
    mounted = shared_mount(model.write(folder / "model.safetensors"))
    return mounted, cases


def test_values_are_codes_times_scales(group):
    mounted, cases = group
    for case in cases:
        check(mounted, case)
    assert not [w for w in mounted.model["warnings"] if "scaled" in w or "served as stored" in w]


def test_any_range_is_that_slice(group):
    mounted, cases = group
    for case in cases:
        for folder in ("f32", "bf16"):
            check_slices(mounted / folder / f"{case.shown}.bin")


def test_model_safetensors_has_weights_and_no_companions(group):
    mounted, cases = group
    check_whole(mounted, cases, ["norm.weight"])


def test_cat_gives_the_same_values(group, weightfs):
    mounted, cases = group
    source = next((mounted / "source").iterdir())
    for case in cases[:3]:
        for name in (case.code, case.shown):
            found = weightfs.run("cat", source, name, "--as", "f32").out
            assert found == (mounted / f"f32/{case.shown}.bin").read_bytes()


@pytest.mark.parametrize(("bits", "size", "dtype"), [(2, 64, "F16"), (3, 32, "BF16"), (4, 64, "BF16"), (5, 64, "F32"), (6, 128, "F32"), (8, 32, "F32")])
def test_mlx_affine(mount, tmp_path, bits, size, dtype):
    cases = mlx_cases(bits, size, dtype)
    (tmp_path / "config.json").write_text(json.dumps({"quantization": {"group_size": size, "bits": bits}}))
    mounted = mount(put(Safetensors(), cases).write(tmp_path / "model.safetensors"))
    for case in cases:
        check(mounted, case)
        check_slices(mounted / f"f32/{case.shown}.bin")
    check_whole(mounted, cases)


def test_mlx_without_a_configuration_is_not_guessed(mount, tmp_path):
    cases = mlx_cases(4, 64, "F16")
    mounted = mount(put(Safetensors(), cases).write(tmp_path / "model.safetensors"))
    for case in cases:
        assert not (mounted / f"f32/{case.shown}.bin").exists()
        assert mounted.json(f"tensors/{case.code}.json")["scaled"] is False
    assert len([w for w in mounted.model["warnings"] if "2 weights" in w]) == 1


def test_scales_are_found_in_another_shard(mount, tmp_path):
    case = multiplied("a", "fp8-block", (200, 300), (2, 3), suffix="weight_scale_inv", blocks=(128, 128), block=[128, 128])
    first, second = Safetensors(), Safetensors()
    for shard, name in ((first, case.code), (second, case.companions[0])):
        dtype, array = case.stored[name]
        shard.tensor(name, dtype, array.shape, array)
    mounted = mount(sharded([first, second], tmp_path))
    check(mounted, case)
    check_whole(mounted, [case])


def test_c15_three_files(mount, tmp_path):
    """FP8 with a scale per block, with one for all, and with none: never a silent cast."""
    block = multiplied("w", "fp8-block", (128, 256), (1, 2), suffix="weight_scale_inv", blocks=(128, 128), block=[128, 128])
    single = multiplied("w", "fp8-tensor", (128, 256), (), suffix="scale_weight")
    for number, case in enumerate((block, single)):
        folder = tmp_path / str(number)
        folder.mkdir()
        mounted = mount(put(Safetensors(), [case]).write(folder / "model.safetensors"))
        check(mounted, case)
        check_whole(mounted, [case])
        assert mounted.model["warnings"] == []
    (tmp_path / "none").mkdir()
    dtype, array = block.stored["w.weight"]
    mounted = mount(Safetensors().tensor("w.weight", dtype, array.shape, array).write(tmp_path / "none/model.safetensors"))
    assert same(np.load(mounted / "f32/w.weight.npy"), wide(array))
    about = mounted.json("f32/w.weight.json")
    assert about["scaled"] is False and about["reason"] == "no scale tensor found" and "scale" not in about
    (warning,) = mounted.model["warnings"]
    assert "no scale tensor" in warning and "w.weight" in warning


def test_what_is_not_certain_is_cast_or_stored_and_said(mount, tmp_path):
    model = Safetensors()
    eight = raw(24, 1).reshape(4, 6)

    def unsure(name, shape, dtype="F32", suffix="weight_scale"):
        model.tensor(f"{name}.weight", "F8_E4M3", (4, 6), eight)
        model.tensor(f"{name}.{suffix}", dtype, shape)

    unsure("shape", (5,))
    unsure("bytes", (4, 1), "U8")
    unsure("integer", (), "I32")
    unsure("double", (), "F64")
    unsure("new", (), suffix="inv_scale")
    unsure("two", ())
    model.tensor("two.weight_scale_inv", "F32", ())
    unsure("more", ())
    model.tensor("more.weight_scale_2", "F32", ())
    model.tensor("int.weight", "I8", (4, 6), eight).tensor("int.weight_scale", "F32", (5,))
    model.tensor("square.weight", "F8_E4M3", (2, 3, 3)).tensor("square.weight_scale", "F32", (2, 3))
    mounted = mount(model.write(tmp_path / "model.safetensors"))
    names = ["shape", "bytes", "integer", "double", "new", "two", "more", "int"]
    for name in names:
        kind = "i1" if name == "int" else E4M3
        assert same(np.load(mounted / f"f32/{name}.weight.npy"), wide(eight.view(kind))), name
        about = mounted.json(f"bf16/{name}.weight.json")
        assert about["scaled"] is False and about["reason"], name
        assert mounted.json(f"tensors/{name}.weight.json")["reason"] == about["reason"]
    assert mounted.json("f32/shape.weight.json")["reason"] == "scale shape.weight_scale has shape [5], weight [4, 6]"
    assert mounted.json("f32/square.weight.json")["scaled"] is False
    stored = {name for name, *_ in model.tensors}
    for folder in (".", "f32", "bf16"):
        assert {key for key in keys(mounted, folder) if key != "__metadata__"} == stored, folder
    # one for each sort: none, shape (two types), type, several, beside
    assert len(mounted.model["warnings"]) == 6, mounted.model["warnings"]


def test_packed_conventions_that_are_not_certain_are_stored_and_named(mount, tmp_path):
    model = Safetensors()
    model.tensor("a.qweight", "I32", (8, 64)).tensor("a.qzeros", "I32", (1, 8)).tensor("a.scales", "F16", (1, 64)).tensor("a.g_idx", "I32", (64,))
    model.tensor("b.qweight", "I32", (8, 64)).tensor("b.qzeros", "I32", (1, 8)).tensor("b.scales", "F16", (1, 64))
    model.tensor("c.qweight", "I32", (64, 8)).tensor("c.qzeros", "I32", (1, 8)).tensor("c.scales", "F16", (1, 64))
    model.tensor("d.weight", "U8", (512, 1)).tensor("d.weight.absmax", "F32", (16,)).tensor("d.weight.quant_map", "F32", (16,))
    model.tensor("d.weight.quant_state.bitsandbytes__nf4", "U8", (80,))
    model.tensor("e.weight", "U8", (16, 32)).tensor("e.weight_scale", "F8_E4M3", (128, 4)).tensor("e.weight_scale_2", "F32", ()).tensor("e.comfy_quant", "U8", (20,))
    model.tensor("f.weight", "U8", (16, 32)).tensor("f.weight_scale", "F32", (1,))
    model.tensor("g.weight", "U8", (16, 32))
    model.tensor("h.weight_packed", "U8", (16, 32)).tensor("h.weight_scale", "F8_E4M3", (16, 4))
    model.tensor("i.weight", "U8", (16, 32)).tensor("i.weight_scale", "F8_E4M3", (16, 4)).tensor("i.weight_scale_2", "F32", (3,))
    model.tensor("j.weight_packed", "I32", (16, 8)).tensor("j.weight_scale", "F32", (16, 1)).tensor("j.weight_shape", "I64", (2,), np.array([16, 999], "<i8"))
    model.tensor("l.weight", "I8", (16, 32))
    mounted = mount(model.write(tmp_path / "model.safetensors"))
    stored = {name for name, *_ in model.tensors}
    codes = ["a.qweight", "b.qweight", "c.qweight", "d.weight", "e.weight", "f.weight", "h.weight_packed", "i.weight", "j.weight_packed"]
    names = os.listdir(mounted / "f32")
    for name in codes:
        assert f"{name}.bin" not in names and not (mounted / f"f32/{name}.bin").exists(), name
        about = mounted.json(f"tensors/{name}.json")
        assert about["scaled"] is False and about["reason"], name
    for name in ("g.weight", "l.weight"):
        assert not (mounted / f"f32/{name}.bin").exists() and "scaled" not in mounted.json(f"tensors/{name}.json")
    for folder in (".", "f32", "bf16"):
        assert {key for key in keys(mounted, folder) if key != "__metadata__"} == stored, folder
    warnings = mounted.model["warnings"]
    for word in ("GPTQ", "AWQ", "bitsandbytes", "ComfyUI"):
        assert len([w for w in warnings if word in w]) == 1, (word, warnings)
    assert "2 weights" in next(w for w in warnings if "GPTQ" in w) and "a.qweight" in next(w for w in warnings if "GPTQ" in w)


def test_a_configuration_that_contradicts_is_believed_by_neither(mount, tmp_path):
    case = multiplied("a", "fp8-block", (200, 300), (2, 3), suffix="weight_scale_inv", blocks=(128, 128), block=[128, 128])
    model = put(Safetensors(), [case])
    for number, (config, scaled) in enumerate(
        [
            ({"quant_method": "fp8", "weight_block_size": [128, 128]}, True),
            ({"quant_method": "fp8", "weight_block_size": [64, 64]}, False),
            ({"quant_method": "fp8", "weight_block_size": None}, False),
            ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, False),
            ({"quant_method": "compressed-tensors", "format": "float-quantized"}, True),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
        mounted = mount(model.write(folder / "model.safetensors"))
        assert mounted.json("f32/a.weight.json")["scaled"] is scaled, config
        wanted = case.wanted if scaled else wide(case.stored["a.weight"][1])
        assert same(np.load(mounted / "f32/a.weight.npy"), wanted)


def test_groups_of_any_size_are_what_the_configuration_says(mount, tmp_path):
    code, scale = raw(8 * 96, 1).reshape(8, 96), np.arange(1, 17, dtype="<f4").reshape(8, 2)
    model = Safetensors().tensor("a.weight", "F8_E4M3", (8, 96), code).tensor("a.weight_scale", "F32", (8, 2), scale)
    for number, size in enumerate((48, 64, 96, None)):
        folder = tmp_path / str(number)
        folder.mkdir()
        weights = {"strategy": "group", "group_size": size, "num_bits": 8, "type": "float"}
        config = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"weights": weights}}}
        if size:
            (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
        mounted = mount(model.write(folder / "model.safetensors"))
        about = mounted.json("f32/a.weight.json")
        assert about["scaled"] is (size in (48, 64)), size  # unsaid, both fit: not guessed
        wanted = wide(code.view(E4M3))
        if about["scaled"]:
            assert about["scale"]["block"] == [1, size]
            wanted = wanted * spread(scale, (8, 96), (1, size))
        assert same(np.load(mounted / "f32/a.weight.npy"), wanted)


def test_a_power_of_two_is_no_scale_of_int8(mount, tmp_path):
    model = Safetensors().tensor("a.weight", "I8", (4, 32)).tensor("a.scale", "F8_E8M0", (4, 4))
    model.tensor("b.weight", "I8", (4, 32)).tensor("b.weight_scale", "F8_E8M0", (4, 1))
    mounted = mount(model.write(tmp_path / "model.safetensors"))
    for name in "ab":
        assert not (mounted / f"f32/{name}.weight.bin").exists()
        assert mounted.json(f"tensors/{name}.weight.json")["scaled"] is False
    assert mounted.model["warnings"]


def test_a_configuration_as_python_writes_it_is_heard_and_a_broken_one_said(mount, tmp_path):
    case = multiplied("a", "fp8-block", (256, 256), (2, 2), suffix="weight_scale_inv", blocks=(128, 128), block=[128, 128])
    model = put(Safetensors(), [case])
    veto = '{"limit": [0.0, Infinity, NaN], "quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}}'
    for number, (text, scaled, said) in enumerate([(veto, False, False), ("\ufeff" + veto, False, False), (veto[:-3], True, True), ("{} x", True, True)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(text)
        mounted = mount(model.write(folder / "model.safetensors"))
        assert mounted.json("f32/a.weight.json")["scaled"] is scaled, text
        assert any("config.json" in warning and "not heard" in warning for warning in mounted.model["warnings"]) is said, text


def test_byte_scales_are_exponents_where_that_is_said(mount, tmp_path):
    code, exponent = raw(200 * 300, 1).reshape(200, 300), (raw(6, 2) % 40 + 100).astype("u1").reshape(2, 3)
    model = Safetensors().tensor("a.weight", "F8_E4M3", code.shape, code).tensor("a.weight_scale_inv", "U8", (2, 3), exponent)
    wanted = wide(code.view(E4M3)) * spread(exponents(exponent), code.shape, (128, 128))
    for config, scaled in (({"quant_method": "fp8", "scale_fmt": "ue8m0"}, True), ({"quant_method": "fp8"}, False)):
        folder = tmp_path / str(scaled)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
        mounted = mount(model.write(folder / "model.safetensors"))
        assert mounted.json("f32/a.weight.json")["scaled"] is scaled
        assert same(np.load(mounted / "f32/a.weight.npy"), wanted if scaled else wide(code.view(E4M3)))


def test_hf_quant_config_is_heard_too(mount, tmp_path):
    (case,) = [case for case in fp4_cases() if case.shown == "matrix.nvfp4-modelopt.weight"]
    model = put(Safetensors(), [case])
    for algorithm, scaled in (("NVFP4", True), ("NVFP4_AWQ", False), ("W4A8_MXFP4_FP8", False), ("MIXED_PRECISION", True)):
        folder = tmp_path / algorithm
        folder.mkdir()
        (folder / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm}}))
        mounted = mount(model.write(folder / "model.safetensors"))
        assert (mounted / f"f32/{case.shown}.bin").exists() is scaled, algorithm
        if not scaled:
            assert algorithm in mounted.json(f"tensors/{case.code}.json")["reason"]


def test_a_map_moves_decoded_weights_and_keeps_what_they_are(mount, tmp_path):
    (case,) = [case for case in fp4_cases() if case.shown == "matrix.ct.weight"]
    (tmp_path / "map").write_text(json.dumps({"weightfs_map": 1, "pairs": {"matrix.ct.weight_packed": "blk.0.weight_packed", "matrix.ct.weight_scale": None}}))
    mounted = mount(put(Safetensors(), [case]).write(tmp_path / "model.safetensors"), f"map={tmp_path / 'map'}")
    assert same(np.load(mounted / "f32/blk.0.weight.npy"), case.wanted)
    assert {key for key in keys(mounted, "f32") if key != "__metadata__"} == {"blk.0.weight"}
    assert "blk.0.weight.bin" in os.listdir(mounted / "f32") and "blk.0.weight_packed.bin" in os.listdir(mounted / "tensors")


def test_a_name_that_would_collide_stays_stored(mount, tmp_path):
    cases = [case for case in fp4_cases() if case.shown == "matrix.ct.weight"]
    model = put(Safetensors(), cases).tensor("matrix.ct.weight", "BF16", (5, 96))
    mounted = mount(model.write(tmp_path / "model.safetensors"))
    assert mounted.json("f32/matrix.ct.weight.json")["source_name"] == "matrix.ct.weight"
    assert not (mounted / "f32/matrix.ct.weight_packed.bin").exists()
    assert mounted.json("tensors/matrix.ct.weight_packed.json")["scaled"] is False
    assert len([w for w in mounted.model["warnings"] if "another tensor" in w]) == 1
    wanted = {name for name, *_ in model.tensors}
    for folder in (".", "f32"):
        assert {key for key in keys(mounted, folder) if key != "__metadata__"} == wanted


def test_damage_is_met_by_the_values_that_depend_on_it(weightfs, mount, tmp_path):
    model = Safetensors()
    codes = raw(64 * 4096, 1).reshape(64, 4096)
    scale = scales((64, 4096))  # 1 MiB: sixteen chunks
    model.tensor("a.weight", "F8_E4M3", codes.shape, codes).tensor("a.weight_scale", "F32", scale.shape, scale)
    path = model.write(tmp_path / "model.safetensors")
    weightfs.run("seal", path)
    data = bytearray(path.read_bytes())
    data[model.place_of("a.weight_scale") + 5 * 65536 + 77] ^= 1
    data[model.place_of("a.weight") + 3 * 65536 + 5] ^= 1
    path.write_bytes(data)
    mounted = mount(path)
    wanted = wide(codes.view(E4M3)) * scale
    flat = wanted.ravel()
    bad = [range(5 * 16384, 6 * 16384), range(3 * 65536, 4 * 65536)]
    with open(mounted / "f32/a.weight.bin", "rb", buffering=0) as file:
        start = 5 * 16384 * 4
        found = b""
        while len(found) < start + 4:
            try:
                piece = os.pread(file.fileno(), 100_000, len(found))
            except OSError as error:
                assert error.errno == 5
                break
            found += piece
        assert len(found) == start, "exactly the good prefix"
        assert same(np.frombuffer(found, "<f4"), flat[: start // 4])
        for index in (0, 5 * 16384 - 1, 5 * 16384, 6 * 16384 - 1, 6 * 16384, 3 * 65536 - 1, 3 * 65536, 4 * 65536 - 1, 4 * 65536):
            if index >= flat.size:
                continue
            if any(index in r for r in bad):
                with pytest.raises(OSError):
                    os.pread(file.fileno(), 4, index * 4)
            else:
                assert same(np.frombuffer(os.pread(file.fileno(), 4, index * 4), "<f4"), flat[index : index + 1])


@pytest.mark.parametrize("big", [False, True])
def test_gguf_nvfp4_with_its_companion(mount, tmp_path, big):
    order = ">f4" if big else "<f4"
    scale, experts = np.array([0.37], order), np.array([0.1, 3.7, -2.5], order)
    model = Gguf(big=True) if big else Gguf()
    model.tensor("blk.0.ffn_up.weight", "NVFP4", (6, 128)).tensor("blk.0.ffn_up.scale", "F32", (1,), scale)
    model.tensor("blk.0.ffn_up_exps.weight", "NVFP4", (3, 4, 64)).tensor("blk.0.ffn_up_exps.scale", "F32", (3,), experts)
    model.tensor("blk.0.ffn_up_exps.input_scale", "F32", (3,))
    model.tensor("blk.1.ffn_up.weight", "NVFP4", (6, 128))
    model.tensor("blk.2.ffn_up.weight", "NVFP4", (6, 128)).tensor("blk.2.ffn_up.scale", "F32", (5,))
    model.tensor("blk.3.ffn_up.weight", "Q8_0", (6, 64)).tensor("blk.3.ffn_up.scale", "F32", (1,))
    mounted = mount(model.write(tmp_path / "m.gguf"))

    def blocks(name, shape):
        data = np.frombuffer(model.data_of(name), "u1").reshape(-1, 36)
        code = data[:, 4:].reshape(-1, 4, 8)
        values = FP4[np.concatenate([code & 15, code >> 4], -1)] + np.float32(0)
        with np.errstate(all="ignore"):
            local = wide((data[:, :4] & 0x7F).view(E4M3))
        local = np.where(data[:, :4] & 0x7F == 0x7F, np.where(data[:, :4] == 0x7F, 0, 480), local).astype("<f4")
        return (values * local[..., None]).reshape(shape)

    def equal(found, wanted):
        return found.shape == wanted.shape and np.array_equal(found, wanted)

    up = blocks("blk.0.ffn_up.weight", (6, 128)) * wide(scale)
    assert equal(np.load(mounted / "f32/blk.0.ffn_up.weight.npy"), up)
    exps = blocks("blk.0.ffn_up_exps.weight", (3, 4, 64)) * wide(experts)[:, None, None]
    assert equal(np.load(mounted / "f32/blk.0.ffn_up_exps.weight.npy"), exps)
    about = mounted.json("f32/blk.0.ffn_up_exps.weight.json")
    assert about["scaled"] is True and about["scale"]["tensors"] == ["blk.0.ffn_up_exps.scale"]
    assert equal(np.load(mounted / "f32/blk.1.ffn_up.weight.npy"), blocks("blk.1.ffn_up.weight", (6, 128)))
    assert "scaled" not in mounted.json("f32/blk.1.ffn_up.weight.json")
    assert mounted.json("f32/blk.2.ffn_up.weight.json")["scaled"] is False
    assert mounted.json("f32/blk.3.ffn_up.weight.json")["scaled"] is False
    gone = {"blk.0.ffn_up.scale", "blk.0.ffn_up_exps.scale", "blk.0.ffn_up_exps.input_scale"}
    stored = {tensor.name.decode() for tensor in model.tensors}
    for folder in (".", "f32", "f16"):
        assert {key for key in keys(mounted, folder) if key != "__metadata__"} == stored - gone, folder
    entry = keys(mounted, ".")["blk.0.ffn_up.weight"]
    assert entry["dtype"] == "F32"
    with open(mounted / "model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        file.seek(8 + length + entry["data_offsets"][0])
        assert equal(np.frombuffer(file.read(6 * 128 * 4), "<f4").reshape(6, 128), up)
