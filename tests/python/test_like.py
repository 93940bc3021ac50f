"""like=REF: names of a second model; and maps that are printed and read back."""

import json
import os

import pytest

from gguf_file import Gguf
from safetensors_file import Safetensors
from test_maps import LAYER, keys, llama, mixtral, small

NESTED = "model.language_model."


def checkpoint(prefix="model.", head=False, **shapes):
    """The checkpoint of LAYER, its base called as prefix says."""
    model = Safetensors({"format": "pt"})
    for name, shape in sorted(LAYER.values()):
        name = prefix + name.removeprefix("model.")
        model.tensor(name, "BF16", shapes.get(name.rsplit(".", 2)[-2], shape))
    if head:
        model.tensor("lm_head.weight", "BF16", LAYER["token_embd.weight"][1])
    return model


def tree(mounted):
    """Everything in tensors/: bytes and descriptions."""
    return {name: (mounted / "tensors" / name).read_bytes() for name in os.listdir(mounted / "tensors")}


@pytest.fixture
def paths(tmp_path):
    """paths(GGUF or Safetensors, name): written."""
    return lambda model, name: model.write(tmp_path / name)


@pytest.mark.parametrize("prefix", ["model.", "", NESTED, "_orig_mod.model."])
def test_a_gguf_under_the_names_of_a_checkpoint(weightfs, mount, paths, tmp_path, prefix):
    model = llama(rope_freqs=True)
    path, reference = paths(model, "m.gguf"), paths(checkpoint(prefix), "ref.safetensors")
    mounted = mount(path, f"like={reference}")
    plain = mount(path, "map=hf")
    assert mounted.names() == sorted(name for name, _, _, _ in checkpoint(prefix).tensors)
    for name in mounted.names():
        known = "model." + name.removeprefix(prefix)
        assert mounted.bin(name) == plain.bin(known), name
        assert mounted.json(f"tensors/{name}.json")["shape"] == plain.json(f"tensors/{known}.json")["shape"]
    assert os.readlink(mounted / "source-names/blk.0.attn_v.weight.bin") == f"../tensors/{prefix}layers.0.self_attn.v_proj.weight.bin"
    found = weightfs.run("map", path, "--like", reference, "--json").json()
    assert found["weightfs_map"] == 1
    assert found["pairs"]["blk.0.ffn_up.weight"] == f"{prefix}layers.0.mlp.up_proj.weight"
    assert found["pairs"]["rope_freqs.weight"] is None
    assert sorted(found["matched"]) == mounted.names()
    assert found["unmatched_source"] == found["unmatched_reference"] == found["shape_mismatch"] == []
    (tmp_path / "again.json").write_text(json.dumps(found))
    assert tree(mount(path, f"map={tmp_path / 'again.json'}")) == tree(mounted)


@pytest.mark.parametrize("head", [False, True])
def test_a_tied_head_is_not_called_missing(weightfs, mount, paths, head):  # C25
    path, reference = paths(llama(), "m.gguf"), paths(checkpoint(head=head), "ref.safetensors")
    mounted = mount(path, flags=["--like", reference])
    assert mounted.names() == sorted(name for name, _ in LAYER.values())
    assert weightfs.run("map", path, "--like", reference, "--json").json()["unmatched_reference"] == []


def test_an_own_head_finds_its_name(mount, paths):
    path, reference = paths(llama(output=True), "m.gguf"), paths(checkpoint(head=True), "ref.safetensors")
    assert "lm_head.weight" in mount(path, f"like={reference}").names()


def test_a_head_that_the_reference_lacks_keeps_its_name(mount, paths):
    path, reference = paths(llama(output=True), "m.gguf"), paths(checkpoint(), "ref.safetensors")
    mounted = mount(path, f"like={reference}")
    assert "output.weight" in mounted.names()
    assert any("output.weight" in warning for warning in mounted.model["warnings"])


