"""map=hf shows the checkpoint: names, shapes and values, of every architecture in its tables.

The checkpoints and the GGUF files of them come from scripts/make-golden-hf, which knows
only the way from the one to the other.
"""

import os
import random
import warnings

import ml_dtypes
import numpy as np
import pytest
import safetensors

from hf_golden import WIDE, assert_bytes, families, files, golden, model, tensors_of, write

NUMPY = {"F32": "<f4", "F16": "<f2", "U8": "u1"}
MIXED = ("llama", "llama-qkv", "mixtral", "qwen2moe", "gemma3", "gpt2", "gptneox", "falcon-40b", "bloom", "deepseek2", "gpt-oss-plain")
# What each family does to its checkpoint: with a step left out, or done by a reader that
# only renames, some tensor must differ, or these tests would prove nothing.
MOVES = {
    "llama": ("q_proj.weight", "k_proj.weight"),
    "llama-bias": ("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias"),
    "llama-qkv": ("q_proj.weight", "k_proj.weight"),
    "mistral": ("q_proj.weight", "k_proj.weight"),
    "mixtral": ("q_proj.weight", "k_proj.weight"),
    "mixtral-legacy": ("q_proj.weight", "k_proj.weight"),
    "mixtral-gate-up": ("q_proj.weight", "k_proj.weight"),
    "granite": ("q_proj.weight", "k_proj.weight"),
    "smollm3": ("q_proj.weight", "k_proj.weight"),
    "arcee": ("q_proj.weight", "k_proj.weight"),
    "gemma": ("norm.weight",),
    "gemma2": ("norm.weight",),
    "gemma3": ("norm.weight",),
    "nemotron": ("norm.weight",),
    "gpt2": ("c_attn.weight", "c_proj.weight", "c_fc.weight"),
    "gptneox": ("query_key_value.weight", "query_key_value.bias"),
    "bloom": ("query_key_value.weight", "query_key_value.bias"),
    "falcon-40b": ("query_key_value.weight",),
    "mamba": ("A_log",),
    "mamba2": ("A_log",),
    "deepseek2": ("kv_b_proj.weight",),
    "deepseek2-lite": ("kv_b_proj.weight",),
    "gpt-oss": ("gate_up_proj_blocks", "gate_up_proj_scales", "down_proj_blocks", "down_proj_scales", "gate_up_proj_bias"),
    "gpt-oss-plain": ("gate_up_proj", "down_proj", "gate_up_proj_bias"),
}

# where names are all that changes, one type says enough
RUNS = [(name, dtype) for name in families() for dtype in ("F32", "F16", "Q8_0") if dtype == "Q8_0" or name in MOVES]
RUNS += [(name, "Q4_0") for name in MIXED] + [(name, WIDE) for name in MIXED]


class Run:
    """A model and the mount of it, and each of its files read no more than once."""

    def __init__(self, name, dtype, path, mounted):
        self.model = model(name, dtype)
        self.shown = self.model.shown
        self.path = path
        self.mounted = mounted
        self.name = f"{name} in {dtype}"
        self._bins = {}

    def __truediv__(self, name):
        return self.mounted / name

    def bin(self, directory, name):
        key = directory, name
        if key not in self._bins:
            self._bins[key] = (self.mounted / directory / f"{name}.bin").read_bytes()
        return self._bins[key]

    def floats(self):
        return {name: shown for name, shown in self.shown.items() if shown.values is not None}


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: "-".join(run))
def run(request, tmp_path_factory, shared_mount):
    name, dtype = request.param
    path = write(model(name, dtype), tmp_path_factory.mktemp("model"))
    mounted = shared_mount(path, "map=hf")
    yield Run(name, dtype, path, mounted)
    mounted.close()


