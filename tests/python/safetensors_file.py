"""Writes small safetensors files and models by hand, also ones that no library would write."""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

from gguf_file import pattern

# bits per element
DTYPES = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


def nbytes_of(dtype, shape):
    bits = DTYPES[dtype]
    for n in shape:
        bits *= n
    assert bits % 8 == 0
    return bits // 8


@dataclass
class Safetensors:
    metadata: dict | None = None
    align: bool = True  # pad the header so that the data starts at a multiple of 8
    tensors: list = field(default_factory=list)  # (name, dtype, shape, data)

    def tensor(self, name, dtype, shape, data=None):
        if data is None:
            data = pattern(nbytes_of(dtype, shape), seed=len(self.tensors) + 1)
        elif hasattr(data, "tobytes"):
            data = data.tobytes()
        self.tensors.append((name, dtype, tuple(shape), bytes(data)))
        return self

    def header(self):
        entries, place = {}, 0
        if self.metadata is not None:
            entries["__metadata__"] = self.metadata
        for name, dtype, shape, data in self.tensors:
            entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + len(data)]}
            place += len(data)
        raw = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
        return raw + b" " * (-len(raw) % 8 if self.align else (1 - len(raw)) % 8)

    def encode(self):
        return encode(self.header(), b"".join(data for *_, data in self.tensors))

    def place_of(self, name):
        place = 8 + len(self.header())
        for other, _, _, data in self.tensors:
            if other == name:
                return place
            place += len(data)
        raise KeyError(name)

    def data_of(self, name):
        return next(data for other, _, _, data in self.tensors if other == name)

    def write(self, path):
        Path(path).write_bytes(self.encode())
        return Path(path)


def encode(header, data):
    """A file of this header, whatever it says, and this data."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def plain():
    return (
        Safetensors({"format": "pt"})
        .tensor("embed.weight", "F32", (6, 8))
        .tensor("layer.weight", "F16", (3, 5))
        .tensor("layer.bias", "BF16", (7,))
    )


def sharded(shards, directory, stem="model", weight_map=None, index=None):
    """Write shards and their index; the index's path."""
    directory = Path(directory)
    found = {}
    for number, shard in enumerate(shards):
        name = f"{stem}-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        shard.write(directory / name)
        found |= {tensor: name for tensor, *_ in shard.tensors}
    path = directory / (index or f"{stem}.safetensors.index.json")
    total = sum(len(data) for shard in shards for *_, data in shard.tensors)
    path.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": found if weight_map is None else weight_map}, indent=2))
    return path


def snapshot(files, root, repo="models--acme--tiny", revision="0123456789abcdef0123456789abcdef01234567"):
    """Lay files (name to path) out as the Hugging Face cache does: blobs, and symlinks to them."""
    import hashlib

    blobs = Path(root) / repo / "blobs"
    folder = Path(root) / repo / "snapshots" / revision
    blobs.mkdir(parents=True)
    folder.mkdir(parents=True)
    for name, path in files.items():
        data = Path(path).read_bytes()
        blob = blobs / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (folder / name).symlink_to(Path("../..") / "blobs" / blob.name)
    refs = Path(root) / repo / "refs"
    refs.mkdir()
    (refs / "main").write_text(revision)
    return folder
