"""Writes small GGUF files byte by byte, also ones that no other writer would make.

Knows nothing of the reader under test; what it writes is itself checked against the
gguf package in test_writers.py.
"""

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

# Value types of metadata, by the names that the format's text uses.
VALUE_TYPES = {
    "u8": (0, "B"),
    "i8": (1, "b"),
    "u16": (2, "H"),
    "i16": (3, "h"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "B"),
    "str": (8, None),
    "arr": (9, None),
    "u64": (10, "Q"),
    "i64": (11, "q"),
    "f64": (12, "d"),
}

# Tensor types: id, elements per block, bytes per block.
TENSOR_TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q8_1": (9, 32, 36),
    "Q2_K": (10, 256, 84),
    "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "Q8_K": (15, 256, 292),
    "IQ2_XXS": (16, 256, 66),
    "IQ2_XS": (17, 256, 74),
    "IQ3_XXS": (18, 256, 98),
    "IQ1_S": (19, 256, 50),
    "IQ4_NL": (20, 32, 18),
    "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82),
    "IQ4_XS": (23, 256, 136),
    "I8": (24, 1, 1),
    "I16": (25, 1, 2),
    "I32": (26, 1, 4),
    "I64": (27, 1, 8),
    "F64": (28, 1, 8),
    "IQ1_M": (29, 256, 56),
    "BF16": (30, 1, 2),
    "TQ1_0": (34, 256, 54),
    "TQ2_0": (35, 256, 66),
    "MXFP4": (39, 32, 17),
    "NVFP4": (40, 64, 36),
    "Q1_0": (41, 128, 18),
    "Q2_0": (42, 64, 18),
}
# Types that the gguf package lacks, or has in another size.
PACKAGE_LACKS = {"Q8_1", "Q2_0"}


def nbytes_of(dtype, shape):
    """Size in bytes of a tensor; shape outermost first."""
    _, elements, size = TENSOR_TYPES[dtype]
    count = 1
    for n in shape:
        count *= n
    return count // elements * size


