"""Models by name: hf: from the Hugging Face cache, ollama: from Ollama's store, other stores by path."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf, pattern

ONE = "bbc77c8132af1cc5cf678da3f1ddf2de43606d48"
TWO = "bbc7000000000000000000000000000000000000"


def sha(data):
    return hashlib.sha256(data).hexdigest()


def gguf(name="a", seed=1):
    return Gguf().key("general.architecture", "str", "llama").tensor(name, "F32", (64,), pattern(256, seed=seed)).encode()


def tensors(weightfs, spec, **options):
    return [tensor["name"] for tensor in weightfs.run("ls", spec, "--json", **options).json()["tensors"]]


class Hub:
    """A cache as the hub's library leaves it: links in snapshots to blobs by their SHA-256."""

    def __init__(self, path):
        self.path = path
        path.mkdir(parents=True)

    def repo(self, name):
        return self.path / f"models--{name.replace('/', '--')}"

    def commit(self, name, commit, files, *refs):
        snapshot = self.repo(name) / "snapshots" / commit
        for file, data in files.items():
            blob = self.repo(name) / "blobs" / sha(data)
            blob.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(data)
            link = snapshot / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))
        for ref in refs:
            path = self.repo(name) / "refs" / ref
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit)
        return snapshot


class Ollama:
    """A store as Ollama leaves it."""

    def __init__(self, path):
        self.path = path
        (path / "blobs").mkdir(parents=True)

    def blob(self, data):
        path = self.path / "blobs" / f"sha256-{sha(data)}"
        path.write_bytes(data)
        return path

    def model(self, name, *layers):
        listed = [
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{sha(data)}", "size": len(data)} for kind, data in layers
        ]
        for _, data in layers:
            self.blob(data)
        path = self.path / "manifests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schemaVersion": 2, "config": {"digest": "sha256:" + "0" * 64}, "layers": listed}))
        return path


@pytest.fixture
def hub(weightfs, tmp_path):
    """In the default place: XDG_CACHE_HOME is set for all tests."""
    return Hub(tmp_path / "home/cache/huggingface/hub")


@pytest.fixture
def ollama(weightfs, tmp_path):
    return Ollama(tmp_path / "home/.ollama/models")


