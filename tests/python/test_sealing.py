"""Sealing under attack: killed, edited, cut short, raced for; parts and what the seal saves.

The short form runs always; WEIGHTFS_SOAK=1 (scripts/soak seal) runs the numbers that the
promises name.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import threading
import time
import zlib

import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf, pattern
from mounting import shell, wait_until, xattr

SOAK = os.environ.get("WEIGHTFS_SOAK") == "1"
KIB = 1024


def small():
    return (
        Gguf()
        .key("general.architecture", "str", "llama")
        .key("tokenizer.ggml.tokens", "arr:str", [f"token{i}" for i in range(700)])
        .key("general.name", "str", "small")
        .tensor("a", "F32", (1000,), pattern(4000, seed=1))
        .tensor("b", "F32", (33,), pattern(132, seed=2))
    )


def seal_of(path):
    return path.with_name(path.name + ".weightfs.json")


def drafts(directory):
    return [name for name in os.listdir(directory) if ".tmp." in name]


def rehashed(path, change):
    """Edit the body of a seal and make its hash right again."""
    seal = json.loads(path.read_text())
    change(seal["body"])
    body = json.dumps(seal["body"])
    digest = hashlib.sha256(body.encode()).hexdigest()
    path.write_text(f'{{"weightfs_manifest":1,"body_sha256":"{digest}","body":{body}}}\n')


# --- killed ----------------------------------------------------------------------------


@pytest.mark.patience(900)
def test_a_killed_seal_is_the_old_one_or_none_or_whole(weightfs, tmp_path):
    """kill -9 at random points: what has the seal's name is always a whole seal of the file."""
    model = Gguf().tensor("a", "F32", (1 << 20,), pattern(4 << 20)).tensor("b", "F32", (5,), pattern(20))
    path = model.write(tmp_path / "m.gguf")
    times = []
    for _ in range(5):
        begin = time.monotonic()
        weightfs.run("seal", "--force", path, "--chunk-size", "4KiB")
        times.append(time.monotonic() - begin)
    took = sorted(times)[2]
    seal_of(path).unlink()
    rng = random.Random(5)
    whole, killed, left, lying, round_ = 0, 0, 0, 0, 0
    goal = 200 if SOAK else 12
    while killed < goal and round_ < 20 * goal:
        round_ += 1
        if round_ % 3 == 0:
            seal_of(path).unlink(missing_ok=True)
        before = seal_of(path).exists()
        process = weightfs.start("seal", "--force", path, "--chunk-size", "4KiB", stdout=subprocess.DEVNULL)
        # Half of them near the end, where the name is given.
        time.sleep(took * (rng.uniform(0, 1.1) if round_ % 2 else rng.uniform(0.8, 1.05)))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        found = len(drafts(tmp_path))
        left, lying = left + (found > lying), found
        assert seal_of(path).exists() or not before, "the old seal was lost"
        if seal_of(path).exists():
            weightfs.run("verify", path)
            whole += 1
        else:
            weightfs.run("verify", path, code=4)
    assert killed >= goal // 4 and whole, (killed, whole)
    print(f"{round_} rounds, {killed} killed, {left} of them left a draft, {whole} times a seal lay there, whole")
    # What killed processes left goes with the first seal a day later.
    for name in drafts(tmp_path):
        os.utime(tmp_path / name, (time.time() - 2 * 86400,) * 2)
    weightfs.run("seal", "--force", path)
    assert drafts(tmp_path) == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("call", ["fsync", "rename,renameat,renameat2"])
@pytest.mark.parametrize("old", [False, True])
def test_killed_around_the_rename(weightfs, tmp_path, call, old):
    path = small().write(tmp_path / "m.gguf")
    if old:
        weightfs.run("seal", path)
    for when in (1, 2) if call == "fsync" else (1,):
        inject = f"inject={call}:signal=KILL:when={when}"
        command = ["strace", "-f", "-o", os.devnull, "-e", inject, weightfs.binary, "seal", "--force", path]
        done = subprocess.run(command, env=weightfs.env, capture_output=True)
        assert done.returncode != 0
        weightfs.run("verify", path, code=0 if seal_of(path).exists() else 4)
        assert seal_of(path).exists() or not old


