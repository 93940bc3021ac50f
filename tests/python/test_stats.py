"""weightfs stats: the numbers that numpy gets from the values of the reference packages."""

import json
import math
import struct
import subprocess
import xml.etree.ElementTree as ElementTree

import gguf
import ml_dtypes
import numpy as np
import pytest

from gguf_file import TENSOR_TYPES, Gguf, pattern
from safetensors_file import Safetensors
from test_floats import DECODED, decoded

BINS = 32
KEYS = ["name", "dtype", "shape", "elements", "values", "min", "max", "mean", "std", "zeros", "nan", "inf", "histogram"]


def stats(weightfs, path, *words, code=0):
    result = weightfs.run("stats", path, *words, "--json", code=code)
    return {tensor["name"]: tensor for tensor in json.loads(result.out)["tensors"]}


def close(found, wanted):
    return found == wanted or math.isclose(found, wanted, rel_tol=1e-12, abs_tol=1e-300)


def check(found, values):
    """What was found is what numpy says of these values."""
    plain = values.reshape(-1)
    if plain.dtype.kind == "c":
        plain = np.hypot(plain.real.astype(np.float64), plain.imag.astype(np.float64))
    exact = plain.dtype.kind in "iu"
    assert list(found) == KEYS
    assert found["elements"] == plain.size
    assert found["zeros"] == np.count_nonzero(plain == 0)
    wide = plain if exact else plain.astype(np.float64)
    assert found["nan"] == (0 if exact else np.count_nonzero(np.isnan(wide)))
    assert found["inf"] == (0 if exact else np.count_nonzero(np.isinf(wide)))
    wide = wide if exact else wide[np.isfinite(wide)]
    if wide.size == 0:
        assert [found[key] for key in ("min", "max", "mean", "std", "histogram")] == [None] * 5
        return
    assert (found["min"], found["max"]) == ((int if exact else float)(wide.min()), (int if exact else float)(wide.max()))
    wide = wide.astype(np.float64)
    with np.errstate(over="ignore"):
        spread = float(np.std(wide))
    scale = max(abs(float(wide.min())), abs(float(wide.max())))
    assert math.isclose(found["mean"], math.fsum(wide / wide.size), rel_tol=1e-12, abs_tol=1e-14 * scale)
    if math.isfinite(spread):
        assert math.isclose(found["std"], spread, rel_tol=1e-10, abs_tol=1e-14 * scale)
    bins = found["histogram"]
    assert list(bins) == ["from", "to", "counts"] and len(bins["counts"]) == BINS and sum(bins["counts"]) == wide.size
    with np.errstate(over="ignore"):
        width = wide.max() - wide.min()
    if 1e-300 < width < 1e300 or wide.max() == wide.min() and scale < 1e15:
        counts, edges = np.histogram(wide, bins=BINS)
        assert (bins["from"], bins["to"]) == (edges[0], edges[-1])
        assert bins["counts"] == counts.tolist()


@pytest.mark.parametrize("dtype", DECODED)
def test_every_type_of_gguf(weightfs, tmp_path, dtype):
    _, elements, size = TENSOR_TYPES[dtype]
    data = pattern(3 * 40 * size, seed=7)
    path = Gguf().tensor("t", dtype, (3, 40 * elements), data).write(tmp_path / "m.gguf")
    with np.errstate(all="ignore"):
        check(stats(weightfs, path)["t"], decoded(dtype, data))


PLAIN = {
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "I8": np.int8,
    "U8": np.uint8,
    "I16": np.int16,
    "U16": np.uint16,
    "I32": np.int32,
    "U32": np.uint32,
    "I64": np.int64,
    "U64": np.uint64,
    "C64": np.complex64,
}


@pytest.mark.parametrize("dtype", PLAIN)
def test_every_plain_type(weightfs, tmp_path, dtype):
    data = pattern(np.dtype(PLAIN[dtype]).itemsize * 5000, seed=11)
    values = np.frombuffer(data, PLAIN[dtype])
    path = Safetensors().tensor("t", dtype, (5, 1000), data).write(tmp_path / "m.safetensors")
    with np.errstate(all="ignore"):
        check(stats(weightfs, path)["t"], values if values.dtype.kind in "iuc" else values.astype(np.float64))


