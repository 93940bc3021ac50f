"""Loads models with the usual Python packages and prints the seconds it took, as JSON.

    python probe.py safe_open FILE [FILE...]          all tensors of each file in turn, as numpy arrays
    python probe.py reader FILE TENSOR                GGUFReader, then the first byte of a tensor
    python probe.py dequantize FILE TENSOR            gguf.dequantize to F32, per tensor
    python probe.py memmap FILE OFFSET LENGTH NPY     np.memmap of the source, np.load of the mounted .npy

Run by the Python of the bench's venv. Imports are not counted.
"""

import json
import sys
import time

import numpy


def copied(array, block=1 << 20):
    """Copies an array out piece by piece; the seconds."""
    plain = array.reshape(-1).view(numpy.uint8)
    out = numpy.ones(block, numpy.uint8)
    start = time.perf_counter()
    for at in range(0, plain.size, block):
        piece = plain[at : at + block]
        out[: piece.size] = piece
    return time.perf_counter() - start


def safe_open(*files):
    from safetensors import safe_open as open_

    found = []
    for file in files:
        start = time.perf_counter()
        nbytes = 0
        with open_(file, "np") as model:
            opened = time.perf_counter() - start
            for name in model.keys():
                nbytes += model.get_tensor(name).nbytes
        found.append({"opened": opened, "seconds": time.perf_counter() - start, "nbytes": nbytes})
    return found


def tensor_of(reader, name):
    return next(tensor for tensor in reader.tensors if tensor.name == name)


def reader(file, name):
    import gguf

    start = time.perf_counter()
    opened = gguf.GGUFReader(file)
    first = int(tensor_of(opened, name).data.reshape(-1).view(numpy.uint8)[0])
    return {"seconds": time.perf_counter() - start, "first": first}


def dequantize(file, name):
    import gguf

    tensor = tensor_of(gguf.GGUFReader(file), name)
    raw = tensor.data[:4096].copy()
    start = time.perf_counter()
    out = gguf.dequantize(raw, tensor.tensor_type)
    return {"seconds": time.perf_counter() - start, "nbytes": out.nbytes}


def memmap(file, offset, length, npy):
    plain = numpy.memmap(file, numpy.uint8, "r", int(offset), (int(length),))
    mounted = numpy.load(npy, mmap_mode="r")
    rounds = []
    for _ in range(3):
        rounds.append({"source": copied(plain), "mounted": copied(mounted), "nbytes": int(length)})
    return rounds


if __name__ == "__main__":
    work = {"safe_open": safe_open, "reader": reader, "dequantize": dequantize, "memmap": memmap}[sys.argv[1]]
    print(json.dumps(work(*sys.argv[2:])))