# --- interrupted -----------------------------------------------------------------------


def long_work(path):
    """A shard that takes a while to be sealed and no room on the disk."""
    header = json.dumps({"a": {"dtype": "U8", "shape": [8 << 30], "data_offsets": [0, 8 << 30]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + (8 << 30))
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("part", [[], ["--part"]])
def test_a_seal_that_is_interrupted_leaves_nothing_behind(weightfs, tmp_path, number, part):
    path = long_work(tmp_path / "m.safetensors")
    work = weightfs.start("seal", *part, path)
    wait_until(lambda: drafts(tmp_path), what="a draft")
    work.send_signal(number)
    assert work.wait(10) == -number
    assert [name for name in os.listdir(tmp_path) if name != "home"] == [path.name]


def test_a_signal_that_is_ignored_interrupts_no_seal(weightfs, tmp_path):
    """As of a command that a script runs beside itself."""
    path = long_work(tmp_path / "m.safetensors")
    work = weightfs.start("seal", path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    wait_until(lambda: drafts(tmp_path), what="a draft")
    work.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert work.poll() is None and drafts(tmp_path)
    work.terminate()
    assert work.wait(10) == -signal.SIGTERM


def test_merging_by_parts_alone_names_what_leads_to_the_files(weightfs, tmp_path):
    parts = [safetensors_file.Safetensors().tensor(name, "F32", (4,), pattern(16)) for name in "ab"]
    entry = safetensors_file.sharded(parts, tmp_path)
    weightfs.run("seal", "--part", *sorted(tmp_path.glob("*.safetensors")))
    said = weightfs.run("seal", "--merge", *sorted(tmp_path.glob("*weightfs-part.json"))).text
    assert said.startswith(f"{entry}: sealed 2 tensors"), said
    seal_of(entry).unlink()
    said = weightfs.run("seal", "--merge", *(path.name for path in sorted(tmp_path.glob("*weightfs-part.json"))), cwd=tmp_path).text
    assert said.startswith(f"{entry.name}: sealed 2 tensors"), said


# --- power lost ------------------------------------------------------------------------


WRITES = "write,writev,pwrite64,pwritev,pwritev2,ftruncate,fallocate,copy_file_range,sendfile,splice"
NAMES = "rename,renameat,renameat2,link,linkat,symlink,symlinkat"
SYNCS = "fsync,fdatasync,syncfs,sync"


def traced(weightfs, log, *args):
    """What a run did to files, in the order in which it was done: (call, its text)."""
    calls = f"trace={WRITES},{NAMES},{SYNCS},openat,open,creat,mmap"
    command = ["strace", "-f", "-y", "-s", "0", "-e", "signal=none", "-e", calls, "-o", log, weightfs.binary, *args]
    done = subprocess.run(command, env=weightfs.env, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    begun, events = {}, []
    for line in log.read_text(errors="surrogateescape").splitlines():
        pid, text = line.split(None, 1)
        if text.endswith("<unfinished ...>"):
            begun[pid] = text.removesuffix("<unfinished ...>")
            continue
        if text.startswith("<... "):
            text = begun.pop(pid) + text.split("resumed>", 1)[1]
        call = text.split("(", 1)[0]
        if " = -1 " not in text and not text.startswith(("+++", "---")):
            events.append((call, text))
    return events


def lost_at_power_failure(events, final):
    """What a disk that keeps only what was synced may lack once final has its name: '' for nothing."""
    dirty, named, directory = set(), None, os.path.dirname(final)
    for call, text in events:
        paths = re.findall(r"<(/[^>]*)>|\"(/[^\"]*)\"", text)
        paths = [one or other for one, other in paths]
        if call in ("open", "openat", "creat") and any(flag in text for flag in ("O_WRONLY", "O_RDWR", "creat(")):
            assert final not in paths, f"{final} is written to in place: {text}"
        elif call in WRITES.split(","):
            dirty.add(paths[0] if paths else "?")
            if paths and paths[0] == final:
                return f"written to when it had its name: {text}"
        elif call == "mmap" and "PROT_WRITE" in text and "MAP_SHARED" in text and paths:
            dirty.add(paths[0])
        elif call in ("fsync", "fdatasync"):
            dirty.discard(paths[0])
            if named and paths[0] == directory:
                named = "kept"
        elif call in NAMES.split(",") and final in paths:
            assert paths[-1] == final and ".tmp." in paths[0], text
            if paths[0] in dirty:
                return f"named before its bytes were synced: {text}"
            named = "lost"
    return {None: "it never had its name", "lost": "its directory was not synced", "kept": ""}[named]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("manner", ["new", "again", "output", "part", "merge"])
def test_nothing_that_is_needed_is_lost_with_the_power(weightfs, tmp_path, manner):
    """The seal's bytes are synced before it has its name, its name before the command ends."""
    path = small().write(tmp_path / "m.gguf")
    final = seal_of(path)
    args = ["seal", path]
    if manner == "again":
        weightfs.run("seal", path)
        args = ["seal", "--force", path]
    elif manner == "output":
        final = tmp_path / "given.json"
        args = ["seal", path, "--output", final]
    elif manner in ("part", "merge"):
        part = path.with_name(path.name + ".weightfs-part.json")
        args = ["seal", "--part", path]
        if manner == "merge":
            weightfs.run(*args)
            args = ["seal", "--merge", part, path]
        else:
            final = part
    events = traced(weightfs, tmp_path / "log", *args)
    assert any(call == "write" and ".tmp." in text for call, text in events), "the draft was not seen"
    assert lost_at_power_failure(events, str(final)) == ""
    # The judge does judge: the same run without each of the calls that it looks for.
    syncs = [at for at, (call, _) in enumerate(events) if call in ("fsync", "fdatasync")]
    assert len(syncs) == 2
    for at, lost in zip(syncs, ("named before", "its directory")):
        assert lost in lost_at_power_failure(events[:at] + events[at + 1 :], str(final))


def test_a_seal_that_lost_its_end_is_not_accepted(weightfs, tmp_path):
    """As a disk leaves it that names a file before it has its bytes: cut, or zeros to its length."""
    path = small().write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    good = seal_of(path).read_bytes()
    rng = random.Random(3)
    cuts = {0, 1, len(good) - 2, *(rng.randrange(len(good)) for _ in range(100 if SOAK else 6))}
    for cut in sorted(cuts):
        for bad in (good[:cut], good[:cut] + bytes(len(good) - cut)):
            seal_of(path).write_bytes(bad)
            assert weightfs.run("cat", path, "a", code=5).out == b"", cut
    # A draft is none, whatever is in it.
    seal_of(path).unlink()
    (tmp_path / f".{seal_of(path).name}.tmp.1.00").write_bytes(good)
    weightfs.run("verify", path, code=4)


# --- where it may be written -------------------------------------------------------------


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_no_output_takes_the_place_of_anything_but_a_seal(weightfs, tmp_path, force):
    """A shard, the index, a file beside, a directory, a link to one of them: all stay as they are."""
    parts = [safetensors_file.Safetensors().tensor(name, "F32", (4,), pattern(16)) for name in "ab"]
    entry = safetensors_file.sharded(parts, tmp_path)
    shards = sorted(tmp_path.glob("*.safetensors"))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(shards[1].name)
    weightfs.run("seal", "--part", *shards)
    pieces = sorted(tmp_path.glob("*weightfs-part.json"))
    for name, what in [
        (shards[0].name, "a file of the model itself"),
        (shards[1].name, "a file of the model itself"),
        (entry.name, "a file of the model itself"),
        ("link", "a file of the model itself"),
        ("config.json", "2 bytes"),
        ("folder", "a directory"),
    ]:
        output = tmp_path / name
        before = output.read_bytes() if output.is_file() else None
        for args in (["seal", entry], ["seal", tmp_path], ["seal", "--merge", *pieces, entry]):
            said = weightfs.run(*args, "--output", output, *force, code=1).err
            assert name in said and what in said and "remove it yourself" in said, said
        assert before == (output.read_bytes() if output.is_file() else None)
    assert not drafts(tmp_path) and not seal_of(entry).exists()


# --- edited ----------------------------------------------------------------------------


def test_what_edited_sums_can_do_and_what_not(weightfs, mount, tmp_path):
    """A tensor's SHA-256, edited with the hash made right again, is found by verify and by
    sha256sum in the mount; no read needs it and nothing calls it verified before."""
    path = small().write(tmp_path / "m.gguf")
    weightfs.run("seal", path)

    def edit(body):
        body["tensors"][0]["sha256"] = "00" * 32

    rehashed(seal_of(path), edit)
    mounted = mount(path)
    assert mounted.bin("a") == small().data_of("a")
    assert mounted.model["trust"] == "sidecar"
    shell('cd "$1" && sha256sum -c SHA256SUMS', mounted.path, code=1)
    mounted.unmount()
    # Every byte is as sealed, so it is the seal that is wrong.
    assert "00000000" in weightfs.run("verify", path, code=5).err


@pytest.mark.parametrize("field", ["begin", "end", "fewer", "more", "none", "odd"])
def test_edited_arrays_refuse_the_mount(weightfs, mount, tmp_path, field):
    path = small().write(tmp_path / "m.gguf")
    weightfs.run("seal", path)

    def edit(body):
        (source,) = body["sources"]
        ((begin, end),) = source["arrays"]
        source["arrays"] = {
            "begin": [[begin - 1, end]],
            "end": [[begin, end - 5]],
            "fewer": [],
            "more": [[begin, end], [end + 1, end + 2]],
            "none": [[0, 0]],
            "odd": [[begin, end, 1]],
        }[field]

    rehashed(seal_of(path), edit)
    said = mount.refused(path, code=5)
    assert "array" in said, said
    weightfs.run("cat", path, "a", code=5)
    # The model itself is read as it is.
    assert weightfs.run("info", "--json", path).json()["name"] == "small"


def test_every_byte_of_a_small_seal_flipped_refuses(weightfs, tmp_path):
    path = Gguf().tensor("a", "F32", (3,), pattern(12)).write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    good = seal_of(path).read_bytes()
    masks = (0x01, 0x20, 0x80) if SOAK else (0x01,)
    step = 1 if SOAK else 7
    for place in range(0, len(good), step):
        for mask in masks:
            bad = bytearray(good)
            bad[place] ^= mask
            seal_of(path).write_bytes(bad)
            said = weightfs.run("cat", path, "a", code=5)
            assert said.out == b"", place


# --- what a sealed model saves, and that it is served right ------------------------------


def test_a_sealed_model_shows_what_an_unsealed_one_shows(weightfs, mount, tmp_path):
    path = small().write(tmp_path / "m.gguf")
    plain = mount(path)
    want = {name: (plain / "metadata" / name).read_bytes() for name in os.listdir(plain / "metadata")}
    want["metadata.json"] = (plain / "metadata.json").read_bytes()
    want["model.gguf"] = (plain / "model.gguf").read_bytes()
    plain.unmount()
    weightfs.run("seal", path)
    assert json.loads(seal_of(path).read_text())["body"]["sources"][0]["arrays"]
    sealed = mount(path, "seal=require")
    for name, value in want.items():
        place = name if name in ("metadata.json", "model.gguf") else f"metadata/{name}"
        assert (sealed / place).read_bytes() == value, name


# --- cut short ---------------------------------------------------------------------------


@pytest.mark.patience(600)
@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_the_file_cut_at_every_byte_of_its_header(weightfs, mount, tmp_path, kind):
    if kind == "gguf":
        file = Gguf().key("a", "u32", 7).key("b", "str", "text").tensor("t", "F32", (9,), pattern(36))
        start = file.data_start()
    else:
        file = safetensors_file.Safetensors().tensor("t", "F32", (9,), pattern(36))
        start = file.place_of("t")
    whole = file.write(tmp_path / f"m.{kind}").read_bytes()
    assert start < len(whole)
    path = tmp_path / f"cut.{kind}"
    slowest = 0
    cuts = range(0, start + 1) if SOAK else sorted({*range(0, start + 1, 9), start})
    for cut in cuts:
        path.write_bytes(whole[:cut])
        begin = time.monotonic()
        said = weightfs.run("ls", path, code=1)
        slowest = max(slowest, time.monotonic() - begin)
        assert said.err.startswith("weightfs: ") and "cut." in said.err, (cut, said.err)
        if SOAK or cut % 45 == 0:
            mount.refused(path, code=1)
    print(f"{len(cuts)} cuts, the slowest {slowest * 1000:.0f} ms")


@pytest.mark.parametrize("make", [gguf_file.plain, safetensors_file.plain])
def test_one_byte_more_or_less_at_the_edge_of_each_tensor(weightfs, tmp_path, make):
    """Damage in the last byte before a tensor, in its first, its last, and the next after it is
    found where it is."""
    file = make()
    suffix = "gguf" if isinstance(file, Gguf) else "safetensors"
    path = file.write(tmp_path / f"m.{suffix}")
    whole = path.read_bytes()
    weightfs.run("seal", path, "--chunk-size", "4KiB")
    listed = weightfs.run("ls", "--json", path).json()["tensors"]
    for tensor in listed:
        begin = tensor["source"]["offset"]
        end = begin + tensor["nbytes"]
        for place in {begin - 1, begin, end - 1, end} if tensor["nbytes"] else ():
            if place >= len(whole):
                continue
            bad = bytearray(whole)
            bad[place] ^= 0x10
            path.write_bytes(bad)
            owner = next(
                (t["name"] for t in listed if t["source"]["offset"] <= place < t["source"]["offset"] + t["nbytes"]), None
            )
            report = weightfs.run("verify", "--json", path, code=3).json()["models"][0]
            assert [entry["tensor"] for entry in report["bad"]] == [owner], (tensor["name"], place)
            (entry,) = report["bad"]
            at = entry["source"]["offset"]
            assert at <= place < at + entry["source"]["length"]
    # And the file cut there is refused, by name.
    for tensor in listed:
        for place in (tensor["source"]["offset"] + tensor["nbytes"] + d for d in (-1, 0, 1)):
            if place < len(whole):
                path.write_bytes(whole[:place])
                weightfs.run("cat", path, listed[0]["name"], code=None)
                assert weightfs.run("verify", path, code=None).code != 0


# --- the cache -----------------------------------------------------------------------------


@pytest.mark.patience(3600)
def test_two_mounts_race_for_what_was_observed(weightfs, mount, tmp_path):
    """Both write the cache at unmount and a third reads it meanwhile: it is always one of theirs, whole."""
    file = Gguf().tensor("a", "F32", (1 << 16,), pattern(1 << 18, 1)).tensor("b", "F32", (1 << 16,), pattern(1 << 18, 2))
    path = file.write(tmp_path / "m.gguf")
    tofu = weightfs.home / "cache" / "weightfs" / "tofu"
    third = mount(path)
    for _ in range(1000 if SOAK else 6):
        pair = [third, mount(path)]
        assert pair[0].bin("a") == file.data_of("a")
        assert pair[1].bin("b") == file.data_of("b")
        threads = [threading.Thread(target=mounted.unmount) for mounted in pair]
        for thread in threads:
            thread.start()
        third = mount(path)
        for thread in threads:
            thread.join()
        assert "not used" not in third.log()
        (kept,) = os.listdir(tofu)
        blob = (tofu / kept).read_bytes()
        assert zlib.crc32(blob[:-4]) == struct.unpack("<I", blob[-4:])[0]
    assert xattr(third / "tensors/a.bin", "trust") == "tofu"
    assert third.bin("a") == file.data_of("a")
    assert third.bin("b") == file.data_of("b")


@pytest.mark.parametrize("state", ["read-only", "full", "missing", "a file"])
def test_a_cache_that_cannot_be_written_is_done_without(weightfs, mount, tmp_path, root, state):
    file = Gguf().tensor("a", "F32", (1 << 20,), pattern(1 << 22))
    path = file.write(tmp_path / "m.gguf")
    cache = tmp_path / "elsewhere"
    env = {"XDG_CACHE_HOME": str(cache)}
    if state in ("read-only", "full"):
        cache.mkdir()
        size = "ro" if state == "read-only" else "size=4k"
        shell('mount -t tmpfs -o "$1" none "$2"', size, cache)
    elif state == "a file":
        cache.write_text("no directory")
    try:
        if state == "full":
            shell('head -c 8000 /dev/zero >"$1/filler"; true', cache, code=None)
        mounted = mount(path, env=env)
        assert mounted.bin("a") == file.data_of("a")
        mounted.unmount()
        if state != "missing":
            assert "WARN" in mounted.log() or "warn" in mounted.log().lower(), mounted.log()
    finally:
        if state in ("read-only", "full"):
            shell('umount "$1"', cache)


# --- the page cache --------------------------------------------------------------------------


def test_a_bad_copy_in_the_page_cache_is_not_sealed(weightfs, tmp_path, root):
    """The disk is good and the system's copy of it bad: sealing says so and writes nothing."""
    image, point = tmp_path / "disk", tmp_path / "disk.d"
    point.mkdir()
    made = shell('truncate -s 24M "$1" && mkfs.ext4 -q "$1"', image, code=None)
    if made.code:
        pytest.skip("needs mkfs.ext4")
    marker = pattern(2 << 20, seed=77)
    if shell('mount -o loop "$1" "$2"', image, point, code=None).code:
        pytest.skip("needs loop devices")
    try:
        path = Gguf().tensor("a", "F32", (1 << 19,), marker).write(point / "m.gguf")
        shell('sync; umount "$1"', point)
        place = image.read_bytes().find(marker[:4096])
        assert place > 0

        def flip_all():
            # One bit in each 4 KiB: whichever chunks are sampled, one of them is bad.
            with open(image, "r+b") as disk:
                for at in range(place, place + (2 << 20), 4096):
                    disk.seek(at)
                    byte = disk.read(1)[0]
                    disk.seek(at)
                    disk.write(bytes([byte ^ 4]))
                disk.flush()
                os.fsync(disk.fileno())

        flip_all()
        shell('mount -o loop "$1" "$2"', image, point)
        assert path.read_bytes()[-len(marker) :] != marker  # now the bad copy is in memory
        flip_all()
        # The image's own pages, below the loop device, are good again.
        said = weightfs.run("seal", path, code=None)
        if said.code == 0:
            pytest.skip("the loop device reads past its backing file's cache")
        assert said.code == 1 and "differently from disk" in said.err, said.err
        assert not seal_of(path).exists() and not drafts(point)
    finally:
        shell('umount "$1"', point, code=None)


def test_a_file_that_changes_while_it_is_sealed_is_not_sealed(weightfs, tmp_path):
    path = Gguf().tensor("a", "F32", (1 << 24,), bytes(1 << 26)).write(tmp_path / "m.gguf")
    process = weightfs.start("seal", path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until(lambda: drafts(tmp_path), 10, "the draft")
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    error = process.communicate()[1].decode()
    assert process.returncode == 1, error
    assert "m.gguf" in error and "chang" in error, error
    assert not seal_of(path).exists() and not drafts(tmp_path)
