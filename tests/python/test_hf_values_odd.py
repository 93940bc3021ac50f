"""map=hf of files that do not fit the tables: names stay GGUF's, and no value is ever wrong."""

import json
import re

import gguf
import numpy as np
import pytest

from hf_golden import architectures, assert_bytes, families, files, golden, model, write
from mounting import xattr

Q0 = "model.layers.0.self_attn.q_proj.weight"
K0 = "model.layers.0.self_attn.k_proj.weight"


def never_wrong(mounted, made, kept=(), gone=()):
    """Each stored tensor of kept under its own name and as stored; all others as the checkpoint has them.

    gone are names of the checkpoint that cannot be had.
    """
    shown = {name: its for name, its in made.shown.items() if name not in gone}
    assert files(mounted / "tensors", ".bin") == set(shown) | set(kept)
    for name, its in shown.items():
        assert_bytes(mounted.bin(name), its.raw, name, its.dtype)
        if its.values is not None:
            assert_bytes((mounted / f"f32/{name}.bin").read_bytes(), its.values.astype("<f4").tobytes(), name)
    said = "\n".join(mounted.model["warnings"])
    for name in kept:
        assert mounted.bin(name) == made.stored[name].raw.tobytes(), name
        assert mounted.json(f"tensors/{name}.json")["dtype"] == made.stored[name].dtype
        assert mounted.json(f"tensors/{name}.json")["transforms"] == []
    if kept:
        assert any(name in said for name in kept), said
    return said


def by_suffix(names, *suffixes):
    return {name for name in names if name.endswith(suffixes)}


# --- counts of heads -------------------------------------------------------------------------
NOT_FITTING = [
    ("llama", {"attention.head_count": None}, ("attn_q.weight",), ("q_proj.weight",)),
    ("llama", {"attention.head_count": None, "attention.head_count_kv": None}, ("attn_q.weight", "attn_k.weight"), ("q_proj.weight", "k_proj.weight")),
    ("llama", {"attention.head_count": 5}, ("attn_q.weight",), ("q_proj.weight",)),
    ("llama", {"attention.head_count": 0}, ("attn_q.weight",), ("q_proj.weight",)),
    ("llama", {"attention.head_count_kv": 0}, ("attn_k.weight",), ("k_proj.weight",)),
    ("llama", {"attention.head_count_kv": 7}, ("attn_k.weight",), ("k_proj.weight",)),
    ("llama", {"attention.head_count": [4, 5]}, ("blk.1.attn_q.weight",), ("layers.1.self_attn.q_proj.weight",)),
    ("llama", {"attention.head_count_kv": 2**32 - 1}, ("attn_k.weight",), ("k_proj.weight",)),
    ("gptneox", {"attention.head_count": None}, ("attn_qkv.weight", "attn_qkv.bias"), ("query_key_value.weight", "query_key_value.bias")),
    ("gptneox", {"attention.head_count": 7}, ("attn_qkv.weight", "attn_qkv.bias"), ("query_key_value.weight", "query_key_value.bias")),
    ("bloom", {"attention.head_count": 7}, ("attn_qkv.weight", "attn_qkv.bias"), ("query_key_value.weight", "query_key_value.bias")),
    ("falcon-40b", {"attention.head_count": None}, ("attn_qkv.weight",), ("query_key_value.weight",)),
    ("falcon-40b", {"attention.head_count_kv": 3}, ("attn_qkv.weight",), ("query_key_value.weight",)),
    ("falcon-40b", {"attention.head_count_kv": 0}, ("attn_qkv.weight",), ("query_key_value.weight",)),
]


@pytest.mark.parametrize("name, keys, kept, gone", NOT_FITTING, ids=lambda value: str(value).replace(" ", "") if isinstance(value, dict) else "")
@pytest.mark.parametrize("dtype", ["Q8_0"])
def test_counts_of_heads_that_do_not_fit_keep_the_stored_name(mount, tmp_path, name, dtype, keys, kept, gone):
    made = model(name, dtype)
    mounted = mount(write(made, tmp_path, keys=keys), "map=hf")
    kept, gone = by_suffix(made.stored, *kept), by_suffix(made.shown, *gone)
    never_wrong(mounted, made, kept, gone)


