"""Commands that go through a model once: their memory does not grow with it."""

import os
import shutil
import subprocess
import sys

import pytest

from test_scale import sparse_gguf

MIB = 1 << 20
SIZE = 512
MOST = 100


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    directory = tmp_path_factory.mktemp("large")
    for name in ("m.gguf", "n.gguf"):
        sparse_gguf(directory / name, 4, SIZE * MIB // 4)
    yield directory
    shutil.rmtree(directory)


# In a small process of its own: a child counts what its parent had when it began.
PEAK = """
import os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
assert status == 0, status
print(usage.ru_maxrss // 1024, file=sys.stderr)
"""


def peak(weightfs, *words):
    """The largest resident set of a command that ends well, in MiB."""
    command = [sys.executable, "-c", PEAK, weightfs.binary, *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=weightfs.env, check=True, text=True)
    return int(done.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    "words",
    [
        ("seal", "m.gguf", "--output", "seal.json"),
        ("seal", "m.gguf", "--no-sha256", "--force", "--output", "seal.json"),
        ("verify", "m.gguf", "--against", "sums"),
        ("verify", "m.gguf"),
        ("stats", "m.gguf"),
        ("cat", "m.gguf", "blk.0.tensor_0.weight"),
        ("cat", "m.gguf", "blk.0.tensor_0.weight", "--as", "bf16"),
        ("diff", "m.gguf", "n.gguf"),
        ("provenance", "m.gguf", "--format", "gguf-hash"),
        ("provenance", "m.gguf", "--format", "sha256sum"),
    ],
    ids=" ".join,
)
def test_memory_does_not_grow_with_the_model(weightfs, large, words):
    if words[0] == "verify" and not (large / "m.gguf.sha256").exists():
        line = subprocess.run(["sha256sum", "m.gguf"], cwd=large, check=True, stdout=subprocess.PIPE).stdout
        (large / "sums").write_bytes(line)
        (large / "m.gguf.sha256").write_bytes(line)
    paths = [large / word if "." in word and not word.startswith("blk") or word == "sums" else word for word in words]
    assert peak(weightfs, *paths) < MOST
