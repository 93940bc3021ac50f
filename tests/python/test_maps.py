"""Other names: map=hf, map=gguf, map files, and what refuses them."""

import json
import os

import numpy as np
import pytest

from gguf_file import Gguf
from safetensors_file import Safetensors

LAYER = {
    "token_embd.weight": ("model.embed_tokens.weight", (32, 64)),
    "output_norm.weight": ("model.norm.weight", (64,)),
    "blk.0.attn_norm.weight": ("model.layers.0.input_layernorm.weight", (64,)),
    "blk.0.attn_q.weight": ("model.layers.0.self_attn.q_proj.weight", (64, 64)),
    "blk.0.attn_k.weight": ("model.layers.0.self_attn.k_proj.weight", (32, 64)),
    "blk.0.attn_v.weight": ("model.layers.0.self_attn.v_proj.weight", (32, 64)),
    "blk.0.attn_output.weight": ("model.layers.0.self_attn.o_proj.weight", (64, 64)),
    "blk.0.ffn_norm.weight": ("model.layers.0.post_attention_layernorm.weight", (64,)),
    "blk.0.ffn_gate.weight": ("model.layers.0.mlp.gate_proj.weight", (96, 64)),
    "blk.0.ffn_up.weight": ("model.layers.0.mlp.up_proj.weight", (96, 64)),
    "blk.0.ffn_down.weight": ("model.layers.0.mlp.down_proj.weight", (64, 96)),
}
PERMUTED = ("blk.0.attn_q.weight", "blk.0.attn_k.weight")


def keys(model, arch="llama", **more):
    model.key("general.architecture", "str", arch).key("general.name", "str", "tiny")
    numbers = {"block_count": 1, "embedding_length": 64, "feed_forward_length": 96, "attention.head_count": 4, "attention.head_count_kv": 2, "context_length": 128} | more
    for name, value in numbers.items():
        model.key(f"{arch}.{name}", "u32", value)
    return model.key(f"{arch}.attention.layer_norm_rms_epsilon", "f32", 1e-5)


def llama(rope_freqs=False, output=False):
    model = keys(Gguf())
    for name, (_, shape) in LAYER.items():
        model.tensor(name, "F32", shape)
    if rope_freqs:
        model.tensor("rope_freqs.weight", "F32", (4,))
    if output:
        model.tensor("output.weight", "F32", (32, 64))
    return model


def mixtral():
    """A llama whose feed-forward is 4 experts, stacked as converters stack them."""
    model = keys(Gguf(), expert_count=4, expert_used_count=2)
    for name, (_, shape) in LAYER.items():
        if ".ffn_" not in name or name.endswith("ffn_norm.weight"):
            model.tensor(name, "F32", shape)
    model.tensor("blk.0.ffn_gate_inp.weight", "F32", (4, 64))
    model.tensor("blk.0.ffn_gate_exps.weight", "Q8_0", (4, 96, 64))
    model.tensor("blk.0.ffn_down_exps.weight", "Q8_0", (4, 64, 96))
    model.tensor("blk.0.ffn_up_exps.weight", "F16", (4, 96, 64))
    return model


def test_hugging_face_names_of_a_llama(mount, tmp_path):
    model = llama()
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    assert mounted.names() == sorted(name for name, _ in LAYER.values())
    assert mounted.model["map"] == "hf"
    for stored, (name, shape) in LAYER.items():
        about = mounted.json(f"tensors/{name}.json")
        assert (about["name"], about["source_name"], about["shape"]) == (name, stored, list(shape))
        assert about["source"]["offset"] == model.place_of(stored)
        if stored not in PERMUTED:
            assert mounted.bin(name) == model.data_of(stored)
            assert np.load(mounted / f"tensors/{name}.npy").tobytes() == model.data_of(stored)


def test_no_tensor_that_a_checkpoint_has_not(mount, tmp_path):  # C55
    path = llama(rope_freqs=True).write(tmp_path / "m.gguf")
    mounted = mount(path, "map=hf")
    assert mounted.names() == sorted(name for name, _ in LAYER.values())
    assert any("rope_freqs.weight" in warning for warning in mounted.model["warnings"])
    assert "rope_freqs.weight" in mount(path).names()


def test_a_tied_head_is_not_shown_and_an_own_one_is(mount, tmp_path):  # C25
    assert "lm_head.weight" not in mount(llama().write(tmp_path / "tied.gguf"), "map=hf").names()
    own = llama(output=True)
    mounted = mount(own.write(tmp_path / "own.gguf"), "map=hf")
    assert mounted.bin("lm_head.weight") == own.data_of("output.weight")


