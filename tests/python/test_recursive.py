"""mount --recursive: every model of a directory in one mount."""

import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

import gguf_file
import hf_golden
import mounting
from faulty_source import FaultySource
from gguf_file import Gguf, pattern
from mounting import Mounted, alive, is_mounted, shell, wait_until, xattr
from safetensors_file import Safetensors, sharded, snapshot
from test_maps import llama

KIB, MIB = 1 << 10, 1 << 20
# What is promised is 100 ms; the machine that runs this may have other things to do.
PROMPT = 1.0


def gguf(seed=1, size=256, name="a"):
    return Gguf().key("general.architecture", "str", "llama").tensor(name, "F32", (size // 4,), pattern(size, seed=seed))


def safetensors(seed=1, size=256):
    return Safetensors().tensor("a", "F32", (size // 4,), pattern(size, seed=seed))


def lay(root, **files):
    """Write models (or bytes) to paths; the root."""
    root = Path(root)
    for path, model in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(model if isinstance(model, bytes) else model.encode())
    return root


def models(mounted):
    return mounted.json("models.json")["models"]


def shown(mounted):
    return [row["directory"] for row in models(mounted) if "error" not in row]


def found(mounted):
    """Directories that hold a model.json, as a walk through the mount finds them."""
    top = str(mounted.path)
    return sorted(os.path.relpath(at, top) for at, _, files in os.walk(top) if "model.json" in files)


def bytes_of(mounted, model, name="a"):
    return (mounted / model / "tensors" / f"{name}.bin").read_bytes()


@pytest.fixture
def recursive(mount):
    def make(directory, *options, **more):
        return mount(directory, *options, flags=["--recursive"], **more)

    return make


@pytest.fixture
def refused(mount):
    def make(directory, *options, **more):
        return mount.refused(directory, *options, flags=["--recursive"], **more)

    return make


# --- trees ---------------------------------------------------------------------------------
def test_a_mount_of_ours_is_passed_over_and_a_directory_called_so_is_not(weightfs, recursive, mount, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "b/m.gguf": gguf(2)})
    (root / "b/.weightfs").mkdir()
    (root / "b/.weightfs/status.json").write_text("{}")
    (root / "mnt").mkdir()
    weightfs.run("mount", root / "a/m.gguf", root / "mnt")
    try:
        mounted = recursive(root)
        assert found(mounted) == ["a", "b"]
        assert any("mnt" in warning for warning in json.loads((mounted / "models.json").read_text())["warnings"])
    finally:
        weightfs.run("umount", root / "mnt", "--lazy")


def test_one_model_is_its_directory_and_several_are_files(recursive, tmp_path):  # LM Studio
    root = lay(
        tmp_path / "models",
        **{"acme/one-GGUF/q4.gguf": gguf(1), "acme/two-GGUF/q4.gguf": gguf(2), "acme/two-GGUF/q8.gguf": gguf(3), "top.gguf": gguf(4)},
    )
    mounted = recursive(root)
    assert found(mounted) == sorted(shown(mounted)) == ["acme/one-GGUF", "acme/two-GGUF/q4.gguf", "acme/two-GGUF/q8.gguf", "top.gguf"]
    for seed, name in [(1, "acme/one-GGUF"), (2, "acme/two-GGUF/q4.gguf"), (3, "acme/two-GGUF/q8.gguf"), (4, "top.gguf")]:
        assert bytes_of(mounted, name) == pattern(256, seed=seed)
    assert sorted(os.listdir(mounted.path)) == [".weightfs", "acme", "models.json", "top.gguf"]
    assert sorted(os.listdir(mounted / "acme")) == ["one-GGUF", "two-GGUF"]


def test_a_folder_of_llama_cpp(recursive, tmp_path):
    files = {"acme_tiny-GGUF_q4.gguf": gguf(1), "acme_tiny-GGUF_q8.gguf": gguf(2)}
    more = {f"{name}{end}": b'"x"' for name in files for end in (".etag", ".json")} | {"manifest=acme=tiny.json": b"{}"}
    mounted = recursive(lay(tmp_path / "cache", **files, **more, **{"half.gguf.downloadInProgress": b"GG"}))
    assert found(mounted) == sorted(files)
    assert [row for row in models(mounted) if "error" in row] == []


def test_a_cache_of_hugging_face(recursive, tmp_path):
    gguf(1).write(tmp_path / "q4.gguf")
    gguf(2).write(tmp_path / "q8.gguf")
    safetensors(3).write(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    hub = tmp_path / "hub"
    snapshot({"q4.gguf": tmp_path / "q4.gguf", "q8.gguf": tmp_path / "q8.gguf"}, hub, "models--acme--tiny-GGUF")
    snapshot({"model.safetensors": tmp_path / "model.safetensors", "config.json": tmp_path / "config.json"}, hub, "models--gpt2")
    lay(hub, **{"models--gpt2/snapshots/0000/model.safetensors": safetensors(4), ".locks/x.gguf": gguf(5), "version.txt": b"1"})
    mounted = recursive(hub)
    assert found(mounted) == ["acme/tiny-GGUF/q4.gguf", "acme/tiny-GGUF/q8.gguf", "gpt2"]
    assert bytes_of(mounted, "gpt2") == pattern(256, seed=3), "that of main"
    # What the names of blobs say counts as for a model that is mounted by itself.
    assert mounted.json("gpt2/model.json")["anchors"] != []


def test_a_store_of_ollama(recursive, tmp_path):
    names = {"registry.ollama.ai/library/tiny/latest": 1, "registry.ollama.ai/acme/mine/v1": 2, "hf.co/acme/far/Q4_K_M": 3}
    files = {}
    for name, seed in names.items():
        data = gguf(seed).encode()
        digest = hashlib.sha256(data).hexdigest()
        layers = [
            {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(data)},
            {"mediaType": "application/vnd.ollama.image.projector", "digest": f"sha256:{'0' * 64}", "size": 1},
        ]
        files |= {f"manifests/{name}": json.dumps({"layers": layers}).encode(), f"blobs/sha256-{digest}": data}
    mounted = recursive(lay(tmp_path / "models", **files))
    wanted = {"tiny:latest": 1, "acme/mine:v1": 2, "hf.co/acme/far:Q4_K_M": 3}
    assert found(mounted) == sorted(wanted)
    for name, seed in wanted.items():
        assert bytes_of(mounted, name) == pattern(256, seed=seed)
        assert mounted.json(f"{name}/model.json")["anchors"] != [], "what the blob's name says"
        assert "projector" in " ".join(mounted.json(f"{name}/model.json")["warnings"])


def test_a_store_by_its_name(mount, tmp_path, weightfs):
    gguf(1).write(tmp_path / "q4.gguf")
    gguf(2).write(tmp_path / "q8.gguf")
    hub = weightfs.home / "cache/huggingface/hub"
    snapshot({name: tmp_path / name for name in ("q4.gguf", "q8.gguf")}, hub, "models--acme--tiny")
    mounted = mount("hf:acme/tiny", "recursive")
    assert found(mounted) == ["q4.gguf", "q8.gguf"]


def test_sets_of_files_are_one_model_each(recursive, tmp_path):
    root = tmp_path / "models"
    (root / "split").mkdir(parents=True)
    (root / "sharded").mkdir()
    gguf_file.split([gguf(1, name="a"), gguf(2, name="b")], "big", root / "split", total=2)
    gguf(3).write(root / "split/other.gguf")
    sharded([safetensors(4), Safetensors().tensor("b", "F32", (4,))], root / "sharded")
    safetensors(5).write(root / "sharded/consolidated.safetensors")
    mounted = recursive(root)
    assert found(mounted) == ["sharded", "split/big.gguf", "split/other.gguf"]
    assert sorted(os.listdir(mounted / "split/big.gguf/source")) == ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    assert "consolidated.safetensors" in " ".join(mounted.json("sharded/model.json")["warnings"])


def test_a_model_with_models_below(recursive, tmp_path):
    root = lay(
        tmp_path / "models",
        **{"m/model.safetensors": safetensors(1), "m/gguf/q4.gguf": gguf(2), "m/gguf/q8.gguf": gguf(3), "m/onnx/x/deep.gguf": gguf(4)},
    )
    mounted = recursive(root)
    assert found(mounted) == ["m", "m/gguf/q4.gguf", "m/gguf/q8.gguf", "m/onnx/x"]
    names = os.listdir(mounted / "m")
    assert {"model.json", "tensors", ".weightfs", "gguf", "onnx"} < set(names) and len(names) == len(set(names))
    assert os.stat(mounted / "m").st_nlink == 2 + sum(os.path.isdir(mounted / "m" / name) for name in names)
    assert os.path.realpath(mounted / "m/onnx/..") == str(mounted / "m")
    assert [row["directory"] for row in models(mounted)] == ["m", "m/gguf/q4.gguf", "m/gguf/q8.gguf", "m/onnx/x"]


def test_a_model_that_would_lie_in_anothers_files_is_left_out(recursive, tmp_path):
    root = lay(tmp_path / "models", **{"m/model.safetensors": safetensors(1), "m/tensors/x.gguf": gguf(2), "models.json/x.gguf": gguf(3)})
    mounted = recursive(root)
    assert found(mounted) == ["m"]
    errors = {row["directory"]: row["error"] for row in models(mounted) if "error" in row}
    assert f"the tensors of the model m ({root / 'm'})" in errors["m/tensors"]
    assert "1 of 1 model not sealed" in mounted.result.err
    assert sorted(errors) == ["m/tensors", "models.json"]
    assert "m/tensors" in mounted.result.err and len(bytes_of(mounted, "m")) == 256


def test_names_that_are_no_utf8_or_odd(recursive, tmp_path):
    root = os.fsencode(tmp_path / "models")
    for name in (b"caf\xc3\xa9", b"b\xffad", b"new\nline", b"a b%c"):
        os.makedirs(os.path.join(root, name))
        with open(os.path.join(root, name, b"m.gguf"), "wb") as file:
            file.write(gguf(1).encode())
    mounted = recursive(os.fsdecode(root))
    assert sorted(name for name in os.listdir(os.fsencode(mounted.path)) if name not in (b".weightfs", b"models.json")) == [
        b"a b%25c",
        b"b%FFad",
        b"caf\xc3\xa9",
        b"new%0Aline",
    ]
    assert sorted(shown(mounted)) == ["a b%25c", "b%FFad", "café", "new%0Aline"]


def test_what_is_hidden_and_links_that_lead_out_are_passed_over(recursive, tmp_path):
    lay(tmp_path / "far", **{"x/m.gguf": gguf(1)})
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(2), ".cache/m.gguf": gguf(3), "a/.m.gguf": gguf(4)})
    (root / "far").symlink_to(tmp_path / "far")
    (root / "near").symlink_to("a")
    (root / "loop").symlink_to(".")
    (root / "a/up").symlink_to("..")
    mounted = recursive(root)
    assert found(mounted) == ["a"], "each directory once"
    assert "links that lead out" in mounted.result.err and "far" in mounted.result.err
    assert ["far" in mounted.json("models.json")["warnings"][0], "near" in mounted.json("models.json")["warnings"][1]] == [True, True]


@pytest.mark.parametrize("kind", ["directories that link to each other", "chains", "links to a model"])
def test_a_maze_of_links_is_walked_in_no_time(recursive, tmp_path, kind):
    root = lay(tmp_path / "models", **{"d0/m.gguf": gguf(1)})
    match kind:
        case "directories that link to each other":
            for i in range(100):
                (root / f"d{i}").mkdir(exist_ok=True)
                for j in range(100):
                    (root / f"d{i}/l{j}").symlink_to(f"../d{j}")
        case "chains":  # as long as the kernel follows, and longer
            for i in range(10_000):
                (root / f"c{i:05}").symlink_to(f"c{i + 1:05}" if i % 40 else "d0")
        case "links to a model":
            for i in range(400):
                (root / f"l{i}.gguf").symlink_to("d0/m.gguf")
    mounted = recursive(root)
    assert len(found(mounted)) == (401 if kind == "links to a model" else 1)


def test_views_of_models_are_no_models(mount, recursive, refused, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1)})
    first = recursive(root)
    for directory in (first.path, first / "a", first / "a/tensors"):
        assert "lies in a mount of weightfs" in refused(directory)
    by_itself = mount(first / "a/source/m.gguf")
    assert by_itself.bin("a") == pattern(256, seed=1)
    by_itself.unmount()


