"""weightfs diff: what numpy says of the values of two models."""

import json
import math
import shutil

import gguf
import ml_dtypes
import numpy as np
import pytest

from gguf_file import Gguf
from safetensors_file import Safetensors

KEYS = ["name", "result", "a", "b", "max_abs_diff", "rms_diff", "cosine", "differing", "nan"]


def diff(weightfs, a, b, *words, code=0):
    result = weightfs.run("diff", a, b, *words, "--json", code=code)
    found = json.loads(result.out)
    assert list(found) == ["a", "b", "tensors", "totals"]
    return {tensor["name"]: tensor for tensor in found["tensors"]}


def model(path, **tensors):
    file = Safetensors()
    names = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(ml_dtypes.bfloat16): "BF16", np.dtype(np.float64): "F64"}
    names |= {np.dtype(np.int64): "I64", np.dtype(np.uint64): "U64", np.dtype(np.int8): "I8", np.dtype(np.complex64): "C64", np.dtype(np.bool_): "BOOL"}
    for name, values in tensors.items():
        file.tensor(name, names[values.dtype], values.shape, values)
    return file.write(path)


def check(found, a, b):
    a, b = (x.astype(np.float64).reshape(-1) for x in (a, b))
    assert list(found) == KEYS
    assert found["result"] == ("differs" if (a != b).any() else "equal")
    assert found["max_abs_diff"] == np.abs(a - b).max()
    assert found["differing"] == np.count_nonzero(a != b)
    assert math.isclose(found["rms_diff"], math.sqrt(np.mean((a - b) ** 2)), rel_tol=1e-9)
    assert math.isclose(found["cosine"], a @ b / (np.linalg.norm(a) * np.linalg.norm(b)), rel_tol=1e-9)


@pytest.fixture
def values():
    return np.random.default_rng(5).normal(0, 1, (70, 1001)).astype(np.float32)


def test_the_numbers_are_those_of_numpy(weightfs, tmp_path, values):
    many = np.random.default_rng(6).normal(0, 1, 700_001).astype(np.float32)
    other, more = values.copy(), many + np.float32(1e-3)
    other[3, 5] += 1
    a = model(tmp_path / "a", x=values, y=many, same=values)
    b = model(tmp_path / "b", x=other, y=more, same=values)
    found = diff(weightfs, a, b)
    check(found["x"], values, other)
    check(found["y"], many, more)
    assert found["same"]["result"] == "same" and found["same"]["max_abs_diff"] == 0 and found["same"]["cosine"] is None
    said = weightfs.run("diff", a, b).text
    assert said.splitlines()[1].startswith("x ") and "same " not in said.splitlines()[2]
    assert said.splitlines()[-1] == "3 tensors: 1 the same bytes, 2 differ"


def test_one_dtype_against_another(weightfs, tmp_path, values):
    narrow = values.astype(ml_dtypes.bfloat16)
    found = diff(weightfs, model(tmp_path / "a", x=values), model(tmp_path / "b", x=narrow))["x"]
    check(found, values, narrow.astype(np.float32))
    assert (found["a"], found["b"]) == ({"dtype": "F32", "shape": [70, 1001]}, {"dtype": "BF16", "shape": [70, 1001]})
    wide = narrow.astype(np.float64)
    assert diff(weightfs, model(tmp_path / "a", x=wide), model(tmp_path / "b", x=narrow))["x"]["result"] == "equal"


def test_a_quantised_tensor_against_its_source(weightfs, tmp_path, values):
    rows = values[:, :992].copy()
    raw = gguf.quants.quantize(rows, gguf.GGMLQuantizationType.Q8_0)
    a = model(tmp_path / "a", x=rows)
    b = Gguf().tensor("x", "Q8_0", rows.shape, raw.tobytes()).write(tmp_path / "b")
    check(diff(weightfs, a, b)["x"], rows, gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q8_0))


def test_zeros_of_both_signs_are_equal_and_other_bytes(weightfs, tmp_path):
    found = diff(weightfs, model(tmp_path / "a", x=np.float32([0.0, 1])), model(tmp_path / "b", x=np.float32([-0.0, 1])))["x"]
    assert (found["result"], found["max_abs_diff"], found["cosine"]) == ("equal", 0, 1)


def test_what_is_no_number(weightfs, tmp_path):
    nan, inf = math.nan, math.inf
    a = np.float32([nan, nan, inf, inf, 1, inf, 3, 4])
    b = np.float32([nan, 1, inf, -inf, 1, 2, 3, 5])
    found = diff(weightfs, model(tmp_path / "a", x=a), model(tmp_path / "b", x=b))["x"]
    assert (found["differing"], found["nan"], found["max_abs_diff"]) == (4, 1, "Infinity")
    assert math.isclose(found["rms_diff"], math.sqrt(1 / 3)) and math.isclose(found["cosine"], 30 / math.sqrt(26 * 35))
    found = diff(weightfs, model(tmp_path / "a", x=a[:2]), model(tmp_path / "b", x=b[:2]))["x"]
    assert (found["differing"], found["nan"], found["max_abs_diff"], found["rms_diff"]) == (1, 1, 0, None)


def test_what_there_is_on_one_side_only(weightfs, tmp_path, values):
    a = model(tmp_path / "a", both=values, a=values, shape=values)
    b = model(tmp_path / "b", b=values, both=values, shape=values.T.copy())
    found = diff(weightfs, a, b)
    assert {name: tensor["result"] for name, tensor in found.items()} == {"both": "same", "a": "only_a", "shape": "shape", "b": "only_b"}
    assert found["a"]["b"] is None and found["b"]["a"] is None and found["shape"]["b"]["shape"] == [1001, 70]
    said = weightfs.run("diff", a, b).text
    assert "only in A" in said and "only in B" in said and "another shape" in said and "[70, 1001] -> [1001, 70]" in said


