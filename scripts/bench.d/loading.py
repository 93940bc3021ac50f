"""What loaders see: safe_open, GGUFReader, dequantize, np.memmap, and the first byte of a tensor."""

import os
import statistics
import time

from mounts import Failed, unmount
from readers import MIB, Part, refill, sequential
from rounds import Sample


def first_byte(bench, path, name, options=""):
    """Seconds from the command to the first byte of a tensor."""
    start = time.perf_counter()
    point, _ = bench.weightfs.start(path, options)
    try:
        with open(os.path.join(point, "tensors", f"{name}.bin"), "rb", buffering=0) as file:
            byte = file.read(1)
        took = time.perf_counter() - start
    finally:
        unmount(point)
        os.rmdir(point)
    return took, byte[0]


def gemma(bench):
    """Command to first tensor byte on a real model, against GGUFReader."""
    group, add = "a real model: Gemma 3 270M, Q4_K_M", bench.results.add
    path = bench.gemma()
    if path is None:
        return bench.results.lack(group, "scripts/fetch-models could not fetch it")
    name = "token_embd.weight"
    bench.weightfs.forget()
    (bench.directory / "gemma.gguf.weightfs.json").unlink(missing_ok=True)
    refill(path)
    unsealed = [first_byte(bench, path, name, "seal=none") for _ in range(bench.rounds)]
    bench.weightfs.run("seal", "--force", path)
    sealed = [first_byte(bench, path, name) for _ in range(bench.rounds)]
    add(group, "command to first tensor byte, unsealed", [took * 1000 for took, _ in unsealed], "ms")
    add(group, "command to first tensor byte, sealed", [took * 1000 for took, _ in sealed], "ms")
    if not bench.python:
        return bench.results.lack(group, "no venv: GGUFReader was not measured")
    reader = bench.probe("reader", path, name)
    if reader["first"] != sealed[0][1]:
        raise Failed(f"GGUFReader reads {reader['first']} as the first byte of {name}, the mount {sealed[0][1]}")
    add(group, "GGUFReader to first tensor byte, without imports", [reader["seconds"]], "s")
    for title, runs in (("unsealed", unsealed), ("sealed", sealed)):
        quicker = [reader["seconds"] / took for took, _ in runs]
        add(group, f"first tensor byte against GGUFReader, {title}", quicker, "times", (">=", 500))


def safetensors(bench):
    """safe_open and all tensors, of the source and of the mount in turn."""
    group, add = "loading with safe_open", bench.results.add
    model = bench.checkpoint
    refill(model.path)
    bench.probe("safe_open", model.path)
    found = {"": [], "cache=page": []}
    opened = {"": [], "cache=page": []}
    for _ in range(bench.few):
        for options in found:
            with bench.weightfs.mount(model.path, options, f"safe_open {options}") as mount:
                plain, mounted = bench.probe("safe_open", model.path, mount / "model.safetensors")
            found[options].append(plain["seconds"] / mounted["seconds"])
            opened[options].append(mounted["opened"] * 1000)
    for options, ratios in found.items():
        title = options or "default options"
        add(group, f"all tensors, {title}", ratios, "of the source")
        add(group, f"open alone, {title}", opened[options], "ms")


def arrays(bench):
    """np.memmap of the source and np.load(mmap_mode="r") of the .npy, copied out in turn."""
    model, name = bench.large, "mid.weight"
    refill(model.path)
    offset, length = model.places[name]
    for options in ("", "cache=page"):
        with bench.weightfs.mount(model.path, options, f"np.load {options}") as mount:
            rounds = bench.probe("memmap", model.path, offset, length, mount / f"tensors/{name}.npy")
        ratios = [one["source"] / one["mounted"] for one in rounds]
        title = options or "default options"
        bench.results.add("loading with NumPy", f"np.load(mmap_mode='r') against np.memmap, {title}, first", ratios[:1], "of the source")
        bench.results.add("loading with NumPy", f"np.load(mmap_mode='r') against np.memmap, {title}, again", ratios[1:], "of the source")


def dequantize(bench):
    """gguf.dequantize on one core against the f32 view, in bytes of F32."""
    model = bench.large
    refill(model.path)
    for name, dtype in (("q8.weight", "Q8_0"), ("q4k.weight", "Q4_K")):
        ratios, rates, floors = [], [], []
        for _ in range(bench.few):
            reference = bench.probe("dequantize", model.path, name)
            with bench.weightfs.mount(model.path, "", f"f32 of {dtype}") as mount:
                part = Part(mount / f"f32/{name}.bin")
                served = Sample(part.length, sequential(part, MIB).seconds)
            plain = Sample(reference["nbytes"], reference["seconds"])
            ratios.append(served.rate / plain.rate)
            rates.append(served.rate)
            floors.append(plain.rate)
        bench.results.add(
            "decoding against gguf.dequantize", f"f32 view of {dtype}, verified, served", ratios, "times gguf",
            rate=statistics.median(rates), floor=statistics.median(floors),
        )


def loading(bench):
    gemma(bench)
    if not bench.python:
        return bench.results.lack("loading", "no venv: safe_open, np.memmap and gguf.dequantize were not measured")
    safetensors(bench)
    arrays(bench)
    dequantize(bench)


GROUPS = {"loading": loading}
