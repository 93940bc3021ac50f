"""Seals that were not written by weightfs, but from the published layout alone: taken when they are right."""

import base64
import hashlib
import json
import zlib

import pytest

import safetensors_file
from gguf_file import Gguf, pattern
from test_sealing import seal_of

CHUNK = 4096


def sums(data, sha=True):
    chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    table = b"".join(zlib.crc32(chunk).to_bytes(4, "little") for chunk in chunks)
    found = {"crc32": f"{zlib.crc32(data):08x}", "crcs": base64.b64encode(table).decode()}
    return found | ({"sha256": hashlib.sha256(data).hexdigest()} if sha else {})


def layout(path, header, tensors, source, sha=True):
    """A body for a file: its header's length, and (name, dtype, shape, offset, nbytes) of its tensors."""
    data = path.read_bytes()
    regions = [{"source": 0, "kind": "header", "offset": 0, "nbytes": header} | sums(data[:header], sha)]
    at = header
    for _, _, _, offset, nbytes in [*tensors, (None, None, None, len(data), 0)]:
        if offset > at:
            regions.append({"source": 0, "kind": "padding", "offset": at, "nbytes": offset - at} | sums(data[at:offset], False))
        at = offset + nbytes
    return {
        "created": "2026-11-30T00:00:00Z",
        "tool": {"name": "by hand", "version": "1"},
        "chunk": {"size": CHUNK, "algorithm": "crc32", "grid": "region-start", "encoding": "base64-le-u32"},
        "sources": [{"name": path.name, "size": len(data)} | source | ({"sha256": hashlib.sha256(data).hexdigest()} if sha else {})],
        "regions": regions,
        "tensors": [
            {"name": name, "source": 0, "dtype": dtype, "shape": shape, "offset": offset, "nbytes": nbytes} | sums(data[offset : offset + nbytes], sha)
            for name, dtype, shape, offset, nbytes in tensors
        ],
    }


def gguf(path, sha=True):
    file = Gguf().key("general.architecture", "str", "llama").key("tokenizer.ggml.tokens", "arr:str", [f"t{n}" for n in range(300)])
    file.tensor("a", "F32", (1500,), pattern(6000, seed=1)).tensor("b", "F32", (5,), pattern(20, seed=2))
    file.write(path)
    start = file.data_start()
    # The header ends where its text ends: what aligns the data is padding.
    end = len(path.read_bytes()[:start].rstrip(b"\0")) + 8
    tensors = [("a", "F32", [1500], start, 6000), ("b", "F32", [5], start + 6016, 20)]
    return layout(path, min(end, start), tensors, {"format": "gguf", "format_version": 3, "mtime": "1764460800.000000000"}, sha)


def safetensors(path, sha=True, **source):
    file = safetensors_file.Safetensors().tensor("a", "F32", (1500,), pattern(6000, seed=1)).tensor("b", "F32", (5,), pattern(20, seed=2))
    file.write(path)
    start = file.place_of("a")
    return layout(path, start, [("a", "F32", [1500], start, 6000), ("b", "F32", [5], start + 6000, 20)], {"format": "safetensors"} | source, sha)


def put(path, body, order=None, **spacing):
    if order:
        body = {key: body[key] for key in order}
    text = json.dumps(body, **spacing)
    digest = hashlib.sha256(text.encode()).hexdigest()
    seal_of(path).write_text(f'\n{{ "weightfs_manifest" : 1,\n\t"body_sha256": "{digest}", "body":  {text} }}\r\n\n')


def taken(weightfs, mount, path):
    """It is a seal like any other: every byte is checked against it."""
    weightfs.run("verify", path)
    assert "sealed already" in weightfs.run("seal", path).text
    whole = path.read_bytes()
    mounted = mount(path, "seal=require")
    assert mounted.model["sealed"] and mounted.status["trust"] == "sidecar"
    assert (mounted / "tensors/a.bin").read_bytes() == pattern(6000, seed=1)
    assert (mounted / f"source/{path.name}").read_bytes() == whole
    mounted.unmount()
    for at in {0, 9, len(whole) - 1, whole.index(pattern(6000, seed=1)) + 4500, whole.index(pattern(6000, seed=1)) - 1}:
        data = bytearray(whole)
        data[at] ^= 0x20
        path.write_bytes(data)
        weightfs.run("verify", path, code=3)
    data[9] ^= 0x20
    path.write_bytes(data)
    mount.refused(path, code=5)
    path.write_bytes(whole)