def test_experts_under_the_names_of_a_checkpoint(weightfs, mount, paths, tmp_path):
    path = paths(mixtral(), "m.gguf")
    plain = mount(path, "map=hf")
    reference = Safetensors()
    for name in plain.names():
        reference.tensor(name.replace("model.", NESTED), "BF16", plain.json(f"tensors/{name}.json")["shape"])
    reference = paths(reference, "ref.safetensors")
    mounted = mount(path, f"like={reference}")
    assert mounted.names() == sorted(name.replace("model.", NESTED) for name in plain.names())
    name = "layers.0.block_sparse_moe.experts.3.w2.weight"
    assert mounted.bin(NESTED + name) == plain.bin("model." + name)
    (tmp_path / "again.json").write_bytes(weightfs.run("map", path, "--like", reference, "--json").out)
    assert tree(mount(path, f"map={tmp_path / 'again.json'}")) == tree(mounted)


def test_a_printed_map_of_map_hf_mounts_to_the_same_tree(weightfs, mount, paths, tmp_path):
    for name, model in {"llama": llama(rope_freqs=True), "mixtral": mixtral()}.items():
        path = paths(model, f"{name}.gguf")
        found = weightfs.run("map", path, "--map", "hf", "--json").json()
        assert found["values"] == "hf"
        (tmp_path / "again.json").write_text(json.dumps(found))
        assert tree(mount(path, f"map={tmp_path / 'again.json'}")) == tree(mount(path, "map=hf")), name


def deepseek():
    model = keys(Gguf(), arch="deepseek2", **{"attention.key_length": 24})
    model.tensor("token_embd.weight", "F32", (32, 64)).tensor("output_norm.weight", "F32", (64,))
    return model.tensor("blk.0.attn_k_b.weight", "F32", (4, 32, 16)).tensor("blk.0.attn_v_b.weight", "F32", (4, 8, 32))


def gpt_oss():
    model = keys(Gguf(), arch="gpt-oss", expert_count=2)
    for name in ("gate", "up", "down"):
        model.tensor(f"blk.0.ffn_{name}_exps.weight", "MXFP4", (2, 32, 64)).tensor(f"blk.0.ffn_{name}_exps.bias", "F32", (2, 32))
    return model.tensor("output_norm.weight", "F32", (64,))


def gpt2():
    model = keys(Gguf(), arch="gpt2")
    model.tensor("token_embd.weight", "F32", (32, 64)).tensor("blk.0.attn_qkv.weight", "Q8_0", (192, 64)).tensor("blk.0.attn_qkv.bias", "F32", (192,))
    return model.tensor("blk.0.ffn_down.weight", "F16", (64, 96))


def gemma():
    model = keys(Gguf(), arch="gemma2")
    return model.tensor("token_embd.weight", "Q8_0", (32, 64)).tensor("blk.0.attn_norm.weight", "F32", (64,)).tensor("output_norm.weight", "F32", (64,))


def mamba():
    model = keys(Gguf(), arch="mamba2")
    model.tensor("blk.0.ssm_a", "F32", (4, 1)).tensor("blk.0.ssm_d", "F32", (4, 1)).tensor("blk.0.ssm_norm.weight", "F32", (2, 8))
    return model.tensor("blk.0.ssm_conv1d.weight", "F32", (16, 4)).tensor("token_embd.weight", "F16", (32, 64))


@pytest.mark.parametrize("make", [deepseek, gpt_oss, gpt2, gemma, mamba])
def test_changed_values_come_back_through_a_printed_map(weightfs, mount, paths, tmp_path, make):
    path = paths(make(), "m.gguf")
    plain = mount(path, "map=hf")
    reference = Safetensors()
    for name in plain.names():
        reference.tensor("_orig_mod." + name, "U8", plain.json(f"tensors/{name}.json")["shape"])
    reference = paths(reference, "ref.safetensors")
    like = mount(path, f"like={reference}")
    assert like.names() == ["_orig_mod." + name for name in plain.names()]
    assert all(like.bin("_orig_mod." + name) == plain.bin(name) for name in plain.names())
    for name, mounted, how in [("hf", plain, ["--map", "hf"]), ("like", like, ["--like", reference])]:
        found = weightfs.run("map", path, *how, "--json").json()
        assert found["values"] == "hf"
        assert set(found["pairs"]) == {tensor.name.decode() for tensor in make().tensors}
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
        again = mount(path, f"map={tmp_path / name}.json")
        assert tree(again) == tree(mounted), name
        assert sorted(os.listdir(again / "f32")) == sorted(os.listdir(mounted / "f32"))