def test_a_mount_in_the_directory_is_not_looked_into(mount, recursive, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "b/m.gguf": gguf(2)})
    (root / "mnt").mkdir()
    first = recursive(root, point=root / "mnt")
    assert found(first) == ["a", "b"]
    second = recursive(root)
    assert found(second) == ["a", "b"]
    assert "mounts of weightfs" in second.result.err


# --- the same as each by itself ------------------------------------------------------------
def test_every_file_is_that_of_a_mount_of_the_model_alone(weightfs, mount, recursive, tmp_path):
    root = tmp_path / "models"
    for directory in ("g", "s", "two"):
        (root / directory).mkdir(parents=True)
    llama(output=True).write(root / "g/llama.gguf")
    sharded([safetensors(1, MIB), Safetensors().tensor("b", "BF16", (3, 5))], root / "s")
    gguf(2, 300 * KIB).tensor("q", "Q4_K", (2, 256)).write(root / "two/x.gguf")
    gguf(3, 300 * KIB).write(root / "two/y.gguf")
    weightfs.run("seal", root / "s", root / "two/x.gguf")
    mounted = recursive(root)
    for name in ("g", "s", "two/x.gguf", "two/y.gguf"):
        alone = mount(root / name)
        shell('diff -r --exclude=.weightfs "$1" "$2"', mounted / name, alone.path)
        listing = 'cd "$1" && find . -not -path "*/.weightfs*" -printf "%P %s %m %n %T@ %U %G %l\\n" | sort'
        assert shell(listing, mounted / name).text == shell(listing, alone.path).text
        alone.unmount()
    shell('cd "$1" && sha256sum --quiet -c SHA256SUMS', mounted / "two/x.gguf")


