"""scripts/make-golden-hf as a module, and how the tests look at what a mount shows of it."""

import functools
import json
import os
import struct
import sys
import types
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make-golden-hf"


def _load():
    module = types.ModuleType("make_golden_hf")
    module.__file__ = str(SCRIPT)
    sys.modules[module.__name__] = module  # its dataclasses look themselves up there
    exec(compile(SCRIPT.read_text(), SCRIPT, "exec"), module.__dict__)
    return module


golden = _load()
WIDE = "Q4_K_M"  # needs rows of 256
NAMES = Path(__file__).resolve().parents[1] / "golden" / "names"
# Architectures whose names are all that there is: see golden.further().
NAMES_ONLY = {"deepseek"}


def architectures():
    """Those whose names, values and config.json a mount shows: of each there are golden names."""
    return {path.read_text().split()[1] for path in NAMES.glob("*.tsv")} - NAMES_ONLY


@functools.cache
def families(dtype="F32"):
    return golden.families(256 if dtype == WIDE else 64)


@functools.cache
def model(name, dtype, **more):
    return golden.Model(families(dtype)[name], dtype, **more)


def write(made, directory, **more):
    directory = Path(directory)
    return made.write(directory / f"{made.family.name}-{made.dtype}.gguf", **more)


def header(path):
    """The header of a safetensors file, and where its data starts."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        found = json.loads(file.read(length))
    found.pop("__metadata__", None)
    return found, 8 + length


def tensors_of(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    entries, start = header(path)
    data = Path(path).read_bytes()[start:]
    return {name: (entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])]) for name, entry in entries.items()}


def files(directory, suffix):
    return {name[: -len(suffix)] for name in os.listdir(directory) if name.endswith(suffix)}


def differences(found, wanted, dtype):
    """Where bytes differ, in words: for the message of a failed test."""
    if len(found) != len(wanted):
        return f"{len(found)} bytes, not {len(wanted)}"
    kind = {"F32": "<f4", "F16": "<f2"}.get(dtype, np.uint8)
    a, b = np.frombuffer(found, kind), np.frombuffer(wanted, kind)
    wrong = np.flatnonzero(np.frombuffer(found, f"<u{a.itemsize}") != np.frombuffer(wanted, f"<u{a.itemsize}"))
    first = int(wrong[0])
    return f"{len(wrong)} of {len(a)} differ, first {first}: found {a[first]!r}, expected {b[first]!r}"


def assert_bytes(found, wanted, what, dtype="F32"):
    if found != wanted:
        raise AssertionError(f"{what}: {differences(found, wanted, dtype)}")
