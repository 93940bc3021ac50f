"""The models that are measured, made on the spot: large and few tensors, small and many, sparse."""

import json
import os
import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))
from gguf_file import Gguf, nbytes_of, pad  # noqa: E402 (the writer that the tests use)
from readers import KIB, MIB, GIB, Part  # noqa: E402

VERSION = 4  # of what is written here: older files are made again


def noise(size, seed):
    return random.Random(seed).randbytes(size)


def tile(dtype, seed):
    """About a MiB of blocks whose scales are ordinary numbers: no NaN, nothing subnormal."""
    if dtype == "F16":  # exponents 8 to 15: 2^-7 to 2
        raw = bytearray(noise(MIB, seed))
        raw[1::2] = bytes(byte & 0x9F | 0x20 for byte in raw[1::2])
        return bytes(raw)
    size = nbytes_of(dtype, (256,)) // (8 if dtype == "Q8_0" else 1)
    count = MIB // size
    raw = bytearray(noise(count * size, seed))
    for half in range(2 if dtype == "Q4_K" else 1):  # the f16 scales stand first in both
        raw[2 * half :: size] = bytes(count)
        raw[2 * half + 1 :: size] = bytes([0x1C]) * count  # 2^-8
    return bytes(raw)


def fill(file, size, pattern):
    """size bytes of a pattern, many tiles at a time."""
    big = pattern * max(16 * MIB // len(pattern), 1)
    while size:
        size -= file.write(memoryview(big)[: min(size, len(big))])


class Model:
    """A model file, and where its tensors are."""

    def __init__(self, path, places):
        self.path = Path(path)
        self.places = places  # name -> (offset, bytes)

    def part(self, name):
        return Part(self.path, *self.places[name])


def gguf_with(path, tensors, keys=()):
    """A GGUF of large tensors (name, dtype, shape); its data is made once and kept."""
    gguf = Gguf()
    gguf.key("general.architecture", "str", "llama").key("general.name", "str", "bench")
    for key in keys:
        gguf.key(*key)
    at, offsets = 0, []
    for name, dtype, shape in tensors:
        offsets.append(at)
        gguf.tensor(name, dtype, shape, data=b"", offset=at)
        at = pad(at + nbytes_of(dtype, shape), gguf.alignment)
    head, _ = gguf.header()
    places = {name: (len(head) + offset, nbytes_of(dtype, shape)) for (name, dtype, shape), offset in zip(tensors, offsets)}

    def write(file):
        file.write(head)
        for seed, (name, dtype, shape) in enumerate(tensors, 1):
            file.seek(places[name][0])
            fill(file, nbytes_of(dtype, shape), tile(dtype, seed))
        file.truncate(len(head) + at)

    made(path, write)
    return Model(path, places)


def made(path, write):
    """Writes the file unless a whole one of this version is there."""
    mark = Path(f"{path}.made")
    if mark.exists() and mark.read_text() == str(VERSION) and Path(path).exists():
        return
    for old in (mark, Path(path), Path(f"{path}.weightfs.json")):
        old.unlink(missing_ok=True)
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())  # dirty pages cannot be dropped from the page cache
    mark.write_text(str(VERSION))


def f16_rows(size):
    return (size // 8192, 4096)


def large(directory, size):
    """One F16 tensor of size bytes, a quarter as large one, and two quantised ones of size / 8 elements."""
    elements = (size // 8192, 1024)
    return gguf_with(
        directory / f"large-{size // MIB}.gguf",
        [
            ("big.weight", "F16", f16_rows(size)),
            ("mid.weight", "F16", f16_rows(size // 4)),
            ("q8.weight", "Q8_0", elements),
            ("q4k.weight", "Q4_K", elements),
        ],
    )


def safetensors_with(path, tensors):
    """A safetensors file of F16 tensors (name, shape)."""
    entries, at, sizes = {}, 0, []
    for name, shape in tensors:
        size = 2 * shape[0] * shape[1]
        entries[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        sizes.append((name, at, size))
        at += size
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    start = 8 + len(header)

    def write(file):
        file.write(struct.pack("<Q", len(header)) + header)
        fill(file, at, tile("F16", 7))

    made(path, write)
    return Model(path, {name: (start + offset, size) for name, offset, size in sizes})


def checkpoint(directory, size):
    """A safetensors file like a small checkpoint: 32 matrices, size bytes in all."""
    tensors = [(f"model.layers.{i}.mlp.up_proj.weight", (size // 32 // 2048, 1024)) for i in range(32)]
    return safetensors_with(directory / f"checkpoint-{size // MIB}.safetensors", tensors)


def many(directory, count):
    """count tensors F32 [4]."""
    path = directory / f"many-{count}.gguf"
    tensors = [(f"blk.{i // 10}.part_{i % 10}.weight", "F32", (4,)) for i in range(count)]

    def write(file):
        gguf = Gguf()
        gguf.key("general.architecture", "str", "llama")
        for index, (name, dtype, shape) in enumerate(tensors):
            gguf.tensor(name, dtype, shape, data=b"", offset=32 * index)
        head, _ = gguf.header()
        file.write(head)
        file.write(noise(32 * count, 5))

    made(path, write)
    return Model(path, {})


def vocabulary(directory, tokens=262144):
    """A GGUF whose metadata is large: as many tokens, scores and types as Gemma 3 has."""
    keys = [
        ("tokenizer.ggml.model", "str", "llama"),
        ("tokenizer.ggml.tokens", "arr:str", [f"token{i}" for i in range(tokens)]),
        ("tokenizer.ggml.scores", "arr:f32", [-float(i) for i in range(tokens)]),
        ("tokenizer.ggml.token_type", "arr:i32", [1] * tokens),
    ]
    return gguf_with(directory / "vocabulary.gguf", [("token_embd.weight", "F16", (1024, 1024))], keys)


def sparse(directory, size):
    """A safetensors file of one BF16 tensor of size bytes that takes no room on disk; None where that cannot be."""
    path = directory / f"sparse-{size // MIB}.safetensors"
    columns = 4096
    header = json.dumps({"weight": {"dtype": "BF16", "shape": [size // 2 // columns, columns], "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    try:
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + size)
    except OSError:
        path.unlink(missing_ok=True)
        return None
    return path


__all__ = ["KIB", "MIB", "GIB", "Model", "checkpoint", "large", "many", "sparse", "vocabulary"]
