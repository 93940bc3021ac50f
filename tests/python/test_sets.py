"""Models of several files: split GGUF, sharded safetensors, directories, snapshots."""

import json
import os
import shutil

import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf
from safetensors_file import Safetensors, sharded, snapshot


def shards():
    return [
        Safetensors({"format": "pt"}).tensor("a.weight", "F32", (4, 4)).tensor("b.weight", "F16", (3,)),
        Safetensors({"format": "pt"}).tensor("c.weight", "BF16", (5, 2)),
    ]


def parts():
    return [gguf_file.plain(), Gguf().tensor("blk.1.weight", "F16", (4, 4)), Gguf().tensor("blk.2.weight", "Q8_0", (2, 32))]


def names(weightfs, path, **options):
    return [tensor["name"] for tensor in weightfs.run("ls", path, "--json", **options).json()["tensors"]]


ALL_SHARDED = ["a.weight", "b.weight", "c.weight"]
ALL_SPLIT = ["token_embd.weight", "output.weight", "blk.1.weight", "blk.2.weight"]


# --- split GGUF ------------------------------------------------------------------------
def test_a_split_model_is_one_tree(mount, tmp_path):
    files = parts()
    paths = gguf_file.split(files, "m", tmp_path)
    mounted = mount(paths[0])
    assert mounted.names() == sorted(ALL_SPLIT)
    for file in files:
        for tensor in file.tensors:
            assert mounted.bin(tensor.name.decode()) == tensor.data
    assert sorted(os.listdir(mounted / "source")) == [path.name for path in paths]
    assert mounted.json("tensors/blk.2.weight.json")["source"]["file"] == paths[2].name
    assert [source["file"] for source in mounted.model["sources"]] == [path.name for path in paths]
    assert mounted.json("metadata.json")["general.name"] == "tiny"
    for path in paths:
        assert (mounted / "source" / path.name).read_bytes() == path.read_bytes()


def test_tensor_order_is_part_by_part(weightfs, tmp_path):
    assert names(weightfs, gguf_file.split(parts(), "m", tmp_path)[0]) == ALL_SPLIT


def test_a_later_part_is_the_whole_model(weightfs, tmp_path):  # C35
    paths = gguf_file.split(parts(), "m", tmp_path)
    for path in paths[1:]:
        assert names(weightfs, path) == ALL_SPLIT


def test_a_later_part_alone_names_the_first(weightfs, tmp_path):  # C35
    paths = gguf_file.split(parts(), "m", tmp_path)
    paths[0].unlink()
    for path in paths[1:]:
        assert paths[0].name in weightfs.run("ls", path, code=1).err


def test_a_missing_part_is_named(weightfs, tmp_path):
    paths = gguf_file.split(parts(), "m", tmp_path)
    paths[2].unlink()
    assert paths[2].name in weightfs.run("ls", paths[0], code=1).err


def test_a_first_part_without_tensors(weightfs, tmp_path):
    first = Gguf().key("general.architecture", "str", "llama").key("general.name", "str", "empty first")
    paths = gguf_file.split([first, Gguf().tensor("a", "F32", (2,))], "m", tmp_path)
    assert names(weightfs, paths[0]) == ["a"]


def test_parts_that_do_not_belong_together(weightfs, tmp_path):
    paths = gguf_file.split(parts(), "m", tmp_path)
    shutil.copy(paths[1], paths[2])  # says it is the second, and has the same tensors
    weightfs.run("ls", paths[0], code=1)
    paths = gguf_file.split(parts(), "n", tmp_path, total=9)
    assert "9" in weightfs.run("ls", paths[0], code=1).err


def test_a_tensor_in_two_parts(weightfs, tmp_path):
    paths = gguf_file.split([gguf_file.plain(), Gguf().tensor("output.weight", "F32", (2,))], "m", tmp_path)
    assert "output.weight" in weightfs.run("ls", paths[0], code=1).err


def test_a_merged_file_keeps_its_leftovers(weightfs, tmp_path):
    model = gguf_file.plain().key("split.no", "u16", 0).key("split.count", "u16", 0).key("split.tensors.count", "i32", 2)
    assert names(weightfs, model.write(tmp_path / "m.gguf")) == ALL_SPLIT[:2]