def test_wide_integers_are_compared_exactly(weightfs, tmp_path):
    a, b = np.int64([2**62, 5, -(2**63)]), np.int64([2**62 + 1, 5, -(2**63)])
    found = diff(weightfs, model(tmp_path / "a", x=a), model(tmp_path / "b", x=b))["x"]
    assert (found["result"], found["max_abs_diff"], found["differing"]) == ("differs", 1, 1)


def test_complex_numbers_by_their_parts(weightfs, tmp_path):
    a, b = np.complex64([1 + 2j, 3]), np.complex64([1 - 2j, 3])
    found = diff(weightfs, model(tmp_path / "a", x=a), model(tmp_path / "b", x=b))["x"]
    assert (found["max_abs_diff"], found["differing"]) == (4, 1)
    found = diff(weightfs, model(tmp_path / "a", x=a), model(tmp_path / "b", x=np.float32([1, 3])))["x"]
    assert found["result"] == "bytes"


def test_empty_tensors_and_empty_models(weightfs, tmp_path):
    a, b = model(tmp_path / "a", x=np.zeros((0, 3), np.float32)), model(tmp_path / "b", x=np.zeros((0, 3), np.float16))
    assert diff(weightfs, a, b)["x"]["result"] == "equal"
    assert diff(weightfs, a, a)["x"]["result"] == "same"
    empty = Gguf().write(tmp_path / "e")
    assert diff(weightfs, empty, empty) == {} and weightfs.run("diff", empty, empty).text == "0 tensors\n"


def test_a_seal_spares_the_reading(weightfs, tmp_path, values):
    a, b = model(tmp_path / "a", x=values, y=values), model(tmp_path / "b", x=values, y=values + 1)
    weightfs.run("seal", a, b)
    found = diff(weightfs, a, b)
    assert found["x"]["result"] == "same"
    check(found["y"], values, values + 1)


def test_a_damaged_tensor_is_named_and_the_others_are_done(weightfs, tmp_path, values):
    a = model(tmp_path / "a", x=values, y=values)
    weightfs.run("seal", a)
    raw = bytearray(a.read_bytes())
    raw[-200_000 - values.nbytes] ^= 1
    a.write_bytes(raw)
    b = model(tmp_path / "b", x=values, y=values)
    result = weightfs.run("diff", a, b, code=1)
    assert '"x"' in result.err and '"y"' not in result.err and "1 the same bytes" in result.text
    found = diff(weightfs, a, b, code=1)
    assert found["x"]["result"] == "failed" and "CRC32" in found["x"]["error"] and found["y"]["result"] == "same"


def test_a_map_file_is_for_the_first_model(weightfs, tmp_path, values):
    (tmp_path / "map.json").write_text('{"weightfs_map": 1, "pairs": {"x": "y"}, "unmapped": "error"}')
    a, b = model(tmp_path / "a", x=values), model(tmp_path / "b", y=values)
    assert diff(weightfs, a, b)["x"]["result"] == "only_a"
    assert diff(weightfs, a, b, "--map", tmp_path / "map.json")["y"]["result"] == "same"


def test_a_gguf_against_its_checkpoint(weightfs, tmp_path):
    """Names and values of both as Hugging Face has them."""
    gguf_model = Gguf().key("general.architecture", "str", "llama").key("llama.block_count", "u32", 1)
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    a = gguf_model.tensor("token_embd.weight", "F32", (2, 32), values.tobytes()).write(tmp_path / "a.gguf")
    b = model(tmp_path / "b.safetensors", **{"model.embed_tokens.weight": values})
    found = diff(weightfs, a, b, "--map", "hf")
    assert found["model.embed_tokens.weight"]["result"] == "same"


def test_a_model_that_is_not_there(weightfs, tmp_path, values):
    a = model(tmp_path / "a", x=values)
    assert "nowhere" in weightfs.run("diff", a, tmp_path / "nowhere", code=1).err


def test_seals_are_believed_as_long_as_nothing_was_written(weightfs, tmp_path, values):
    a, b = model(tmp_path / "a", x=values, y=values), tmp_path / "b"
    weightfs.run("seal", a)
    shutil.copy2(a, b)
    shutil.copy2(f"{a}.weightfs.json", f"{b}.weightfs.json")
    result = weightfs.run("diff", a, b, "--json")
    assert json.loads(result.out)["totals"]["from_seals"] == 2
    assert weightfs.run("diff", a, b).text == "2 tensors: 2 the same bytes (2 by the seals, not read)\n"
    # Trained on in place, under the old seal: its sums are of other bytes.
    tuned = bytearray(b.read_bytes())
    tuned[-values.nbytes :] = (values + np.float32(1)).tobytes()
    b.write_bytes(tuned)
    found = json.loads(weightfs.run("diff", a, b, "--json", code=None).out)
    assert found["totals"]["from_seals"] == 0
    assert "same" not in {tensor["name"]: tensor["result"] for tensor in found["tensors"]}["y"]
    # A copy that is younger is read, and told the same.
    shutil.copy(a, b)
    found = json.loads(weightfs.run("diff", a, b, "--json").out)["totals"]
    assert (found["same"], found["from_seals"]) == (2, 0)