@pytest.mark.parametrize(
    "keys",
    [{"attention.head_count_kv": None}, {"attention.head_count": 3}, {"attention.head_count": 2}, {"attention.head_count_kv": 4}, {"attention.head_count": [4]}],
    ids=["no head_count_kv", "head_count 3", "head_count 2", "head_count_kv 4", "one count for two layers"],
)
def test_counts_that_divide_the_rows_but_are_not_the_models(mount, tmp_path, keys):
    """96 rows of 4 heads of 24, as attention.key_length says: 3 heads of 32 would be nonsense."""
    made = model("llama", "Q8_0")
    mounted = mount(write(made, tmp_path, keys=keys), "map=hf")
    for name in files(mounted / "tensors", ".bin") & set(made.shown):
        assert_bytes(mounted.bin(name), made.shown[name].raw, f"{keys}: {name}", made.shown[name].dtype)


def test_no_count_of_key_heads_means_as_many_as_heads(mount, tmp_path):
    family = golden.llama(64, "llama-mha", heads=(4, 4, 24))
    made = golden.Model(family, "Q8_0")
    never_wrong(mount(write(made, tmp_path, keys={"attention.head_count_kv": None}), "map=hf"), made)


@pytest.mark.parametrize("dtype", ["F16", "Q8_0"])
def test_counts_of_heads_for_each_layer(mount, tmp_path, dtype):
    """The first layer has 4 and 2 heads of 24, the second 6 and 3 of 16: same rows, other places."""
    family = golden.llama(64, "llama-layers")
    family.steps = [
        (r"model\.layers\.0\..*\.q_proj\.weight", golden.rope_pairs(4)),
        (r"model\.layers\.0\..*\.k_proj\.weight", golden.rope_pairs(2)),
        (r"model\.layers\.1\..*\.q_proj\.weight", golden.rope_pairs(6)),
        (r"model\.layers\.1\..*\.k_proj\.weight", golden.rope_pairs(3)),
    ]
    made = golden.Model(family, dtype)
    keys = {"attention.head_count": [4, 6], "attention.head_count_kv": [2, 3], "attention.key_length": None, "attention.value_length": None}
    keys |= {"rope.dimension_count": None}
    never_wrong(mount(write(made, tmp_path, keys=keys), "map=hf"), made)


# --- what the tables do not know -------------------------------------------------------------
def test_an_unknown_architecture_keeps_every_name_and_says_so(mount, tmp_path):
    family = golden.llama(64, "mystery")
    family.arch = "mystery"
    made = golden.Model(family, "Q8_0")
    mounted = mount(write(made, tmp_path), "map=hf")
    assert files(mounted / "tensors", ".bin") == set(made.stored)
    for name, stored in made.stored.items():
        assert mounted.bin(name) == stored.raw.tobytes()
    assert any("mystery" in warning and "hf" in warning for warning in mounted.model["warnings"])


def test_a_tensor_that_no_table_has_keeps_its_name(mount, tmp_path):
    made = model("llama", "Q8_0")
    extra = {
        "blk.0.mystery.weight": golden.Stored("F32", (3, 32), golden.encode("F32", np.arange(96, dtype=np.float32).reshape(3, 32), "")),
        "blk.0.attn_q.mystery": golden.Stored("F32", (8,), golden.encode("F32", np.arange(8, dtype=np.float32), "")),
    }
    mounted = mount(write(made, tmp_path, change=lambda stored: stored | extra), "map=hf")
    assert files(mounted / "tensors", ".bin") == set(made.shown) | set(extra)
    for name, stored in extra.items():
        assert mounted.bin(name) == stored.raw.tobytes()
    said = "\n".join(mounted.model["warnings"])
    assert "blk.0.mystery.weight" in said, said
    for name, shown in made.shown.items():
        assert_bytes(mounted.bin(name), shown.raw, name, shown.dtype)


