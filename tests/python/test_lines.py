"""Words of strangers forge no lines and command no terminal, whatever prints them."""

import json
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gguf_file import Gguf, split
from mounting import wait_until
from safetensors_file import Safetensors, sharded

# What a terminal or a reader of a log would obey, and what it would take for a line of ours.
FORGED = "forged line"
EVIL = f"\nweightfs: {FORGED}\r\x1b]0;owned\x07\x1b[2J\t\x7f\x85\u202e\u2028\u2066{FORGED}\nweightfs: {FORGED}"
ODD = re.compile("[\x00-\x08\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
LONG = "long " * 13000


def harmless(text, messages=False):
    """No control character but the line's end, and no line that begins with strangers' words."""
    found = ODD.search(text)
    assert found is None, text[max(0, found.start() - 200) : found.end() + 50]
    for line in text.splitlines():
        assert not line.lstrip().removeprefix("weightfs: ").startswith(FORGED), text
        assert not messages or line.startswith(("weightfs: ", "  ")), text
        assert not messages or len(line) <= 1100, len(line)


def evil_gguf(path, names=(f"a{EVIL}", f"blk.0.{EVIL}.weight", LONG)):
    gguf = Gguf()
    gguf.key("general.architecture", "str", f"llama{EVIL}")
    gguf.key("general.name", "str", EVIL)
    gguf.key(f"key.{EVIL}", "str", EVIL)
    gguf.key("tokenizer.ggml.model", "str", f"gpt2{EVIL}")
    gguf.key("tokenizer.ggml.tokens", "arr:str", [EVIL] * 100)
    for name in names:
        gguf.tensor(name, "F32", (2, 32))
    gguf.trailing = b"behind"
    return gguf.write(path)


def evil_safetensors(path, extra=()):
    model = Safetensors({f"key{EVIL}": EVIL, "format": "pt"})
    for name in (f"a{EVIL}", f"b{EVIL}.weight", f"b{EVIL}.weight_scale", *extra):
        model.tensor(name, "F32", (2, 32))
    return model.tensor(f"c{EVIL}.weight", "F8_E4M3", (4, 4)).write(path)


@pytest.fixture
def run(weightfs):
    """Runs a command whatever its end, and looks at both outputs; JSON stays exact."""

    def run(*args, document=False, bytes_out=False, code=None):
        done = weightfs.run(*args, code=code)
        harmless(done.err, messages=True)
        if document:
            json.loads(done.out)
        elif not bytes_out:
            harmless(done.text)
        return done

    return run


@pytest.fixture(params=["gguf", "safetensors"])
def model(request, tmp_path):
    place = tmp_path / f"models{EVIL}"
    place.mkdir()
    make = evil_gguf if request.param == "gguf" else evil_safetensors
    return make(place / f"m{EVIL}.{request.param}")


def test_of_a_model_that_can_be_read(run, model, tmp_path):
    other = model.with_name(f"other{EVIL}")
    data = bytearray(model.read_bytes())
    data[-40] ^= 1
    other.write_bytes(data)
    name = f"a{EVIL}"
    map_file = tmp_path / f"map{EVIL}.json"
    rules = {"weightfs_map": 1, "pairs": {name: f"x{EVIL}"}, "rules": [{"regex": "(b.*)", "to": "y${1}"}]}
    map_file.write_text(json.dumps(rules))
    for words in (["ls"], ["info"], ["map"], ["stats"]):
        run(*words, model, code=0)
        run(*words, model, "--json", document=True, code=0)
    run("map", model, "--map", "hf")
    run("map", model, "--map", map_file)
    run("ls", model, "--map", map_file)
    run("map", model, "--like", other)
    run("stats", model, name, f"no{EVIL}")
    run("stats", model, name, "--svg", tmp_path / f"no{EVIL}/x.svg")
    run("diff", model, other, code=0)
    run("cat", model, f"no{EVIL}", code=1)
    run("cat", model, "a", code=1)
    run("verify", model, code=4)
    run("provenance", model, code=4)
    run("provenance", model, "--format", "gguf-hash", code=1)
    run("seal", model, code=0)
    run("seal", model, code=0)
    run("seal", model, "--chunk-size", "4KiB", code=0)
    run("verify", model, code=0)
    seal = Path(f"{model}.weightfs.json")
    run("verify", other, "--against", seal)
    model.write_bytes(data)
    run("verify", model, code=3)
    run("verify", model, "--json", document=True, code=3)
    run("stats", model, code=1)
    run("diff", model, other, code=1)
    run("cat", model, name, "--as", "npy", bytes_out=True)
    run("seal", model, code=5)
    run("provenance", model, "--format", "sfv", bytes_out=True, code=0)
    run("verify", model, "--expect-sha256", "0" * 64)
    sums = tmp_path / f"sums{EVIL}"
    sums.write_text(f"{'0' * 64}  x\x1b[2J\u202e{FORGED}\n{'0' * 12} y\x1b[2J\n")
    run("verify", model, "--against", sums)
    seal.write_text(seal.read_text().replace('"crc32":"', '"crc32":"0', 1))
    run("verify", model, code=5)
    run("info", model)


def test_of_one_that_cannot(run, tmp_path):
    place = tmp_path / f"broken{EVIL}"
    place.mkdir()
    twice = evil_gguf(place / f"twice{EVIL}.gguf", (f"a{EVIL}", f"a{EVIL}"))
    cut = evil_safetensors(place / f"cut{EVIL}.safetensors")
    cut.write_bytes(cut.read_bytes()[:-300])
    keys = Gguf().key(f"k{EVIL}", "str", "x").key(f"k{EVIL}", "str", "y").write(place / "keys")
    kind = Gguf().raw_key(f"k{EVIL}".encode(), 77, b"").write(place / "kind")
    dtype = Gguf().tensor(f"a{EVIL}", 4, (32,), b"x" * 32).write(place / "dtype")
    (place / "lfs").write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{EVIL}\nsize 1\n")
    json_error = place / "json"
    raw = f'{{"a{json.dumps(EVIL)[1:-1]}": {{"dtype": "{json.dumps(EVIL)[1:-1]}", "x": [}}}}'.encode()
    json_error.write_bytes(len(raw).to_bytes(8, "little") + raw)
    unknown = place / "unknown"
    raw = json.dumps({f"a{EVIL}": {"dtype": EVIL, "shape": [1], "data_offsets": [0, 1]}}).encode()
    unknown.write_bytes(len(raw).to_bytes(8, "little") + raw + b"x")
    for path in (place, twice, cut, keys, kind, dtype, place / "lfs", json_error, unknown, place / f"no{EVIL}"):
        for command in ("ls", "info", "map", "stats", "verify", "seal"):
            run(command, path, code=1)
    run("cat", twice, f"a{EVIL}", code=1)
    run("diff", twice, cut, code=1)
    for words in (["umount", place], ["status", place], ["status", place / "no"], [f"cmd{EVIL}", "x", "y"], ["ls", f"-{EVIL}"]):
        run(*words)
    for option in (f"x{EVIL}", f"map{EVIL}=x", f"map=no{EVIL}", f"set={EVIL}=1", f"set=a={EVIL}", f"threads={EVIL}", f"seal={EVIL}"):
        run(cut, tmp_path / f"mnt{EVIL}", "-o", option.replace(",", "\\,"))
    run("ls", f"hf:a/b{EVIL}")
    run("ls", f"ollama:a{EVIL}")


def test_of_sets(run, tmp_path):
    place = tmp_path / f"set{EVIL}"
    place.mkdir()
    shard = lambda name: Safetensors().tensor(name, "F32", (2,))
    index = sharded([shard(f"a{EVIL}"), shard(f"b{EVIL}")], place, f"s{EVIL}")
    run("ls", index, code=0)
    run("seal", index, code=0)
    run("verify", index, code=0)
    run("seal", "--part", place / f"s{EVIL}-00001-of-00002.safetensors", code=0)
    run("seal", "--merge", place / f"s{EVIL}-00001-of-00002.safetensors.weightfs.json")
    (place / f"s{EVIL}-00002-of-00002.safetensors").unlink()
    run("ls", index, code=1)
    weights = {f"a{EVIL}": f"../x{EVIL}", f"c{EVIL}": f"s{EVIL}-00001-of-00002.safetensors"}
    index.write_text(json.dumps({"weight_map": weights}))
    run("ls", index, code=1)
    parts = tmp_path / f"parts{EVIL}"
    parts.mkdir()
    first, second = split([Gguf().tensor(f"{n}{EVIL}", "F32", (2,)) for n in "ab"], f"p{EVIL}", parts)
    run("ls", first, code=0)
    first.unlink()
    run("ls", second, code=1)


def test_of_a_mount(run, mount, model, tmp_path):
    point = tmp_path / f"mnt{EVIL}"
    point.mkdir()
    log = tmp_path / f"log{EVIL}"
    run("seal", model, code=0)
    mounted = mount(model, f"log={log}", "log_level=debug", "map=hf", point=point)
    harmless(mounted.result.err, messages=True)
    with model.open("r+b") as file:
        file.seek(-40, os.SEEK_END)
        file.write(b"\x55" * 30)
    for path in [*(point / "tensors").iterdir(), *(point / "metadata").iterdir()]:
        try:
            path.read_bytes()
        except OSError:
            pass
    wait_until(lambda: "changed since" in log.read_text() or "expected CRC32" in log.read_text(), what="the damage in the log")
    run("status", point, code=0)
    run("status", point / "tensors")
    run("status", point, "--json", document=True, code=0)
    run(model, point, code=1)
    run("umount", point, code=0)
    harmless(log.read_text())
    assert FORGED in log.read_text()
    mounted.close()
    run("umount", point, code=1)


def test_of_several(run, mount, tmp_path):
    place = tmp_path / f"all{EVIL}"
    for name in ("x", "y", "z"):
        (place / f"{name}{EVIL}").mkdir(parents=True)
    evil_gguf(place / f"x{EVIL}/m.gguf")
    evil_safetensors(place / f"y{EVIL}/m.safetensors")
    (place / f"z{EVIL}/m.gguf").write_bytes(b"GGUF broken")
    log = tmp_path / "log"
    mounted = mount(place, f"log={log}", command=["mount", "--recursive"])
    harmless(mounted.result.err, messages=True)
    for directory in mounted.path.iterdir():
        run("status", directory)
    run("status", mounted.path, code=0)
    mounted.unmount()
    harmless(log.read_text())


def test_of_a_bar(weightfs, tmp_path):
    """It has control characters of its own, which move the cursor and are taken away here."""
    path = tmp_path / f"m{EVIL}.safetensors"
    raw = json.dumps({f"a{EVIL}": {"dtype": "F32", "shape": [1 << 27], "data_offsets": [0, 1 << 29]}}).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    os.truncate(path, 8 + len(raw) + (1 << 29))
    leader, follower = pty.openpty()
    done = subprocess.Popen([weightfs.binary, "seal", path], env=weightfs.env | {"TERM": "xterm"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    text = b""
    try:
        while piece := os.read(leader, 1 << 16):
            text += piece
    except OSError:
        pass
    os.close(leader)
    assert done.wait() == 0
    text = re.sub(rb"\x1b\[[0-9?]*[A-Za-z]|\r", b"", text).decode()
    assert "%" in text, "no bar was drawn"
    harmless(text)


def test_the_exact_forms_stay_exact(weightfs, tmp_path):
    """What programs read is not escaped twice."""
    path = evil_safetensors(tmp_path / "m.safetensors")
    name = f"a{EVIL}"
    listed = weightfs.run("ls", path, "--json").json()
    assert listed["tensors"][0]["name"] == name
    assert weightfs.run("stats", path, "--json").json()["tensors"][0]["name"] == name
    shutil.copy(path, tmp_path / "n.safetensors")
    assert weightfs.run("diff", path, tmp_path / "n.safetensors", "--json").json()["tensors"][0]["name"] == name
    assert name in weightfs.run("map", path, "--json").json()["pairs"]
    assert len(weightfs.run("cat", path, name).out) == 256