def test_booleans_are_0_and_1(weightfs, tmp_path):
    path = Safetensors().tensor("t", "BOOL", (4,), bytes([0, 1, 1, 0])).write(tmp_path / "m.safetensors")
    found = stats(weightfs, path)["t"]
    assert (found["values"], found["min"], found["max"], found["mean"], found["zeros"]) == ("boolean", 0, 1, 0.5, 2)


HARD = {
    "specials": [1.0, math.nan, -0.0, 0.0, math.inf, -math.inf, -2.5],
    "only NaN": [math.nan] * 3,
    "only infinities": [math.inf, -math.inf],
    "empty": [],
    "equal": [0.1] * 4097,
    "zeros": [0.0, -0.0],
    "subnormal": [5e-324, 1e-323, 0.0],
    "huge": [1.7e308, -1.7e308, 1e308, 3.0],
    "huge and equal": [1.7e308] * 9,
    "large mean": [1e9 + i % 3 for i in range(10000)],
    "one": [42.0],
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("dtype", ["F64", "F32"])
def test_values_that_are_hard_to_sum(weightfs, tmp_path, name, dtype):
    with np.errstate(all="ignore"):
        values = np.array(HARD[name], PLAIN[dtype])
    path = Safetensors().tensor("t", dtype, values.shape, values).write(tmp_path / "m.safetensors")
    check(stats(weightfs, path)["t"], values)


def test_a_scalar(weightfs, tmp_path):
    path = Safetensors().tensor("t", "F32", (), np.float32(3)).write(tmp_path / "m.safetensors")
    check(stats(weightfs, path)["t"], np.float32([3]))


@pytest.mark.parametrize("dtype", ["I64", "U64"])
def test_wide_integers_are_exact(weightfs, tmp_path, dtype):
    values = np.array([2**53 + 1, 7, 2**63 - 1] + ([] if dtype == "U64" else [-(2**63)]), PLAIN[dtype])
    path = Safetensors().tensor("t", dtype, values.shape, values).write(tmp_path / "m.safetensors")
    check(stats(weightfs, path)["t"], values)


def test_tensors_of_many_pieces(weightfs, tmp_path):
    """Longer than what is read at once, with a histogram that needs a second look."""
    values = np.random.default_rng(1).normal(3, 2, 1_000_003).astype(np.float32)
    values[[0, 500_000, 1_000_002]] = [0, math.nan, math.inf]
    path = Safetensors().tensor("t", "F32", values.shape, values).tensor("u", "F32", (2,)).write(tmp_path / "m.safetensors")
    found = stats(weightfs, path)
    check(found["t"], values)
    one = weightfs.run("stats", path, "--json").out
    alone = subprocess.run(["taskset", "-c", "0", weightfs.binary, "stats", path, "--json"], check=True, stdout=subprocess.PIPE).stdout
    assert alone == one


def test_packed_codes_have_no_values(weightfs, tmp_path):
    path = Gguf(big=True).tensor("t", "Q5_0", (32,)).tensor("u", "F32", (2,)).write(tmp_path / "m.gguf")
    found = stats(weightfs, path)
    assert found["t"]["values"] is None and found["t"]["min"] is None and found["u"]["values"] == "float"
    assert "1 without values" in weightfs.run("stats", path).text


def test_check_is_exit_code_3(weightfs, tmp_path):
    def model(name, values):
        return Safetensors().tensor("t", "F32", (2,), np.float32(values)).write(tmp_path / name)

    good, bad = model("good", [1, 2]), model("bad", [1, math.nan])
    weightfs.run("stats", good, "--check")
    assert weightfs.run("stats", bad).err == ""
    for value in ([1, math.nan], [math.inf, 1], [1, -math.inf]):
        result = weightfs.run("stats", model("bad", value), "--check", code=3)
        assert "1 tensor" in result.err and "NaN" in result.err
    assert stats(weightfs, model("bad", [1, math.nan]), "--check", code=3)["t"]["nan"] == 1


def test_named_tensors_and_no_others(weightfs, tmp_path):
    path = Safetensors().tensor("a/b", "F32", (3,)).tensor("c", "F16", (4,)).write(tmp_path / "m.safetensors")
    assert list(stats(weightfs, path, "c", "a%2Fb.bin")) == ["c", "a/b"]
    said = weightfs.run("stats", path, "c").text
    assert len(said.splitlines()) > BINS and "100.00 %" not in said and "a/b" not in said
    plain = weightfs.run("stats", path, "c", env={"LC_ALL": "C"}).text
    assert "##" in plain and plain.isascii()
    assert weightfs.run("stats", path, "zzz", code=1).out == b""


def test_the_table(weightfs, tmp_path):
    path = Safetensors().tensor("a\n", "F32", (2,), np.float32([1, -0.0])).tensor("n", "F32", (1,), np.float32([math.nan])).write(tmp_path / "m")
    title, first, second, last = weightfs.run("stats", path).text.splitlines()
    assert title.split() == ["NAME", "DTYPE", "SHAPE", "MIN", "MAX", "MEAN", "STD", "ZEROS", "NAN", "INF"]
    assert first.split() == ["a\\n", "F32", "[2]", "0", "1.000", "0.5000", "0.5000", "1", "0", "0"]
    assert second.split() == ["n", "F32", "[1]", "-", "-", "-", "-", "0", "1", "0"]
    assert last == "2 tensors, 3 values: 1 zeros, 1 NaN, 0 Inf"


@pytest.mark.parametrize("words", [[], ["--json"], ["--check"]])
def test_a_damaged_tensor_is_named_and_the_others_are_done(weightfs, tmp_path, words):
    model = Safetensors().tensor("good", "F32", (8,)).tensor("hurt", "F32", (300, 1000), np.full(300_000, math.inf, np.float32))
    path = model.tensor("last", "F32", (8,)).write(tmp_path / "m.safetensors")
    weightfs.run("seal", path)
    raw = bytearray(path.read_bytes())
    raw[model.place_of("hurt") + 1_100_000] ^= 1
    path.write_bytes(raw)
    result = weightfs.run("stats", path, *words, code=1)
    assert "hurt" in result.err and "good" not in result.err and "last" not in result.err
    if words == ["--json"]:
        found = {tensor["name"]: tensor for tensor in json.loads(result.out)["tensors"]}
        assert "hurt" in found["hurt"]["error"] and found["hurt"]["max"] is None and found["last"]["max"] is not None


def test_scaled_weights_are_taken_with_their_scales(weightfs, tmp_path):
    codes = np.array([[1, 2], [4, -8]], ml_dtypes.float8_e4m3fn)
    model = Safetensors().tensor("l.weight", "F8_E4M3", (2, 2), codes).tensor("l.weight_scale_inv", "F32", (1, 1), np.float32([0.5]))
    path = model.write(tmp_path / "m.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}))
    found = stats(weightfs, path)["l.weight"]
    assert (found["min"], found["max"]) == (-4.0, 2.0)


def test_names_of_a_map(weightfs, tmp_path):
    path = Safetensors().tensor("a", "F32", (3,)).write(tmp_path / "m.safetensors")
    (tmp_path / "map.json").write_text('{"weightfs_map": 1, "pairs": {"a": "b"}}')
    assert list(stats(weightfs, path, "--map", tmp_path / "map.json", "b")) == ["b"]


def test_a_model_without_tensors(weightfs, tmp_path):
    found = json.loads(weightfs.run("stats", Gguf().write(tmp_path / "m.gguf"), "--json").out)
    assert found["tensors"] == [] and found["totals"]["elements"] == 0


def test_the_heat_map_is_xml(weightfs, tmp_path):
    model = Safetensors()
    for layer in range(3):
        model.tensor(f"layers.{layer}.<q>&\"", "F32", (64,))
        model.tensor(f"layers.{layer}.k", "F32", (2,), np.float32([math.nan, layer]))
    path = model.tensor("\x01head", "F32", (8,)).write(tmp_path / "m.safetensors")
    weightfs.run("stats", path, "--svg", tmp_path / "m.svg")
    root = ElementTree.parse(tmp_path / "m.svg").getroot()
    space = {"s": "http://www.w3.org/2000/svg"}
    cells = root.findall("s:rect/s:title", space)
    assert root.tag.endswith("svg") and len(cells) == 7
    assert len(root.findall("s:rect[@class='bad']", space)) == 3
    assert any("layers.*.<q>&" in cell.text and "layer 2" in cell.text for cell in cells)
    said = weightfs.run("stats", path, "--svg", tmp_path / "no" / "m.svg", code=1).err
    assert "m.svg" in said and "No such file" in said


def test_integers_are_no_part_of_the_colours(weightfs, tmp_path):
    """A table of positions deviates by hundreds: beside it all weights would be of one colour."""

    def colours(name, *more):
        model = Safetensors()
        for layer in range(2):
            model.tensor(f"h.{layer}.w", "F32", (2,), np.float32([0, layer + 1]))
        for words in more:
            model.tensor(*words)
        picture = tmp_path / f"{name}.svg"
        weightfs.run("stats", model.write(tmp_path / f"{name}.safetensors"), "--svg", picture)
        root = ElementTree.parse(picture).getroot()
        space = {"s": "http://www.w3.org/2000/svg"}
        cells = {tuple(rect.find("s:title", space).text.split("\n")[:2]): rect for rect in root.findall("s:rect", space) if rect.find("s:title", space) is not None}
        return cells, picture.read_text()

    plain, text = colours("plain")
    assert "grey" not in text and "no layer" not in text
    cells, text = colours("more", ("positions", "I64", (512,), np.arange(512)), ("h.0.mask", "BOOL", (2,), np.array([True, False])), ("head", "F32", (2,), np.float32([0, 1])))
    assert "grey: integers, not on the scale" in text and "column -: tensors of no layer" in text
    for layer in range(2):
        place = ("h.*.w", f"layer {layer}")
        assert cells[place].get("fill") == plain[place].get("fill") is not None
    grey = [place[0] for place, rect in cells.items() if rect.get("class") == "none"]
    assert sorted(grey) == ["h.*.mask", "positions"]
    assert "max 5.1100e2" in text, "and can be read all the same"


def test_layers_have_a_line_in_info(weightfs, tmp_path):
    model = Safetensors()
    for layer in range(3):
        model.tensor(f"h.{layer}.w", "F16" if layer else "F32", (4, 2)).tensor(f"h.{layer}.n", "F32", (layer + 1,))
    said = weightfs.run("info", model.write(tmp_path / "m.safetensors")).text
    assert "tensors, 3 layers" in said
    (row,) = [line.split() for line in said.splitlines() if "h.*.w" in line]
    assert row == ["h.*.w", "3", "x", "F16", "2,", "F32", "1", "[4,", "2]", "64", "B"]
    (row,) = [line for line in said.splitlines() if "h.*.n" in line]
    assert "various shapes" in row and "24 B" in row


def test_real_values(weightfs, models):
    path = models / "gemma-3-270m-q4_k_m.gguf"
    found = stats(weightfs, path)
    reader = gguf.GGUFReader(path)
    for tensor in reader.tensors[2:24]:
        check(found[tensor.name], gguf.quants.dequantize(tensor.data, tensor.tensor_type))


def test_memory_is_flat(weightfs, tmp_path):
    """A tensor of 512 MiB, all of it a hole, with 48 MiB of memory of its own."""
    header = json.dumps({"t": {"dtype": "F32", "shape": [1 << 27], "data_offsets": [0, 1 << 29]}}).encode()
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + (1 << 29))
    words = ["prlimit", f"--data={48 << 20}", weightfs.binary, "stats", path, "t", "--json"]
    found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    assert found["tensors"][0]["zeros"] == 1 << 27