# --- parts of one tensor ---------------------------------------------------------------------
def without(*lost):
    return lambda stored: {name: tensor for name, tensor in stored.items() if name not in lost}


def test_half_of_a_pair_keeps_its_name(mount, tmp_path):
    for lost, left in (("k_b", "v_b"), ("v_b", "k_b")):
        made = model("deepseek2", "Q8_0")
        (tmp_path / lost).mkdir()
        mounted = mount(write(made, tmp_path / lost, change=without(f"blk.0.attn_{lost}.weight")), "map=hf")
        never_wrong(mounted, made, {f"blk.0.attn_{left}.weight"}, {"model.layers.0.self_attn.kv_b_proj.weight"})


def test_experts_without_their_other_half_keep_their_name(mount, tmp_path):
    made = model("gpt-oss", "Q8_0")
    mounted = mount(write(made, tmp_path, change=without("blk.1.ffn_up_exps.weight")), "map=hf")
    gone = {f"model.layers.1.mlp.experts.gate_up_proj_{word}" for word in ("blocks", "scales")}
    never_wrong(mounted, made, {"blk.1.ffn_gate_exps.weight"}, gone)


def test_halves_of_different_types(mount, tmp_path):
    """k_b in F16 and v_b in Q8_0: one tensor of the checkpoint, in F32."""
    half, other = model("deepseek2", "F16"), model("deepseek2", "Q8_0")
    key = "blk.0.attn_k_b.weight"
    mounted = mount(write(other, tmp_path, change=lambda stored: stored | {key: half.stored[key]}), "map=hf")
    name = "model.layers.0.self_attn.kv_b_proj.weight"
    shape = other.shown[name].shape
    heads = 4
    wanted = other.shown[name].values.reshape(heads, -1, shape[1]).copy()
    nope = other.stored[key].shape[2]
    wanted[:, :nope] = half.shown[name].values.reshape(heads, -1, shape[1])[:, :nope]
    assert_bytes((mounted / f"f32/{name}.bin").read_bytes(), wanted.astype("<f4").tobytes(), name)
    about = mounted.json(f"tensors/{name}.json")
    assert about["dtype"] == "F32"
    assert_bytes(mounted.bin(name), wanted.astype("<f4").tobytes(), name)


def test_halves_whose_shapes_do_not_fit(mount, tmp_path):
    made = model("deepseek2", "Q8_0")
    key = "blk.0.attn_v_b.weight"
    heads, rows, rank = made.stored[key].shape
    wrong = golden.Stored("Q8_0", (heads - 1, rows, rank), made.stored[key].raw[: heads - 1])
    mounted = mount(write(made, tmp_path, change=lambda stored: stored | {key: wrong}), "map=hf")
    names = files(mounted / "tensors", ".bin")
    assert {key, "blk.0.attn_k_b.weight"} <= names
    assert "model.layers.0.self_attn.kv_b_proj.weight" not in names
    assert mounted.bin(key) == wrong.raw.tobytes()
    assert any("blk.0.attn" in warning for warning in mounted.model["warnings"])


