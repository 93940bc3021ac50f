"""map=hf gives the values that a checkpoint had, and says of each tensor what was done."""

import os
import subprocess
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file

from gguf_file import Gguf
from test_maps import keys


def floats(count, seed=1):
    return np.random.default_rng(seed).standard_normal(count).astype("<f4")


def gemma(path):
    """Norms off by one, and a layer whose matrices are as they were."""
    model = keys(Gguf(), arch="gemma2")
    data = {
        "output_norm.weight": floats(64, 1),
        "blk.0.attn_norm.weight": floats(64, 2).astype("<f2"),
        "blk.0.attn_q.weight": floats((64, 64), 3),
    }
    for name, values in data.items():
        model.tensor(name, {"<f4": "F32", "<f2": "F16"}[values.dtype.str], values.shape, values.tobytes())
    model.write(path)
    return data


def test_every_view_of_a_norm_has_the_value_of_the_checkpoint(mount, tmp_path):
    data = gemma(tmp_path / "m.gguf")
    mounted = mount(tmp_path / "m.gguf", "map=hf")
    for stored, name in [("output_norm.weight", "model.norm.weight"), ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight")]:
        wanted = data[stored].astype(np.float32) - np.float32(1)
        assert mounted.bin(name) == wanted.tobytes()
        assert np.load(mounted / f"tensors/{name}.npy").tobytes() == wanted.tobytes()
        assert np.load(mounted / f"f32/{name}.npy").tobytes() == wanted.tobytes()
        assert np.load(mounted / f"f16/{name}.npy").tobytes() == wanted.astype("<f2").tobytes()
        assert load_file(mounted / "model.safetensors")[name].tobytes() == wanted.tobytes()
    assert not [warning for warning in mounted.model["warnings"] if "map" in warning]


def test_the_description_says_what_was_done(weightfs, mount, tmp_path):
    path = tmp_path / "m.gguf"
    gemma(path)
    weightfs.run("seal", path)
    mounted = mount(path, "map=hf")
    norm = mounted.json("tensors/model.layers.0.input_layernorm.weight.json")
    assert (norm["dtype"], norm["nbytes"], norm["shape"]) == ("F32", 256, [64])
    assert (norm["transforms"], norm["converted_from"], norm["checksum"]) == (["subtract_one"], "F16", None)
    matrix = mounted.json("tensors/model.layers.0.self_attn.q_proj.weight.json")
    assert matrix["transforms"] == [] and "converted_from" not in matrix and matrix["checksum"]
    assert os.getxattr(mounted / "tensors/model.layers.0.input_layernorm.weight.bin", "user.weightfs.dtype") == b"F32"
    with pytest.raises(OSError):
        os.getxattr(mounted / "tensors/model.norm.weight.bin", "user.weightfs.sha256")
    sums = (mounted / "SHA256SUMS").read_text()
    assert "q_proj" in sums and "norm" not in sums
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=mounted / ".", check=True)
    assert mounted.model["dtypes"] == {"F32": {"tensors": 3, "nbytes": 2 * 256 + 64 * 64 * 4}}
    assert mounted.model["nbytes"] == 2 * 256 + 64 * 64 * 4
    assert "transforms" not in mount(path).json("tensors/output_norm.weight.json")


def test_rows_in_rope_order_quantised_and_not(mount, tmp_path):
    model = keys(Gguf())
    model.tensor("blk.0.attn_q.weight", "Q4_0", (64, 64)).tensor("blk.0.attn_k.weight", "F16", (32, 64))
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    for stored, name, heads, rows in [("attn_q", "q_proj", 4, 64), ("attn_k", "k_proj", 2, 32)]:
        data = np.frombuffer(model.data_of(f"blk.0.{stored}.weight"), np.uint8).reshape(rows, -1)
        wanted = data.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows, -1)
        name = f"model.layers.0.self_attn.{name}.weight"
        assert mounted.bin(name) == wanted.tobytes()
        about = mounted.json(f"tensors/{name}.json")
        assert (about["transforms"], about["checksum"]) == (["unpermute_rope"], None)
        assert about["source"]["offset"] == model.place_of(f"blk.0.{stored}.weight")


def test_matrices_of_gpt2_are_transposed(mount, tmp_path):
    model = keys(Gguf(), arch="gpt2")
    values = floats((96, 64))
    model.tensor("blk.0.ffn_up.weight", "F32", (96, 64), values.tobytes())
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    loaded = np.load(mounted / "tensors/transformer.h.0.mlp.c_fc.weight.npy", mmap_mode="r")
    assert loaded.shape == (64, 96) and (loaded == values.T).all()


def test_joined_tensors_name_both_sources(weightfs, mount, tmp_path):
    model = keys(Gguf(), arch="deepseek2")
    k, v = floats((2, 8, 16), 1), floats((2, 12, 8), 2)
    model.tensor("blk.0.attn_k_b.weight", "F32", k.shape, k.tobytes())
    model.tensor("blk.0.attn_v_b.weight", "F32", v.shape, v.tobytes())
    path = model.write(tmp_path / "m.gguf")
    mounted = mount(path, "map=hf")
    name = "model.layers.0.self_attn.kv_b_proj.weight"
    assert mounted.names() == [name]
    wanted = np.concatenate([k.swapaxes(1, 2), v], axis=1).reshape(-1, 8)
    assert mounted.bin(name) == wanted.tobytes()
    about = mounted.json(f"tensors/{name}.json")
    assert about["source_names"] == ["blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight"]
    assert about["transforms"] == ["join_kv_b"] and about["shape"] == [56, 8]
    assert os.listdir(mounted / "source-names") == []
    table = weightfs.run("map", path, "--map", "hf").text
    assert "0 not shown" in table and "attn_v_b" in table


def test_head_counts_that_do_not_fit_leave_the_stored_name(mount, tmp_path):
    model = keys(Gguf(), **{"attention.head_count": 7})
    model.tensor("blk.0.attn_q.weight", "F32", (64, 64))
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    assert mounted.names() == ["blk.0.attn_q.weight"]
    assert any("blk.0.attn_q.weight" in warning and "7 heads" in warning for warning in mounted.model["warnings"])


def test_eight_readers_of_transposed_tensors_keep_memory_flat(mount, tmp_path):
    model = keys(Gguf(), arch="gpt2")
    for i in range(4):
        model.tensor(f"blk.{i}.ffn_up.weight", "F16", (3072, 768), floats((3072, 768), i).astype("<f2").tobytes())
    mounted = mount(model.write(tmp_path / "m.gguf"), "map=hf")
    names = [f"transformer.h.{i}.mlp.c_fc.weight" for i in range(4)]

    def read(i):
        for repr_ in ("tensors", "f32"):
            (mounted / f"{repr_}/{names[i % 4]}.bin").read_bytes()

    readers = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert mounted.rss_anon() < 48 << 20
