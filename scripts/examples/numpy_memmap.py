#!/usr/bin/env python3
# Looks at one tensor of a mount with NumPy; only the rows that are looked at are ever read.
# Run: python3 numpy_memmap.py MNT TENSOR        e.g. /mnt/g token_embd.weight

import json
import signal
import sys
from pathlib import Path

import numpy as np


def main(mount, name):
    about = json.loads((mount / "tensors" / f"{name}.json").read_text())
    print(f"{about['name']}: {about['dtype']} {about['shape']}, {about['nbytes']} bytes in {about['source']['file']}")

    # A .npy says itself what it holds. tensors/ has one where NumPy knows the stored type,
    # f32/ has one of everything that can be decoded, quantised blocks too.
    stored = mount / "tensors" / f"{name}.npy"
    array = np.load(stored if stored.exists() else mount / "f32" / f"{name}.npy", mmap_mode="r")
    print(f"as {array.dtype}: the first row begins with {np.atleast_2d(array)[0].ravel()[:4]}")

    # The .bin is the same numbers without a header, for those who know the shape.
    flat = np.memmap(mount / "f32" / f"{name}.bin", dtype="<f4", mode="r").reshape(about["shape"])
    last = np.asarray(np.atleast_2d(flat)[-1])
    print(f"the last row has the norm {np.linalg.norm(last):.4f}; {last.nbytes} of {flat.nbytes} bytes were needed for it")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} MNT TENSOR")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough, as head has, ends it quietly
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except FileNotFoundError as error:
        sys.exit(f"{error.filename}: there is no such file; MNT/tensors has a .json of each tensor, MNT/f32 those with float values")