# --- other ways to store it ------------------------------------------------------------------
@pytest.mark.parametrize("norms", ["F16", "BF16"])
def test_narrow_norms_are_shown_in_f32(mount, tmp_path, norms):
    """A norm plus one in two bytes, minus one: a value that F16 need not hold."""
    made = model("gemma3", "Q8_0", norms="F16")
    change = None
    if norms == "BF16":
        wide = {name: tensor for name, tensor in made.stored.items() if tensor.dtype == "F16" and "norm" in name}

        def change(stored):
            return stored | {name: golden.Stored("BF16", t.shape, narrowed(t)) for name, t in wide.items()}

        def narrowed(tensor):
            floats = golden.decode("F16", tensor.raw, tensor.shape)
            return np.ascontiguousarray(gguf.quants.quantize(floats, gguf.GGMLQuantizationType.BF16)).view(np.uint8)

    mounted = mount(write(made, tmp_path, change=change), "map=hf")
    for name, shown in made.shown.items():
        values = shown.values
        if norms == "BF16" and name.endswith("norm.weight"):
            stored = narrowed(wide[shown.sources[0]])
            values = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType.BF16).reshape(shown.shape) - np.float32(1)
        about = mounted.json(f"tensors/{name}.json")
        assert_bytes((mounted / f"f32/{name}.bin").read_bytes(), values.astype("<f4").tobytes(), name)
        if name.endswith("norm.weight"):
            assert (about["dtype"], about["nbytes"], about["converted_from"]) == ("F32", 4 * values.size, norms)
            assert_bytes(mounted.bin(name), values.astype("<f4").tobytes(), name)


def test_a_scale_beside_a_weight_is_multiplied_in_or_the_name_is_kept(mount, tmp_path):
    """NVFP4 with a scale for the whole tensor: without it the values are not those of the checkpoint."""
    made = model("llama", "Q8_0")
    key, name = "blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight"
    shape = made.stored[key].shape
    rng = np.random.default_rng(5)
    raw = rng.integers(0, 256, (shape[0] * shape[1] // 64, 36), dtype=np.uint8)
    raw[:, :4] = rng.integers(0x30, 0x48, (len(raw), 4))
    raw = raw.reshape(shape[0], -1)
    extra = {key: golden.Stored("NVFP4", shape, raw), "blk.0.ffn_up.scale": golden.Stored("F32", (1,), golden.encode("F32", np.full(1, 0.25, np.float32), ""))}
    mounted = mount(write(made, tmp_path, change=lambda stored: stored | extra), "map=hf")
    names = files(mounted / "tensors", ".bin")
    values = golden.decode("NVFP4", raw, shape) * np.float32(0.25)
    if name in names:
        assert "blk.0.ffn_up.scale" not in names
        assert_bytes((mounted / f"f32/{name}.bin").read_bytes(), values.astype("<f4").tobytes(), name)
    else:
        assert set(extra) <= names
        assert any(key in warning for warning in mounted.model["warnings"])


def test_a_split_model_shows_the_same(mount, tmp_path):
    """Four tensors a file: halves of one tensor of the checkpoint lie in different files."""
    made = model("deepseek2", "Q8_0")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", made.family.arch, split_max_tensors=4)
    for key, value in made.family.keys.items():
        if value is not None:
            (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{made.family.arch}.{key}", value)
    for name, tensor in made.stored.items():
        writer.add_tensor(name, tensor.raw, raw_dtype=golden.Type[tensor.dtype])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first = sorted(tmp_path.glob("m-00001-of-*.gguf"))[0]
    never_wrong(mount(first, "map=hf"), made)


def test_what_is_not_mapped_is_not_touched(mount, tmp_path):
    """Without a map, and in source/ and model.gguf under one, everything is as stored."""
    made = model("llama", "Q8_0")
    path = write(made, tmp_path)
    plain = mount(path)
    for name, stored in made.stored.items():
        assert plain.bin(name) == stored.raw.tobytes()
    mapped = mount(path, "map=hf")
    assert (mapped / f"source/{path.name}").read_bytes() == path.read_bytes()
    for tensor in gguf.GGUFReader(mapped / "model.gguf").tensors:
        assert tensor.data.tobytes() == made.stored[tensor.name].raw.tobytes()


def test_stored_names_lead_to_one_whole_tensor(mount, tmp_path):
    made = model("deepseek2", "Q8_0")
    mounted = mount(write(made, tmp_path), "map=hf")
    for link in (mounted / "source-names").iterdir():
        name = link.name[: -len(".bin")]
        target = link.readlink().name[: -len(".bin")]
        assert name in made.shown[target].sources, f"{name} -> {target}"
        assert link.read_bytes() == made.shown[target].raw
    assert not (mounted / "source-names/blk.1.ffn_up_exps.weight.bin").is_symlink()


def test_a_second_stage_renames_what_the_first_gives(mount, tmp_path):
    made = model("llama", "Q8_0")
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"weightfs_map": 1, "rules": [{"from": "model.{rest}", "to": "decoder.{rest}"}]}))
    mounted = mount(write(made, tmp_path), "map=hf", f"map={rules}")
    for name, shown in made.shown.items():
        assert_bytes(mounted.bin(re.sub(r"^model\.", "decoder.", name)), shown.raw, name, shown.dtype)