def test_half_of_a_byte_split_file_says_what_it_is(weightfs, tmp_path):  # C35
    data = gguf_file.plain().encode()
    (tmp_path / "x.gguf.part1of2").write_bytes(data[: len(data) // 2])
    (tmp_path / "x.gguf.part2of2").write_bytes(data[len(data) // 2 :])
    for name in ("x.gguf.part1of2", "x.gguf.part2of2"):
        said = weightfs.run("ls", tmp_path / name, code=1).err
        assert "concatenat" in said or "cat " in said or "join" in said, said


def test_parts_are_looked_for_beside_the_link(weightfs, tmp_path):
    (tmp_path / "store").mkdir()
    paths = gguf_file.split(parts(), "m", tmp_path / "store")
    for number, path in enumerate(paths):
        path.rename(tmp_path / f"store/blob{number}")
        (tmp_path / path.name).symlink_to(f"store/blob{number}")
    assert names(weightfs, tmp_path / paths[0].name) == ALL_SPLIT


# --- sharded safetensors ---------------------------------------------------------------
def test_a_sharded_model_is_one_tree(mount, tmp_path):
    files = shards()
    mounted = mount(sharded(files, tmp_path))
    assert mounted.names() == ALL_SHARDED
    for file in files:
        for name, *_, data in file.tensors:
            assert mounted.bin(name) == data
    assert sorted(os.listdir(mounted / "source")) == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert mounted.json("tensors/c.weight.json")["source"] == {
        "file": "model-00002-of-00002.safetensors",
        "offset": files[1].place_of("c.weight"),
    }
    assert mounted.model["format"] == "safetensors" and mounted.model["tensor_count"] == 3


def test_a_directory_is_its_index(weightfs, tmp_path):
    sharded(shards(), tmp_path)
    assert names(weightfs, tmp_path) == ALL_SHARDED
    assert names(weightfs, f"{tmp_path}/") == ALL_SHARDED
    assert names(weightfs, ".", cwd=tmp_path) == ALL_SHARDED


def test_files_that_the_index_does_not_name_are_ignored_with_a_warning(weightfs, mount, tmp_path):  # C17
    sharded(shards(), tmp_path)
    Safetensors().tensor("tok_embeddings.weight", "F32", (4, 4)).write(tmp_path / "consolidated.safetensors")
    gguf_file.plain().write(tmp_path / "stray.gguf")
    mounted = mount(tmp_path)
    assert mounted.names() == ALL_SHARDED
    said = " ".join(mounted.model["warnings"])
    assert "consolidated.safetensors" in said
    assert names(weightfs, tmp_path / "model.safetensors.index.json") == ALL_SHARDED


def test_one_shard_is_the_whole_model(weightfs, tmp_path):
    sharded(shards(), tmp_path)
    assert names(weightfs, tmp_path / "model-00002-of-00002.safetensors") == ALL_SHARDED


def test_one_shard_without_its_index_names_what_is_missing(weightfs, tmp_path):
    sharded(shards(), tmp_path).unlink()
    said = weightfs.run("ls", tmp_path / "model-00002-of-00002.safetensors", code=1).err
    assert "index" in said or "model-00001-of-00002.safetensors" in said


def test_a_missing_shard_is_named(weightfs, tmp_path):
    index = sharded(shards(), tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors" in weightfs.run("ls", index, code=1).err


def test_an_index_with_a_tensor_that_is_not_there(weightfs, tmp_path):
    index = sharded(shards(), tmp_path)
    found = json.loads(index.read_text())
    found["weight_map"]["gone.weight"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(found))
    said = weightfs.run("ls", index, code=1).err
    assert "gone.weight" in said and "model-00001-of-00002.safetensors" in said


def test_a_tensor_that_the_index_does_not_name(mount, tmp_path):
    index = sharded(shards(), tmp_path)
    found = json.loads(index.read_text())
    del found["weight_map"]["b.weight"]
    index.write_text(json.dumps(found))
    mounted = mount(index)
    assert mounted.names() == ALL_SHARDED
    assert any("b.weight" in warning for warning in mounted.model["warnings"])


def test_a_name_in_two_shards_is_the_one_of_the_index(mount, tmp_path):
    files = shards()
    files[1].tensor("a.weight", "F32", (4, 4), b"\xaa" * 64)
    weight_map = {"a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00001-of-00002.safetensors", "c.weight": "model-00002-of-00002.safetensors"}
    mounted = mount(sharded(files, tmp_path, weight_map=weight_map))
    assert mounted.bin("a.weight") == files[0].data_of("a.weight")
    assert any("a.weight" in warning for warning in mounted.model["warnings"])


def test_a_name_in_two_shards_that_the_index_does_not_decide(weightfs, tmp_path):
    files = shards()
    files[1].tensor("a.weight", "F32", (4, 4))
    weight_map = {"b.weight": "model-00001-of-00002.safetensors", "c.weight": "model-00002-of-00002.safetensors"}
    said = weightfs.run("ls", sharded(files, tmp_path, weight_map=weight_map), code=1).err
    assert "a.weight" in said


@pytest.mark.parametrize("target", ["../outside.safetensors", "/etc/passwd", "sub/../../outside.safetensors", "..", "", "model.safetensors.index.json"])
def test_an_index_cannot_lead_outside(weightfs, tmp_path, target):
    Safetensors().tensor("x", "F32", (1,)).write(tmp_path / "outside.safetensors")
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    index = sharded(shards(), folder, weight_map={"x": target})
    result = weightfs.run("ls", index, code=1)
    assert result.out == b""


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "x", "a": "y"}}'])
def test_an_index_that_is_none(weightfs, tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json" in weightfs.run("ls", tmp_path / "model.safetensors.index.json", code=1).err


# --- directories -----------------------------------------------------------------------
def test_a_directory_with_one_model(weightfs, tmp_path):
    gguf_file.plain().write(tmp_path / "only.gguf")
    (tmp_path / "README.md").write_text("words")
    (tmp_path / "config.json").write_text("{}")
    assert names(weightfs, tmp_path) == ALL_SPLIT[:2]


def test_a_directory_with_a_split_set(weightfs, tmp_path):
    gguf_file.split(parts(), "m", tmp_path)
    assert names(weightfs, tmp_path) == ALL_SPLIT


def test_a_directory_prefers_model_safetensors(weightfs, tmp_path):
    safetensors_file.plain().write(tmp_path / "model.safetensors")
    Safetensors().tensor("other", "F32", (1,)).write(tmp_path / "consolidated.safetensors")
    assert "other" not in names(weightfs, tmp_path)


def test_two_models_in_a_directory_are_listed(weightfs, tmp_path):  # C17
    gguf_file.plain().write(tmp_path / "one-Q4.gguf")
    gguf_file.plain().write(tmp_path / "two-Q8.gguf")
    said = weightfs.run("ls", tmp_path, code=1).err
    assert "one-Q4.gguf" in said and "two-Q8.gguf" in said


def test_two_indexes_in_a_directory_are_listed(weightfs, tmp_path):
    sharded(shards(), tmp_path)
    sharded(shards(), tmp_path, stem="other")
    said = weightfs.run("ls", tmp_path, code=1).err
    assert "model.safetensors.index.json" in said and "other.safetensors.index.json" in said


def test_a_directory_without_a_model(weightfs, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "empty" in weightfs.run("ls", tmp_path / "empty", code=1).err


def test_a_seal_in_the_directory_is_no_second_model(weightfs, tmp_path):
    gguf_file.plain().write(tmp_path / "only.gguf")
    weightfs.run("seal", tmp_path)
    assert (tmp_path / "only.gguf.weightfs.json").exists()
    weightfs.run("verify", tmp_path)
    assert names(weightfs, tmp_path) == ALL_SPLIT[:2]


def test_a_hugging_face_snapshot(mount, tmp_path):
    (tmp_path / "plain").mkdir()
    index = sharded(shards(), tmp_path / "plain")
    files = {path.name: path for path in (tmp_path / "plain").iterdir()}
    mounted = mount(snapshot(files, tmp_path / "hub"))
    assert mounted.names() == ALL_SHARDED
    assert sorted(os.listdir(mounted / "source")) == sorted(name for name in files if name != index.name)
    assert mounted.model["sources"][0]["file"] == "model-00001-of-00002.safetensors"


def test_a_snapshot_of_one_file(mount, tmp_path):
    path = safetensors_file.plain().write(tmp_path / "x")
    folder = snapshot({"model.safetensors": path}, tmp_path / "hub")
    mounted = mount(folder)
    assert os.listdir(mounted / "source") == ["model.safetensors"]
    again = mount(folder / "model.safetensors")
    assert again.names() == mounted.names()


def test_a_lfs_pointer_among_the_shards(weightfs, tmp_path):
    index = sharded(shards(), tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 5\n")
    said = weightfs.run("ls", index, code=1).err
    assert "LFS" in said and "model-00002-of-00002.safetensors" in said


# --- reports about sets --------------------------------------------------------------------
FORMS = ["json", "yaml", "sha256sum", "sfv"]


@pytest.mark.parametrize("kind, form", [("gguf", "gguf-hash"), *((kind, form) for kind in ("gguf", "safetensors") for form in FORMS)])
def test_what_we_say_about_a_set_is_understood(weightfs, tmp_path, kind, form):
    if kind == "gguf":
        entry = gguf_file.split(parts(), "m", tmp_path)[0]
    else:
        entry = sharded(shards(), tmp_path)
    weightfs.run("seal", entry)
    said = weightfs.run("provenance", entry, "--format", form).out
    (tmp_path / "said").write_bytes(said)
    weightfs.run("verify", entry, "--against", tmp_path / "said")
    seal = entry.with_name(f"{entry.name}.weightfs.json")
    seal.unlink()
    weightfs.run("verify", entry, "--against", tmp_path / "said")