def test_models_with_the_same_tensors_are_told_apart(recursive, tmp_path):
    seeds = {f"m{i}": i + 1 for i in range(6)}
    root = lay(tmp_path / "models", **{f"{name}/m.gguf": gguf(seed, 2 * MIB) for name, seed in seeds.items()})
    mounted = recursive(root)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        reads = [(name, pool.submit(bytes_of, mounted, name)) for _ in range(4) for name in seeds]
        assert all(read.result() == pattern(2 * MIB, seed=seeds[name]) for name, read in reads)
    for name, seed in seeds.items():
        assert (mounted / name / "source/m.gguf").read_bytes() == (root / name / "m.gguf").read_bytes()
        assert (mounted / name / "f32/a.bin").read_bytes() == pattern(2 * MIB, seed=seed)


def test_names_of_hugging_face_for_different_architectures(mount, recursive, tmp_path):
    root = tmp_path / "models"
    for name in ("llama", "gemma3"):
        (root / name).mkdir(parents=True)
        hf_golden.write(hf_golden.model(name, "F32"), root / name)
    lay(root, **{"st/model.safetensors": safetensors(1)})
    mounted = recursive(root, "map=hf", "dtype=f32")
    assert found(mounted) == ["gemma3", "llama", "st"]
    for name in ("llama", "gemma3"):
        alone = mount(root / name, "map=hf", "dtype=f32")
        shell('diff -r "$1" "$2"', mounted / name / "hf", alone / "hf")
        assert mounted.json(f"{name}/hf/config.json")["model_type"].startswith(name)
        alone.unmount()
    assert not (mounted / "st/hf").exists()


