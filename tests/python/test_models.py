"""The two real models, tensor by tensor against what the reference packages read from them."""

import hashlib
import json
import os
import struct
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mounting import python

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "models"
MIB = 1 << 20
FILES = {"gemma-3-270m-q4_k_m": "gemma-3-270m-q4_k_m.gguf", "all-MiniLM-L6-v2": "all-MiniLM-L6-v2/model.safetensors"}
NUMPY = {"FLOAT32": "<f4", "INT32": "<i4"}


@pytest.fixture(scope="module", params=FILES)
def real(request, models, shared_mount):
    mounted = shared_mount(models / FILES[request.param], "seal=none")
    mounted.source = models / FILES[request.param]
    mounted.golden = json.loads((GOLDEN / f"{request.param}.json").read_text())
    return mounted


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(MIB):
            digest.update(piece)
    return digest.hexdigest()


def test_every_tensor_is_there(real):
    assert real.names() == sorted(tensor["name"] for tensor in real.golden["tensors"])
    assert real.model["tensor_count"] == len(real.golden["tensors"])
    assert real.model["format"] == real.golden["format"]
    assert real.model["format_version"] in (real.golden["format_version"], None)
    assert real.model["nbytes"] == sum(tensor["nbytes"] for tensor in real.golden["tensors"])


@pytest.mark.patience(120)
def test_every_tensor_has_its_bytes_and_description(real):
    for tensor in real.golden["tensors"]:
        path = real / f"tensors/{tensor['name']}.bin"
        assert path.stat().st_size == tensor["nbytes"]
        assert sha256_of(path) == tensor["sha256"], tensor["name"]
        about = real.json(f"tensors/{tensor['name']}.json")
        assert (about["name"], about["dtype"], about["shape"], about["nbytes"]) == (tensor["name"], tensor["dtype"], tensor["shape"], tensor["nbytes"])
        assert about["elements"] == np.prod(tensor["shape"], dtype=np.int64)
        assert about["source"] == {"file": real.source.name, "offset": tensor["offset"]}


def test_every_npy_is_the_same_array(real):
    for tensor in real.golden["tensors"]:
        path = real / f"tensors/{tensor['name']}.npy"
        assert path.exists() == (tensor["dtype"] in ("F32", "F16", "I64"))
        if path.exists():
            loaded = np.load(path, mmap_mode="r")
            assert list(loaded.shape) == tensor["shape"]
            assert hashlib.sha256(loaded.tobytes()).hexdigest() == tensor["sha256"]


def test_the_listing_is_that_of_the_reference(real):
    found = real.weightfs.run("ls", real.source, "--json").json()["tensors"]
    wanted = [
        {
            "name": tensor["name"],
            "source_name": tensor["name"],
            "dtype": tensor["dtype"],
            "shape": tensor["shape"],
            "nbytes": tensor["nbytes"],
            "source": {"file": real.source.name, "offset": tensor["offset"]},
        }
        for tensor in real.golden["tensors"]
    ]
    assert [{key: tensor[key] for key in wanted[0]} for tensor in found] == wanted


def test_cat_gives_the_same_bytes(real):
    for tensor in real.golden["tensors"][::7]:
        done = subprocess.run([real.weightfs.binary, "cat", real.source, tensor["name"]], stdout=subprocess.PIPE, timeout=60, env=real.weightfs.env, check=True)
        assert hashlib.sha256(done.stdout).hexdigest() == tensor["sha256"], tensor["name"]


