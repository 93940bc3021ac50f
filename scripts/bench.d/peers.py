"""Other file systems that show files of an archive, on the same bytes, uncompressed.

The archive holds one tensor as a file. Whoever is not installed is named and left out.
"""

import os
import shutil
import subprocess
import zipfile
import tarfile
from pathlib import Path

from models import made
from mounts import Foreign
from readers import MIB, Part, refill
from rounds import Race
from throughput import fresh, read_by

NAME = "mid.weight.bin"
# program: (archive, how many times faster weightfs must be)
LITTLE = 8 * MIB
NEEDED = {"ratarmount": ("tar", 1.5), "squashfuse": ("squashfs", 3.0), "fuse-zip": ("zip", 6.0), "archivemount": ("tar", 6.0)}


def programs(bench):
    """{name: command} of those that are there."""
    found = {name: shutil.which(name) for name in ("squashfuse", "fuse-zip", "archivemount")}
    found["ratarmount"] = bench.tool("ratarmount")
    return {name: path for name, path in found.items() if path}


def archives(bench, directory):
    """The archives of the tensor, made where they are not there yet; {kind: path}."""
    model = bench.large
    offset, size = model.places["mid.weight"]
    plain = directory / f"peers-{size // MIB}" / NAME

    def copy(file):
        with open(model.path, "rb") as source:
            source.seek(offset)
            left = size
            while left:
                left -= file.write(source.read(min(left, 16 * MIB)))

    plain.parent.mkdir(exist_ok=True)
    made(plain, copy)
    base = directory / f"peers-{size // MIB}"
    paths = {"tar": base.with_suffix(".tar"), "zip": base.with_suffix(".zip"), "squashfs": base.with_suffix(".squashfs")}

    def as_tar(file):
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.add(plain, NAME)

    def as_zip(file):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.write(plain, NAME)

    def as_squashfs(file):
        words = ["mksquashfs", plain, file.name, "-noI", "-noD", "-noF", "-noX", "-no-fragments", "-noappend", "-no-progress", "-quiet"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    made(paths["tar"], as_tar)
    made(paths["zip"], as_zip)
    if shutil.which("mksquashfs"):
        made(paths["squashfs"], as_squashfs)
    else:
        del paths["squashfs"]
    return paths


def words(name, program, archive, point):
    """The command that mounts and stays in front."""
    if name == "ratarmount":
        return [program, "--foreground", "--index-file", ":memory:", str(archive), str(point)]
    if name == "fuse-zip":
        return [program, "-r", "-f", str(archive), str(point)]
    if name == "archivemount":
        return [program, "-f", "-o", "ro,readonly", str(archive), str(point)]
    return [program, "-f", str(archive), str(point)]


def peers(bench):
    """First and second read of the same tensor by weightfs and by each peer, in turn."""
    group = "peers, 1 MiB reads of the same bytes"
    model, part = bench.large, bench.large.part("mid.weight")
    there = programs(bench)
    for name in NEEDED:
        if name not in there:
            bench.results.lack(group, f"{name} is not installed (scripts/bench --install)")
    kinds = archives(bench, bench.directory)
    refill(model.path)
    race = Race(bench.results, group, lambda: read_by(1, part), bench.rounds)
    file = f"tensors/{NAME}"
    race.case("weightfs", fresh(bench, model, "", file, "first", "again"))
    race.case("weightfs page", fresh(bench, model, "cache=page", file, "first", "again"))

    def peer(name, program, archive):
        def run():
            point = bench.weightfs.point()
            with Foreign(words(name, program, archive, point), point, os.environ | {"PYTHONWARNINGS": "ignore"}) as mount:
                # archivemount starts anew for each read: the more of a file, the slower.
                whole = Part(mount.path / NAME).first(LITTLE if name == "archivemount" else part.length)
                return {"first": read_by(1, whole), "again": read_by(1, whole)}

        return run

    for name, program in there.items():
        kind, _ = NEEDED[name]
        if kind in kinds:
            refill(kinds[kind])
            race.case(name, peer(name, program, kinds[kind]))
    race.run()
    for name in ("weightfs", "weightfs page", *there):
        kind = NEEDED[name][0] if name in NEEDED else ""
        part_of = ", its first 8 MiB" if name == "archivemount" else ""
        title = {"weightfs": "weightfs, default options", "weightfs page": "weightfs, cache=page"}.get(name, f"{name}, uncompressed {kind}{part_of}")
        race.row(name, "first", f"{title}, first read")
        race.row(name, "again", f"{title}, read again")
    for name in there:
        race.against(("weightfs", "first"), (name, "first"), f"verified first read, against {name}", f"times {name}", (">=", NEEDED[name][1]))
        race.against(("weightfs page", "again"), (name, "again"), f"cache=page read again, against {name}", f"times {name}")


GROUPS = {"peers": peers}