def test_stored_names_are_links_to_the_mounted_ones(mount, tmp_path):
    mounted = mount(llama(rope_freqs=True).write(tmp_path / "m.gguf"), "map=hf")
    assert sorted(os.listdir(mounted / "source-names")) == sorted(f"{name}.bin" for name in LAYER)
    link = mounted / "source-names/blk.0.attn_v.weight.bin"
    assert os.readlink(link) == "../tensors/model.layers.0.self_attn.v_proj.weight.bin"
    assert link.read_bytes() == mounted.bin("model.layers.0.self_attn.v_proj.weight")


def test_experts_are_slices(mount, tmp_path):  # C41
    model = mixtral()
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    prefix = "model.layers.0.block_sparse_moe"
    experts = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}
    assert {name for name in mounted.names() if "moe" in name} == {f"{prefix}.gate.weight"} | {f"{prefix}.experts.{e}.{w}.weight" for e in range(4) for w in experts}
    for w, stored in experts.items():
        stored = f"blk.0.{stored}.weight"
        data = model.data_of(stored)
        size = len(data) // 4
        for e in range(4):
            name = f"{prefix}.experts.{e}.{w}.weight"
            assert mounted.bin(name) == data[e * size : (e + 1) * size]
            about = mounted.json(f"tensors/{name}.json")
            assert about["shape"] == ([64, 96] if w == "w2" else [96, 64])
            assert (about["source_name"], about["nbytes"]) == (stored, size)
            assert about["source"]["offset"] == model.place_of(stored) + e * size
            assert about["dtype"] == ("F16" if w == "w3" else "Q8_0")
    listed = os.listdir(mounted / "source-names")
    assert "blk.0.ffn_gate_inp.weight.bin" in listed and "blk.0.ffn_up_exps.weight.bin" not in listed


def test_experts_of_qwen3moe(mount, tmp_path):  # C41
    model = keys(Gguf(), arch="qwen3moe", expert_count=4, expert_used_count=2, expert_feed_forward_length=8, embedding_length=32)
    for name in ("gate", "up"):
        model.tensor(f"blk.0.ffn_{name}_exps.weight", "Q8_0", (4, 8, 32))
    model.tensor("blk.0.ffn_gate_inp.weight", "F32", (4, 32))
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    wanted = [f"model.layers.0.mlp.experts.{e}.{name}_proj.weight" for e in range(4) for name in ("gate", "up")]
    assert set(wanted) <= set(mounted.names())
    data = model.data_of("blk.0.ffn_up_exps.weight")
    assert mounted.bin("model.layers.0.mlp.experts.3.up_proj.weight") == data[3 * 8 * 34 :]


def test_damage_in_one_expert_stays_there(weightfs, mount, tmp_path):
    model = mixtral()
    path = model.write(tmp_path / "m.gguf")
    weightfs.run("seal", path, "--chunk-size", "4KiB")
    raw = bytearray(path.read_bytes())
    raw[model.place_of("blk.0.ffn_up_exps.weight") + 3 * 96 * 64 * 2 + 9000] ^= 1
    path.write_bytes(raw)
    mounted = mount(path, "map=hf")
    prefix = "model.layers.0.block_sparse_moe.experts"
    assert mounted.bin(f"{prefix}.0.w3.weight") == model.data_of("blk.0.ffn_up_exps.weight")[: 96 * 64 * 2]
    assert mounted.json(f"tensors/{prefix}.0.w3.weight.json")["checksum"] is None
    with pytest.raises(OSError):
        mounted.bin(f"{prefix}.3.w3.weight")


def test_gguf_names_of_a_checkpoint(mount, tmp_path):
    model = Safetensors({"format": "pt"})
    for name, shape in LAYER.values():
        model.tensor(name, "F32", shape)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1}))
    mounted = mount(model.write(tmp_path / "model.safetensors"), "map=gguf")
    assert mounted.names() == sorted(LAYER)
    assert mounted.bin("blk.0.ffn_up.weight") == model.data_of("model.layers.0.mlp.up_proj.weight")


# --- map files -------------------------------------------------------------------------
def small(*names):
    model = Safetensors()
    for name in names:
        model.tensor(name, "F32", (4,))
    return model


@pytest.fixture
def mapped(mount, tmp_path):
    """mapped(MODEL, MAP): a mount of the model under a map file of this content."""

    def make(model, content, *options):
        (tmp_path / "map.json").write_text(content if isinstance(content, str) else json.dumps(content))
        return mount(model.write(tmp_path / "m.safetensors"), f"map={tmp_path / 'map.json'}", *options)

    return make


STRIP = {"weightfs_map": 1, "rules": [{"regex": "_orig_mod\\.(.+)", "to": "${1}"}]}


