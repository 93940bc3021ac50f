"""Files of a sealed model that are shorter or longer than they were, or gone: damage with a plan to mend it."""

import hashlib
import os
import shutil

import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf, pattern

KIB = 1024
CHUNK = 64 * KIB
SIZE = 300 * KIB


def gguf():
    file = Gguf().key("general.architecture", "str", "llama")
    file.tensor("first", "F32", (SIZE // 4,), pattern(SIZE, seed=1))
    return file.tensor("last", "F32", (SIZE // 4 + 1,), pattern(SIZE + 4, seed=2))


def safetensors():
    file = safetensors_file.Safetensors().tensor("first", "F32", (SIZE // 4,), pattern(SIZE, seed=1))
    return file.tensor("last", "F32", (SIZE // 4 + 1,), pattern(SIZE + 4, seed=2))


MAKE = {"gguf": gguf, "safetensors": safetensors}


@pytest.fixture(params=MAKE)
def sealed(weightfs, tmp_path, request):
    path = MAKE[request.param]().write(tmp_path / f"m.{request.param}")
    weightfs.run("seal", path)
    return path


def damaged(weightfs, model, *args):
    """The one model of a report of damage, told to people as well."""
    said = weightfs.run("verify", model, *args, code=3)
    assert "damaged" in said.text and len(said.err.splitlines()) <= 4, said.err
    (document,) = weightfs.run("verify", model, "--json", *args, code=3).json()["models"]
    assert document["result"] == "damaged"
    return document


def mended(bad, good, plan):
    """What is there, with the ranges of the plan out of the right bytes."""
    data = bytearray(bad)
    for start, to in plan["ranges"]:
        data[len(data) :] = bytes(max(0, to + 1 - len(data)))
        data[start : to + 1] = good[start : to + 1]
    return bytes(data[: plan.get("truncate", len(data))])


@pytest.mark.parametrize("lost", [5, 40 * KIB, 350 * KIB, "all but 50", "all"])
def test_a_file_that_is_cut(weightfs, mount, sealed, lost):
    good = sealed.read_bytes()
    left = {"all but 50": 50, "all": 0}.get(lost, len(good) - lost if isinstance(lost, int) else None)
    tensors = weightfs.run("ls", sealed, "--json").json()["tensors"]
    os.truncate(sealed, left)
    if left == 0:  # Nothing says any more what it was, but the seal that lies beside it.
        weightfs.run("verify", sealed, code=3)
    found = damaged(weightfs, sealed)
    end = left
    for bad in found["bad"]:
        place = bad["source"]
        assert place["file"] == sealed.name and place["offset"] + place["length"] > left
        owner = [t["name"] for t in tensors if t["source"]["offset"] <= place["offset"] < t["source"]["offset"] + t["nbytes"]]
        assert bad["tensor"] == (owner[0] if owner else None)
        assert place["offset"] <= end, "no hole in what is told"
        end = place["offset"] + place["length"]
        assert len(bad["expected"]) == 8 and f"the file ends at {left}" in bad["found"]
    assert end == len(good)
    (plan,) = found["repair"]
    ((start, to),) = plan["ranges"]
    assert start <= left < start + CHUNK and to == len(good) - 1 and plan["http"] == f"bytes={start}-{to}"
    sealed.write_bytes(mended(sealed.read_bytes(), good, plan))
    assert sealed.read_bytes() == good
    weightfs.run("verify", sealed)
    os.truncate(sealed, left)
    said = mount.refused(sealed, code=5)
    # The option is named as what it is: no way to open this, where no tensor could be whole.
    padding = lost == 5 and sealed.suffix == ".gguf"
    assert "-o seal=none" in said and ("-o seal=none does not help" in said) != padding, said
    if not padding:
        mount.refused(sealed, "seal=none", code=1)
    # The same by a seal that was named, of a copy.
    copy = sealed.parent / "elsewhere" / sealed.name
    copy.parent.mkdir()
    shutil.copy(sealed, copy)
    given = sealed.with_name(sealed.name + ".weightfs.json")
    assert damaged(weightfs, copy, "--against", given)["bad"] == found["bad"]


def test_a_gguf_without_its_last_padding_lost_it(weightfs, mount, tmp_path):
    """It can be opened, and is served unsealed; sealed with the padding it is damaged."""
    file = Gguf().tensor("a", "F32", (3,), pattern(12))
    path = file.write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    os.truncate(path, file.place_of("a") + 12)
    (bad,) = damaged(weightfs, path)["bad"]
    assert bad["tensor"] is None and bad["source"]["offset"] == file.place_of("a") + 12
    mount.refused(path, code=5)


def test_a_file_that_grew(weightfs, mount, sealed):
    good = sealed.read_bytes()
    with open(sealed, "ab") as file:
        file.write(b"12345")
    found = damaged(weightfs, sealed)
    (bad,) = found["bad"]
    assert bad["tensor"] is None and bad["chunk"] is None
    assert bad["source"] == {"file": sealed.name, "offset": len(good), "length": 5}
    assert found["repair"] == [{"file": sealed.name, "ranges": [], "http": None, "truncate": len(good)}]
    assert f"truncate -s {len(good)}" in weightfs.run("verify", sealed, code=3).text
    mount.refused(sealed, code=5)
    sealed.write_bytes(mended(sealed.read_bytes(), good, found["repair"][0]))
    weightfs.run("verify", sealed)
    # Too long and damaged as well.
    with open(sealed, "r+b") as file:
        file.seek(len(good) - 1)
        file.write(bytes([good[-1] ^ 1]) + bytes(100_000))
    found = damaged(weightfs, sealed)
    assert [bad["source"]["offset"] + bad["source"]["length"] for bad in found["bad"]] == [len(good), len(good) + 100_000]
    assert mended(sealed.read_bytes(), good, found["repair"][0]) == good


def test_another_file_under_the_name_is_not_damage(weightfs, sealed):
    """Of another size, with and without a header that can be read: the seal is not of this file."""
    other = MAKE[sealed.suffix[1:]]().tensor("more", "F32", (8,), pattern(32))
    other.tensors[0], other.tensors[1] = other.tensors[1], other.tensors[0]
    other.write(sealed)
    weightfs.run("verify", sealed, code=5)
    sealed.write_bytes(pattern(123_456, seed=9))
    (document,) = weightfs.run("verify", sealed, "--json", code=1).json()["models"]
    assert document["bad"] == []


@pytest.fixture(params=["split", "index"])
def sharded(weightfs, tmp_path, request):
    """Three files of one model: its directory, what its seal is named after, and the files."""
    home = tmp_path / "set"
    home.mkdir()
    sizes = [SIZE, SIZE // 2, SIZE]
    if request.param == "split":
        parts = [Gguf().tensor(f"t{n}", "F32", (size // 4,), pattern(size, seed=n)) for n, size in enumerate(sizes)]
        paths = gguf_file.split(parts, "m", home)
        entry = paths[0]
    else:
        parts = [safetensors_file.Safetensors().tensor(f"t{n}", "F32", (size // 4,), pattern(size, seed=n)) for n, size in enumerate(sizes)]
        entry = safetensors_file.sharded(parts, home)
        paths = sorted(home.glob("*.safetensors"))
    weightfs.run("seal", entry)
    return home, entry, paths


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("what", ["short", "empty", "long", "gone"])
def test_one_file_of_a_set(weightfs, mount, sharded, number, what):
    home, entry, paths = sharded
    path = paths[number]
    good = path.read_bytes()
    {
        "short": lambda: os.truncate(path, len(good) - 5),
        "empty": lambda: os.truncate(path, 0),
        "long": lambda: os.truncate(path, len(good) + 5),
        "gone": path.unlink,
    }[what]()
    asked = [home, entry, paths[number - 1]] + ([path] if what != "gone" else [])
    for model in asked:
        if not model.exists():
            continue
        found = damaged(weightfs, model)
        assert {bad["source"]["file"] for bad in found["bad"]} == {path.name}, model
        (plan,) = found["repair"]
        assert plan["file"] == path.name
        if what == "long":
            assert plan["truncate"] == len(good) and plan["ranges"] == []
        else:
            assert "truncate" not in plan
            bad = path.read_bytes() if path.exists() else b""
            assert mended(bad, good, plan) == good
            assert {bad["tensor"] for bad in found["bad"]} >= {f"t{number}"}
        if what == "gone":
            assert f"{path.name} is not there" in weightfs.run("verify", model, code=3).err
    mount.refused(home, code=5)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("what", ["short", "short by half", "empty", "long", "header"])
def test_one_file_of_a_set_that_only_a_list_knows(weightfs, sharded, number, what):
    """The answer is the same whichever file of the set is named, or its directory."""
    home, entry, paths = sharded
    next(home.glob("*.weightfs.json")).unlink()
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)
    (home / "SHA256SUMS").write_text(sums)
    given = home.parent / "given"
    given.write_text(sums)
    weightfs.run("verify", home)
    path = paths[number]
    good = path.read_bytes()
    changed = {
        "short": good[:-5],
        "short by half": good[: len(good) // 2],
        "empty": b"",
        "long": good + b"12345",
        "header": bytes(40) + good[40:],
    }[what]
    path.write_bytes(changed)
    for model in {home, entry, *paths}:
        for args in ([], ["--against", given]):
            found = damaged(weightfs, model, *args)
            assert [bad["source"]["file"] for bad in found["bad"]] == [path.name], model
            (plan,) = found["repair"]
            assert plan["file"] == path.name and plan["ranges"][0][0] == 0
    # A digest is of one file, and of a damaged one as of others.
    weightfs.run("verify", path, "--expect-sha256", hashlib.sha256(good).hexdigest(), code=None if what == "long" else 3)
    # What is wrong with the model is said where the bytes are what they should be.
    (home / "SHA256SUMS").write_text(sums.replace(hashlib.sha256(good).hexdigest(), hashlib.sha256(changed).hexdigest()))
    if what != "long":
        assert "unsealed" not in weightfs.run("verify", home, code=1).err


def test_a_file_of_a_set_that_is_not_there_is_named(weightfs, sharded):
    home, entry, paths = sharded
    next(home.glob("*.weightfs.json")).unlink()
    (home / "SHA256SUMS").write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths))
    paths[1].unlink()
    for model in {home, entry, paths[0], paths[2]}:
        assert paths[1].name in weightfs.run("verify", model, code=1).err


def test_a_set_of_which_nothing_is_left(weightfs, sharded):
    home, entry, paths = sharded
    for path in paths:
        path.unlink()
    weightfs.run("verify", home, code=1)
    weightfs.run("verify", entry, code=1)


def test_a_model_that_is_not_there_is_not_damaged(weightfs, sealed):
    sealed.unlink()
    assert "No such file" in weightfs.run("verify", sealed, code=1).err


def test_a_cut_file_whose_seal_lies_in_the_cache(weightfs, sealed):
    """Its directory, or the file, with the seal where it is when the directory is read-only."""
    import hashlib

    seals = weightfs.home / "cache/weightfs/seals"
    seals.mkdir(parents=True)
    key = hashlib.sha256(os.fsencode(os.path.realpath(sealed))).hexdigest()
    shutil.move(sealed.with_name(sealed.name + ".weightfs.json"), seals / f"{key}.json")
    weightfs.run("verify", sealed)
    os.truncate(sealed, sealed.stat().st_size - 5)
    for model in (sealed, sealed.parent):
        assert damaged(weightfs, model)["repair"]
