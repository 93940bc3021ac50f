"""A sealed file whose header or size is another one: the seal refuses the mount (5), whether or not the file can still be opened."""

import json
import os
import shutil

import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf, pattern
from test_sealing import rehashed, seal_of

MAKE = {
    "gguf": lambda: Gguf().key("general.architecture", "str", "llama").tensor("t", "F32", (3,), pattern(12)),
    "safetensors": lambda: safetensors_file.Safetensors().tensor("t", "F32", (3,), pattern(12)),
}


@pytest.fixture(params=MAKE)
def sealed(weightfs, tmp_path, request):
    path = MAKE[request.param]().write(tmp_path / f"m.{request.param}")
    weightfs.run("seal", path)
    return path


def flip(path, at, mask=0x20):
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def refused_by_the_seal(mount, model, *options, words=()):
    said = mount.refused(model, *options, code=5)
    assert "-o seal=none" in said, said
    for word in words:
        assert word in said, said
    return said


@pytest.mark.patience(300)
def test_every_flipped_byte_of_a_header(weightfs, mount, sealed):
    """Of the header that is read: the first bytes at each step, and all of it in some."""
    end = sealed.read_bytes().index(pattern(12))
    for at in sorted({*range(0, 12), *range(12, end, 7)}):
        flip(sealed, at)
        said = refused_by_the_seal(mount, sealed, words=["seal is not of this model"])
        if "cannot be opened" in said:
            assert "header" in said and "CRC32" in said, said
            assert mount.refused(sealed, "seal=none", code=1)
        assert weightfs.run("verify", sealed, code=3)
        flip(sealed, at)
    mount(sealed).unmount()


def test_every_length_but_its_own(weightfs, mount, sealed):
    whole = sealed.read_bytes()
    for size in (0, 1, 7, 8, 20, len(whole) - 20, len(whole) - 1, len(whole) + 1, len(whole) + 64):
        sealed.write_bytes((whole + bytes(64))[:size])
        refused_by_the_seal(mount, sealed, words=[f"has {size} bytes", str(len(whole))])


def test_a_seal_that_was_named_and_one_in_the_cache(weightfs, mount, sealed, tmp_path):
    other = shutil.move(seal_of(sealed), tmp_path / "other.json")
    flip(sealed, 0, 0x80)
    mount.refused(sealed, code=1)
    refused_by_the_seal(mount, sealed, f"seal={other}", words=["other.json"])
    import hashlib

    home = weightfs.home / "cache/weightfs/seals"
    home.mkdir(parents=True)
    key = hashlib.sha256(os.fsencode(sealed.resolve())).hexdigest()
    shutil.move(other, home / f"{key}.json")
    refused_by_the_seal(mount, sealed, words=[key])
    refused_by_the_seal(mount, sealed, "seal=require", words=[key])


def test_what_the_seal_agrees_with_and_nobody_can_read_is_no_fault_of_the_seal(weightfs, mount, sealed):
    """Somebody sealed it elsewhere, with a newer program say."""
    flip(sealed, 4, 0x80)
    data = sealed.read_bytes()
    import base64
    import zlib

    def of_these_bytes(body):
        region = body["regions"][0]
        header = data[: region["nbytes"]]
        region["crc32"] = f"{zlib.crc32(header):08x}"
        region["crcs"] = base64.b64encode(zlib.crc32(header).to_bytes(4, "little")).decode()
        del region["sha256"]

    rehashed(seal_of(sealed), of_these_bytes)
    assert "not of this model" not in mount.refused(sealed, code=1)


def test_a_seal_that_is_broken_as_well(mount, sealed):
    flip(sealed, 0, 0x80)
    flip(seal_of(sealed), 100)
    refused_by_the_seal(mount, sealed, words=["not a valid seal", "cannot be opened"])


def test_recursive_tells_the_same_reason(weightfs, mount, tmp_path):
    root = tmp_path / "root"
    for name, make in MAKE.items():
        (root / name).mkdir(parents=True)
        weightfs.run("seal", make().write(root / name / f"m.{name}"))
    (root / "good").mkdir()
    MAKE["gguf"]().write(root / "good/m.gguf")
    for name in MAKE:
        flip(root / name / f"m.{name}", 9)
    mounted = mount(root, flags=["--recursive"])
    rows = mounted.json("models.json")["models"]
    for name in MAKE:
        (error,) = [row["error"] for row in rows if f"/root/{name}" in row["path"]]
        assert "seal is not of this model" in error and "seal=none" in error, error
    mounted.unmount()
    shutil.rmtree(root / "good")
    refused_by_the_seal(mount, root / "gguf", words=["m.gguf"])
    mount.refused(root, flags=["--recursive"], code=5)


