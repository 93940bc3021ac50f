"""How time and memory grow with tensors, with metadata and with the size of the source."""

import os
import subprocess
import time

import models
from models import GIB, MIB
from mounts import Failed, unmount
from readers import Part, refill, sequential
from rounds import Race, Sample

MS = 1000.0


def ready(bench, path, options="", runs=None):
    """Milliseconds from the command to its return, the mount being ready then."""
    took = []
    for _ in range(runs or bench.rounds):
        point, seconds = bench.weightfs.start(path, options)
        unmount(point)
        os.rmdir(point)
        took.append(seconds * MS)
    return took


def timed(words):
    start = time.perf_counter()
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return time.perf_counter() - start, done.stdout


def listing(bench, path, count):
    """ls -U and find in a fresh mount, and the daemon's memory before and after."""
    with bench.weightfs.mount(path, "", f"{count} tensors") as mount:
        empty = mount.memory()
        ls, out = timed(["ls", "-U", str(mount / "tensors")])
        names = out.count(b"\n")
        if names < count:
            raise Failed(f"ls -U shows {names} names of {count} tensors")
        find, found = timed(["sh", "-c", 'find "$0" -type f | wc -l', str(mount.path)])
        return ls, find, int(found), empty, mount.memory()


def tensors(bench):
    """1 to 100,000 tensors, sealed and not."""
    group, add = "tensors", bench.results.add
    memory = {}
    for count in (1, 100, 10_000, 100_000):
        model = models.many(bench.directory, count)
        large = count == 100_000
        seal = bench.directory / f"{model.path.name}.weightfs.json"
        seal.unlink(missing_ok=True)

        def unsealed():
            bench.weightfs.forget()
            return ready(bench, model.path, runs=1)[0]

        add(group, f"{count:,} tensors, unsealed: ready", [unsealed() for _ in range(bench.rounds)], "ms", ("<=", 1000) if large else None)
        bench.weightfs.run("seal", "--force", model.path)
        add(group, f"{count:,} tensors, sealed: ready", ready(bench, model.path), "ms", ("<=", 150) if large else None)
        runs = [listing(bench, model.path, count) for _ in range(bench.few)]
        add(group, f"{count:,} tensors: ls -U tensors/", [run[0] * MS for run in runs], "ms", ("<=", 1000) if large else None)
        add(group, f"{count:,} tensors: find -type f | wc -l ({runs[0][2]:,} files)", [run[1] * MS for run in runs], "ms", ("<=", 10_000) if large else None)
        memory[count] = runs
    for when, index in (("when ready", 3), ("after find", 4)):
        least = min(run[index] for run in memory[1])
        growth = [(run[index] - least) / 100_000 for run in memory[100_000]]
        add(group, f"anonymous memory per tensor {when}", growth, "bytes", ("<=", 300))


def metadata(bench):
    """A vocabulary of 262,144 tokens: what the seal saves at mount."""
    model = models.vocabulary(bench.directory)
    seal = bench.directory / f"{model.path.name}.weightfs.json"
    seal.unlink(missing_ok=True)
    bench.weightfs.forget()
    group, add = "metadata of 262,144 tokens", bench.results.add
    floor = [bench.spawn() * MS for _ in range(bench.rounds)]
    unsealed = ready(bench, model.path, "seal=none")
    listed = [timed([bench.weightfs.binary, "ls", str(model.path)])[0] * MS for _ in range(bench.rounds)]
    bench.weightfs.run("seal", "--force", model.path)
    sealed = ready(bench, model.path)
    add(group, "weightfs --version, the floor of any command", floor, "ms")
    add(group, "ls, unsealed", listed, "ms", ("<=", 50))
    add(group, "unsealed: ready", unsealed, "ms", ("<=", 50))
    add(group, "sealed: ready", sealed, "ms")


def sizes(bench):
    """1 MiB to 1 TiB of sparse source: the time to mount must not depend on it."""
    group, add = "size of the source (sparse)", bench.results.add
    found = {}
    for size in (MIB, 64 * MIB, GIB, 64 * GIB, 1024 * GIB):
        path = models.sparse(bench.directory, size)
        title = f"{size // GIB:,} GiB" if size >= GIB else f"{size // MIB} MiB"
        if path is None:
            bench.results.lack(group, f"{title}: the file system cannot hold such a file")
            continue
        found[size] = path
        add(group, f"{title}: ready", ready(bench, path), "ms")
        large = size == 1024 * GIB
        add(group, f"{title}: ls", [timed([bench.weightfs.binary, "ls", str(path)])[0] * MS for _ in range(bench.rounds)], "ms", ("<=", 50) if large else None)
    if 1024 * GIB in found:
        pairs = [(ready(bench, found[1024 * GIB], runs=1)[0], ready(bench, found[MIB], runs=1)[0]) for _ in range(bench.rounds)]
        add(group, "1,024 GiB against 1 MiB: ready", [a / b for a, b in pairs], "times")
    for path in found.values():
        path.unlink()


def seals(bench):
    """Sealing and verifying, against reading the file and against sha256sum."""
    group, path = "sealing", bench.large.path
    refill(path)
    whole = Part(path)
    race = Race(bench.results, group, lambda: Sample(whole.length, sequential(whole, MIB).seconds), bench.few)

    def command(*words):
        return lambda: {"run": Sample(whole.length, timed([bench.weightfs.binary, *words, str(path)])[0])}

    race.case("seal", command("seal", "--force"))
    race.case("fast", command("seal", "--force", "--no-sha256"))
    race.case("verify", command("verify"))
    race.case("sha256sum", lambda: {"run": Sample(whole.length, timed(["sha256sum", str(path)])[0])})
    race.run()
    race.row("seal", "run", "seal (CRC32 and SHA-256 of tensors and file)")
    race.row("fast", "run", "seal --no-sha256")
    race.row("verify", "run", "verify")
    race.row("sha256sum", "run", "sha256sum")
    race.against(("seal", "run"), ("sha256sum", "run"), "seal against sha256sum", "times sha256sum")
    race.against(("verify", "run"), ("sha256sum", "run"), "verify against sha256sum", "times sha256sum")
    bench.weightfs.run("seal", "--force", path)


GROUPS = {"tensors": tensors, "metadata": metadata, "sizes": sizes, "sealing": seals}