# --- models that cannot be had -------------------------------------------------------------
def test_a_broken_model_does_not_take_the_others_down(recursive, tmp_path):
    whole = gguf(1).encode()
    root = lay(tmp_path / "models", **{"a/m.gguf": whole, "b/m.gguf": whole[:-100], "c/m.gguf": whole, "d/m.gguf": b"version https://git-lfs"})
    mounted = recursive(root)
    assert found(mounted) == ["a", "c"] == sorted(name for name in os.listdir(mounted.path) if "." not in name)
    by_name = {row["directory"]: row for row in models(mounted)}
    assert by_name["a"] == {
        **{"path": str(root / "a"), "directory": "a", "format": "gguf", "architecture": "llama"},
        **{"tensor_count": 1, "nbytes": 256, "sealed": False, "trust": "tofu"},
    }
    assert str(root / "b/m.gguf") in by_name["b"]["error"] and set(by_name["b"]) == {"path", "directory", "error"}
    assert f"left out: {root / 'b/m.gguf'}" in mounted.result.err
    assert all(line.count(str(root)) == 1 for line in mounted.result.err.splitlines()), "names said once"
    assert "d/m.gguf" in mounted.result.err
    status = mounted.status
    assert (len(status["models"]), status["left_out"]) == (2, 2)


def test_the_seal_of_one_counts_for_it_alone(weightfs, recursive, refused, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "b/m.gguf": gguf(2, name="other"), "c/m.gguf": gguf(3)})
    weightfs.run("seal", root / "a")
    shutil.copy(root / "a/m.gguf.weightfs.json", root / "b/m.gguf.weightfs.json")
    mounted = recursive(root)
    assert found(mounted) == ["a", "c"]
    rows = {row["directory"]: row for row in models(mounted)}
    assert (rows["a"]["sealed"], rows["a"]["trust"], rows["c"]["sealed"]) == (True, "sidecar", False)
    assert "seal" in rows["b"]["error"] and "1 of 2 models not sealed" in mounted.result.err
    assert mounted.status["trust"] == "tofu" and mounted.status["sealed"] is False
    assert found(recursive(root, "seal=none")) == ["a", "b", "c"]
    only = recursive(root, "seal=require")
    assert found(only) == ["a"]
    out = [line for line in only.result.err.splitlines() if "left out: " in line]
    paths = [str(root / name) for name in "bc"]
    assert [line.split("left out: ")[1].startswith(path) for line, path in zip(out, paths, strict=True)] == [True, True], out
    assert out[1].count(f"{paths[1]}: ") == 1, out


def test_when_nothing_can_be_mounted_the_gravest_reason_counts(weightfs, refused, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "b/m.gguf": gguf(2, name="other")})
    assert "seal=require" in refused(root, "seal=require", code=4)
    weightfs.run("seal", root / "a")
    shutil.copy(root / "a/m.gguf.weightfs.json", root / "b/m.gguf.weightfs.json")
    (root / "a/m.gguf.weightfs.json").write_text("{}")
    said = refused(root, code=5)
    assert "none of 2 models" in said and str(root) in said
    # A file of another size than its seal says is 5; one without a seal that is no model, 1.
    (root / "b/m.gguf").write_bytes(b"GGUF")
    refused(root, code=5)
    (root / "b/m.gguf.weightfs.json").unlink()
    refused(root, code=1)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no model" in refused(empty)
    assert "no directory" in refused(root / "a/m.gguf")
    refused(tmp_path / "none")


