#!/usr/bin/env python3
# Opens a whole model as one safetensors file that does not exist: the mount makes it up while it is read.
# Run: python3 safetensors_open.py FILE [TENSOR]        e.g. /mnt/g/f32/model.safetensors, /mnt/g/hf/model.safetensors

import signal
import sys

from safetensors import SafetensorError, safe_open


def main(path, wanted=None):
    # "pt" instead of "np" gives torch tensors. NumPy has no BF16: take f32/ or f16/ for it.
    with safe_open(path, framework="np") as file:
        names = [wanted] if wanted else sorted(file.keys())
        for name in names:
            # A slice knows its shape and type from the header; only what is cut out is read.
            part = file.get_slice(name)
            print(f"{name}: {part.get_dtype()} {part.get_shape()}")
        if wanted:
            array = part[:1] if part.get_shape() else file.get_tensor(wanted)
            print(f"begins with {array.ravel()[:4]}")
    print(f"{len(names)} tensors")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} FILE [TENSOR]")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough, as head has, ends it quietly
    try:
        main(*sys.argv[1:])
    except (OSError, SafetensorError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
