#!/usr/bin/env python3
# Compares every tensor of a mount with the reference packages by torch.allclose, and how long loading all of them takes, as a ratio to torch.load.
# Run: weightfs MODEL MNT && python3 torch_check.py MODEL MNT [ROUNDS]        MODEL: a .gguf or .safetensors file

import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(f"torch_check: {error.name} is not installed: nothing was compared (pip install torch safetensors numpy gguf)", file=sys.stderr)
    sys.exit(2)


def reference(model):
    """All tensors as the package of the format reads them, quantised ones as F32."""
    if model.suffix == ".safetensors":
        return load_file(model)
    from gguf import GGUFReader, dequantize

    tensors = {}
    for tensor in GGUFReader(model).tensors:
        values = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        tensors[tensor.name] = values.reshape([int(n) for n in reversed(tensor.shape)])
    return tensors


def check(model, mount):
    """How many tensors of the mount are close, and how many the same bit for bit."""
    wanted, found = reference(model), load_file(mount / "model.safetensors")
    if wanted.keys() != found.keys():
        sys.exit(f"not the same tensors: {sorted(wanted.keys() ^ found.keys())[:5]}")
    same = 0
    for name, values in wanted.items():
        if not torch.allclose(values.float(), found[name].float(), equal_nan=True):
            sys.exit(f"{name} differs by up to {(values.float() - found[name].float()).abs().max()}")
        same += torch.equal(values.float(), found[name].float())
    print(f"{len(wanted)} tensors are close by torch.allclose, {same} of them equal in every bit")
    return wanted


def touched(tensors):
    """Loading by mapping reads nothing yet: looking at one value of every page does."""
    for tensor in tensors.values():
        tensor.reshape(-1)[::1024].sum()


def main(model, mount, rounds=5):
    values = check(model, mount)
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "saved.pt")
        torch.save(values, saved)
        ways = {
            "the reference package": lambda: reference(model),
            "torch.load": lambda: torch.load(saved, weights_only=True),
            "torch.load(mmap=True)": lambda: torch.load(saved, weights_only=True, mmap=True),
            "safetensors of the mount, f32/": lambda: load_file(mount / "f32" / "model.safetensors"),
            "safetensors of the mount, bf16/": lambda: load_file(mount / "bf16" / "model.safetensors"),
        }
        times = {name: [] for name in ways}
        for _ in range(rounds + 1):  # in turns; the first round fills the page cache
            for name, way in ways.items():
                begin = time.perf_counter()
                touched(way())
                times[name].append(time.perf_counter() - begin)
        medians = {name: statistics.median(taken[1:]) for name, taken in times.items()}
        for name, median in medians.items():
            print(f"{median:8.3f} s  {median / medians['torch.load']:6.2f}  {name}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} MODEL MNT [ROUNDS]")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough, as head has, ends it quietly
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