def test_the_halves_of_a_joined_tensor_stay_together(weightfs, mount, paths, tmp_path):
    path = paths(deepseek(), "m.gguf")
    (tmp_path / "map.json").write_text(json.dumps({"weightfs_map": 1, "values": "hf", "pairs": {"blk.0.attn_k_b.weight": "blk.0.attn_k_b.weight"}}))
    mounted = mount(path, f"map={tmp_path / 'map.json'}")
    assert mounted.bin("blk.0.attn_v_b.weight") == deepseek().data_of("blk.0.attn_v_b.weight")
    assert mounted.names() == sorted(["blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight", "model.embed_tokens.weight", "model.norm.weight"])


def test_a_compiled_checkpoint_under_the_names_of_the_plain_one(mount, paths):  # C38
    model = small("_orig_mod.a.weight", "_orig_mod.b.weight")
    mounted = mount(paths(model, "m.safetensors"), f"like={paths(small('a.weight', 'b.weight'), 'ref.safetensors')}")
    assert mounted.names() == ["a.weight", "b.weight"]
    assert mounted.bin("b.weight") == model.data_of("_orig_mod.b.weight")
    assert mounted.model["map"] != "hf"


def test_a_checkpoint_under_the_names_of_a_gguf(mount, paths):
    model = checkpoint()
    mounted = mount(paths(model, "m.safetensors"), f"like={paths(llama(rope_freqs=True), 'ref.gguf')}")
    assert mounted.names() == sorted(LAYER)
    assert mounted.bin("blk.0.ffn_up.weight") == model.data_of("model.layers.0.mlp.up_proj.weight")


def test_renamed_layers_of_a_fine_tune(weightfs, mount, paths, tmp_path):
    ours, theirs = Safetensors(), Safetensors()
    for layer in range(3):
        for own, name, shape in [("up", "fc1", (8, 4)), ("down", "fc2", (4, 8))]:
            ours.tensor(f"net.blocks.{layer}.{own}.weight", "F32", shape)
            theirs.tensor(f"model.layers.{layer}.{name}.weight", "F32", shape)
    path, reference = paths(ours, "m.safetensors"), paths(theirs, "ref.safetensors")
    mounted = mount(path, f"like={reference}")
    assert mounted.names() == sorted(name for name, _, _, _ in theirs.tensors)
    assert mounted.bin("model.layers.2.fc2.weight") == ours.data_of("net.blocks.2.down.weight")
    (tmp_path / "again.json").write_bytes(weightfs.run("map", path, "--like", reference, "--json").out)
    assert tree(mount(path, f"map={tmp_path / 'again.json'}")) == tree(mounted)


def test_shape_alone_decides_nothing(weightfs, mount, paths):
    ours, theirs = Safetensors(), Safetensors()
    for own, name in [("wq", "query"), ("wk", "key"), ("wv", "value"), ("wo", "dense")]:
        ours.tensor(f"h.0.{own}", "F32", (4, 4))
        theirs.tensor(f"h.0.{name}", "F32", (4, 4))
    path, reference = paths(ours, "m.safetensors"), paths(theirs, "ref.safetensors")
    said = mount.refused(path, f"like={reference}")
    assert "h.0.query" in said and "h.0.wq" in said
    assert len(said.splitlines()) <= 4 and f"weightfs map {path} --like {reference} --json" in said
    found = weightfs.run("map", path, "--like", reference, "--json").json()
    assert found["pairs"] == {f"h.0.{name}": f"h.0.{name}" for name in ("wq", "wk", "wv", "wo")}
    assert len(found["unmatched_source"]) == len(found["unmatched_reference"]) == 4
    table = weightfs.run("map", path, "--like", reference).text
    assert "h.0.value" in table and "h.{}.wq" in table