@pytest.mark.parametrize("words", [["seal=x.json"], ["like=other"], ['set=a="x"']])
def test_what_is_of_one_model_is_a_usage_error(mount, refused, tmp_path, words):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1)})
    assert words[0].split("=")[0] in refused(root, *words, code=2)
    mount.refused(root, "recursive", *words, code=2)


def test_the_form_of_fstab(mount, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "b/m.gguf": gguf(2)})
    mounted = mount(root, "rw,nosuid,nodev,recursive,verify=once", "fsname=all models")
    assert found(mounted) == ["a", "b"]
    assert mounting.mounts()[str(mounted.path)][:2] == ("fuse.weightfs", "all\\040models")
    assert mounted.json("a/model.json")["verify"] == "once"


def test_the_error_of_several_models_says_how_to_have_all(weightfs, mount, tmp_path):
    root = lay(tmp_path / "models", **{"a/b/a.gguf": gguf(1), "a/b/b.gguf": gguf(2)})
    for directory in (root / "a/b", root / "a", root):
        assert "--recursive" in mount.refused(directory)
        assert "--recursive" not in weightfs.run("ls", directory, code=1).err
    (tmp_path / "empty").mkdir()
    assert "--recursive" not in mount.refused(tmp_path / "empty")


def test_a_map_that_is_wrong_for_all_is_told_once(mount, refused, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "b/m.gguf": gguf(2)})
    (tmp_path / "bad.json").write_text('{"weightfs_map": 1, "rules": [{"regex": "(", "to": "x"}]}')
    for value in ("nofile", tmp_path / "bad.json", root):
        words = refused(root, f"map={value}")
        assert words == mount.refused(root / "a", f"map={value}"), "as of one model"
        assert str(root / "a") not in words


def test_what_this_process_may_not_open_is_no_fault_of_a_model(weightfs, mount, tmp_path):
    root = lay(tmp_path / "models", **{f"m{i}/m.gguf": gguf(i) for i in range(400)})
    point = mount.point()

    def run(most, code):
        few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))}
        return weightfs.run("mount", "--recursive", root, point, code=code, **few)

    for most in (60, 256, 420, 470):
        said = run(most, 1).err
        assert f"({most})" in said and "ulimit -n" in said and len(said.splitlines()) == 2, said
        assert not is_mounted(str(point)) and "left out" not in said
    result = run(560, 0)
    mounted = Mounted(weightfs, str(point), None, result)
    mount.open.append(mounted)
    assert len(shown(mounted)) == 400


@contextlib.contextmanager
def waiting(weightfs, faulty, point, *words, **options):
    """A mount command whose source hangs, and its daemon."""
    faulty.fault("m/m.gguf", "hang", start=0, end=MIB)
    command = weightfs.start("mount", *words, Path(faulty.path) / "m", point, stderr=subprocess.DEVNULL, **options)
    try:
        wait_until(lambda: faulty.hanging() >= 1 and len(children(command.pid)) == 1, 10, "a header that hangs")
        yield command, children(command.pid)[0]
    finally:
        command.kill()
        faulty.clear()
        command.wait(10)


def children(pid):
    with contextlib.suppress(OSError):
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


@pytest.mark.parametrize("words", [[], ["--recursive"]])
@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_who_ends_the_command_before_the_mount_is_ready_ends_the_daemon(weightfs, faulty, mount, tmp_path, words, way):
    lay(tmp_path / "files", **{"m/m.gguf": gguf(1, MIB)})
    point = mount.point()
    with waiting(weightfs, faulty, point, *words) as (command, daemon):
        command.send_signal(way)
        assert command.wait(10) == -way, "as if it had no child"
        if way != signal.SIGKILL:
            assert not alive(daemon), "it waits for its child"
        wait_until(lambda: not alive(daemon), 10, "the end of the daemon")
        assert not is_mounted(str(point))
    assert mount(tmp_path / "files/m", point=point).bin("a") == pattern(MIB, seed=1)


def test_a_terminal_that_closes_ends_the_daemon(weightfs, faulty, mount, tmp_path):
    lay(tmp_path / "files", **{"m/m.gguf": gguf(1, MIB)})
    ours, theirs = pty.openpty()

    def controlled():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    with waiting(weightfs, faulty, mount.point(), preexec_fn=controlled) as (command, daemon):
        os.close(theirs)
        os.close(ours)
        assert command.wait(10) == -signal.SIGHUP
        wait_until(lambda: not alive(daemon), 10, "the end of the daemon")


