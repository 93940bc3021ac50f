"""Whole files read in order: cold, first, again, mapped, by several; every option and view."""

import re
import resource
import subprocess
from functools import partial

from readers import KIB, MIB, Part, evict, mapped, refill, resident, sequential, together
from rounds import Race, Sample


def served(mount, name, length=None):
    """A file of the mount, or its first bytes."""
    part = Part(mount / name)
    return part if length is None else part.first(length)


def read_by(count, part, block=MIB, read=sequential):
    """The part read by count processes, each a piece of its own."""
    if count == 1:
        return Sample(part.length, read(part, block).seconds)
    pieces = [part.cut(index, count) for index in range(count)]
    span, _ = together(count, lambda index: (read(pieces[index], block), None))
    return Sample(sum(piece.length for piece in pieces), span.seconds)


def cpu_seconds():
    """CPU time of this process and of the readers that it had."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def fresh(bench, model, options, name, *labels, block=MIB, readers=1, read=sequential, length=None):
    """A case: a new mount whose file is read once for each label."""

    def run():
        with bench.weightfs.mount(model.path, options, f"{name} {options}") as mount:
            part = served(mount, name, length)
            daemon, reader, samples, nbytes = mount.cpu_seconds(), cpu_seconds(), {}, 0
            for label in labels:
                samples[label] = read_by(readers, part, block, read)
                nbytes += samples[label].nbytes
            samples["cpu"] = ((mount.cpu_seconds() - daemon) / (nbytes / 1e9), (cpu_seconds() - reader) / (nbytes / 1e9))
            return samples

    return run


BIG = "tensors/big.weight.bin"


def reader(bench):
    """Whether what we read with is as quick as dd: else all floors are too low, and all ratios too high."""
    part = bench.large.part("big.weight")
    refill(bench.large.path)

    def dd():
        words = ["dd", f"if={part.path}", "of=/dev/null", "bs=1M", "iflag=skip_bytes,count_bytes", f"skip={part.offset}", f"count={part.length}"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stderr.splitlines()[-1]
        return Sample(part.length, float(re.search(r"([0-9.e+-]+) s,", said).group(1)))

    race = Race(bench.results, "the bench itself", dd, bench.rounds)
    race.case("reader", lambda: {"run": read_by(1, part)}).run()
    race.row("reader", "run", "its reader against dd, 1 MiB reads of the source", (">=", 0.95), "of dd")


def basic(bench):
    """The figures that matter most: default options, one tensor, the source in the page cache."""
    model = bench.large
    part = model.part("big.weight")
    refill(model.path)
    case = partial(fresh, bench, model)
    race = Race(bench.results, "sequential, source cached", lambda: read_by(1, part), bench.rounds)
    race.case("default", case("", BIG, "first", "again"))
    race.case("once", case("verify=once", BIG, "first", "again"))
    race.case("off", case("verify=off", BIG, "first"))
    race.case("page", case("cache=page", BIG, "first", "again"))
    race.case("page off", case("cache=page,verify=off", BIG, "first", "again"))
    race.case("pread", case("io=pread", BIG, "first"))
    race.case("unsealed", case("seal=none", BIG, "first"))
    race.case("source", case("verify=off", f"source/{model.path.name}", "first", length=part.length))
    race.run()
    race.row("default", "first", "1 MiB, default options, first read", (">=", 0.33))
    race.row("default", "again", "1 MiB, default options, read again")
    race.row("once", "first", "1 MiB, verify=once, first read")
    race.row("once", "again", "1 MiB, verify=once, read again")
    race.row("off", "first", "1 MiB, verify=off", (">=", 0.45))
    race.against(("default", "first"), ("off", "first"), "verify=always against verify=off", "of verify=off", (">=", 0.75))
    race.row("page", "first", "1 MiB, cache=page, first read", (">=", 0.27))
    race.row("page", "again", "1 MiB, cache=page, read again", (">=", 0.6))
    race.row("page off", "first", "1 MiB, cache=page, verify=off, first read")
    race.row("pread", "first", "1 MiB, io=pread")
    race.row("unsealed", "first", "1 MiB, unsealed (trust on first use)")
    race.row("source", "first", "1 MiB, source/FILE, verify=off", (">=", 0.95))


def blocks(bench):
    """Reads of 128 KiB, against reads of the source of the same size."""
    model, part = bench.large, bench.large.part("big.weight")
    refill(model.path)
    race = Race(bench.results, "sequential, 128 KiB reads", lambda: read_by(1, part, 128 * KIB), bench.rounds)
    race.case("default", fresh(bench, model, "", BIG, "first", block=128 * KIB))
    race.case("off", fresh(bench, model, "verify=off", BIG, "first", block=128 * KIB))
    race.case("page", fresh(bench, model, "cache=page", BIG, "first", "again", block=128 * KIB))
    race.run()
    race.row("default", "first", "128 KiB, default options", (">=", 0.22))
    race.row("off", "first", "128 KiB, verify=off")
    race.row("page", "first", "128 KiB, cache=page, first read")
    race.row("page", "again", "128 KiB, cache=page, read again")


def crowds(bench):
    """2 and 8 readers, each of its own part of one tensor."""
    model, part = bench.large, bench.large.part("big.weight")
    refill(model.path)
    for count in (2, 8):
        race = Race(bench.results, f"sequential, {count} readers", lambda count=count: read_by(count, part), bench.rounds)
        race.case("default", fresh(bench, model, "", BIG, "first", readers=count))
        race.case("off", fresh(bench, model, "verify=off", BIG, "first", readers=count))
        race.run()
        race.row("default", "first", f"1 MiB, default options, {count} readers", (">=", 0.42) if count == 2 else None)
        race.row("off", "first", f"1 MiB, verify=off, {count} readers")
    two = Race(bench.results, "sequential, 8 readers", lambda: fresh(bench, model, "", BIG, "first", readers=2)()["first"], bench.rounds)
    two.case("eight", fresh(bench, model, "", BIG, "first", readers=8)).run()
    two.row("eight", "first", "8 readers against 2 readers, default options", (">=", 1.0), "of 2 readers")
    plain = Race(bench.results, "sequential, 8 readers", lambda: read_by(2, part), bench.rounds)
    plain.case("eight", lambda: {"first": read_by(8, part)}).run()
    plain.row("eight", "first", "8 readers against 2 readers, the source itself", None, "of 2 readers")


def maps(bench):
    """A mapping of the file copied out."""
    model, part = bench.large, bench.large.part("big.weight").first(bench.large.places["big.weight"][1] // 2)
    refill(model.path)
    length = part.length
    race = Race(bench.results, "mapped, copied out in order", lambda: read_by(1, part, MIB, mapped), bench.rounds)
    for name, options in (("default", ""), ("off", "verify=off"), ("page", "cache=page")):
        race.case(name, fresh(bench, model, options, BIG, "first", "again", read=mapped, length=length))
    race.case("eight", fresh(bench, model, "", BIG, "first", read=mapped, length=length, readers=8))
    race.run()
    race.row("default", "first", "default options, first mapping", (">=", 0.18))
    race.row("default", "again", "default options, mapped again")
    race.row("off", "first", "verify=off, first mapping")
    race.row("page", "first", "cache=page, first mapping", (">=", 0.18))
    race.row("page", "again", "cache=page, mapped again", (">=", 0.5))
    race.row("eight", "first", "default options, 8 readers map it (floor: one)")


def cold(bench):
    """The source dropped from the page cache before each read, of mount and floor alike."""
    model, part = bench.large, bench.large.part("big.weight").first(bench.cold_bytes)
    group = "sequential, source not cached"
    evict(model.path)
    if resident(model.path) > part.length // 20:
        return bench.results.lack(group, "the source's pages do not leave the page cache: somebody maps them")

    def floor():
        evict(model.path)
        return read_by(1, part)

    def dropped(run):
        def case():
            evict(model.path)
            return run()

        return case

    race = Race(bench.results, group, floor, bench.few)
    for name, options in (("default", ""), ("off", "verify=off"), ("pread", "io=pread")):
        race.case(name, dropped(fresh(bench, model, options, BIG, "first", length=part.length)))
    race.case("map", dropped(fresh(bench, model, "", BIG, "first", read=mapped, length=part.length)))
    race.run()
    race.row("default", "first", "1 MiB, default options")
    race.row("off", "first", "1 MiB, verify=off")
    race.row("pread", "first", "1 MiB, io=pread")
    race.row("map", "first", "mapped, default options")
    refill(model.path)


def views(bench):
    """Other forms of the same values, in bytes served, against the raw view in the same round."""
    model = bench.large
    refill(model.path)
    most = bench.view_bytes

    def raw():
        return fresh(bench, model, "", BIG, "first", length=most)()["first"]

    race = Race(bench.results, "views, against the raw view", raw, bench.rounds)
    files = {
        "f32 of Q8_0": "f32/q8.weight.bin",
        "f32 of Q4_K": "f32/q4k.weight.bin",
        "f32 of F16": "f32/mid.weight.bin",
        "bf16 of Q8_0": "bf16/q8.weight.bin",
        "bf16 of Q4_K": "bf16/q4k.weight.bin",
        "f16 of Q8_0": "f16/q8.weight.bin",
        "npy of F16": "tensors/mid.weight.npy",
        "model.safetensors": "model.safetensors",
        "model.gguf": "model.gguf",
        "bf16/model.safetensors": "bf16/model.safetensors",
    }
    for name, path in files.items():
        race.case(name, fresh(bench, model, "", path, "first", length=most))
    race.case("readers", fresh(bench, model, "", "f32/model.safetensors", "first", length=2 * most, readers=8))
    race.run()
    for name in files:
        needed = (">=", 0.7) if name in ("f32 of Q8_0", "f32 of Q4_K") else None
        race.row(name, "first", name, needed, "of the raw view")
    race.row("readers", "first", "f32/model.safetensors, 8 readers (raw: one)", None, "of the raw view")


GROUPS = {"reader": reader, "basic": basic, "blocks": blocks, "crowds": crowds, "maps": maps, "cold": cold, "views": views}