def narrow(values, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return values.astype({"f32": "<f4", "f16": "<f2", "bf16": ml_dtypes.bfloat16}[dtype])


# --- names -----------------------------------------------------------------------------------
def test_the_names_are_those_of_the_checkpoint(run):
    assert files(run / "tensors", ".bin") == files(run / "tensors", ".json") == set(run.shown)
    for directory in ("f32", "f16", "bf16"):
        assert files(run / directory, ".bin") == files(run / directory, ".json") == set(run.floats()), directory
    for directory in (".", "f32", "f16", "bf16"):
        with safetensors.safe_open(run / directory / "model.safetensors", "numpy") as file:
            assert set(file.keys()) == set(run.shown), directory


def test_what_a_checkpoint_has_not_is_named_in_a_warning(run):
    said = "\n".join(run.mounted.model["warnings"])
    for name in run.model.family.extra:
        assert name in said, f"{name} is not shown, and no warning says so: {said}"
    for name in {name.split(".")[0] for name in run.model.family.left_out}:
        assert name in said, f"{name} is gone, and no warning says so: {said}"
    assert run.mounted.model["map"] == "hf"
    assert "names only" not in said, said


# --- values ----------------------------------------------------------------------------------
def test_every_value_is_that_of_the_checkpoint(run):
    for name, shown in run.floats().items():
        assert_bytes(run.bin("f32", name), shown.values.astype("<f4").tobytes(), f"{run.name}: f32/{name}.bin")


def test_the_stored_bytes_are_blocks_moved_whole(run):
    for name, shown in run.shown.items():
        about = run.mounted.json(f"tensors/{name}.json")
        assert about["dtype"] == shown.dtype, f"{run.name}: {name} is {about['dtype']}, expected {shown.dtype}"
        assert_bytes(run.bin("tensors", name), shown.raw, f"{run.name}: tensors/{name}.bin", shown.dtype)


def test_narrow_views_are_the_f32_values_rounded_to_nearest_even(run):
    for name, shown in run.floats().items():
        for dtype in ("f16", "bf16"):
            assert_bytes(run.bin(dtype, name), narrow(shown.values, dtype).tobytes(), f"{run.name}: {dtype}/{name}.bin", dtype.upper())


def test_arrays_for_numpy(run):
    for name, shown in run.shown.items():
        wanted = {directory: narrow(shown.values, directory) for directory in ("f32", "f16")} if shown.values is not None else {}
        if shown.dtype in NUMPY:
            wanted["tensors"] = np.frombuffer(shown.raw, NUMPY[shown.dtype]).reshape(shown.shape)
        for directory in ("tensors", "f32", "f16", "bf16"):
            path = run / directory / f"{name}.npy"
            assert path.exists() == (directory in wanted), path
            if directory in wanted:
                loaded = np.load(path)
                assert (loaded.shape, loaded.dtype) == (shown.shape, wanted[directory].dtype), path
                assert loaded.tobytes() == wanted[directory].tobytes(), path


def test_whole_files_for_safetensors(run):
    for directory in (".", "f32", "f16", "bf16"):
        for name, (dtype, shape, data) in tensors_of(run / directory / "model.safetensors").items():
            shown = run.shown[name]
            if shown.values is None:
                wanted = shown.dtype, shown.raw
            elif directory == ".":
                wanted = (shown.dtype, shown.raw) if shown.dtype in NUMPY else ("F32", shown.values.astype("<f4").tobytes())
            else:
                wanted = directory.upper(), narrow(shown.values, directory).tobytes()
            assert (dtype, shape) == (wanted[0], shown.shape), f"{run.name}: {directory}/model.safetensors: {name}"
            assert_bytes(data, wanted[1], f"{run.name}: {directory}/model.safetensors: {name}", dtype)
        with safetensors.safe_open(run / directory / "model.safetensors", "numpy") as file:
            for name in file.keys():
                assert file.get_tensor(name).shape == run.shown[name].shape


def test_the_file_for_transformers(run):
    """hf/model.safetensors: bf16 where the stored weight is quantised, else as stored."""
    path = run / "hf/model.safetensors"
    found = tensors_of(path)
    assert set(found) == set(run.shown)
    for name, (dtype, shape, data) in found.items():
        shown = run.shown[name]
        stored = {run.model.stored[source].dtype for source in shown.sources}
        if shown.values is None:
            wanted = "U8", shown.raw
        elif stored <= {"F32", "F16"}:
            wanted = shown.dtype, shown.raw
        else:
            wanted = "BF16", narrow(shown.values, "bf16").tobytes()
        assert (dtype, shape) == (wanted[0], shown.shape), f"{run.name}: hf/model.safetensors: {name}"
        assert_bytes(data, wanted[1], f"{run.name}: hf/model.safetensors: {name}", dtype)
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {"format": "pt"}


# --- descriptions ----------------------------------------------------------------------------
def test_descriptions(run):
    for name, shown in run.shown.items():
        what = f"{run.name}: {name}"
        about = run.mounted.json(f"tensors/{name}.json")
        assert about["name"] == name
        assert about["source_name"] in shown.sources, f"{what}: source_name {about['source_name']}, expected one of {shown.sources}"
        assert about["shape"] == list(shown.shape), what
        assert about["nbytes"] == len(shown.raw), what
        assert about["checksum"] is None
        assert bool(about["transforms"]) == shown.moved, f"{what}: transforms {about['transforms']}, values moved or changed: {shown.moved}"
        if len(shown.sources) > 1:
            assert sorted(about["source_names"]) == sorted(shown.sources), what
        stored = {run.model.stored[source].dtype for source in shown.sources}
        if shown.dtype == "F32" and "F32" not in stored:
            assert about["converted_from"] in stored, what
        if shown.values is None:
            assert set(about["files"]) <= {"stored", "npy"}, what
            continue
        for directory in ("f32", "f16", "bf16"):
            view = run.mounted.json(f"{directory}/{name}.json")
            width = 4 if directory == "f32" else 2
            assert (view["dtype"], view["shape"], view["nbytes"]) == (directory.upper(), list(shown.shape), width * shown.values.size), what


def test_the_list_of_tensors_says_the_same(run, weightfs):
    listed = weightfs.run("ls", run.path, "--json", "--map", "hf").json()["tensors"]
    assert {entry["name"]: (entry["dtype"], tuple(entry["shape"]), entry["nbytes"]) for entry in listed} == {
        name: (shown.dtype, shown.shape, len(shown.raw)) for name, shown in run.shown.items()
    }


def test_cat_gives_what_the_mount_gives(run, weightfs):
    changed = [name for name, shown in run.floats().items() if shown.moved]
    for name in (changed[:3] + changed[-1:]) or list(run.floats())[:1]:
        for form, directory in (("f32", "f32"), ("stored", "tensors")):
            out = weightfs.run("cat", run.path, name, "--map", "hf", "--as", form).out
            assert_bytes(out, run.bin(directory, name), f"{run.name}: cat {name} --as {form}", "F32")


# --- any part of a file ----------------------------------------------------------------------
def test_any_range_is_that_slice_of_the_whole(run):
    rng = random.Random(run.name)
    for name, shown in run.shown.items():
        if not shown.moved:
            continue
        wanted = {"tensors": shown.raw}
        if shown.values is not None:
            wanted |= {directory: narrow(shown.values, directory).tobytes() for directory in ("f32", "bf16")}
        for directory, data in wanted.items():
            with open(run / directory / f"{name}.bin", "rb", buffering=0) as file:
                for _ in range(8):
                    offset = rng.randrange(len(data))
                    length = rng.choice((1, 2, 3, 5, 33, 34, 257, len(data)))
                    found = os.pread(file.fileno(), length, offset)
                    assert found == data[offset : offset + length], f"{run.name}: {directory}/{name}.bin at {offset}, {length} bytes"


# --- the tests' own ground -------------------------------------------------------------------
@pytest.mark.parametrize("name", families())
def test_only_what_a_family_changes_is_called_changed(name):
    made = model(name, "F32")
    changed = {name for name, shown in made.shown.items() if shown.moved}
    suffixes = MOVES.get(name, ())
    assert changed == {name for name in made.shown if suffixes and name.endswith(suffixes)}


@pytest.mark.parametrize("name", families())
def test_the_expectation_is_the_original(name):
    """What is scattered back from the file is the checkpoint that went in, for every value."""
    for dtype in ("F32", "F16"):
        made = model(name, dtype)
        assert set(made.shown) == set(made.checkpoint) - made.family.left_out
        for tensor, shown in made.shown.items():
            original = made.checkpoint[tensor]
            if shown.values is None:
                assert shown.raw == original.tobytes()
            elif shown.exact:
                assert np.array_equal(shown.values, original), tensor
            else:
                np.testing.assert_allclose(shown.values, original, rtol=1e-6, atol=1.2e-7, err_msg=tensor)


@pytest.mark.parametrize("name", MOVES)
def test_a_reader_that_only_renames_would_fail(name):
    """For each tensor that is changed, the stored values in stored order are not the original."""
    for dtype in ("F32", "Q8_0"):
        made = model(name, dtype)
        for tensor, shown in made.shown.items():
            if shown.moved:
                stored = b"".join(made.stored[source].raw.tobytes() for source in shown.sources)
                size = len(shown.raw)
                assert all(stored[at : at + size] != shown.raw for at in range(0, max(1, len(stored) - size + 1))), tensor


def test_a_step_with_a_wrong_count_of_heads_would_fail():
    rows = np.arange(96)
    assert not np.array_equal(golden.rope_pairs(4)(rows), golden.rope_pairs(2)(rows))
    assert not np.array_equal(golden.falcon_groups(4, 2)(rows), rows)
    assert not np.array_equal(golden.parts_first(4)(rows), golden.parts_first(2)(rows))


def test_the_written_files_are_read_by_the_reference_reader(tmp_path):
    import gguf

    for name, dtype in (("llama", "Q8_0"), ("gpt2", "F16"), ("deepseek2", WIDE), ("gpt-oss", "Q8_0")):
        made = model(name, dtype)
        found = {tensor.name: tensor for tensor in gguf.GGUFReader(write(made, tmp_path)).tensors}
        assert set(found) == set(made.stored)
        for key, stored in made.stored.items():
            assert (found[key].tensor_type.name, tuple(reversed(found[key].shape.tolist()))) == (stored.dtype, stored.shape)
            assert found[key].data.tobytes() == stored.raw.tobytes()


def test_the_steps_are_those_of_the_description():
    """Where row r of the checkpoint goes, said row by row."""
    heads, groups, size = 4, 2, 6
    rows = golden.rope_pairs(heads)(np.arange(heads * size))
    for r in range(heads * size):
        head, t = divmod(r, size)
        assert rows[head * size + 2 * (t % (size // 2)) + t // (size // 2)] == r
    rows = golden.parts_first(heads)(np.arange(3 * heads * size))
    for r in range(3 * heads * size):
        head, part, x = r // (3 * size), r // size % 3, r % size
        assert rows[(part * heads + head) * size + x] == r
    each = heads // groups
    rows = golden.falcon_groups(heads, groups)(np.arange((heads + 2 * groups) * size))
    for r in range(len(rows)):
        group, slot, x = r // ((each + 2) * size), r // size % (each + 2), r % size
        head = group * each + slot if slot < each else heads + group if slot == each else heads + groups + group
        assert rows[head * size + x] == r
