#!/usr/bin/env python3
# Seals a model of many files with the workers of a Dask cluster: each worker some files, then one merge without reading again.
# Run: python3 seal_cluster.py MODEL [SCHEDULER]        e.g. tcp://head:8786; without it as many workers as this machine has cores

import json
import subprocess
import sys
from pathlib import Path

from dask.distributed import Client, LocalCluster, as_completed


def weightfs(*words):
    """Runs one command, on whatever machine this is called; all of them see the files under the same path."""
    done = subprocess.run(["weightfs", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"weightfs {words[0]} ended with {done.returncode}")
    return done.stdout


def main(model, scheduler=None):
    # Not resolve(): the files of a snapshot lie beside the link, not beside what it leads to.
    folder = Path(model).absolute() if Path(model).is_dir() else Path(model).absolute().parent
    listed = json.loads(weightfs("ls", model, "--json"))
    files = [str(folder / source["file"]) for source in listed["model"]["sources"]]

    cluster = scheduler or LocalCluster(threads_per_worker=1, dashboard_address=None)
    failed = 0
    with Client(cluster) as client:
        # A worker that dies takes no result along: Dask gives its file to another one. A seal
        # that is there and fits is left alone, so doing a file twice does no harm.
        parts = {client.submit(weightfs, "seal", "--part", file, pure=False): file for file in files}
        for part in as_completed(parts):
            if part.status == "finished":
                print(part.result(), end="", flush=True)
            else:
                print(f"{parts[part]}: {part.exception()}", file=sys.stderr)
                failed += 1
    if not scheduler:
        cluster.close()
    if failed:
        sys.exit(f"{failed} of {len(files)} files were not sealed; nothing was merged")
    parts = [f"{file}.weightfs-part.json" for file in files]
    print(weightfs("seal", "--merge", *parts, model), end="")
    for part in parts:
        Path(part).unlink()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} MODEL [SCHEDULER]")
    main(*sys.argv[1:])
