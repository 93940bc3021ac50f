#!/usr/bin/env python3
# Seals (or verifies) a model of many files with the workers of a Dask cluster: each worker some files, no byte is read twice.
# Run: python3 seal_cluster.py seal|verify MODEL [SCHEDULER]        e.g. tcp://head:8786; else a worker per core of this machine

import json
import os
import subprocess
import sys
from pathlib import Path

from dask.distributed import Client, LocalCluster, as_completed


def weightfs(*words):
    """Runs one command on the machine of the worker; the files have the same path on all of them."""
    done = subprocess.run(["weightfs", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr).strip() or f"weightfs {words[0]} ended with {done.returncode}")
    return done.stdout


def tell(text):
    """Prints; that nobody reads on, as behind head, is no reason to stop sealing."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def on_all(command, files, scheduler):
    """Runs `weightfs COMMAND --part FILE` for each file, and says which failed, if any did."""
    cluster = scheduler or LocalCluster(threads_per_worker=1, dashboard_address=None)
    with Client(cluster) as client:
        # The file of a worker that dies is given to another one. A part that is there and fits is
        # left alone, so doing a file twice does no harm.
        tasks = {client.submit(weightfs, command, "--part", file, pure=False): file for file in files}
        failed = 0
        for task in as_completed(tasks):
            if task.status == "finished":
                tell(task.result())
            else:
                print(f"{tasks[task]}: {task.exception()}", file=sys.stderr)
                failed += 1
    if not scheduler:
        cluster.close()
    if failed:
        sys.exit(f"{command}: {failed} of {len(files)} files failed")


def main(command, model, scheduler=None):
    # Not resolve(): the files of a snapshot lie beside the link, not beside what it leads to.
    folder = Path(model).absolute() if Path(model).is_dir() else Path(model).absolute().parent
    listed = json.loads(weightfs("ls", model, "--json"))
    files = [str(folder / source["file"]) for source in listed["model"]["sources"]]
    on_all(command, files, scheduler)
    if command == "seal":
        parts = [f"{file}.weightfs-part.json" for file in files]
        tell(weightfs("seal", "--merge", *parts, model))
        for part in parts:
            Path(part).unlink()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in ("seal", "verify"):
        sys.exit(f"usage: {sys.argv[0]} seal|verify MODEL [SCHEDULER]")
    try:
        main(*sys.argv[1:])
    except RuntimeError as error:  # what weightfs itself said
        sys.exit(str(error))