def test_shapes_that_disagree_refuse_the_mount(weightfs, mount, paths, tmp_path):
    path, reference = paths(llama(), "m.gguf"), paths(checkpoint(up_proj=(97, 64)), "ref.safetensors")
    said = mount.refused(path, f"like={reference}")
    assert "E_SHAPE" in said and "[96, 64]" in said and "[97, 64]" in said and len(said.splitlines()) <= 4
    found = weightfs.run("map", path, "--like", reference, "--json").json()
    assert found["shape_mismatch"] == [
        {"source": "blk.0.ffn_up.weight", "reference": "model.layers.0.mlp.up_proj.weight", "source_shape": [96, 64], "reference_shape": [97, 64]}
    ]
    # Whoever knows better mounts the printed map.
    (tmp_path / "again.json").write_text(json.dumps(found))
    assert "model.layers.0.mlp.up_proj.weight" in mount(path, f"map={tmp_path / 'again.json'}").names()


def test_missing_names_are_listed_and_information_that_is_gone_is_not_missed(weightfs, mount, paths):
    path = paths(llama(), "m.gguf")
    gone = checkpoint().tensor("pooler.dense.weight", "F32", (64, 64)).tensor("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", (8,))
    mounted = mount(path, f"like={paths(gone, 'gone.safetensors')}")
    assert any("pooler.dense.weight" in warning for warning in mounted.model["warnings"])
    more = paths(checkpoint().tensor("model.layers.1.mlp.up_proj.weight", "F32", (96, 64)), "more.safetensors")
    assert "model.layers.1.mlp.up_proj.weight" in mount.refused(path, f"like={more}")
    assert weightfs.run("map", path, "--like", more, "--json").json()["unmatched_reference"] == ["model.layers.1.mlp.up_proj.weight"]


def test_a_directory_with_an_index_is_a_reference(mount, paths, tmp_path):
    directory = tmp_path / "ref"
    directory.mkdir()
    weight_map = {}
    for number, side in enumerate([sorted(LAYER.values())[:5], sorted(LAYER.values())[5:]], 1):
        shard = Safetensors()
        for name, shape in side:
            shard.tensor(name.replace("model.", NESTED), "BF16", shape)
            weight_map[name.replace("model.", NESTED)] = f"model-0000{number}-of-00002.safetensors"
        shard.write(directory / f"model-0000{number}-of-00002.safetensors")
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (directory / "consolidated.safetensors").write_bytes(small("other").write(tmp_path / "o.safetensors").read_bytes())  # C17
    path = paths(llama(), "m.gguf")
    for reference in (directory, directory / "model.safetensors.index.json"):
        assert mount(path, f"like={reference}").names() == sorted(weight_map)


def test_a_reference_that_is_none(weightfs, mount, paths, tmp_path):
    path = paths(llama(), "m.gguf")
    assert "no-such" in mount.refused(path, f"like={tmp_path / 'no-such.gguf'}")
    assert "no-such" in weightfs.run("map", path, "--like", tmp_path / "no-such.gguf", code=1).err


def test_like_comes_behind_map(mount, paths):
    path, reference = paths(llama(), "m.gguf"), paths(checkpoint(NESTED), "ref.safetensors")
    assert tree(mount(path, "map=hf", f"like={reference}")) == tree(mount(path, f"like={reference}"))


VALUES = {
    "with rules": ({"weightfs_map": 1, "values": "hf", "rules": []}, "pairs alone"),
    "of another kind": ({"weightfs_map": 1, "values": "gguf"}, "values"),
    "too many names": ({"weightfs_map": 1, "values": "hf", "pairs": {"blk.0.ffn_up.weight": ["a"]}}, "first dimension"),
}


@pytest.mark.parametrize("name", VALUES)
def test_bad_maps_with_values(mount, paths, tmp_path, name):
    content, words = VALUES[name]
    (tmp_path / "map.json").write_text(json.dumps(content))
    assert words in mount.refused(paths(llama(), "m.gguf"), f"map={tmp_path / 'map.json'}")


def test_maps_with_values_come_first_and_need_a_table(mount, paths, tmp_path):
    (tmp_path / "map.json").write_text(json.dumps({"weightfs_map": 1, "values": "hf"}))
    assert "first map=" in mount.refused(paths(llama(), "m.gguf"), "map=hf", f"map={tmp_path / 'map.json'}")
    assert "GGUF" in mount.refused(paths(checkpoint(), "m.safetensors"), f"map={tmp_path / 'map.json'}")
    assert "no-such" in mount.refused(paths(keys(Gguf(), arch="no-such").tensor("a", "F32", (4,)), "x.gguf"), f"map={tmp_path / 'map.json'}")
