"""Small reads at places in no order: how long one takes, how many there are in a second."""

import statistics

from readers import KIB, Part, refill, scattered, together


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def rate_of(readers, part, block, count, seed):
    """Reads a second of all readers together, and the nanoseconds of each."""
    if readers == 1:
        span, took = scattered(part, block, count, seed)
        return count / span.seconds, took
    share = count // readers
    span, all_took = together(readers, lambda index: scattered(part, block, share, 100 * seed + index))
    return share * readers / span.seconds, [one for took in all_took for one in took]


def measure(bench, block, count, readers):
    """{file: (reads a second per round, all nanoseconds)}: source, default, without checks."""
    model = bench.large
    name = "tensors/big.weight.bin"
    with bench.weightfs.mount(model.path, "", f"random {block}") as checked, bench.weightfs.mount(model.path, "verify=off", f"random {block} off") as plain:
        files = {"source": model.part("big.weight"), "default": Part(checked / name), "off": Part(plain / name)}
        found = {key: ([], []) for key in files}
        for part in files.values():
            rate_of(1, part, block, count // 20, 99)
        for turn in range(bench.rounds):
            for key, part in files.items():
                # The floor is quick: more reads, so that it lasts as long.
                reads = count * 4 if key == "source" else count
                rate, took = rate_of(readers, part, block, reads, turn + 1)
                found[key][0].append(rate)
                found[key][1].extend(took)
    return found


def rows(bench, block, found, readers):
    group = f"random {block // KIB} KiB"
    who = "one reader" if readers == 1 else f"{readers} readers"
    source, default, off = (found[key][0] for key in ("source", "default", "off"))
    add = bench.results.add
    more = {"rate": statistics.median(default) * block}
    one = readers == 1
    add(group, f"{who}, default options", [a / b for a, b in zip(default, source)], "of the source", **more, floor=statistics.median(source) * block)
    needed = (">=", 0.95) if one and block == 4 * KIB else None
    add(group, f"{who}, default against verify=off", [a / b for a, b in zip(default, off)], "of verify=off", needed, **more, floor=statistics.median(off) * block)
    add(group, f"{who}, reads a second", [rate / 1000 for rate in default], "thousand")
    for key, title in (("default", "default options"), ("off", "verify=off"), ("source", "the source itself")):
        took = found[key][1]
        add(group, f"{who}, p50, {title}", [percentile(took, 0.5) / 1000], "us")
        needed = ("<=", 100) if one and block == 4 * KIB and key == "default" else None
        add(group, f"{who}, p99, {title}", [percentile(took, 0.99) / 1000], "us", needed)


def small(bench):
    """4 KiB and 64 KiB, one reader and four."""
    refill(bench.large.path)
    count = 6000 if bench.quick else 20000
    kept = {}
    for readers in (1, 4):
        kept[readers] = measure(bench, 4 * KIB, count, readers)
        rows(bench, 4 * KIB, kept[readers], readers)
    pairs = zip(kept[4]["default"][0], kept[1]["default"][0])
    bench.results.add("random 4 KiB", "four readers against one, default options", [a / b for a, b in pairs], "times one", (">=", 2.5))
    bench.results.add(
        "random 4 KiB", "four readers against one, the source itself", [a / b for a, b in zip(kept[4]["source"][0], kept[1]["source"][0])], "times one"
    )
    for readers in (1, 4):
        rows(bench, 64 * KIB, measure(bench, 64 * KIB, count // 3, readers), readers)


GROUPS = {"random": small}