def test_a_mount_point_that_would_hide_a_model_is_refused(refused, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "b/c/m.gguf": gguf(2)})
    for point in (root, root / "a", root / "b"):
        assert "would hide" in refused(root, point=point)


# --- sealing and verifying all ---------------------------------------------------------------
def test_all_models_are_sealed_and_verified_as_they_are_found(weightfs, recursive, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "two/x.gguf": gguf(2), "two/y.gguf": gguf(3), ".hidden/m.gguf": gguf(4)})
    (root / "again").symlink_to("a")
    assert weightfs.run("verify", "--recursive", root, code=4).out.count(b"\n") == 0
    lines = weightfs.run("seal", "--recursive", root).text.splitlines()
    assert [line.split(": ")[0] for line in lines] == [str(root / name) for name in ("a", "two/x.gguf", "two/y.gguf")]
    assert sorted(path.name for path in root.rglob("*.weightfs.json")) == ["m.gguf.weightfs.json", "x.gguf.weightfs.json", "y.gguf.weightfs.json"]
    assert [row["sealed"] for row in models(recursive(root))] == [True] * 3
    good = weightfs.run("verify", "--recursive", "models", cwd=tmp_path).text.splitlines()
    assert [line.split(": good")[0] for line in good] == ["models/a", "models/two/x.gguf", "models/two/y.gguf"]
    assert weightfs.run("seal", "--recursive", root).text.count("sealed already") == 3


def test_the_gravest_end_of_all_counts_and_no_model_is_forgotten(weightfs, tmp_path):
    root = lay(tmp_path / "models", **{f"{name}/m.gguf": gguf(seed, MIB) for seed, name in enumerate("abc")})
    weightfs.run("seal", "--recursive", root)
    data = bytearray((root / "b/m.gguf").read_bytes())
    data[-1] ^= 1
    (root / "b/m.gguf").write_bytes(data)
    (root / "c/m.gguf").write_bytes(b"GGUF")  # not even its header is there
    document = weightfs.run("verify", "--recursive", "--json", root, code=3).json()
    assert [(row["model"], row["result"]) for row in document["models"]] == [
        (str(root / "a"), "good"), (str(root / "b"), "damaged"), (str(root / "c"), "damaged"),
    ]  # fmt: skip
    lay(root, **{"d/m.gguf": gguf(5), "e/m.gguf": b"version https://git-lfs.github.com/spec/v1\n"})
    assert weightfs.run("verify", "--recursive", root, code=1).err.count("not the model") == 1
    (tmp_path / "empty").mkdir()
    for command in ("seal", "verify"):
        assert "holds no model" in weightfs.run(command, "--recursive", tmp_path / "empty", code=1).err
        assert "no directory" in weightfs.run(command, "--recursive", root / "a/m.gguf", code=1).err
        weightfs.run(command, "--recursive", "--part", root, code=2)


