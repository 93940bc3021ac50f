"""Files that the user names to be written to: nothing of value is written over, whatever was typed."""

import os
import subprocess

import pytest

from gguf_file import Gguf
from mounting import is_mounted
from safetensors_file import Safetensors

SVG = b"<svg old/>"


def st(path):
    return Safetensors().tensor("a", "F32", (64,)).write(path)


@pytest.fixture
def model(weightfs, tmp_path):
    """A sealed model, with other things beside it."""
    path = Gguf().tensor("a", "F32", (64,)).write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    st(tmp_path / "other.safetensors")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "m.gguf.sha256").write_text("0" * 64 + "  another\n")
    (tmp_path / "pickle.bin").write_bytes(b"\x80\x02}q\0(X")
    os.link(path, tmp_path / "hard.log")
    (tmp_path / "soft.log").symlink_to("m.gguf")
    return path


PRECIOUS = {
    "m.gguf": "a GGUF model",
    "hard.log": "a GGUF model",
    "soft.log": "a GGUF model",
    "other.safetensors": "a safetensors model",
    "m.gguf.weightfs.json": "the seal of a model",
    "config.json": "a JSON document",
    "m.gguf.sha256": "a list of digests",
    "pickle.bin": "a Python pickle",
}


def bytes_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", PRECIOUS)
def test_no_picture_takes_the_place_of(weightfs, model, name):
    before = bytes_of(model.parent)
    said = weightfs.run("stats", model, "--svg", model.parent / name, code=1)
    assert f"{name}: --svg: it is {PRECIOUS[name]}" in said.err and said.out == b"", "before anything was read"
    assert bytes_of(model.parent) == before


@pytest.mark.parametrize("words", [(), ("-f",), ("--recursive",)])
@pytest.mark.parametrize("name", PRECIOUS)
def test_no_log_grows_behind(weightfs, model, tmp_path, name, words):
    before = bytes_of(model.parent)
    point = tmp_path / "mnt"
    point.mkdir()
    given = model.parent if "--recursive" in words else model
    said = weightfs.run("mount", given, point, "-o", f"log={model.parent / name}", *words, code=1).err
    assert name in said and f"it is {PRECIOUS[name]}" in said
    assert bytes_of(model.parent) == before and not is_mounted(point)


def test_where_a_picture_goes(weightfs, model, tmp_path):
    old, link = tmp_path / "old.svg", tmp_path / "link.svg"
    for text in (b"", SVG, b"\xef\xbb\xbf<?xml version='1.0'?><svg/>"):
        old.write_bytes(text)
        weightfs.run("stats", model, "--svg", old)
        assert b"</svg>" in old.read_bytes()
    old.write_bytes(SVG)
    link.symlink_to("old.svg")
    weightfs.run("stats", model, "--svg", link)
    assert link.is_symlink() and b"</svg>" in old.read_bytes()
    (tmp_path / "notes").write_text("mine")
    said = weightfs.run("stats", model, "--svg", tmp_path / "notes", code=1).err
    assert "a file of text" in said and (tmp_path / "notes").read_text() == "mine"
    said = weightfs.run("stats", model, "--svg", tmp_path, code=1).err
    assert "neither a file nor a pipe" in said
    assert not list(tmp_path.glob(".weightfs-svg*"))


def test_a_picture_through_a_pipe(weightfs, model, tmp_path):
    both = weightfs.run("stats", model, "--svg", "/dev/stdout").text
    assert "tensor" in both.split("<svg", 1)[0] and both.endswith("</svg>\n")
    with open(tmp_path / "both", "wb") as file:
        subprocess.run([weightfs.binary, "stats", model, "--svg", "/dev/stdout"], stdout=file, env=weightfs.env, check=True)
    assert (tmp_path / "both").read_text() == both, "the table stays where stdout is a file"
    words = ["bash", "-c", '"$0" stats "$1" --svg >(cat >"$2.part"; mv "$2.part" "$2") >"$3"', weightfs.binary, model, tmp_path / "p", tmp_path / "t"]
    subprocess.run(words, env=weightfs.env, check=True, timeout=30)
    for _ in range(1000):
        if (tmp_path / "p").exists():
            break
        subprocess.run(["sleep", "0.01"], check=True)
    assert (tmp_path / "p").read_text() in both and "<svg" not in (tmp_path / "t").read_text()


def test_a_picture_alone_on_standard_output(weightfs, model, tmp_path):
    """As `-` is where other commands take it: no file of that name, nothing but the picture."""
    for words in ((), ("a",)):
        done = subprocess.run([weightfs.binary, "stats", model, *words, "--svg", "-"], capture_output=True, cwd=tmp_path, env=weightfs.env, check=True)
        assert done.stdout.startswith(b"<?xml") and done.stdout.endswith(b"</svg>\n") and done.stderr == b""
    assert not (tmp_path / "-").exists()
    said = weightfs.run("stats", model, "--json", "--svg", "-", code=2)
    assert "--svg FILE" in said.err and said.out == b""
    done = subprocess.run([weightfs.binary, "stats", model, "--svg", "./-"], capture_output=True, cwd=tmp_path, env=weightfs.env, check=True)
    assert b"</svg>" in (tmp_path / "-").read_bytes() and b"<svg" not in done.stdout


def test_a_log_grows_behind_lines_and_in_new_files(mount, model, tmp_path):
    for name, text in {"new.log": None, "empty.log": "", "old.log": "2026-11-30T00:00:00.000Z info  a line\n", "their.log": "[today] a line\n"}.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        mount(model, f"log={tmp_path / name}").unmount()
        found = (tmp_path / name).read_text()
        assert found.startswith(text or "") and "unmounted" in found[len(text or "") :]