def test_every_metadata_value(real):
    listed = set(os.listdir(real / "metadata"))
    shown = real.json("metadata.json")
    assert list(shown) == list(real.golden["metadata"])
    wanted = set()
    for key, value in real.golden["metadata"].items():
        text = value["type"] == "STRING"
        wanted.add(key if text else f"{key}.json")
        raw = (real / "metadata" / (key if text else f"{key}.json")).read_bytes()
        if text:
            assert hashlib.sha256(raw).hexdigest() == value["sha256"] if "sha256" in value else raw.decode() == value["value"]
            continue
        found = json.loads(raw)
        if value["type"] == "ARRAY":
            assert len(found) == value["length"]
            if value["element"] == "STRING":
                data = b"".join(struct.pack("<Q", len(word.encode())) + word.encode() for word in found)
            else:
                data = np.array(found, NUMPY[value["element"]]).tobytes()
            assert hashlib.sha256(data).hexdigest() == value["sha256"], key
            if value["length"] > 64:
                assert shown[key]["length"] == value["length"] and shown[key]["file"] == f"metadata/{key}.json"
        elif value["type"] == "FLOAT32":
            assert np.float32(found) == np.float32(value["value"]), key
        else:
            assert found == value["value"], key
    assert listed == wanted


def test_the_source_is_whole(real):
    assert (real / "source" / real.source.name).stat().st_size == real.golden["file_nbytes"]
    assert sha256_of(real / "source" / real.source.name) == sha256_of(real.source)


@pytest.mark.patience(120)
def test_memory_stays_flat_while_four_readers_read_everything(real):
    names, failures = [tensor["name"] for tensor in real.golden["tensors"]], []
    most = [0]

    def read(number):
        try:
            for name in names[number::4] + names[::-1][number::4]:
                assert sha256_of(real / f"tensors/{name}.bin")
                json.loads((real / f"tensors/{name}.json").read_bytes())
        except Exception as failed:  # noqa: BLE001, told below
            failures.append(failed)

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most[0] = max(most[0], real.rss_anon())
        time.sleep(0.02)
    assert failures == []
    assert 0 < most[0] < 24 * MIB, f"RssAnon {most[0] / MIB:.1f} MiB"


def test_safe_open_reads_the_same_tensors(models, shared_mount):
    mounted = shared_mount(models / FILES["all-MiniLM-L6-v2"])
    golden = json.loads((GOLDEN / "all-MiniLM-L6-v2.json").read_text())
    (mounted.path.parent / "sums.json").write_text(json.dumps({tensor["name"]: tensor["sha256"] for tensor in golden["tensors"]}))
    code = """
import hashlib, json, sys
from safetensors import safe_open
sums = json.load(open(sys.argv[2]))
with safe_open(sys.argv[1], "np") as file:
    assert sorted(file.keys()) == sorted(sums)
    for name in file.keys():
        assert hashlib.sha256(file.get_tensor(name).tobytes()).hexdigest() == sums[name], name
"""
    python(code, mounted / "source/model.safetensors", mounted.path.parent / "sums.json")


def test_gemma_is_ready_without_a_look_at_its_data(models, mount):
    mounted = mount(models / FILES["gemma-3-270m-q4_k_m"])
    with open(mounted / "tensors/output_norm.weight.bin", "rb") as file:
        assert len(file.read(4)) == 4
    assert len(os.listdir(mounted / "tensors")) > 236
    assert mounted.status["chunks_checked"] <= 2


def test_a_directory_as_it_is_downloaded(models, mount):
    mounted = mount(models / "all-MiniLM-L6-v2")
    assert mounted.model["tensor_count"] == 104


@pytest.mark.patience(120)
def test_a_sealed_gemma(models, weightfs, mount, tmp_path):
    path = tmp_path / "gemma.gguf"
    os.symlink(models / FILES["gemma-3-270m-q4_k_m"], path)  # its seal lies beside the link
    weightfs.run("seal", path)
    weightfs.run("verify", path)
    mounted = mount(path, "seal=require")
    golden = json.loads((GOLDEN / "gemma-3-270m-q4_k_m.json").read_text())
    for tensor in golden["tensors"]:
        assert mounted.json(f"tensors/{tensor['name']}.json")["checksum"]["sha256"] == tensor["sha256"]
    for tensor in golden["tensors"][::20]:
        assert sha256_of(mounted / f"tensors/{tensor['name']}.bin") == tensor["sha256"]
    assert mounted.model["sources"][0]["sha256"] == "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
    assert mounted.rss_anon() < 24 * MIB