def pad(offset, alignment):
    return -(-offset // alignment) * alignment


@dataclass
class Tensor:
    """shape is outermost first, as everywhere but in the file itself."""

    name: bytes
    dtype: object  # a name of TENSOR_TYPES, or a number that stands in the file as it is
    shape: tuple
    data: bytes
    offset: int | None = None  # relative to the data section; None: packed after the one before


@dataclass
class Gguf:
    version: int = 3
    big: bool = False
    alignment: int = 32
    keys: list = field(default_factory=list)  # (key bytes, encoded type and value)
    tensors: list = field(default_factory=list)
    pad_end: bool = True
    trailing: bytes = b""
    n_tensors: int | None = None  # what the header claims, if not the truth
    n_keys: int | None = None

    # --- numbers ----------------------------------------------------------------------
    def pack(self, code, *values):
        return struct.pack((">" if self.big else "<") + code, *values)

    def length(self, n):
        return self.pack("I" if self.version == 1 else "Q", n)

    def string(self, text):
        raw = text.encode() if isinstance(text, str) else text
        return self.length(len(raw)) + raw

    # --- metadata ---------------------------------------------------------------------
    def value(self, kind, value):
        """The bytes of a value; for arrays kind is "arr:KIND", nested "arr:arr:KIND"."""
        if kind == "str":
            return self.string(value)
        if kind.startswith("arr:"):
            element = kind[4:]
            number = VALUE_TYPES[element.split(":")[0]][0]
            body = b"".join(self.value(element, item) for item in value)
            return self.pack("I", number) + self.length(len(value)) + body
        return self.pack(VALUE_TYPES[kind][1], value)

    def key(self, name, kind, value):
        number = VALUE_TYPES[kind.split(":")[0]][0]
        raw = name.encode() if isinstance(name, str) else name
        self.keys.append((raw, self.pack("I", number) + self.value(kind, value)))
        return self

    def raw_key(self, name, number, body):
        """A key whose value type and bytes are given as they stand in the file."""
        self.keys.append((name, self.pack("I", number) + body))
        return self

    # --- tensors ----------------------------------------------------------------------
    def tensor(self, name, dtype, shape, data=None, offset=None):
        raw = name.encode() if isinstance(name, str) else name
        if data is None:
            data = pattern(nbytes_of(dtype, shape), seed=len(self.tensors) + 1)
        elif hasattr(data, "tobytes"):
            data = data.tobytes()
        self.tensors.append(Tensor(raw, dtype, tuple(shape), bytes(data), offset))
        return self

    # --- the file ---------------------------------------------------------------------
    def header(self):
        """Everything before the data section, padded, and the tensors' offsets in it."""
        width = "I" if self.version == 1 else "Q"
        keys = b"".join(self.string(name) + body for name, body in self.keys)
        infos, offsets, place = [], [], 0
        for tensor in self.tensors:
            offset = place if tensor.offset is None else tensor.offset
            place = pad(offset + len(tensor.data), self.alignment)
            offsets.append(offset)
            number = TENSOR_TYPES[tensor.dtype][0] if isinstance(tensor.dtype, str) else tensor.dtype
            dims = b"".join(self.pack(width, n) for n in reversed(tensor.shape))
            infos.append(self.string(tensor.name) + self.pack("I", len(tensor.shape)) + dims + self.pack("IQ", number, offset))
        head = b"GGUF" + self.pack("I", self.version)
        head += self.pack(width, len(self.tensors) if self.n_tensors is None else self.n_tensors)
        head += self.pack(width, len(self.keys) if self.n_keys is None else self.n_keys)
        head += keys + b"".join(infos)
        if self.tensors:
            head += bytes(pad(len(head), self.alignment) - len(head))
        return head, offsets

    def encode(self):
        head, offsets = self.header()
        size = max((offset + len(tensor.data) for offset, tensor in zip(offsets, self.tensors)), default=0)
        data = bytearray(pad(size, self.alignment) if self.pad_end else size)
        for offset, tensor in zip(offsets, self.tensors):
            data[offset : offset + len(tensor.data)] = tensor.data
        return head + bytes(data) + self.trailing

    def data_start(self):
        return len(self.header()[0])

    def place_of(self, name):
        """Where the tensor's bytes start in the file."""
        raw = name.encode() if isinstance(name, str) else name
        head, offsets = self.header()
        return len(head) + next(o for o, t in zip(offsets, self.tensors) if t.name == raw)

    def data_of(self, name):
        raw = name.encode() if isinstance(name, str) else name
        return next(t.data for t in self.tensors if t.name == raw)

    def write(self, path):
        Path(path).write_bytes(self.encode())
        return Path(path)


def pattern(nbytes, seed=1):
    """Bytes that differ everywhere and from seed to seed: a wrong offset shows."""
    return random.Random(seed).randbytes(nbytes)


def aligned(alignment):
    """An empty file whose tensors start at multiples of alignment, and that says so."""
    gguf = Gguf(alignment=alignment)
    return gguf.key("general.alignment", "u32", alignment)


def plain(**header):
    """A file that any reader takes: an architecture, a name, a chat template, two tensors."""
    gguf = Gguf(**header)
    gguf.key("general.architecture", "str", "llama")
    gguf.key("general.name", "str", "tiny")
    gguf.key("tokenizer.chat_template", "str", CHAT_TEMPLATE)
    gguf.tensor("token_embd.weight", "F32", (8, 32))
    gguf.tensor("output.weight", "Q8_0", (4, 64))
    return gguf


CHAT_TEMPLATE = "{% for m in messages %}\n\t{{ m['content'] }}\\n \N{LLAMA}{% endfor %}"


def split(parts, stem, directory, total=None):
    """Write the parts of a split model as STEM-00001-of-0000N.gguf; their paths."""
    paths = []
    total = sum(len(part.tensors) for part in parts) if total is None else total
    for number, part in enumerate(parts):
        part.key("split.no", "u16", number)
        part.key("split.count", "u16", len(parts))
        part.key("split.tensors.count", "i32", total)
        paths.append(part.write(Path(directory) / f"{stem}-{number + 1:05d}-of-{len(parts):05d}.gguf"))
    return paths