# --- damage --------------------------------------------------------------------------------
def test_damage_in_one_disturbs_no_other(weightfs, recursive, tmp_path):
    root = lay(tmp_path / "models", **{f"{name}/m.gguf": gguf(seed, MIB) for seed, name in enumerate("abc")})
    weightfs.run("seal", *(root / name for name in "abc"))
    at = gguf(1, MIB).place_of("a") + 200_000
    with open(root / "b/m.gguf", "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x20]))
    mounted = recursive(root)
    for _ in range(2):
        with pytest.raises(OSError) as failed:
            bytes_of(mounted, "b")
        assert failed.value.errno == errno.EIO
        for seed, name in ((0, "a"), (2, "c")):
            assert bytes_of(mounted, name) == pattern(MIB, seed=seed)
    assert xattr(mounted / "b/tensors/a.bin", "state") in ("degraded", "open")
    assert xattr(mounted / "a/tensors/a.bin", "state") == "verified"
    status = mounted.status
    assert status["state"] in ("degraded", "open") and status["mismatches"] >= 1
    assert [(bad["model"], bad["tensor"]) for bad in status["bad"]] == [("b", "a")]
    assert mounted.json("a/.weightfs/status.json")["bad"] == []
    assert mounted.json("b/.weightfs/status.json")["bad"][0]["chunk"] == status["bad"][0]["chunk"]
    assert "b: a" in weightfs.run("status", mounted.path).text
    assert 'weightfs_bad_chunks{model="b"} 1' in (mounted / ".weightfs/metrics").read_text().splitlines()


def test_a_truncated_source_is_stale_and_no_other(recursive, tmp_path):
    root = lay(tmp_path / "models", **{f"{name}/m.gguf": gguf(seed, 2 * MIB) for seed, name in enumerate("ab")})
    mounted = recursive(root)
    assert bytes_of(mounted, "a") == pattern(2 * MIB, seed=0)
    os.truncate(root / "a/m.gguf", MIB)
    with pytest.raises(OSError) as failed:
        bytes_of(mounted, "a")
    assert failed.value.errno == errno.ESTALE
    assert bytes_of(mounted, "b") == pattern(2 * MIB, seed=1)
    assert (mounted.status["state"], mounted.status["source_changed"]) == ("stale", True)
    assert mounted.json("b/.weightfs/status.json")["source_changed"] is False


@pytest.fixture
def faulty(mount, tmp_path):
    """A source of the directory `files` that can be told to hang; closed after the mounts."""
    (tmp_path / "files").mkdir()
    source = FaultySource(tmp_path / "files", tmp_path / "source")
    mounting.LIVE.add(source)
    yield source
    with contextlib.suppress(OSError):
        source.clear()
    mount.close()
    source.close()
    mounting.LIVE.discard(source)


def test_a_source_that_hangs_keeps_no_other_model_waiting(weightfs, recursive, faulty, tmp_path):
    lay(tmp_path / "files", **{f"{name}/m.gguf": gguf(seed, 2 * MIB) for seed, name in enumerate("ab")})
    mounted = recursive(faulty.path)
    faulty.fault("a/m.gguf", "hang", start=MIB, end=2 * MIB)
    code = "import sys; open(sys.argv[1], 'rb').read()"
    readers = [subprocess.Popen([sys.executable, "-c", code, mounted / "a/tensors/a.bin"], stderr=subprocess.DEVNULL) for _ in range(12)]
    wait_until(lambda: faulty.hanging() >= 1, 10, "a read that hangs")
    for what in (
        lambda: bytes_of(mounted, "b") == pattern(2 * MIB, seed=1),
        lambda: mounted.status["reads"] > 0,
        lambda: found(mounted) == ["a", "b"],
        lambda: mounted.json("a/model.json")["tensor_count"] == 1,
        lambda: os.stat(mounted / "a/f32/a.bin").st_size == 2 * MIB,
        lambda: "hang" not in weightfs.run("status", mounted / "a").err,
    ):
        started = time.monotonic()
        assert what()
        assert time.monotonic() - started < 10 * PROMPT
    faulty.clear()
    assert [reader.wait(30) for reader in readers] == [0] * 12


def test_a_directory_behind_a_fuse_source(weightfs, recursive, faulty, tmp_path):
    files = {f"pub/repo{i}/m.gguf": gguf(i, 100 * KIB) for i in range(5)}
    lay(tmp_path / "files", **files)
    weightfs.run("seal", *(tmp_path / "files" / name for name in files))
    mounted = recursive(faulty.path)
    assert [row["sealed"] for row in models(mounted)] == [True] * 5
    for i in range(5):
        assert bytes_of(mounted, f"pub/repo{i}") == pattern(100 * KIB, seed=i)
    mounted.unmount()


# --- status, numbers, the end ---------------------------------------------------------------
def test_status_of_all_and_of_one(weightfs, recursive, tmp_path):
    root = lay(tmp_path / "models", **{"p/a/m.gguf": gguf(1), "p/b/m.gguf": gguf(2), "p/c/m.gguf": b"no"})
    mounted = recursive(root)
    bytes_of(mounted, "p/a")
    bytes_of(mounted, "p/b")
    status = weightfs.run("status", mounted.path, "--json").json()
    assert (status["bytes_served"], status["state"], status["trust"]) == (512, "unverified", "tofu")
    assert sum(model["reads"] for model in status["models"]) == status["reads"]
    assert {"mounted_at", "uptime_seconds", "verify", "breakers", "bad", "rss_bytes", "log", "confined"} < set(status)
    one = weightfs.run("status", mounted / "p/a", "--json").json()
    assert "models" not in one and one["bytes_served"] == 256 and one["log"] == status["log"]
    for name in ("p/a", "p/b"):
        first = weightfs.run("status", mounted / name).text.splitlines()[0]
        assert first == f"{root / name} on {mounted / name}"
    text = weightfs.run("status", mounted.path).text
    assert text.splitlines()[0] == f"{root} on {mounted.path}"
    assert "2, 1 left out" in text and str(mounted.path) in text
    assert "neither" in weightfs.run("status", mounted / "p", code=1).err
    weightfs.run("status", tmp_path, code=1)
    metrics = (mounted / ".weightfs/metrics").read_text()
    assert 'weightfs_bytes_served_total{model="p/a"} 256' in metrics.splitlines()
    assert metrics.count("# TYPE weightfs_reads_total counter") == 1
    assert "weightfs_models_left_out 1" in metrics.splitlines()
    # A live document is whole, however it is read.
    assert json.loads(shell('cat "$1"', mounted / ".weightfs/status.json").out)["left_out"] == 1


def test_inode_numbers_are_those_of_the_next_mount(recursive, tmp_path):
    root = lay(tmp_path / "models", **{"a/model.safetensors": safetensors(1), "a/x/m.gguf": gguf(2), "b/c/m.gguf": gguf(3), "d/m.gguf": b"broken"})

    def numbers(mounted):
        return shell('cd "$1" && find . -printf "%P %i\\n" | sort', mounted.path).text.splitlines()

    first = recursive(root)
    before = numbers(first)
    first.unmount()
    assert numbers(recursive(root)) == before
    assert len({line.rpartition(" ")[2] for line in before}) == len(before)
    # Others come before, between and behind, and a broken one is mended.
    lay(root, **{"0/m.gguf": gguf(4), "a/w/m.gguf": gguf(5), "b/a/m.gguf": gguf(6), "d/m.gguf": gguf(7), "z/m.gguf": gguf(8)})
    more = recursive(root)
    assert len(shown(more)) == 8
    assert set(before) < set(numbers(more))


def test_the_root_has_directories_and_files_like_any_other(recursive, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1, MIB), "p/b/m.gguf": gguf(2)})
    mounted = recursive(root, "umask=027")
    shell('cd "$1" && find . -type f -exec cat {} + >/dev/null && du -s . && ls -lR >/dev/null', mounted.path)
    for directory in ("", "p", "a", ".weightfs"):
        about = os.stat(mounted / directory)
        assert (about.st_mode & 0o777, about.st_uid) == (0o550, os.getuid())
    assert os.stat(mounted / "models.json").st_size == len((mounted / "models.json").read_bytes())
    assert os.statvfs(mounted.path).f_namemax == 255
    assert os.statvfs(mounted.path).f_blocks * 4096 >= sum(os.path.getsize(root / name) for name in ("a/m.gguf", "p/b/m.gguf"))
    for name, wanted in (("x" * 256, errno.ENAMETOOLONG), ("none", errno.ENOENT), ("p/none", errno.ENOENT), ("models.json/x", errno.ENOTDIR)):
        with pytest.raises(OSError) as failed:
            os.stat(mounted / name)
        assert failed.value.errno == wanted
    for what in (lambda: os.mkdir(mounted / "p/new"), lambda: open(mounted / "new", "w"), lambda: os.unlink(mounted / "models.json")):
        with pytest.raises(OSError) as failed:
            what()
        assert failed.value.errno == errno.EROFS
    with pytest.raises(OSError) as failed:
        os.getxattr(mounted / "p", "user.weightfs.state")
    assert failed.value.errno == errno.ENODATA and os.listxattr(mounted / "p") == []