@pytest.mark.parametrize("sha", [True, False])
@pytest.mark.parametrize("make", [gguf, safetensors])
def test_the_layout_alone(weightfs, mount, tmp_path, make, sha):
    path = tmp_path / f"m.{make.__name__}"
    put(path, make(path, sha))
    taken(weightfs, mount, path)


@pytest.mark.parametrize("version", [None, 0, 1])
def test_a_version_of_a_format_that_has_none(weightfs, mount, tmp_path, version):
    path = tmp_path / "m.safetensors"
    put(path, safetensors(path, format_version=version), indent=1)
    taken(weightfs, mount, path)


@pytest.mark.parametrize("make", [gguf, safetensors])
@pytest.mark.parametrize(
    "order",
    [
        ["chunk", "created", "regions", "sources", "tensors", "tool"],
        ["tensors", "regions", "sources", "chunk", "tool", "created"],
        ["sources", "tensors", "regions", "chunk"],
    ],
)
def test_the_keys_of_the_body_in_any_order(weightfs, mount, tmp_path, make, order):
    path = tmp_path / f"m.{make.__name__}"
    put(path, make(path), order, indent=2)
    taken(weightfs, mount, path)


def test_what_python_sorts(weightfs, tmp_path):
    path = tmp_path / "m.gguf"
    body = gguf(path)
    text = json.dumps(body, sort_keys=True)
    whole = {"body": 0, "body_sha256": hashlib.sha256(text.encode()).hexdigest(), "weightfs_manifest": 1}
    seal_of(path).write_text(json.dumps(whole, sort_keys=True).replace('"body": 0', f'"body": {text}'))
    weightfs.run("verify", path)
    weightfs.run("verify", path, "--against", seal_of(path))


@pytest.mark.parametrize("order", [None, ["tensors", "regions", "sources", "chunk"]])
@pytest.mark.parametrize(
    "change",
    [
        lambda b: b["sources"][0].update(size=1),
        lambda b: b["sources"][0].update(format="pickle"),
        lambda b: b["sources"][0].update(format_version=2),
        lambda b: b["sources"][0].update(data_start=33),
        lambda b: b["sources"][0].update(tensor_infos=25),
        lambda b: b["chunk"].update(size=8192),
        lambda b: b["chunk"].update(algorithm="crc32c"),
        lambda b: b["chunk"].pop("grid"),
        lambda b: b["regions"].pop(0),
        lambda b: b["regions"].pop(1),
        lambda b: b["regions"].pop(),
        lambda b: b["regions"][1].update(kind="trailing"),
        lambda b: b["regions"][1].update(offset=b["regions"][1]["offset"] + 1),
        lambda b: b["regions"][0].update(nbytes=b["regions"][0]["nbytes"] - 1),
        lambda b: b["regions"][0].update(crc32="00000000"),
        lambda b: b["regions"].insert(1, b["regions"][1]),
        lambda b: b["tensors"][0].update(dtype="I32"),
        lambda b: b["tensors"][0].update(shape=[1500, 1]),
        lambda b: b["tensors"][0].update(offset=b["tensors"][0]["offset"] + 4),
        lambda b: b["tensors"][1].update(name="a"),
        lambda b: b["tensors"][1].update(crc32="12345678"),
        lambda b: b["tensors"][1].pop("sha256"),
        lambda b: b["tensors"].pop(),
        lambda b: b.pop("tensors"),
    ],
)
def test_what_is_wrong_is_refused_for_the_same_reason_by_all(weightfs, mount, tmp_path, change, order):
    path = tmp_path / "m.gguf"
    body = gguf(path)
    change(body)
    put(path, body, order and [key for key in order if key in body])
    reasons = {weightfs.run(command, *args, code=5).err.splitlines()[0] for command, args in [("verify", [path]), ("cat", [path, "a"]), ("seal", [path])]}
    reasons.add(mount.refused(path, code=5).splitlines()[0])
    reasons.add(weightfs.run("ls", path).err.splitlines()[0])
    assert len(reasons) == 1, reasons
