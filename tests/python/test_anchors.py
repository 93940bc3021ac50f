"""What stores and lists beside a model say of its bytes: found, compared, and refused when two disagree."""

import base64
import hashlib
import json
import os
import random
import shutil
import zlib

import pytest

import safetensors_file
from gguf_file import Gguf, pattern
from mounting import shell, xattr

KIB = 1024
CHUNK = 64 * KIB
SIZE = 300 * KIB
COMMIT = "bbc77c8132af1cc5cf678da3f1ddf2de43606d48"
ODD = ["y", "no", "1e5", "a: b", "c #d", 'q"u\'o', "x y", "0o17", "~", "\u2028\u0085\x7f", "\U0001f600", "- z", "{a: 1}"]


def model():
    file = Gguf().key("general.architecture", "str", "llama")
    file.tensor("first", "F32", (SIZE // 4,), pattern(SIZE, seed=1))
    return file.tensor("second", "Q8_0", (64, 32), pattern(64 * 34, seed=2)).tensor("small", "F32", (3,), pattern(12, seed=3))


def sha(data):
    return hashlib.sha256(data).hexdigest()


def flip(path, place):
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


class HfCache:
    """models--acme--tiny with one commit, files as symlinks to blobs."""

    def __init__(self, root, files, names=None):
        self.repo = root / "hub" / "models--acme--tiny"
        self.snapshot = self.repo / "snapshots" / COMMIT
        self.snapshot.mkdir(parents=True)
        (self.repo / "blobs").mkdir()
        self.blobs = {}
        for name, data in files.items():
            blob = self.repo / "blobs" / ((names or {}).get(name) or sha(data))
            blob.write_bytes(data)
            (self.snapshot / name).symlink_to(f"../../blobs/{blob.name}")
            self.blobs[name] = blob


@pytest.fixture
def data():
    return model().encode()


def anchors(weightfs, path):
    return weightfs.run("info", path, "--json").json()["anchors"]


# --- store names -------------------------------------------------------------------------


def test_a_hugging_face_cache_is_trusted_as_a_store_once_sealed(weightfs, mount, tmp_path, data):
    cache = HfCache(tmp_path, {"m.gguf": data})
    path = cache.snapshot / "m.gguf"
    found = weightfs.run("info", path, "--json").json()
    want = {"file": "m.gguf", "kind": "hf-blob", "sha256": sha(data), "agrees": None, "repo": "acme/tiny", "commit": COMMIT}
    assert found["anchors"] == [want] and found["trust"] == "tofu"
    assert "good" in weightfs.run("verify", path).text
    weightfs.run("seal", path)
    seal = json.loads((cache.snapshot / "m.gguf.weightfs.json").read_bytes())
    assert seal["body"]["sources"][0]["anchors"] == [
        {"kind": "hf-blob", "sha256": sha(data), "repo": "acme/tiny", "commit": COMMIT, "agrees": True}
    ]
    mounted = mount(path)
    document = json.loads((mounted / "model.json").read_bytes())
    assert document["trust"] == "store" and document["anchors"] == [want | {"agrees": True}]
    assert xattr(mounted / "tensors/first.bin", "trust") == "store"
    assert json.loads((mounted / ".weightfs/status.json").read_bytes())["trust"] == "store"
    weightfs.run("verify", path)


def test_a_cached_set_is_of_the_store_only_when_every_file_is(weightfs, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    halves = [safetensors_file.Safetensors().tensor(name, "F32", (4,), pattern(16, seed)) for seed, name in enumerate("ab")]
    safetensors_file.sharded(halves, work)
    cache = HfCache(tmp_path, {path.name: path.read_bytes() for path in work.iterdir()})
    weightfs.run("verify", cache.snapshot)
    weightfs.run("seal", cache.snapshot)
    found = weightfs.run("info", cache.snapshot, "--json").json()
    assert found["trust"] == "store" and [anchor["agrees"] for anchor in found["anchors"]] == [True, True]
    # One of them as a plain file: it may be right, but no store says so.
    name = "model-00002-of-00002.safetensors"
    data = (cache.snapshot / name).read_bytes()
    (cache.snapshot / name).unlink()
    (cache.snapshot / name).write_bytes(data)
    found = weightfs.run("info", cache.snapshot, "--json").json()
    assert found["trust"] == "sidecar" and len(found["anchors"]) == 1
    next(cache.snapshot.glob("*.weightfs.json")).unlink()
    assert name in weightfs.run("verify", cache.snapshot, code=4).err
    flip(cache.blobs["model-00001-of-00002.safetensors"], -1)
    found = weightfs.run("verify", cache.snapshot, "--json", code=3).json()["models"][0]
    assert [repair["file"] for repair in found["repair"]] == ["model-00001-of-00002.safetensors"]


def test_a_blob_that_is_not_what_its_name_says(weightfs, mount, tmp_path, data):
    cache = HfCache(tmp_path, {"m.gguf": data})
    path = cache.snapshot / "m.gguf"
    flip(cache.blobs["m.gguf"], 5000)
    found = weightfs.run("verify", path, "--json", code=3).json()["models"][0]
    assert found["result"] == "damaged"
    assert found["bad"][0]["expected"] == sha(data)
    assert found["repair"] == [{"file": "m.gguf", "ranges": [[0, len(data) - 1]], "http": f"bytes=0-{len(data) - 1}"}]
    for force in ([], ["--force"]):
        said = weightfs.run("seal", path, *force, code=5).err
        assert sha(data) in said and sha(cache.blobs["m.gguf"].read_bytes()) in said
        assert len(said.strip().splitlines()) <= 4
    assert list(cache.snapshot.glob("*.json")) == [] and list(cache.snapshot.glob(".*")) == []


def test_a_seal_of_wrong_bytes_and_the_blobs_name_refuse_the_mount(weightfs, mount, tmp_path, data):
    plain = tmp_path / "m.gguf"
    plain.write_bytes(data[:5000] + b"!" + data[5001:])
    weightfs.run("seal", plain)
    cache = HfCache(tmp_path, {"m.gguf": plain.read_bytes()}, {"m.gguf": sha(data)})
    path = cache.snapshot / "m.gguf"
    shutil.copy(tmp_path / "m.gguf.weightfs.json", cache.snapshot)
    point = tmp_path / "mnt"
    point.mkdir()
    for command in (["mount", path, point], ["cat", path, "small"], ["verify", path], ["seal", path], ["mount", path, point, "-o", "seal=require"]):
        said = weightfs.run(*command, code=5).err
        assert sha(data) in said and sha(plain.read_bytes()) in said and "blobs" in said and "weightfs.json" in said
        assert len(said.strip().splitlines()) <= 4
    assert sha(data) in weightfs.run("info", path).err
    mounted = mount(path, "seal=none")
    assert json.loads((mounted / "model.json").read_bytes())["trust"] == "tofu"
    # Damage that the seal knows is damage.
    flip(cache.blobs["m.gguf"], 9000)
    weightfs.run("verify", path, code=3)


def test_names_of_forty_digits_are_no_sha256(weightfs, tmp_path, data):
    git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    cache = HfCache(tmp_path, {"m.gguf": data}, {"m.gguf": git})
    assert anchors(weightfs, cache.snapshot / "m.gguf") == []
    weightfs.run("verify", cache.snapshot / "m.gguf", code=4)


def test_a_download_directory(weightfs, tmp_path, data):
    path = tmp_path / "d" / "m.gguf"
    note = path.parent / ".cache/huggingface/download/m.gguf.metadata"
    note.parent.mkdir(parents=True)
    path.write_bytes(data)
    now = path.stat().st_mtime
    note.write_text(f"{COMMIT}\n{sha(data)}\n{now + 0.25}\n")
    assert anchors(weightfs, path) == [
        {"file": "m.gguf", "kind": "hf-local", "sha256": sha(data), "agrees": None, "repo": None, "commit": COMMIT}
    ]
    weightfs.run("verify", path)
    weightfs.run("seal", path)
    assert weightfs.run("info", path, "--json").json()["trust"] == "sidecar"
    note.write_text(f"{COMMIT}\n{'0' * 64}\n{now + 0.25}\n")
    assert "0" * 64 in weightfs.run("verify", path, code=5).err
    note.write_text(f"{COMMIT}\n{'0' * 64}\n{now - 60}\n")
    assert anchors(weightfs, path) == [], "the file was written to after it was downloaded"
    weightfs.run("verify", path)


class Ollama:
    def __init__(self, root, data):
        self.blob = root / "models/blobs" / f"sha256-{sha(data)}"
        self.blob.parent.mkdir(parents=True)
        self.blob.write_bytes(data)
        manifest = root / "models/manifests/registry.ollama.ai/library/tiny/8b"
        manifest.parent.mkdir(parents=True)
        layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{sha(data)}", "size": len(data)}]
        manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))


def test_ollamas_store(weightfs, mount, tmp_path, data):
    store = Ollama(tmp_path, data)
    want = {"file": store.blob.name, "kind": "ollama-blob", "sha256": sha(data), "agrees": None, "repo": "tiny", "commit": "8b"}
    assert anchors(weightfs, store.blob) == [want]
    weightfs.run("verify", store.blob)
    weightfs.run("seal", store.blob)
    assert weightfs.run("info", store.blob, "--json").json()["trust"] == "store"
    linked = tmp_path / "tiny.gguf"
    linked.symlink_to(store.blob)
    assert anchors(weightfs, linked) == [want | {"file": "tiny.gguf"}]
    seal = store.blob.with_name(store.blob.name + ".weightfs.json")
    flip(store.blob, model().place_of("first") + 100 * KIB)
    found = weightfs.run("verify", store.blob, "--json", code=3).json()["models"][0]
    start = model().place_of("first") + CHUNK
    assert found["repair"] == [
        {"file": store.blob.name, "ranges": [[start, start + CHUNK - 1]], "http": f"bytes={start}-{start + CHUNK - 1}"}
    ]
    seal.unlink()
    assert "bytes=0-" in weightfs.run("verify", store.blob, code=3).text


def test_a_damaged_header_is_damage_too(weightfs, tmp_path, data):
    store = Ollama(tmp_path, data)
    flip(store.blob, 0)
    assert weightfs.run("verify", store.blob, "--json", code=3).json()["models"][0]["result"] == "damaged"
    store.blob.write_bytes(data[:50])
    weightfs.run("verify", store.blob, code=3)
    text = b"no model at all"
    other = store.blob.with_name("sha256-" + sha(text))
    other.write_bytes(text)
    said = weightfs.run("verify", other, code=1).err
    assert "not a model" in said or "neither" in said or "what it is" in said or said


# --- lists beside ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SHA256SUMS", "sha256sum.txt", "checksums.txt", "m.gguf.sha256"])
def test_a_list_beside_the_model(weightfs, mount, tmp_path, data, name):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    weightfs.run("verify", path, code=4)
    line = {"m.gguf.sha256": sha(data), "checksums.txt": f"SHA256 (m.gguf) = {sha(data)}"}.get(name, f"{sha(data)}  m.gguf")
    (path.parent / name).write_text(f"{line}\n")
    weightfs.run("verify", path)
    weightfs.run("seal", path)
    mounted = mount(path)
    document = json.loads((mounted / "model.json").read_bytes())
    assert document["trust"] == "sidecar" and document["anchors"][0]["agrees"] is True
    flip(path, 6000)
    weightfs.run("verify", path, code=3)
    (path.parent / "m.gguf.weightfs.json").unlink()
    weightfs.run("verify", path, code=3)


def test_two_lists_that_disagree_refuse_the_mount_whatever_the_seal(weightfs, tmp_path, data):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    (path.parent / "SHA256SUMS").write_text(f"{sha(data)}  m.gguf\n")
    (path.parent / "m.gguf.sha256").write_text("1" * 64 + "\n")
    point = tmp_path / "mnt"
    point.mkdir()
    for command in (["mount", path, point], ["mount", path, point, "-o", "seal=none"], ["verify", path], ["seal", path], ["cat", path, "small"]):
        said = weightfs.run(*command, code=5).err
        assert sha(data) in said and "1" * 64 in said and "SHA256SUMS" in said and "m.gguf.sha256" in said
        assert "m.gguf: two trusted sources disagree about the SHA-256 of the whole file" in said
        assert len(said.strip().splitlines()) <= 4
    assert not (path.parent / "m.gguf.weightfs.json").exists()
    assert weightfs.run("ls", path).code == 0


def test_a_list_against_the_blobs_name(weightfs, tmp_path, data):
    cache = HfCache(tmp_path, {"m.gguf": data})
    (cache.snapshot / "SHA256SUMS").write_text("2" * 64 + "  m.gguf\n")
    said = weightfs.run("verify", cache.snapshot / "m.gguf", code=5).err
    assert sha(data) in said and "2" * 64 in said


def test_gguf_hash_of_tensors(weightfs, mount, tmp_path, data):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    lines = "".join(f"sha256    {sha(model().data_of(name))}  {path}:{name}\n" for name in ("first", "second", "small"))
    whole = sha(b"".join(model().data_of(name) for name in ("first", "second", "small")))
    text = lines + f"sha256    {whole}  {path}\n"
    assert weightfs.run("provenance", path, "--format", "gguf-hash").text == text
    manifest = path.parent / "m.gguf.manifest"
    manifest.write_text(text)
    weightfs.run("verify", path)
    weightfs.run("seal", path)
    found = weightfs.run("info", path, "--json").json()["anchors"]
    assert found == [{"file": "m.gguf", "kind": "gguf-hash", "sha256": None, "agrees": True, "repo": None, "commit": None}]
    manifest.write_text(lines.replace(sha(model().data_of("second")), "3" * 64))
    said = weightfs.run("verify", path, code=5).err
    assert 'tensor "second"' in said and "3" * 64 in said
    (path.parent / "m.gguf.weightfs.json").unlink()
    found = weightfs.run("verify", path, "--json", code=3).json()["models"][0]
    assert [bad["tensor"] for bad in found["bad"]] == ["second"]
    assert 'tensor "second"' in weightfs.run("seal", path, code=5).err
    manifest.write_text(f"sha256    {whole}  m.gguf\n")
    weightfs.run("verify", path)


def signature(files, name="d"):
    resources = [{"name": file, "algorithm": "sha256", "digest": digest} for file, digest in files]
    subject = sha(b"".join(bytes.fromhex(digest) for _, digest in files))
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": subject}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": {"method": "files", "hash_type": "sha256"}, "resources": resources},
    }
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    envelope = {"payload": payload, "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AA=="}]}
    return json.dumps({"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "dsseEnvelope": envelope})


def test_a_signature_that_nobody_verified_is_a_list_like_others(weightfs, mount, tmp_path, data):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    (path.parent / "model.sig").write_text(signature([("README.md", "0" * 64), ("m.gguf", sha(data))]))
    weightfs.run("verify", path)
    weightfs.run("seal", path)
    mounted = mount(path)
    text = (mounted / "model.json").read_text()
    assert json.loads(text)["trust"] == "sidecar" and json.loads(text)["anchors"][0]["kind"] == "model-signing"
    assert "signed" not in text.replace("unsigned", "") and "signed" not in (mounted / "provenance.yaml").read_text()
    (path.parent / "model.sig").write_text(signature([("m.gguf", "4" * 64)]))
    weightfs.run("verify", path, code=5)


@pytest.mark.parametrize("algorithm, digits", [("blake3", 64), ("blake2b", 128), ("blake3-sharded-1000000000", 64)])
def test_digests_that_are_not_computed_verify_nothing(weightfs, mount, tmp_path, data, algorithm, digits):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    name = "m.gguf" if "sharded" not in algorithm else f"m.gguf:0:{len(data)}"
    # Even if it looks like the right SHA-256.
    digest = (sha(data) * 2)[:digits]
    said = json.loads(signature([(name, digest)]))
    statement = json.loads(base64.b64decode(said["dsseEnvelope"]["payload"]))
    statement["predicate"]["resources"][0]["algorithm"] = algorithm
    said["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    (path.parent / "model.sig").write_text(json.dumps(said))
    want = f'digest algorithm "{algorithm.split("-")[0]}" is not supported'
    assert want in weightfs.run("verify", path, code=4).err
    assert want in weightfs.run("verify", path, "--against", path.parent / "model.sig", code=4).err
    document = mount(path).model
    assert document["trust"] == "tofu" and document["anchors"] == [] and want in document["warnings"][0]


def test_what_a_list_says_and_is_not_used_is_told(weightfs, mount, tmp_path, data):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    sums = path.parent / "SHA256SUMS"
    for text, want in [
        (b"what\n", 'SHA256SUMS: line 1 is not understood: "what"'),
        (f"# mine\n{sha(data)}  /elsewhere/m.gguf\n".encode(), 'line 2 is about another directory, "/elsewhere/m.gguf"'),
        (f"{sha(data)}\n".encode(), "line 1 is a digest without a name"),
        (f"{hashlib.sha512(data).hexdigest()}  m.gguf\n".encode(), '"SHA-512" is not supported'),
    ]:
        sums.write_bytes(text)
        assert want in weightfs.run("verify", path, code=4).err
    assert any("SHA-512" in warning for warning in mount(path).model["warnings"])


def test_lists_of_other_systems(weightfs, tmp_path, data):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    table = f"\r\nAlgorithm       Hash       Path\r\n---------       ----       ----\r\nSHA256          {sha(data).upper()}       C:\\d\\m.gguf\r\n\r\n"
    for name, text in [
        ("m.gguf.sha256", table.encode("utf-16")),
        ("m.gguf.sha256", f"\ufeff{sha(data).upper()} *.\\m.gguf\r\n".encode()),
        ("m.gguf.sha256", f"{sha(data)}  /build/m.gguf\n".encode()),
        ("SHA256SUMS", f"SHA256 ({path}) = {sha(data)}\n".encode()),
        ("SHA256SUMS", f"sha256:{sha(data)}  ./m.gguf\n".encode()),
    ]:
        given = path.parent / name
        given.write_bytes(text)
        good = weightfs.run("verify", path)
        assert "good" in good.text and good.err == "", (name, good.err)
        wrong = text.replace(sha(data)[:8].encode(), b"00000000").replace(sha(data)[:8].upper().encode(), b"00000000")
        wrong = wrong.replace(sha(data)[:8].upper().encode("utf-16-le"), "00000000".encode("utf-16-le"))
        assert wrong != text
        given.write_bytes(wrong)
        weightfs.run("verify", path, code=3)
        given.unlink()
    weightfs.run("verify", path, "--expect-sha256", f"sha256:{sha(data)}")
    weightfs.run("verify", path, "--expect-sha256", f"sha256:{'0' * 64}", code=3)


def test_a_store_name_counts_in_a_store_only(weightfs, tmp_path, data):  # C50
    for folder, code in [("blobs", 0), ("downloads", 4), ("blobs/mine", 4)]:
        path = tmp_path / folder / f"sha256-{sha(data)}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        weightfs.run("verify", path, code=code)
        assert len(anchors(weightfs, path)) == (code == 0)
        flip(path, 5000)
        weightfs.run("verify", path, code=3 if code == 0 else 4)


@pytest.mark.parametrize("junk", [b"\0" * 5000, b"{" * 100_000, b"x" * 3_000_000, b'{"dsseEnvelope":{"payload":"!"}}', b"sha256 \n" * 9999, os.urandom(4096)])
def test_hostile_lists_are_passed_over(weightfs, tmp_path, data, junk):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    for name in ("SHA256SUMS", "model.sig", "m.gguf.sha256", "m.gguf.manifest", ".cache/huggingface/download/m.gguf.metadata"):
        (path.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (path.parent / name).write_bytes(junk)
    assert anchors(weightfs, path) == []
    weightfs.run("verify", path, code=4)
    weightfs.run("seal", path)


def test_what_is_no_file_or_leads_away_is_not_read(weightfs, tmp_path, data):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    os.mkfifo(path.parent / "SHA256SUMS")
    (path.parent / "sha256sum.txt").mkdir()
    (tmp_path / "elsewhere").write_text(f"{'0' * 64}  m.gguf\n")
    (path.parent / "checksums.txt").symlink_to("../elsewhere")
    (path.parent / "m.gguf.sha256").symlink_to("/dev/zero")
    assert anchors(weightfs, path) == []
    weightfs.run("verify", path, code=4)


# --- verify --against --------------------------------------------------------------------


@pytest.fixture
def sealed(weightfs, tmp_path, data):
    path = tmp_path / "d" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    weightfs.run("seal", path)
    return path


FORMS = ["yaml", "json", "sha256sum", "sfv", "gguf-hash", "seal"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_checked_against_a_copy(weightfs, tmp_path, sealed, form, data):
    given = tmp_path / f"list.{form}"
    if form == "seal":
        shutil.copy(sealed.with_name("m.gguf.weightfs.json"), given)
    else:
        given.write_bytes(weightfs.run("provenance", sealed, "--format", form).out)
    copy = tmp_path / "e" / "m.gguf"
    copy.parent.mkdir()
    copy.write_bytes(data)
    assert "good" in weightfs.run("verify", copy, "--against", given).text
    flip(copy, model().place_of("second") + 7)
    found = weightfs.run("verify", copy, "--against", given, "--json", code=3).json()["models"][0]
    assert found["result"] == "damaged" and found["repair"][0]["file"] == "m.gguf"
    if form != "sha256sum":
        assert "second" in [bad["tensor"] for bad in found["bad"]]
        covered = sum(to - start + 1 for start, to in found["repair"][0]["ranges"])
        assert covered < CHUNK


def test_a_mounts_own_list_checks_files_and_tensors(weightfs, mount, tmp_path, sealed, data):
    for name in ("SHA256SUMS", "tensors.sfv", "provenance.yaml"):
        given = tmp_path / name
        given.write_bytes((mount(sealed) / name).read_bytes())
        copy = tmp_path / "e" / "m.gguf"
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(data)
        weightfs.run("verify", copy, "--against", given)
        flip(copy, model().place_of("first"))
        found = weightfs.run("verify", copy, "--against", given, "--json", code=3).json()["models"][0]
        assert "first" in [bad["tensor"] for bad in found["bad"]]


def test_a_list_of_some_tensors_says_nothing_of_the_others(weightfs, tmp_path, data):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    some = tmp_path / "SHA256SUMS"
    some.write_text(f"{sha(model().data_of('first'))}  tensors/first.bin\n{'0' * 64}  tensors/none.bin\n")
    for args in ([], ["--against", some]):
        said = weightfs.run("verify", path, *args, code=4).err
        assert "has no line for m.gguf, nor for its tensor" in said
        assert 'line 2 is about "tensors/none.bin", a tensor that the model does not have' in said
    flip(path, model().place_of("first"))
    weightfs.run("verify", path, code=3)


def test_a_digest_alone_asks_for_all_of_a_file_that_cannot_be_opened(weightfs, tmp_path, data):
    path = tmp_path / "m.gguf"
    (tmp_path / "SHA256SUMS").write_text(f"{sha(data)}  m.gguf\n")
    for bad in (data[:20], b"", b"X" + data[1:]):
        path.write_bytes(bad)
        for args in ([], ["--expect-sha256", sha(data)]):
            found = weightfs.run("verify", path, "--json", *args, code=3).json()["models"][0]
            assert found["repair"] == [{"file": "m.gguf", "ranges": [[0, None]], "http": "bytes=0-"}]
            assert "all of it" in weightfs.run("verify", path, *args, code=3).text
    twice = tmp_path / "twice"
    twice.write_text(f"{sha(data)}  m.gguf\n{'0' * 64}  m.gguf\n")
    assert "twice: two different digests for m.gguf" in weightfs.run("verify", path, "--against", twice, code=1).err


def test_the_list_of_a_repository_by_the_line_that_leads_to_the_model(weightfs, tmp_path, data):
    path = tmp_path / "unet" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(data)
    given = tmp_path / "SHA256SUMS"
    given.write_text(f"{'0' * 64}  vae/m.gguf\n{sha(data)}  unet/m.gguf\n")
    weightfs.run("verify", path, "--against", given)
    given.write_text(f"{sha(data)}  vae/m.gguf\n")
    weightfs.run("verify", path, "--against", given, code=4)


def test_a_list_that_the_seal_contradicts(weightfs, tmp_path, sealed):
    given = tmp_path / "list"
    given.write_text(f"{'5' * 64}  m.gguf\n")
    said = weightfs.run("verify", sealed, "--against", given, code=5).err
    assert "5" * 64 in said and sha(sealed.read_bytes()) in said and len(said.strip().splitlines()) <= 4
    flip(sealed, 6000)
    weightfs.run("verify", sealed, "--against", given, code=3)


def test_a_list_about_something_else(weightfs, tmp_path, sealed):
    given = tmp_path / "list"
    given.write_text(f"{'5' * 64}  other.gguf\n")
    assert "other.gguf" in weightfs.run("verify", sealed, "--against", given, code=4).err
    given.write_text("hello\n")
    weightfs.run("verify", sealed, "--against", given, code=1)
    weightfs.run("verify", sealed, "--against", tmp_path / "none", code=1)


def test_what_the_repair_plan_says_heals_the_file(weightfs, tmp_path, sealed, data):
    """As a download of the ranges would; at most two chunks per bad bit."""
    rng = random.Random(7)
    for flips in (1, 1, 1, 3, 12):
        for _ in range(flips):
            flip(sealed, rng.randrange(len(data)))
        found = weightfs.run("verify", sealed, "--json", code=3).json()["models"][0]
        (plan,) = found["repair"]
        assert sum(to - start + 1 for start, to in plan["ranges"]) <= flips * 2 * CHUNK
        assert plan["http"] == "bytes=" + ",".join(f"{start}-{to}" for start, to in plan["ranges"])
        assert all(end < start - 1 for (_, end), (start, _) in zip(plan["ranges"], plan["ranges"][1:]))
        mended = bytearray(sealed.read_bytes())
        for start, to in plan["ranges"]:
            mended[start : to + 1] = data[start : to + 1]
        sealed.write_bytes(mended)
        weightfs.run("verify", sealed)


def test_sums_of_other_tools(weightfs, tmp_path, sealed, data):
    given = tmp_path / "m.sfv"
    given.write_text(f"; made by hand\nother.gguf 00000000\nm.gguf {zlib.crc32(data):08x}\n")
    weightfs.run("verify", sealed, "--against", given)
    wrong = {"m.gguf 00000000\n": None, "xxh64     0000000000000000  m.gguf:small\n": "small"}
    for text in wrong:  # The seal says that the bytes are right.
        given.write_text(text)
        said = weightfs.run("verify", sealed, "--against", given, code=5).err
        assert "m.sfv" in said and "m.gguf.weightfs.json" in said
    sealed.with_name("m.gguf.weightfs.json").unlink()
    for text, tensor in wrong.items():
        given.write_text(text)
        found = weightfs.run("verify", sealed, "--against", given, "--json", code=3).json()["models"][0]
        assert [bad["tensor"] for bad in found["bad"]] == [tensor]


def test_parts_are_sealed_and_merged_with_the_same_anchors(weightfs, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    halves = [safetensors_file.Safetensors().tensor(name, "F32", (4,), pattern(16, seed)) for seed, name in enumerate("ab")]
    safetensors_file.sharded(halves, work)
    cache = HfCache(tmp_path, {path.name: path.read_bytes() for path in work.iterdir()})
    shards = sorted(cache.snapshot.glob("*.safetensors"))
    weightfs.run("seal", "--part", *shards)
    parts = sorted(cache.snapshot.glob("*part*"))
    assert len(parts) == 2
    weightfs.run("seal", "--merge", *parts, cache.snapshot)
    seal = next(path for path in cache.snapshot.glob("*.weightfs.json") if path not in parts)
    recorded = [source["anchors"][0] for source in json.loads(seal.read_bytes())["body"]["sources"]]
    assert [(anchor["kind"], anchor["agrees"]) for anchor in recorded] == [("hf-blob", True)] * 2
    assert weightfs.run("info", cache.snapshot, "--json").json()["trust"] == "store"
    seal.unlink()
    (cache.snapshot / "SHA256SUMS").write_text("0" * 64 + f"  {shards[1].name}\n")
    weightfs.run("seal", "--merge", *parts, cache.snapshot, code=5)
    assert not seal.exists()


# --- provenance --------------------------------------------------------------------------


def odd_model(path):
    file = Gguf().key("general.architecture", "str", "llama")
    for number, name in enumerate(ODD):
        file.tensor(name, "F32", (4,), pattern(16, seed=number))
    file.tensor(b"bad\xff\xfename", "F32", (4,), pattern(16, seed=99))
    file.write(path)
    return file


def test_the_report_is_the_same_in_yaml_json_and_the_mount(weightfs, mount, tmp_path):
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "m.gguf"
    file = odd_model(path)
    weightfs.run("provenance", path, code=4)
    weightfs.run("seal", path)
    text = weightfs.run("provenance", path).out
    report = yaml.safe_load(text)
    assert report == weightfs.run("provenance", path, "--format", "json").json()
    assert (mount(path) / "provenance.yaml").read_bytes() == text
    assert list(report) == ["weightfs_report", "generated", "loader", "source", "trust", "verification", "files", "anchors", "tensors"]
    raw = path.read_bytes()
    assert report["source"]["sha256"] == sha(raw) and report["source"]["sha256_basis"] == "computed"
    assert report["source"]["bytes"] == len(raw) and report["trust"]["level"] == "sidecar"
    assert report["loader"]["name"] == "weightfs" and report["loader"]["version"]
    assert isinstance(report["generated"], str)
    assert [tensor["name"] for tensor in report["tensors"]][: len(ODD)] == ODD
    for tensor, stored in zip(report["tensors"], file.tensors, strict=True):
        assert bytes.fromhex(tensor["name_hex"]) == stored.name if "name_hex" in tensor else tensor["name"].encode() == stored.name
        assert tensor["sha256"] == sha(stored.data) and tensor["crc32"] == f"{zlib.crc32(stored.data):08x}"
        assert (tensor["dtype"], tensor["shape"], tensor["bytes"]) == ("F32", [4], 16)
    given = tmp_path / "report.yaml"
    given.write_bytes(text)
    weightfs.run("verify", path, "--against", given)


def test_the_report_without_sha256_says_whose_digest_it_is(weightfs, tmp_path, data):
    cache = HfCache(tmp_path, {"m.gguf": data})
    path = cache.snapshot / "m.gguf"
    weightfs.run("seal", path, "--no-sha256")
    report = weightfs.run("provenance", path, "--format", "json").json()
    assert report["source"]["sha256"] == sha(data) and report["source"]["sha256_basis"] == "asserted-by-name"
    assert report["trust"]["level"] == "sidecar" and report["tensors"][0]["sha256"] is None
    weightfs.run("verify", path)


def test_sha256sum_takes_its_lines_sealed_or_not(weightfs, tmp_path, data):
    for name in ("m.gguf", "a\\b\nc.gguf"):
        path = tmp_path / name
        path.write_bytes(data)
        unsealed = weightfs.run("provenance", path, "--format", "sha256sum").out
        weightfs.run("seal", path)
        assert weightfs.run("provenance", path, "--format", "sha256sum").out == unsealed
        (tmp_path / "list").write_bytes(unsealed)
        shell('cd / && sha256sum -c --strict "$1"', tmp_path / "list")
        weightfs.run("verify", path, "--against", tmp_path / "list")


def test_sfv_is_that_of_the_mount(weightfs, mount, sealed):
    weightfs.run("provenance", sealed, "--format", "sfv")
    mounted = mount(sealed)
    text = weightfs.run("provenance", sealed, "--format", "sfv").text
    assert (mounted / "tensors.sfv").read_text() == text
    for line in text.splitlines():
        name, crc = line.rsplit(" ", 1)
        assert f"{zlib.crc32((mounted / name).read_bytes()):08X}" == crc


def test_the_root_of_a_sealed_mount_lists_the_report(mount, sealed):
    names = os.listdir(mount(sealed).path)
    assert names.index("provenance.yaml") == names.index("tensors.sfv") + 1
    sums = (mount(sealed) / "SHA256SUMS").read_text()
    assert "provenance" not in sums