def picture(root):
    """All that can be seen of a tree but times of access."""
    found = {}
    for path in sorted(root.rglob("*")):
        about = path.lstat()
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[path] = (what, about.st_mode, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
    return found


# --- hf: ---------------------------------------------------------------------------------


def test_a_snapshot_by_name_in_every_command(weightfs, mount, hub, tmp_path):
    snapshot = hub.commit("acme/tiny", ONE, {"m.gguf": gguf()}, "main")
    before = picture(hub.path)
    spec = "hf:acme/tiny"
    assert tensors(weightfs, spec) == ["a"]
    info = weightfs.run("info", spec, "--json").json()
    assert info["sources"][0]["file"] == "m.gguf"
    assert [(a["kind"], a["repo"], a["commit"]) for a in info["anchors"]] == [("hf-blob", "acme/tiny", ONE)]
    assert weightfs.run("cat", spec, "a").out == pattern(256, seed=1)
    verdict = weightfs.run("verify", spec, "--json").json()["models"][0]
    assert (verdict["model"], verdict["result"], verdict["bad"]) == (spec, "good", [])
    assert weightfs.run("map", spec, "--json").json()["pairs"] == {"a": "a"}
    assert weightfs.run("map", snapshot, "--like", spec, "--json").json()["pairs"] == {"a": "a"}
    weightfs.run("provenance", spec, code=4)
    assert sha(gguf()) in weightfs.run("provenance", spec, "--format", "sha256sum").text
    mounted = mount(spec)
    assert mounted.bin("a") == pattern(256, seed=1)
    assert (mounted / "source/m.gguf").read_bytes() == gguf()
    mounted.unmount()
    assert picture(hub.path) == before, "nothing is written to the cache"
    weightfs.run("seal", spec)
    seal = snapshot / "m.gguf.weightfs.json"
    assert seal.exists() and not seal.is_symlink()
    assert weightfs.run("info", spec, "--json").json()["trust"] == "store"
    mounted = mount(spec, "seal=require")
    assert mounted.bin("a") == pattern(256, seed=1) and mounted.model["trust"] == "store"
    assert set(picture(hub.path)) - set(before) == {seal}


def test_a_confined_daemon_reads_a_snapshot(mount, hub):
    hub.commit("acme/tiny", ONE, {"m.gguf": gguf()}, "main")
    mounted = mount("hf:acme/tiny@main", "cache=direct")
    assert "no_new_privs" in mounted.status["confined"].split(",")
    assert mounted.bin("a") == pattern(256, seed=1)
    assert mounted.status["mismatches"] == 0


def test_revisions(weightfs, hub):
    hub.commit("acme/tiny", ONE, {"m.gguf": gguf("one")}, "main", "v1.0")
    hub.commit("acme/tiny", TWO, {"m.gguf": gguf("two")}, "refs/pr/1", "feature/x")
    for revision, want in {
        "": "one", "@main": "one", "@v1.0": "one", "@refs/pr/1": "two", "@feature/x": "two",
        f"@{ONE}": "one", f"@{TWO}": "two", "@bbc77c8": "one", "@bbc7000": "two",
    }.items():  # fmt: skip
        assert tensors(weightfs, f"hf:acme/tiny{revision}") == [want], revision
    said = weightfs.run("ls", "hf:acme/tiny@bbc7", code=1).err
    assert ONE in said and TWO in said
    said = weightfs.run("ls", "hf:acme/tiny@v2", code=1).err
    assert "v2" in said and "v1.0" in said and "refs/pr/1" in said and str(hub.path) in said
    said = weightfs.run("mount", "hf:acme/tinny", hub.path, code=1).err
    assert "models--acme--tinny" in said and str(hub.path) in said and "acme/tiny" in said


JUDGE = """
import sys
from huggingface_hub import snapshot_download
for spec in sys.argv[1:]:
    name, _, revision = spec.partition("@")
    try:
        print(snapshot_download(name, revision=revision or None, local_files_only=True))
    except Exception as error:
        print("none", type(error).__name__)
"""


def test_the_hubs_own_library_means_the_same_snapshot(weightfs, hub, tmp_path):
    pytest.importorskip("huggingface_hub")
    hub.commit("acme/tiny", ONE, {"m.gguf": gguf("one")}, "main", TWO)
    hub.commit("acme/tiny", TWO, {"m.gguf": gguf("two")}, "refs/pr/1", "cafe", "feature/x")
    hub.commit("gpt2", TWO, {"model.safetensors": safetensors_file.Safetensors().tensor("w", "F32", (4,), pattern(16, 1)).encode()}, "main")
    other = Hub(tmp_path / "other/hub")
    other.commit("acme/tiny", TWO, {"m.gguf": gguf("two")}, "main")
    specs = ["acme/tiny", "acme/tiny@main", f"acme/tiny@{ONE}", f"acme/tiny@{TWO}", "acme/tiny@refs/pr/1", "acme/tiny@cafe"]
    specs += ["acme/tiny@feature/x", "gpt2", "acme/none", "acme/tiny@none"]
    for env in [
        {},
        {"HF_HOME": str(other.path.parent)},
        {"HF_HOME": "$ELSEWHERE/other", "ELSEWHERE": str(tmp_path)},
        {"HUGGINGFACE_HUB_CACHE": str(other.path)},
        {"HUGGINGFACE_HUB_CACHE": str(other.path), "HF_HUB_CACHE": str(hub.path)},
        {"HF_HUB_CACHE": "~/../other/hub"},
        {"XDG_CACHE_HOME": str(tmp_path / "none")},
    ]:
        done = subprocess.run(
            [sys.executable, "-c", JUDGE, *specs], env=weightfs.env | env | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        judged = done.stdout.splitlines()
        assert any(not line.startswith("none") for line in judged) == ("XDG_CACHE_HOME" not in env)
        for spec, want in zip(specs, judged, strict=True):
            found = weightfs.run("info", f"hf:{spec}", "--json", code=None, env=env)
            assert (found.code == 0) == (not want.startswith("none")), (env, spec, want, found.err)
            if found.code == 0:
                commit = found.json()["anchors"][0]["commit"]
                line = weightfs.run("provenance", f"hf:{spec}", "--format", "sha256sum", env=env).text
                path = line.split("  ", 1)[1].strip()
                assert commit in want and os.path.samefile(os.path.dirname(path), want), (env, spec)


def test_one_of_several_files(weightfs, mount, hub):
    files = {"q4.gguf": gguf("q4"), "q8.gguf": gguf("q8"), "deep/x.gguf": gguf("deep"), "README.md": b"#"}
    hub.commit("acme/many", ONE, files, "main", "refs/pr/1")
    said = weightfs.run("ls", "hf:acme/many", code=1).err
    assert "q4.gguf, q8.gguf" in said and "hf:acme/many/q4.gguf" in said and len(said.splitlines()) <= 4
    example = said.split()[-1]
    assert tensors(weightfs, example) == ["q4"]
    assert tensors(weightfs, "hf:acme/many@refs/pr/1/q8.gguf") == ["q8"]
    assert tensors(weightfs, "hf:acme/many/deep/x.gguf") == ["deep"]
    assert tensors(weightfs, "hf:acme/many/deep") == ["deep"]
    assert mount("hf:acme/many@main/q8.gguf").names() == ["q8"]
    said = weightfs.run("ls", "hf:acme/many/q5.gguf", code=1).err
    assert "q5.gguf" in said and "q4.gguf" in said
    hub.commit("acme/below", ONE, {"Q4/x.gguf": gguf("x"), "config.json": b"{}"}, "main")
    said = weightfs.run("ls", "hf:acme/below", code=1).err
    assert "hf:acme/below/Q4" in said
    assert tensors(weightfs, said.split()[-1]) == ["x"]


def test_a_sharded_checkpoint_with_a_shard_missing(weightfs, hub, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    halves = [safetensors_file.Safetensors().tensor(name, "F32", (4,), pattern(16, seed)) for seed, name in enumerate("ab")]
    safetensors_file.sharded(halves, work)
    files = {path.name: path.read_bytes() for path in work.iterdir()}
    snapshot = hub.commit("acme/set", ONE, files, "main")
    assert tensors(weightfs, "hf:acme/set") == ["a", "b"]
    (snapshot / "model-00002-of-00002.safetensors").unlink()
    said = weightfs.run("ls", "hf:acme/set", code=1).err
    assert "model-00002-of-00002.safetensors" in said and "not fetched" in said


@pytest.mark.parametrize(
    "name",
    ["..", "../tiny", "/etc/passwd", "acme/..", "acme/tiny@../../../secret", "acme/tiny@/secret", "acme/tiny@out", "acme/tiny@up",
     "acme/tiny@link", "acme/tiny/../../../../../secret/m.gguf", "acme/tiny/sub/m.gguf", "acme/tiny@", "", "a\nb/c", "acme--tiny"],
)  # fmt: skip
def test_hostile_names_and_refs_do_not_leave_the_cache(weightfs, mount, hub, name):
    outside = hub.path.parent / "secret"
    outside.mkdir(parents=True)
    (outside / "m.gguf").write_bytes(gguf("TREASURE"))
    (outside / "ref").write_text(ONE)
    snapshot = hub.commit("acme/tiny", ONE, {"m.gguf": gguf()}, "main")
    (snapshot / "sub").symlink_to(outside)
    (snapshot.parent / "link").symlink_to(outside)
    refs = hub.repo("acme/tiny") / "refs"
    (refs / "up").write_text("../../../secret")
    (refs / "link").write_text("link")
    (refs / "out").symlink_to(outside / "ref")
    said = weightfs.run("ls", f"hf:{name}", code=1)
    assert said.out == b"" and "TREASURE" not in said.err and len(said.err.splitlines()) <= 4
    mount.refused(f"hf:{name}")


def test_a_file_called_like_a_name(weightfs, tmp_path):
    (tmp_path / "hf:x").write_bytes(gguf("file"))
    assert tensors(weightfs, "./hf:x", cwd=tmp_path) == ["file"]
    assert "models--x" in weightfs.run("ls", "hf:x", code=1, cwd=tmp_path).err


def test_through_fstab(weightfs, hub, root, tmp_path):
    """mount(8) hands the name over as it is, in a namespace where the program is installed."""
    hub.commit("acme/tiny", ONE, {"m.gguf": gguf()}, "main")
    point = tmp_path / "mnt"
    point.mkdir()
    (tmp_path / "fstab").write_text(f"hf:acme/tiny@main {point} fuse.weightfs noauto,nofail,verify=once 0 0\n")
    script = """
mount -t tmpfs tmpfs /usr/local/bin && cp "$1" /usr/local/bin/weightfs
mount -T "$2" "$3" || exit 9
cat "$3/tensors/a.bin" && umount "$3" || exit 8
"""
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", weightfs.binary, tmp_path / "fstab", point],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        env=weightfs.env,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == pattern(256, seed=1)


# --- ollama: -----------------------------------------------------------------------------


def test_a_model_of_ollama_in_every_command(weightfs, mount, ollama):
    data = gguf()
    ollama.model("registry.ollama.ai/library/tiny/latest", ("model", data), ("template", b"{{ .Prompt }}"), ("license", b"MIT"))
    before = picture(ollama.path)
    spec = "ollama:tiny"
    assert tensors(weightfs, spec) == ["a"]
    found = weightfs.run("info", spec, "--json").json()
    assert [(a["kind"], a["repo"], a["commit"]) for a in found["anchors"]] == [("ollama-blob", "tiny", "latest")]
    assert found["warnings"] == []
    assert weightfs.run("cat", spec, "a").out == pattern(256, seed=1)
    weightfs.run("verify", spec)
    mounted = mount(spec)
    assert mounted.bin("a") == pattern(256, seed=1)
    assert (mounted / f"source/sha256-{sha(data)}").read_bytes() == data
    mounted.unmount()
    assert picture(ollama.path) == before, "nothing is written to the store"
    said = weightfs.run("seal", spec)
    seal = ollama.path / "blobs" / f"sha256-{sha(data)}.weightfs.json"
    assert seal.exists() and "Ollama clears" in said.err
    assert mount(spec, "seal=require").model["trust"] == "store"


def test_names_tags_and_hosts(weightfs, ollama, tmp_path):
    for path in ["registry.ollama.ai/library/tiny/latest", "registry.ollama.ai/library/tiny/8b", "registry.ollama.ai/me/mine/v1"]:
        ollama.model(path, ("model", gguf(path.replace("/", "-"))))
    ollama.model("hf.co/acme/tiny-GGUF/Q4_K_M", ("model", gguf("hub")))
    for spec, want in {
        "tiny": "registry.ollama.ai-library-tiny-latest",
        "tiny:8b": "registry.ollama.ai-library-tiny-8b",
        "library/tiny:8b": "registry.ollama.ai-library-tiny-8b",
        "registry.ollama.ai/library/tiny:8b": "registry.ollama.ai-library-tiny-8b",
        "me/mine:v1": "registry.ollama.ai-me-mine-v1",
        "hf.co/acme/tiny-GGUF:Q4_K_M": "hub",
    }.items():
        assert tensors(weightfs, f"ollama:{spec}") == [want], spec
    said = weightfs.run("ls", "ollama:tiny:70b", code=1).err
    assert "library/tiny/70b" in said and str(ollama.path) in said and "tiny:8b" in said
    other = Ollama(tmp_path / "elsewhere")
    other.model("registry.ollama.ai/library/tiny/latest", ("model", gguf("elsewhere")))
    assert tensors(weightfs, "ollama:tiny", env={"OLLAMA_MODELS": str(other.path)}) == ["elsewhere"]
    said = weightfs.run("ls", "ollama:tiny:8b", code=1, env={"OLLAMA_MODELS": str(other.path)}).err
    assert str(other.path) in said and str(ollama.path) not in said, "one store that is named is the only one"


def test_of_models_that_share_a_blob_the_one_that_was_asked_for_is_named(weightfs, ollama):
    for path in ["registry.ollama.ai/library/aaa/latest", "registry.ollama.ai/library/tiny/latest", "registry.ollama.ai/me/mine/v1"]:
        ollama.model(path, ("model", gguf()))
    for spec, repo, tag in [("tiny", "tiny", "latest"), ("me/mine:v1", "me/mine", "v1"), ("aaa", "aaa", "latest")]:
        weightfs.run("seal", f"ollama:{spec}", "--force")
        for command in (("info", f"ollama:{spec}", "--json"), ("provenance", f"ollama:{spec}", "--format", "json")):
            anchors = weightfs.run(*command).json()["anchors"]
            assert [(a["repo"], a["commit"]) for a in anchors] == [(repo, tag)], command


def test_projectors_are_told_and_not_mounted(weightfs, mount, ollama):
    ollama.model("registry.ollama.ai/library/see/latest", ("model", gguf()), ("projector", gguf("eye")))
    warnings = mount("ollama:see").model["warnings"]
    assert any("projector" in warning and sha(gguf("eye")) in warning for warning in warnings)
    assert tensors(weightfs, "ollama:see") == ["a"]


def test_damage_of_a_blob_is_found_by_its_name_also_in_the_header(weightfs, ollama):
    data = gguf()
    ollama.model("registry.ollama.ai/library/tiny/latest", ("model", data))
    blob = ollama.path / "blobs" / f"sha256-{sha(data)}"
    for place in (0, len(data) - 1):
        bad = bytearray(data)
        bad[place] ^= 1
        blob.write_bytes(bad)
        assert weightfs.run("verify", "ollama:tiny", "--json", code=3).json()["models"][0]["result"] == "damaged"


@pytest.mark.parametrize(
    "text, what",
    [("", "no manifest"), ("{", "no manifest"), ("{}", "layers"), ('{"layers": []}', "no layers"),
     ('{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../../secret"}]}', "64 digits"),
     ('{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:%s"}]}' % ("0" * 64), "not there"),
     ("[" * 100_000, "no manifest"), ("x" * (5 << 20), "at most")],
    ids=range(8),
)  # fmt: skip
def test_bad_manifests_name_themselves_and_what_is_wrong(weightfs, ollama, text, what):
    path = ollama.model("registry.ollama.ai/library/tiny/latest")
    path.write_text(text)
    said = weightfs.run("ls", "ollama:tiny", code=1).err
    assert str(path) in said and what in said and len(said) < 1500, said


def test_a_split_is_served_by_the_names_that_ollama_links(weightfs, ollama, tmp_path):
    tensors_of = [Gguf().key("general.architecture", "str", "llama"), Gguf()]
    for number, part in enumerate(tensors_of):
        part.tensor("ab"[number], "F32", (64,), pattern(256, number))
    parts = [path.read_bytes() for path in gguf_file.split(tensors_of, "big", tmp_path)]
    ollama.model("registry.ollama.ai/library/big/latest", *[("model", part) for part in parts])
    said = weightfs.run("ls", "ollama:big", code=1).err
    assert "2 layers of weights" in said and sha(parts[0]) in said
    links = ollama.path / "blobs/splits" / sha(parts[0])
    links.mkdir(parents=True)
    for number, part in enumerate(parts, 1):
        os.link(ollama.path / "blobs" / f"sha256-{sha(part)}", links / f"big-0000{number}-of-00002.gguf")
    assert tensors(weightfs, "ollama:big") == ["a", "b"]


# --- other stores, by path ---------------------------------------------------------------


def test_llama_cpp_and_lm_studio_by_path(weightfs, mount, tmp_path):
    cache = tmp_path / "llama.cpp"
    cache.mkdir()
    name = "acme_tiny-GGUF_tiny-Q4_K_M.gguf"
    (cache / name).write_bytes(gguf())
    (cache / f"{name}.etag").write_text('"0123"')
    (cache / f"{name}.json").write_text('{"etag": "0123", "url": "https://example.org/m.gguf"}')
    (cache / "manifest=acme=tiny-GGUF=latest.json").write_text("{}")
    assert tensors(weightfs, cache) == tensors(weightfs, cache / name) == ["a"]
    assert mount(cache).names() == ["a"]
    studio = tmp_path / "lmstudio/models/acme/tiny-GGUF"
    studio.mkdir(parents=True)
    (studio / "tiny-Q4_K_M.gguf").write_bytes(gguf())
    assert tensors(weightfs, studio) == ["a"]
    (studio / "mmproj-tiny.gguf").write_bytes(gguf("eye"))
    assert "mmproj-tiny.gguf, tiny-Q4_K_M.gguf" in weightfs.run("ls", studio, code=1).err