def test_splitting_what_is_permuted_is_right_or_refused(weightfs, tmp_path):
    made = model("llama", "Q8_0")
    path = write(made, tmp_path)
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"weightfs_map": 1, "rules": [{"from": Q0, "to": "row.{e}", "split": "e"}]}))
    done = weightfs.run("cat", path, "row.5", "--map", "hf", "--map", rules, "--as", "f32", code=None)
    if done.code == 0:
        assert done.out == made.shown[Q0].values[5].astype("<f4").tobytes()
    else:
        assert Q0 in done.err, done.err


@pytest.mark.parametrize("name, dtype", [("gpt2", "Q8_0"), ("gpt2", "F16"), ("llama", "Q8_0"), ("gemma", "Q8_0"), ("gpt-oss", "Q8_0")])
def test_attributes_say_what_is_shown(mount, tmp_path, name, dtype):
    made = model(name, dtype)
    mounted = mount(write(made, tmp_path), "map=hf")
    for tensor, shown in made.shown.items():
        path = mounted / f"tensors/{tensor}.bin"
        assert path.stat().st_size == len(shown.raw)
        assert xattr(path, "dtype") == shown.dtype, tensor
        assert [int(n) for n in re.findall(r"\d+", xattr(path, "shape"))] == list(shown.shape), tensor


def test_the_totals_are_of_what_is_shown(weightfs, mount, tmp_path):
    for name in ("gpt2", "deepseek2", "gpt-oss", "gemma"):
        made = model(name, "Q8_0")
        (tmp_path / name).mkdir()
        about = mount(write(made, tmp_path / name), "map=hf").model
        assert about["tensor_count"] == len(made.shown), name
        assert sum(entry["nbytes"] for entry in about["dtypes"].values()) == sum(len(shown.raw) for shown in made.shown.values()), name
        assert about["dtypes"].keys() == {shown.dtype for shown in made.shown.values()}, name


def test_every_family_of_the_tables_is_here():
    assert {family.arch for family in families().values()} == architectures()


@pytest.mark.parametrize("dtype", ["F16", "Q8_0"])
@pytest.mark.parametrize("name", golden.further())
def test_other_families_are_shown_right_or_not_at_all(mount, tmp_path, name, dtype):
    """Every name is either that of the checkpoint, with its values, or that of the GGUF, with its bytes."""
    made = golden.Model(golden.further()[name], dtype)
    mounted = mount(write(made, tmp_path), "map=hf")
    names = files(mounted / "tensors", ".bin")
    assert names <= set(made.shown) | set(made.stored), sorted(names - set(made.shown) - set(made.stored))
    for tensor in names:
        shown = made.shown.get(tensor)
        raw, kind = (shown.raw, shown.dtype) if shown else (made.stored[tensor].raw.tobytes(), made.stored[tensor].dtype)
        assert_bytes(mounted.bin(tensor), raw, f"{name} in {dtype}: {tensor}", kind)
    had = {source for tensor in names & set(made.shown) for source in made.shown[tensor].sources} | (names & set(made.stored))
    assert had == set(made.stored), f"neither shown nor kept: {sorted(set(made.stored) - had)}"
    if names & set(made.stored):
        assert any(name in warning or "blk." in warning for warning in mounted.model["warnings"])