def test_a_prefix_is_stripped(mapped):  # C38
    model = small("_orig_mod.a.weight", "_orig_mod.b", "kept")
    mounted = mapped(model, STRIP)
    assert mounted.names() == ["a.weight", "b", "kept"]
    assert mounted.bin("a.weight") == model.data_of("_orig_mod.a.weight")
    assert sorted(os.listdir(mounted / "source-names")) == ["_orig_mod.a.weight.bin", "_orig_mod.b.bin", "kept.bin"]
    assert mounted.json("tensors/a.weight.json")["source_name"] == "_orig_mod.a.weight"


def test_a_collision_refuses_the_mount_and_names_both(weightfs, mount, tmp_path):  # C38
    (tmp_path / "map.json").write_text(json.dumps(STRIP))
    path = small("_orig_mod.a", "a").write(tmp_path / "m.safetensors")
    said = mount.refused(path, f"map={tmp_path / 'map.json'}")
    assert "a <- _orig_mod.a" in said and ", a (kept)" in said
    assert "_orig_mod.a" in weightfs.run("map", path, "--map", tmp_path / "map.json", code=1).err


def test_pairs_templates_drops_and_the_first_match(mapped):
    content = {
        "weightfs_map": 1,
        "pairs": {"x": "y", "y": "x"},
        "rules": [
            {"from": "blk.{i}.attn_v.weight", "to": "layers.{i}.v"},
            {"from": "a.{rest}", "to": "b.{rest}"},
            {"from": "a.x", "to": "c.x"},
            {"from": "gone", "drop": True},
        ],
    }
    model = small("x", "y", "blk.12.attn_v.weight", "blk.012.attn_v.weight", "a.x", "gone")
    mounted = mapped(model, content)
    assert mounted.names() == sorted(["x", "y", "layers.12.v", "blk.012.attn_v.weight", "b.x"])
    assert mounted.bin("x") == model.data_of("y") and mounted.bin("y") == model.data_of("x")
    assert "gone.bin" not in os.listdir(mounted / "source-names")


def test_a_split_rule(mount, tmp_path):
    content = {"weightfs_map": 1, "rules": [{"from": "up", "to": "experts.{e}.up", "split": "e"}]}
    (tmp_path / "map.json").write_text(json.dumps(content))
    model = Safetensors().tensor("up", "F16", (3, 2, 5))
    mounted = mount(model.write(tmp_path / "m.safetensors"), f"map={tmp_path / 'map.json'}")
    assert mounted.names() == ["experts.0.up", "experts.1.up", "experts.2.up"]
    assert mounted.bin("experts.1.up") == model.data_of("up")[20:40]
    assert np.load(mounted / "tensors/experts.2.up.npy").shape == (2, 5)


def test_stages_are_passed_one_after_another(mount, tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(STRIP))
    (tmp_path / "two.json").write_text(json.dumps({"weightfs_map": 1, "rules": [{"regex": "module\\.(.+)", "to": "${1}"}]}))
    path = small("_orig_mod.module.x").write(tmp_path / "m.safetensors")
    assert mount(path, f"map={tmp_path / 'one.json'}").names() == ["module.x"]
    assert mount(path, f"map={tmp_path / 'one.json'}", f"map={tmp_path / 'two.json'}").names() == ["x"]
    assert mount(path, flags=["--map", tmp_path / "one.json", "--map", tmp_path / "two.json"]).names() == ["x"]


def test_unmapped_names(mount, tmp_path):
    path = small("a", "b").write(tmp_path / "m.safetensors")
    (tmp_path / "drop.json").write_text(json.dumps({"weightfs_map": 1, "unmapped": "drop", "pairs": {"a": "c"}}))
    assert mount(path, f"map={tmp_path / 'drop.json'}").names() == ["c"]
    (tmp_path / "error.json").write_text(json.dumps({"weightfs_map": 1, "unmapped": "error", "pairs": {"a": "c"}}))
    assert "E_UNMAPPED no pair or rule for b" in mount.refused(path, f"map={tmp_path / 'error.json'}")


