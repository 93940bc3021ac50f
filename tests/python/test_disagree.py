"""Two sources about the same bytes: every kind of sum, wherever it is written down, by every command.

The file is good throughout, or damaged where a test says so: what is wrong is a source. One that is wrong
beside one that is right is never passed over: the command ends with 5 and names both, or where it reads
nothing (a mount) it says what it did not compare.
"""

import base64
import functools
import hashlib
import itertools
import json
import time
import zlib

import pytest

import safetensors_file
from gguf_file import Gguf, pattern

NAMES = ["first", "second", "small"]


def model():
    file = Gguf().key("general.architecture", "str", "llama")
    file.tensor("first", "F32", (25000,), pattern(100000, seed=1))
    return file.tensor("second", "Q8_0", (64, 32), pattern(64 * 34, seed=2)).tensor("small", "F32", (3,), pattern(12, seed=3))


FILE = model()
DATA = FILE.encode()
PAYLOAD = b"".join(FILE.data_of(name) for name in NAMES)
OTHER = bytes(byte ^ 255 for byte in DATA)  # what a wrong sum is of, of the same length
OTHER_PAYLOAD = bytes(byte ^ 255 for byte in PAYLOAD)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def crc(data):
    return f"{zlib.crc32(data):08x}"


@functools.cache
def xxh(data):
    """XXH64 with seed 0, after its specification."""
    full = (1 << 64) - 1
    p1, p2, p3, p4, p5 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

    def turn(value, by):
        return (value << by | value >> 64 - by) & full

    def round_of(lane, word):
        return turn((lane + word * p2) & full, 31) * p1 & full

    lanes, at = [(p1 + p2) & full, p2, 0, -p1 & full], 0
    while len(data) - at >= 32:
        lanes = [round_of(lane, int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little")) for i, lane in enumerate(lanes)]
        at += 32
    if at:
        total = sum(turn(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & full
        for lane in lanes:
            total = ((total ^ round_of(0, lane)) * p1 + p4) & full
    else:
        total = p5
    total = (total + len(data)) & full
    while len(data) - at >= 8:
        total = (turn(total ^ round_of(0, int.from_bytes(data[at : at + 8], "little")), 27) * p1 + p4) & full
        at += 8
    if len(data) - at >= 4:
        total = (turn(total ^ int.from_bytes(data[at : at + 4], "little") * p1 & full, 23) * p2 + p3) & full
        at += 4
    for byte in data[at:]:
        total = turn(total ^ byte * p5 & full, 11) * p1 & full
    total = (total ^ total >> 33) * p2 & full
    total = (total ^ total >> 29) * p3 & full
    return f"{total ^ total >> 32:016x}"


def tensor(right, name="second"):
    data = FILE.data_of(name)
    return data if right else bytes(byte ^ 255 for byte in data)


def bundle(resources):
    subject = sha(b"".join(bytes.fromhex(resource["digest"]) for resource in resources))
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "d", "digest": {"sha256": subject}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": {"method": "files", "hash_type": "sha256"}, "resources": resources},
    }
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    envelope = {"payload": payload, "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AA=="}]}
    return json.dumps({"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "dsseEnvelope": envelope})


def part(right, start, end):
    algorithm, name = "sha256-sharded-50000", f"m.gguf:{start}:{end}"
    return {"name": name, "algorithm": algorithm, "digest": sha((DATA if right else OTHER)[start:end])}


# What is written, by what it is a sum of: the name of a list beside the model, and the lines that are in it.
# The digits of the sum that may be wrong come second.
SAID = {
    "file sha256": ("SHA256SUMS", lambda ok: f"{sha(DATA if ok else OTHER)}  m.gguf\n", lambda ok: sha(DATA if ok else OTHER)),
    "file sha256 of its own list": ("m.gguf.sha256", lambda ok: f"{sha(DATA if ok else OTHER)}\n", lambda ok: sha(DATA if ok else OTHER)),
    "file crc32": ("checksums.txt", lambda ok: f"m.gguf {crc(DATA if ok else OTHER)}\n", lambda ok: crc(DATA if ok else OTHER)),
    "tensor sha256": ("m.gguf.manifest", lambda ok: f"sha256    {sha(tensor(ok))}  m.gguf:second\n", lambda ok: sha(tensor(ok))),
    "tensor sha256 of a mount": ("SHA256SUM", lambda ok: f"{sha(tensor(ok))}  tensors/second.bin\n", lambda ok: sha(tensor(ok))),
    "tensor crc32": ("CHECKSUMS", lambda ok: f"tensors/second.bin {crc(tensor(ok))}\n", lambda ok: crc(tensor(ok))),
    "tensor xxh64": ("CHECKSUMS.txt", lambda ok: f"xxh64     {xxh(tensor(ok))}  m.gguf:second\n", lambda ok: xxh(tensor(ok))),
    "payload sha256": (
        "sha256sums",
        lambda ok: f"sha256    {sha(PAYLOAD if ok else OTHER_PAYLOAD)}  m.gguf\n",
        lambda ok: sha(PAYLOAD if ok else OTHER_PAYLOAD),
    ),
    "payload xxh64": (
        "sha256sums.txt",
        lambda ok: f"xxh64     {xxh(PAYLOAD if ok else OTHER_PAYLOAD)}  m.gguf\n",
        lambda ok: xxh(PAYLOAD if ok else OTHER_PAYLOAD),
    ),
    "byte range": ("model.sig", lambda ok: bundle([part(ok, 0, 50000)]), lambda ok: part(ok, 0, 50000)["digest"]),
    "file sha256 of a bundle": (
        "other.sig",
        lambda ok: bundle([{"name": "m.gguf", "algorithm": "sha256", "digest": sha(DATA if ok else OTHER)}]),
        lambda ok: sha(DATA if ok else OTHER),
    ),
    "metadata": None,  # .cache/huggingface/download/m.gguf.metadata
    "store name": None,  # a blob of a Hugging Face cache
}
LISTS = [kind for kind, said in SAID.items() if said]
# Kinds that a seal cannot answer: a mount only says so.
READ = {"tensor xxh64", "payload sha256", "payload xxh64", "byte range"}
# What vouches for all of the file's bytes, so that whatever contradicts it is not damage.
WHOLE = {"file sha256", "file sha256 of its own list", "file crc32", "file sha256 of a bundle", "metadata", "store name"}
# Bytes each is about.
SECOND = range(FILE.place_of("second"), FILE.place_of("second") + len(tensor(True)))


def about(kind):
    if kind in WHOLE:
        return set(range(0, len(DATA)))
    if kind.startswith("tensor"):
        return set(SECOND)
    if kind.startswith("payload"):
        return {at for name in NAMES for at in range(FILE.place_of(name), FILE.place_of(name) + len(FILE.data_of(name)))}
    return set(range(50000))


ABOUT = {kind: about(kind) for kind in SAID}


def digits(kind, right):
    if kind in ("metadata", "store name"):
        return sha(DATA if right else OTHER)
    return SAID[kind][2](right)


def put(folder, kinds):
    """The model with what the kinds say beside it, each right or wrong; where it is."""
    folder.mkdir()
    if "store name" in kinds:
        blobs, snapshot = folder / "models--acme--tiny/blobs", folder / "models--acme--tiny/snapshots" / ("b" * 40)
        blobs.mkdir(parents=True)
        snapshot.mkdir(parents=True)
        blob = blobs / digits("store name", kinds["store name"])
        blob.write_bytes(DATA)
        path = snapshot / "m.gguf"
        path.symlink_to(f"../../blobs/{blob.name}")
    else:
        path = folder / "m.gguf"
        path.write_bytes(DATA)
    if "metadata" in kinds:
        note = path.parent / ".cache/huggingface/download/m.gguf.metadata"
        note.parent.mkdir(parents=True)
        note.write_text(f"{'b' * 40}\n{digits('metadata', kinds['metadata'])}\n{time.time() + 60}\n")
    for kind in kinds:
        if SAID[kind]:
            name, text, _ = SAID[kind]
            (path.parent / name).write_text(text(kinds[kind]))
    return path


def says_all(said, *wanted):
    assert "two trusted sources disagree" in said and len(said.strip().splitlines()) <= 4, said
    for text in wanted:
        assert text in said, (text, said)


def sealed_with(weightfs, path):
    """A seal that was made before the lists came."""
    held = [(file, file.read_bytes()) for file in path.parent.iterdir() if file.name in {said[0] for said in SAID.values() if said}]
    for file, _ in held:
        file.unlink()
    note = path.parent / ".cache"
    if note.exists():
        note.rename(path.parent / "gone")
    weightfs.run("seal", path, code=None)
    if (path.parent / "gone").exists():
        (path.parent / "gone").rename(note)
    for file, text in held:
        file.write_bytes(text)


def warned(weightfs, path, point, *words):
    """A mount that comes about says what it did not compare."""
    point.mkdir(exist_ok=True)
    try:
        done = weightfs.run("mount", path, point)
        warnings = json.loads((point / "model.json").read_bytes())["warnings"]
        for word in words:
            assert any(word in warning and "weightfs verify does" in warning for warning in warnings), warnings
        assert done.err.strip() or not words
        return warnings
    finally:
        weightfs.run("umount", point, "--lazy", code=None)


# --- one source and the seal -----------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in SAID if kind != "store name"])
def test_a_source_and_the_seal(weightfs, tmp_path, kind):
    for right in (True, False):
        path = put(tmp_path / f"{right}", {kind: right})
        sealed_with(weightfs, path)
        want = 0 if right else 5
        for command in (["verify"], ["seal"]):
            said = weightfs.run(*command, path, code=want).err
            if not right:
                says_all(said, digits(kind, False), digits(kind, True), "m.gguf.weightfs.json")
        point = tmp_path / "mnt"
        if kind in READ:
            name = SAID[kind][0]
            warned(weightfs, path, point, name)
        elif right:
            assert not any("weightfs verify does" in text for text in warned(weightfs, path, point))
        else:
            for options in ([], ["-o", "seal=require"]):
                says_all(weightfs.run("mount", path, point, *options, code=5).err, digits(kind, False), digits(kind, True))
            weightfs.run("cat", path, "small", code=5)
        # Sealed anew it is the same: nothing is sealed that a source contradicts.
        if not right:
            said = weightfs.run("seal", "--force", path, code=5).err
            says_all(said, digits(kind, False), digits(kind, True))


def test_a_store_name_and_the_seal(weightfs, tmp_path):
    for right in (True, False):
        path = put(tmp_path / f"{right}", {"store name": right})
        plain = tmp_path / f"{right}" / "m.gguf"
        plain.write_bytes(DATA)
        weightfs.run("seal", plain, "--output", path.with_name("m.gguf.weightfs.json"))
        point = tmp_path / "mnt"
        point.mkdir(exist_ok=True)
        if right:
            weightfs.run("verify", path)
            warned(weightfs, path, point)
        else:
            for command in (["verify", path], ["mount", path, point], ["seal", path]):
                says_all(weightfs.run(*command, code=5).err, sha(DATA), sha(OTHER))


# --- two sources, without a seal -------------------------------------------------------

PAIRS = [(a, b) for a, b in itertools.permutations(SAID, 2)]
DIRECT = {}  # same kind of sum of the same thing: no byte has to be read to see that they differ
for kind in SAID:
    DIRECT[kind] = "file sha256" if kind in WHOLE and kind != "file crc32" else "tensor sha256" if kind.startswith("tensor sha256") else kind


@pytest.mark.parametrize("good", list(SAID))
def test_a_right_and_a_wrong_source(weightfs, tmp_path, good):
    """`good` is right, each other kind in turn is wrong: 5, or damage where nobody vouches for all the bytes."""
    for bad in SAID:
        if bad == good or {bad, good} == {"store name", "metadata"}:
            continue
        path = put(tmp_path / bad.replace(" ", "-"), {good: True, bad: False})
        same = DIRECT[good] == DIRECT[bad]
        vouched = ABOUT[bad] <= ABOUT[good]
        done = weightfs.run("verify", path, code=None)
        assert done.code == (5 if same or vouched else 3), (good, bad, done.code, done.err)
        if done.code == 5:
            says_all(done.err, digits(bad, False))
            # The one that is right is named with its own digits, too.
            says_all(done.err, digits(good, True))
        # To seal is to read everything: what is wrong is wrong.
        says_all(weightfs.run("seal", path, code=5).err, digits(bad, False))
        assert not path.with_name("m.gguf.weightfs.json").exists()
        point = tmp_path / "mnt"
        point.mkdir(exist_ok=True)
        if same:
            says_all(weightfs.run("mount", path, point, code=5).err, digits(bad, False), digits(good, True))
        elif bad in LISTS:
            warned(weightfs, path, point, SAID[bad][0])


@pytest.mark.parametrize("one", list(SAID))
def test_two_sources_that_are_right_or_both_wrong(weightfs, tmp_path, one):
    for other in SAID:
        if other == one or {one, other} == {"store name", "metadata"}:
            continue
        for right in (True, False):
            path = put(tmp_path / f"{other}-{right}".replace(" ", "-"), {one: right, other: right})
            done = weightfs.run("verify", path, code=None)
            # A list that does not speak of all the file is none to verify it by.
            covers = bool({one, other} & WHOLE) or any(kind.startswith("payload") for kind in (one, other))
            assert done.code == (3 if not right else 0 if covers else 4), (one, other, right, done.code, done.err)


def test_one_list_that_says_everything(weightfs, tmp_path):
    """All lines in one list, each wrong in turn: what is right beside it does not hide it."""
    lines = [
        f"{sha(DATA)}  m.gguf\n",
        f"m.gguf {crc(DATA)}\n",
        *(f"sha256    {sha(tensor(True, name))}  m.gguf:{name}\n" for name in NAMES),
        *(f"xxh64     {xxh(tensor(True, name))}  m.gguf:{name}\n" for name in NAMES),
        *(f"tensors/{name}.bin {crc(tensor(True, name))}\n" for name in NAMES),
        f"sha256    {sha(PAYLOAD)}  m.gguf\n",
        f"xxh64     {xxh(PAYLOAD)}  m.gguf\n",
    ]
    path = put(tmp_path / "d", {})
    sums, given = path.with_name("SHA256SUMS"), tmp_path / "given"
    sums.write_text("".join(lines))
    assert weightfs.run("verify", path).err == ""
    given.write_text(sums.read_text())
    assert weightfs.run("verify", path, "--against", given).err == ""
    for number, line in enumerate(lines):
        word = next(word for word in line.split() if len(word) in (8, 16, 64) and all(c in "0123456789abcdef" for c in word))
        wrong = word[:-1] + ("0" if word[-1] != "0" else "1")
        text = "".join(lines[:number]) + line.replace(word, wrong) + "".join(lines[number + 1 :])
        sums.write_text(text)
        says_all(weightfs.run("verify", path, code=5).err, wrong, word)
        says_all(weightfs.run("seal", path, code=5).err, wrong, word)
        sums.unlink()
        given.write_text(text)
        # A list that contradicts itself is of no use: 1, as with two digests of one kind.
        says_all(weightfs.run("verify", path, "--against", given, code=1).err, wrong, word)


# --- --against and --expect-sha256 -----------------------------------------------------


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_that_is_given(weightfs, tmp_path, kind):
    """Alone it decides; beside a seal or a store's name that says otherwise nobody does."""
    given = tmp_path / "given"
    covers = kind in WHOLE or kind.startswith("payload")
    plain = put(tmp_path / "plain", {})
    sealed = put(tmp_path / "sealed", {})
    weightfs.run("seal", sealed)
    stored = put(tmp_path / "stored", {"store name": True})
    misnamed = put(tmp_path / "misnamed", {"store name": False})
    for right in (True, False):
        given.write_text(SAID[kind][1](right))
        weightfs.run("verify", plain, "--against", given, code=3 if not right else 0 if covers else 4)
        done = weightfs.run("verify", sealed, "--against", given, code=5 if not right else 0 if covers else 4)
        if not right:
            says_all(done.err, digits(kind, False), digits(kind, True), "m.gguf.weightfs.json")
        same = DIRECT[kind] == "file sha256"
        if same:
            weightfs.run("verify", stored, "--against", given, code=0 if right else 5)
            weightfs.run("verify", misnamed, "--against", given, code=5 if right else 3)
        elif covers and right:
            assert "not compared, since something else was asked for" in weightfs.run("verify", stored, "--against", given).err


def test_a_digest_that_is_given(weightfs, tmp_path):
    for good, bad in itertools.product([True, False], repeat=2):
        for kind in ("store name", "metadata", "file sha256", "file sha256 of a bundle"):
            path = put(tmp_path / f"{kind}-{good}-{bad}".replace(" ", "-"), {kind: good})
            want = {(True, True): 0, (False, False): 3}.get((good, bad), 5)
            done = weightfs.run("verify", path, "--expect-sha256", sha(DATA if bad else OTHER), code=want)
            if want == 5:
                says_all(done.err, sha(DATA), sha(OTHER), "on the command line")
    path = put(tmp_path / "sealed", {})
    weightfs.run("seal", path)
    weightfs.run("verify", path, "--expect-sha256", sha(DATA))
    says_all(weightfs.run("verify", path, "--expect-sha256", sha(OTHER), code=5).err, sha(DATA), sha(OTHER), "m.gguf.weightfs.json")


def test_a_given_seal_and_a_list_beside(weightfs, tmp_path):
    for kind in ("file crc32", "tensor crc32", "tensor xxh64"):
        path = put(tmp_path / kind.replace(" ", "-"), {})
        seal = tmp_path / "given.json"
        weightfs.run("seal", path, "--output", seal, "--force")
        name, text, _ = SAID[kind]
        path.with_name(name).write_text(text(True))
        weightfs.run("verify", path, "--against", seal)
        path.with_name(name).write_text(text(False))
        says_all(weightfs.run("verify", path, "--against", seal, code=5).err, digits(kind, False), digits(kind, True))


# --- damage, and ways of sealing that do not look at everything ------------------------


@pytest.mark.parametrize("kind", LISTS)
def test_damage_is_damage_where_all_sources_agree(weightfs, tmp_path, kind):
    """All lines are right and the bytes are not: no list contradicts another."""
    path = put(tmp_path / "d", {kind: True, "file sha256": True, "file crc32": True, "tensor sha256": True, "tensor crc32": True})
    damaged = bytearray(DATA)
    damaged[SECOND.start + 5] ^= 16
    damaged[1000] ^= 16
    path.write_bytes(damaged)
    found = weightfs.run("verify", path, "--json", code=3).json()["models"][0]
    assert found["result"] == "damaged" and "second" in [bad["tensor"] for bad in found["bad"]]


def test_a_seal_without_sha256_says_what_it_did_not_compare(weightfs, tmp_path):
    path = put(tmp_path / "d", {"file sha256": False})
    assert "SHA-256 of files in" in weightfs.run("seal", "--no-sha256", path).err
    warned(weightfs, path, tmp_path / "mnt", "SHA256SUMS")
    says_all(weightfs.run("verify", path, code=5).err, sha(DATA), sha(OTHER))
    path.with_name("m.gguf.weightfs.json").unlink()
    path.with_name("checksums.txt").write_text(f"m.gguf {crc(OTHER)}\n")
    says_all(weightfs.run("seal", "--no-sha256", path, code=5).err, crc(DATA), crc(OTHER))


def test_the_crc32_of_a_whole_file_by_its_sealed_chunks(weightfs, tmp_path):
    """Header, paddings, tensors of many chunks, an empty one, and what follows the last."""
    file = Gguf().tensor("big", "F32", (400001,), pattern(1600004, seed=5)).tensor("none", "F32", (0,), b"").tensor("a", "F32", (5,), pattern(20))
    data = file.encode() + b"behind"
    for size in ("4KiB", "64KiB", "16MiB"):
        path = tmp_path / f"{size}.gguf"
        path.write_bytes(data)
        weightfs.run("seal", "--chunk-size", size, path)
        sums = tmp_path / "checksums.txt"
        sums.write_text(f"{size}.gguf {crc(data)}\n")
        weightfs.run("verify", path)
        warned(weightfs, path, tmp_path / "mnt")
        sums.write_text(f"{size}.gguf {crc(data[:-1])}\n")
        says_all(weightfs.run("mount", path, tmp_path / "mnt", code=5).err, crc(data), crc(data[:-1]))
        sums.unlink()


# --- sets ------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path):
    """Two shards with an index, and what a right and a wrong line about the second are."""
    home = tmp_path / "set"
    home.mkdir()
    halves = [safetensors_file.Safetensors().tensor(name, "F32", (4000,), pattern(16000, seed)) for seed, name in enumerate("ab")]
    index = safetensors_file.sharded(halves, home)
    return home, index, sorted(home.glob("*.safetensors"))


def test_the_second_file_of_a_set(weightfs, checkpoint, tmp_path):
    home, _, paths = checkpoint
    data = paths[1].read_bytes()
    sums, point = home / "checksums.txt", tmp_path / "mnt"
    point.mkdir()
    (home / "SHA256SUMS").write_text("".join(f"{sha(path.read_bytes())}  {path.name}\n" for path in paths))
    sums.write_text(f"{paths[1].name} {crc(data)}\n")
    weightfs.run("verify", home)
    wrong = f"{paths[1].name} {crc(OTHER)}\n"
    sums.write_text(wrong)
    for model in (home, *paths):
        said = weightfs.run("verify", model, code=5).err
        says_all(said, paths[1].name, crc(data), crc(OTHER), "checksums.txt", "SHA256SUMS", sha(data))
    says_all(weightfs.run("seal", home, code=5).err, crc(data), crc(OTHER))
    sums.unlink()
    weightfs.run("seal", home)
    sums.write_text(wrong)
    for command in (["verify", home], ["verify", "--part", paths[1]], ["mount", home, point], ["seal", home]):
        says_all(weightfs.run(*command, code=5).err, paths[1].name, crc(data), crc(OTHER))
    weightfs.run("verify", "--part", paths[0])


def test_parts_that_are_merged_give_the_crc32_of_their_files(weightfs, checkpoint):
    home, index, paths = checkpoint
    data = paths[1].read_bytes()
    weightfs.run("seal", "--part", *paths)
    parts = sorted(home.glob("*part*"))
    sums = home / "checksums.txt"
    sums.write_text(f"{paths[1].name} {crc(OTHER)}\n")
    says_all(weightfs.run("seal", "--merge", *parts, home, code=5).err, paths[1].name, crc(data), crc(OTHER))
    assert not index.with_name(index.name + ".weightfs.json").exists()
    weightfs.run("seal", "--part", "--force", paths[1], code=5)
    sums.write_text(f"{paths[1].name} {crc(data)}\n")
    half = {"name": f"{paths[1].name}:0:5000", "algorithm": "sha256-sharded-5000", "digest": "1" * 64}
    (home / "model.sig").write_text(bundle([half]))
    said = weightfs.run("seal", "--merge", *parts, home).err
    assert "SHA-256 of parts of files in" in said and "weightfs verify does" in said
    says_all(weightfs.run("verify", home, code=5).err, sha(data[:5000]), "1" * 64)


def test_an_invalid_seal_is_named_where_something_else_was_asked_for(weightfs, tmp_path):
    path = safetensors_file.Safetensors().tensor("a", "F32", (4, 4)).write(tmp_path / "m.safetensors")
    weightfs.run("seal", path)
    seal = path.with_name("m.safetensors.weightfs.json")
    seal.write_bytes(seal.read_bytes().replace(b'"crc32"', b'"crc33"', 1))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    said = weightfs.run("verify", path, "--expect-sha256", digest).err
    assert seal.name in said and "not compared" in said
    weightfs.run("verify", path, code=5)