def test_what_was_seen_of_all_is_kept_for_the_next_mount(weightfs, recursive, tmp_path):
    root = lay(tmp_path / "models", **{f"{name}/m.gguf": gguf(seed, MIB) for seed, name in enumerate("abc")})
    mounted = recursive(root)
    bytes_of(mounted, "a")
    bytes_of(mounted, "b")
    assert mounted.status["confined"].startswith("no_new_privs")
    mounted.unmount()
    assert len(os.listdir(weightfs.home / "cache/weightfs/tofu")) == 2


def test_idle_counts_the_files_of_all(recursive, tmp_path):
    root = lay(tmp_path / "models", **{"a/m.gguf": gguf(1), "b/m.gguf": gguf(2)})
    mounted = recursive(root, "idle=1")
    with open(mounted / "a/tensors/a.bin", "rb"):
        with open(mounted / "b/tensors/a.bin", "rb"):
            time.sleep(2.5)
        assert is_mounted(str(mounted.path))
    wait_until(lambda: not is_mounted(str(mounted.path)) and not alive(mounted.pid), 15, "the end of an idle mount")


def test_two_hundred_models(weightfs, mount, tmp_path):
    """In a process that may open 64 files, as far as its soft limit says."""
    root = lay(tmp_path / "models", **{f"p{i // 20}/m{i}/m.gguf": gguf(i, KIB) for i in range(200)})
    point, (_, hard) = mount.point(), resource.getrlimit(resource.RLIMIT_NOFILE)
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))}
    result = weightfs.run("mount", "--recursive", root, point, "-o", f"log={tmp_path / 'log'}", **few)
    mounted = Mounted(weightfs, str(point), tmp_path / "log", result)
    mount.open.append(mounted)
    assert len(shown(mounted)) == 200 and len(result.err.splitlines()) == 1
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda i: bytes_of(mounted, f"p{i // 20}/m{i}"), range(200)))
    assert got == [pattern(KIB, seed=i) for i in range(200)]
    shell('find "$1" -type f -path "*/metadata*" -size +0 | wc -l', mounted.path)
    assert len(mounted.status["models"]) == 200
    assert mounted.rss_anon() < 48 * MIB
    mounted.unmount()