BAD_MAPS = {
    "no json": ("{", ["line"]),
    "wrong version": ({"weightfs_map": 2}, ["2", "version"]),
    "no version": ({"rules": []}, ["weightfs_map"]),
    "unknown member": ({"weightfs_map": 1, "ruels": []}, ["ruels"]),
    "unknown member of a rule": ({"weightfs_map": 1, "rules": [{"from": "a", "to": "b", "when": 1}]}, ["when"]),
    "duplicate member": ('{"weightfs_map": 1, "pairs": {"a": "b", "a": "c"}}', ["a"]),
    "unbound placeholder": ({"weightfs_map": 1, "rules": [{"from": "blk.{i}.x", "to": "l.{k}.x"}]}, ["k"]),
    "look-around": ({"weightfs_map": 1, "rules": [{"regex": "^model(?!\\.visual)", "to": "x"}]}, ["look"]),
    "split of one dimension": ({"weightfs_map": 1, "rules": [{"from": "a", "to": "a.{e}", "split": "e"}]}, ["a", "dim"]),
    "target dot dot": ({"weightfs_map": 1, "pairs": {"a": ".."}}, [".."]),
    "target with slash": ({"weightfs_map": 1, "pairs": {"a": "x/y"}}, ["x/y"]),
    "target with backslash": ({"weightfs_map": 1, "pairs": {"a": "x\\y"}}, ["a"]),
    "empty target": ({"weightfs_map": 1, "pairs": {"a": ""}}, ["a", "empty"]),
    "target metadata": ({"weightfs_map": 1, "pairs": {"a": "__metadata__"}}, ["__metadata__"]),
    "target with control": ({"weightfs_map": 1, "pairs": {"a": "x\ny"}}, ["a"]),
    "target too long": ({"weightfs_map": 1, "pairs": {"a": "x" * 300}}, ["a", "255", "long"]),
    "two sources": ({"weightfs_map": 1, "pairs": {"a": "t", "b": "t"}}, ["t <- a (pairs), b (pairs)"]),
}


@pytest.mark.parametrize("name", BAD_MAPS)
def test_a_bad_map_refuses_the_mount(mount, tmp_path, name):
    content, words = BAD_MAPS[name]
    (tmp_path / "map.json").write_text(content if isinstance(content, str) else json.dumps(content))
    said = mount.refused(small("a", "b").write(tmp_path / "m.safetensors"), f"map={tmp_path / 'map.json'}")
    assert any(word in said.replace(str(tmp_path), "") for word in words), said


def test_an_unsafe_name_may_keep_itself(mapped):
    model = small("x/y", "..", "")
    mounted = mapped(model, {"weightfs_map": 1, "pairs": {"x/y": "x/y", "..": "..", "": ""}})
    assert mounted.bin("x%2Fy") == model.data_of("x/y")
    assert sorted(mounted.names()) == sorted(["x%2Fy", "..", "%"])


def test_the_map_command_prints_a_map_that_reads_back(weightfs, mount, tmp_path):
    path = mixtral().tensor("rope_freqs.weight", "F32", (4,)).write(tmp_path / "m.gguf")
    found = weightfs.run("map", path, "--map", "hf", "--json").json()
    assert found["weightfs_map"] == 1
    pairs = found["pairs"]
    assert pairs["token_embd.weight"] == "model.embed_tokens.weight"
    assert pairs["blk.0.ffn_up_exps.weight"] == [f"model.layers.0.block_sparse_moe.experts.{e}.w3.weight" for e in range(4)]
    assert pairs["rope_freqs.weight"] is None
    (tmp_path / "again.json").write_text(json.dumps(found))
    by_hand = mount(path, f"map={tmp_path / 'again.json'}")
    built_in = mount(path, "map=hf")
    assert by_hand.names() == built_in.names()
    name = "model.layers.0.block_sparse_moe.experts.2.w1.weight"
    assert by_hand.bin(name) == built_in.bin(name)


def test_the_map_command_without_a_map_keeps_every_name(weightfs, tmp_path):
    path = small("a", "b/c").write(tmp_path / "m.safetensors")
    assert weightfs.run("map", path, "--json").json()["pairs"] == {"a": "a", "b/c": "b/c"}


def test_the_map_command_prints_a_table(weightfs, tmp_path):
    path = llama().write(tmp_path / "m.gguf")
    lines = weightfs.run("map", path, "--map", "hf").text.splitlines()
    assert any("blk.0.attn_v.weight" in line and "model.layers.0.self_attn.v_proj.weight" in line for line in lines)


def test_ls_and_cat_under_a_map(weightfs, tmp_path):
    model = llama()
    path = model.write(tmp_path / "m.gguf")
    listed = weightfs.run("ls", path, "--map", "hf", "--json").json()
    assert listed["model"]["map"] == "hf"
    assert {tensor["source_name"]: tensor["name"] for tensor in listed["tensors"]} == {stored: name for stored, (name, _) in LAYER.items()}
    assert weightfs.run("cat", path, "model.norm.weight", "--map", "hf").out == model.data_of("output_norm.weight")
    weightfs.run("cat", path, "output_norm.weight", "--map", "hf", code=1)


def test_an_unknown_architecture_is_never_guessed(mount, tmp_path):
    model = Gguf().key("general.architecture", "str", "no-such-model").tensor("blk.0.attn_q.weight", "F32", (4, 4))
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    assert mounted.names() == ["blk.0.attn_q.weight"]
    assert any("no-such-model" in warning for warning in mounted.model["warnings"])
