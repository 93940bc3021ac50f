"""What reading a model costs in memory: the daemon's own, and the kernel's page cache."""

import machine
from readers import MIB, Part, evict, mapped, refill, resident, sequential


def growth(bench, options, name, read):
    """Bytes that one read of a file through a new mount adds to the page cache beyond the source's, per byte read.

    The source is cached before, so what appears is the mount's. Others write files
    meanwhile: the median of several, and the pages of the file itself beside it.
    """
    refill(bench.large.path)
    with bench.weightfs.mount(bench.large.path, options, f"page cache {options}") as mount:
        part = Part(mount / name)
        source = resident(bench.large.path)
        before = machine.meminfo("Cached")
        read(part, MIB)
        after = machine.meminfo("Cached") - (resident(bench.large.path) - source)
        own = resident(part.path) if read is sequential else None
        return (after - before) / part.length, None if own is None else own / part.length


def cold(bench, options, name, read=sequential):
    """The same from an empty cache: source and mount together, per byte of the source read."""
    evict(bench.large.path)
    with bench.weightfs.mount(bench.large.path, options, f"page cache cold {options}") as mount:
        part = Part(mount / name)
        before = machine.meminfo("Cached")
        read(part, MIB)
        return (machine.meminfo("Cached") - before) / part.length


def page_cache(bench):
    """The default mode keeps nothing twice, but for what is mapped while it is; cache=page gives back
    what it brought into the source's cache, and leaves alone what was there."""
    group, add = "page cache used per byte read", bench.results.add
    whole, tensor = "model.gguf", "tensors/big.weight.bin"
    for title, options, name, read, needed in (
        ("default options, whole model", "", whole, sequential, ("<=", 0.05)),
        ("default options, one tensor", "", tensor, sequential, ("<=", 0.05)),
        ("default options, one tensor mapped", "", tensor, mapped, None),
        ("cache=page, one tensor", "cache=page", tensor, sequential, None),
    ):
        runs = [growth(bench, options, name, read) for _ in range(bench.few)]
        add(group, f"{title}: beyond the source's own", [max(run[0], 0.0) for run in runs], "bytes a byte", needed)
        if runs[0][1] is not None:
            own = [run[1] for run in runs]
            add(group, f"{title}: pages of the mounted file", own, "bytes a byte", needed)
    add(group, "default options, source not cached: source and mount together", [cold(bench, "", whole) for _ in range(bench.few)], "bytes a byte", ("<=", 1.05))
    for title, read in (("read", sequential), ("mapped", mapped)):
        runs = [cold(bench, "cache=page", tensor, read) for _ in range(bench.few)]
        add(group, f"cache=page, one tensor {title}, source not cached: source and mount together", runs, "bytes a byte", ("<=", 1.2))
    refill(bench.large.path)


def daemon(bench):
    """The most that any daemon of this run had, at the end of its case."""
    known = bench.weightfs.memory
    if known:
        worst = max(known, key=known.get)
        bench.results.add("daemon", f"anonymous memory, the most of {len(known)} cases ({worst})", [known[worst] / MIB], "MiB", ("<=", 48))


GROUPS = {"memory": page_cache}