@pytest.fixture(params=["split", "index"])
def sharded(weightfs, tmp_path, request):
    home = tmp_path / "set"
    home.mkdir()
    if request.param == "split":
        paths = gguf_file.split([Gguf().tensor(f"t{n}", "F32", (3000,), pattern(12_000, seed=n)) for n in range(3)], "m", home)
        entry = paths[0]
    else:
        parts = [safetensors_file.Safetensors().tensor(f"t{n}", "F32", (3000,), pattern(12_000, seed=n)) for n in range(3)]
        entry = safetensors_file.sharded(parts, home)
        paths = sorted(home.glob("*.safetensors"))
    weightfs.run("seal", entry)
    return home, entry, paths


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("what", ["short", "empty", "long", "gone", "header"])
def test_one_file_of_a_sealed_set(weightfs, mount, sharded, number, what):
    home, entry, paths = sharded
    path, good = paths[number], paths[number].read_bytes()
    {
        "short": lambda: os.truncate(path, len(good) - 5),
        "empty": lambda: os.truncate(path, 0),
        "long": lambda: os.truncate(path, len(good) + 5),
        "gone": path.unlink,
        "header": lambda: flip(path, 6),
    }[what]()
    for model in [home, entry, paths[number - 1], path]:
        if model.exists():
            refused_by_the_seal(mount, model, words=[path.name])
            weightfs.run("verify", model, code=3)


def test_a_model_that_is_not_there_has_no_seal_to_refuse_it(mount, sharded, sealed):
    home, entry, paths = sharded
    for path in paths:
        path.unlink()
    mount.refused(home, code=1)
    mount.refused(entry, code=1)
    sealed.unlink()
    mount.refused(sealed, code=1)


def test_two_models_are_no_damage(weightfs, mount, sealed):
    MAKE["gguf"]().write(sealed.with_name("other.gguf"))
    flip(sealed, 9)
    assert "name one of them" in mount.refused(sealed.parent, code=1)


# --- verify ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKE)
def test_a_model_without_tensors(weightfs, mount, tmp_path, kind):
    make = {"gguf": lambda: Gguf().key("a", "u32", 1), "safetensors": lambda: safetensors_file.Safetensors({"a": "b"})}
    path = make[kind]().write(tmp_path / f"e.{kind}")
    weightfs.run("seal", path)
    for at in range(0, path.stat().st_size, 3):
        flip(path, at)
        (document,) = weightfs.run("verify", "--json", path, code=3).json()["models"]
        assert document["result"] == "damaged"
        assert [bad["tensor"] for bad in document["bad"]] == [None]
        mount.refused(path, code=5)
        flip(path, at)
    # Something else under its name is not it.
    path.write_bytes(pattern(5000, seed=1))
    weightfs.run("verify", path, code=1)


@pytest.mark.parametrize("at", [9, 2])
def test_damage_is_told_of_the_file_as_it_is_called_now(weightfs, tmp_path, sealed, at):
    for name, sealed_as in [("copy", sealed.name), ("other", "../out/secret"), ("third", "/etc/passwd")]:
        copy = sealed.with_name(name + sealed.suffix)
        shutil.copy(sealed, copy)
        shutil.copy(seal_of(sealed), seal_of(copy))
        rehashed(seal_of(copy), lambda body, sealed_as=sealed_as: body["sources"][0].update(name=sealed_as))
        flip(copy, at)
        said = weightfs.run("verify", copy, code=3)
        (document,) = weightfs.run("verify", "--json", copy, code=3).json()["models"]
        assert {bad["source"]["file"] for bad in document["bad"]} == {copy.name}
        assert [plan["file"] for plan in document["repair"]] == [copy.name]
        assert sealed_as not in said.text + said.err + json.dumps(document["repair"])


def test_a_renamed_split_is_told_by_its_new_names_and_not_looked_for_under_the_old(weightfs, tmp_path):
    paths = gguf_file.split([Gguf().tensor(f"t{n}", "F32", (300,), pattern(1200, seed=n)) for n in range(2)], "m", tmp_path)
    weightfs.run("seal", paths[0])
    copies = [path.with_name(path.name.replace("m-", "new-")) for path in paths]
    for path, copy in zip([*paths, seal_of(paths[0])], [*copies, seal_of(copies[0])]):
        shutil.copy(path, copy)
    flip(copies[0], 1)
    (document,) = weightfs.run("verify", "--json", copies[0], code=3).json()["models"]
    assert {bad["source"]["file"] for bad in document["bad"]} == {copies[0].name}


# --- seal --force ------------------------------------------------------------------------


@pytest.mark.parametrize("there", [b"", b"{}", b"my notes", bytes(5000), b"\xff\xfe"])
def test_force_replaces_what_became_of_the_seal(weightfs, sealed, there):
    seal_of(sealed).write_bytes(there)
    weightfs.run("seal", sealed, code=5)
    weightfs.run("seal", "--force", sealed)
    weightfs.run("verify", sealed)


def test_force_replaces_a_seal_wherever_it_is_damaged(weightfs, sealed):
    for at in (0, 1, 2, 5, 18, 30, 60):
        flip(seal_of(sealed), at, 0x04)
        weightfs.run("seal", "--force", sealed)
        weightfs.run("verify", sealed)


@pytest.mark.parametrize("kind", MAKE)
def test_force_never_replaces_a_model(weightfs, sealed, kind):
    model = MAKE[kind]().write(seal_of(sealed))
    before = model.read_bytes()
    assert "remove it yourself" in weightfs.run("seal", "--force", sealed, code=1).err
    assert model.read_bytes() == before
