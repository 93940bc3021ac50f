"""A source that stumbles, lies, hangs or dies: served through faulty_source.py."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import mounting
from faulty_source import FaultySource
from gguf_file import Gguf, pattern
from mounting import alive, is_mounted, python, wait_until, xattr
from safetensors_file import Safetensors, sharded

KIB, MIB = 1 << 10, 1 << 20
CHUNK = 64 * KIB
# What is promised is 100 ms; the machine that runs this may have other things to do.
PROMPT = 1.0


@pytest.fixture
def faulty(mount, tmp_path):
    """faulty(OPTION...): a faulty source of the directory `files`, closed after the mounts."""
    opened = []

    def make(**options):
        source = FaultySource(tmp_path / "files", tmp_path / f"source{len(opened)}", **options)
        opened.append(source)
        mounting.LIVE.add(source)
        return source

    (tmp_path / "files").mkdir()
    yield make
    for source in opened:
        with contextlib.suppress(OSError):
            source.clear()
    mount.close()
    for source in opened:
        source.close()
        mounting.LIVE.discard(source)


@pytest.fixture
def files(tmp_path):
    return tmp_path / "files"


def model(size=2 * MIB):
    """One tensor of many chunks and others beside it, with metadata that has to be looked up."""
    return (
        Gguf()
        .key("general.architecture", "str", "llama")
        .key("tokenizer.chat_template", "str", "{{ messages }}")
        .key("tokenizer.ggml.tokens", "arr:str", [f"t{i}" for i in range(2000)])
        .key("tokenizer.ggml.scores", "arr:f32", [float(i) for i in range(2000)])
        .tensor("a", "F32", (size // 4,), pattern(size, seed=1))
        .tensor("b", "F32", (size // 4,), pattern(size, seed=2))
    )


def pread(path, size, offset):
    with open(path, "rb", buffering=0) as file:
        return os.pread(file.fileno(), size, offset)


def error_of(path, size, offset):
    try:
        pread(path, size, offset)
    except OSError as failed:
        return failed.errno
    return None


def timed(what):
    start = time.monotonic()
    what()
    return time.monotonic() - start


class Background:
    """Children that read, each a place of a file; a test thread that waited for a page would hold all of Python."""

    def __init__(self, path, places):
        """One child with a thread for each place."""
        code = (
            "import os, sys, threading\nfd = os.open(sys.argv[1], os.O_RDONLY)\nprint('open', flush=True)\n"
            "def read(place):\n    try:\n        got = len(os.pread(fd, 4096, place))\n    except OSError as e:\n        got = -e.errno\n    os.write(1, f'{got}\\n'.encode())\n"
            "all = [threading.Thread(target=read, args=(int(p),)) for p in sys.argv[2:]]\n"
            "[t.start() for t in all]\n[t.join() for t in all]\n"
        )
        self.child = subprocess.Popen([sys.executable, "-c", code, path, *map(str, places)], stdout=subprocess.PIPE, text=True)
        assert self.child.stdout.readline() == "open\n"

    def results(self, timeout=20):
        out, _ = self.child.communicate(timeout=timeout)
        return [int(line) for line in out.split()]


# --- a source that hangs -------------------------------------------------------------------
@pytest.fixture
def two_shards(weightfs, files, faulty):
    """A sealed model of two shards behind a faulty source."""
    shards = [
        Safetensors({"format": "pt"}).tensor("a", "F32", (MIB,), pattern(4 * MIB, seed=1)).tensor("a2", "F32", (3, 5)),
        Safetensors({"format": "pt"}).tensor("b", "F32", (MIB,), pattern(4 * MIB, seed=2)),
    ]
    files.mkdir(exist_ok=True)
    index = sharded(shards, files)
    weightfs.run("seal", index)
    source = faulty()
    source.shards = shards
    source.model = source / index.name
    return source


FIRST = "model-00001-of-00002.safetensors"
METADATA_CALLS = [
    lambda m: os.stat(m / "tensors/a.bin"),
    lambda m: os.stat(m / "f32/b.bin"),
    lambda m: os.listdir(m / "tensors"),
    lambda m: list(os.scandir(m.path)),
    lambda m: m.status,
    lambda m: (m / ".weightfs/metrics").read_bytes(),
    lambda m: m.json("tensors/a.json"),
    lambda m: m.model,
    lambda m: m.json("metadata.json"),
    lambda m: os.stat(m / "SHA256SUMS"),
    lambda m: (m / "tensors.sfv").read_bytes(),
    lambda m: os.stat(m / "model.safetensors"),
    lambda m: os.stat(m / "bf16/model.safetensors"),
    lambda m: xattr(m / "tensors/a.bin", "state"),
    lambda m: os.path.exists(m / "tensors/none.bin"),
    lambda m: os.statvfs(m.path),
    lambda m: [os.stat(entry.path) for entry in os.scandir(m / "metadata")],
]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("cache", ["page", "direct"])
@pytest.mark.parametrize("io", ["auto", "mmap"])  # auto is pread here; mapped files are read where the request is taken
def test_a_hung_source_holds_up_nobody_else(mount, two_shards, threads, cache, io):
    mounted = mount(two_shards.model, f"threads={threads},cache={cache},io={io}")
    two_shards.fault(FIRST, "hang", start=20_000)
    readers = Background(mounted / "tensors/a.bin", range(CHUNK, 4 * MIB - 4096, 4 * MIB // 65))
    wait_until(two_shards.hanging, 5, "a read that hangs")
    time.sleep(0.2)
    took = [timed(lambda call=call: call(mounted)) for call in METADATA_CALLS]
    took.append(timed(lambda: pread(mounted / "tensors/b.bin", MIB, 0)))
    assert pread(mounted / "tensors/b.bin", MIB, MIB) == two_shards.shards[1].data_of("b")[MIB : 2 * MIB]
    took += [timed(lambda call=call: call(mounted)) for call in METADATA_CALLS]
    print(f"while {two_shards.hanging()} reads hang: {max(took) * 1000:.1f} ms at most")
    assert max(took) < PROMPT, [f"{t * 1000:.0f}" for t in took]
    two_shards.clear()
    assert set(readers.results()) == {4096}
    mounted.unmount()


def test_files_of_the_whole_model_do_not_wait_for_the_other_shard(mount, two_shards):
    mounted = mount(two_shards.model, "threads=2")
    path = mounted / "model.safetensors"
    start = path.stat().st_size - 8 * MIB - 60
    two_shards.fault(FIRST, "hang", start=20_000)
    readers = Background(path, [start + MIB + i * CHUNK for i in range(8)])
    wait_until(two_shards.hanging, 5, "a read that hangs")
    assert timed(lambda: pread(path, CHUNK, path.stat().st_size - CHUNK)) < PROMPT
    two_shards.clear()
    assert readers.results() == [4096] * 8


def end_by(mounted, how):
    match how:
        case "weightfs umount":
            mounted.weightfs.run("umount", "--lazy", mounted.path)
        case "fusermount3":
            subprocess.run(["fusermount3", "-u", "-z", mounted.path], check=True)
        case "SIGTERM":
            os.kill(mounted.pid, signal.SIGTERM)


# --- a seal that is somewhere else ---------------------------------------------------------
# What needs no bytes of the model: values of metadata are read, and checked, when they are asked for.
OF_NAMES_AND_SIZES = [call for number, call in enumerate(METADATA_CALLS) if number not in (8, 16)]


@pytest.fixture
def far_seal(weightfs, files, faulty, tmp_path):
    """A model whose seal is behind a faulty source, and nothing of it in memory but what weightfs keeps."""
    path = model(8 * MIB).write(tmp_path / "m.gguf")
    weightfs.run("seal", "--chunk-size", "4KiB", "--output", files / "m.json", path)
    source = faulty(direct_io=True)
    source.model = path
    source.seal = source / "m.json"
    return source


@pytest.mark.parametrize("threads", [1, 4])
def test_a_seal_that_hangs_holds_up_nobody_else(mount, far_seal, threads):
    mounted = mount(far_seal.model, f"threads={threads}", f"seal={far_seal.seal}")
    far_seal.fault("m.json", "hang", start=4096)
    readers = Background(mounted / "tensors/a.bin", range(0, 8 * MIB - 4096, 8 * MIB // 65))
    wait_until(far_seal.hanging, 5, "a read that hangs")
    time.sleep(0.2)
    took = [timed(lambda call=call: call(mounted)) for call in OF_NAMES_AND_SIZES]
    assert max(took) < PROMPT, [f"{t * 1000:.0f}" for t in took]
    far_seal.clear()
    assert set(readers.results()) == {4096}
    mounted.unmount()


def test_a_seal_that_cannot_be_read_is_a_warning_where_nothing_is_believed(weightfs, mount, far_seal, tmp_path):
    (tmp_path / "m.gguf.weightfs.json").symlink_to(far_seal.seal)
    far_seal.fault("m.json", "eio")
    for command in ("ls", "info"):
        said = weightfs.run(command, far_seal.model)
        assert "the seal: cannot" in said.err and "m.gguf.weightfs.json" in said.err, said.err
    assert "UNREADABLE" in said.text
    assert weightfs.run("cat", far_seal.model, "a", code=1).out == b""
    mount.refused(far_seal.model, code=1)


@pytest.mark.parametrize("how", ["eio", "killed"])
def test_a_seal_that_is_lost_is_an_error_of_the_reads_that_need_it_and_is_named(mount, far_seal, how):
    """No byte is served unchecked; what is known of names and sizes is known still."""
    mounted = mount(far_seal.model, f"seal={far_seal.seal}")
    if how == "eio":
        far_seal.fault("m.json", "eio")
    else:
        far_seal.kill()
    for offset in range(0, 8 * MIB, MIB):
        assert error_of(mounted / "tensors/b.bin", 4096, offset) == errno.EIO
    took = [timed(lambda call=call: call(mounted)) for call in OF_NAMES_AND_SIZES]
    assert max(took) < PROMPT, [f"{t * 1000:.0f}" for t in took]
    log = mounted.log()
    assert str(far_seal.seal) in log, log
    mounted.unmount()


@pytest.mark.parametrize("how", ["weightfs umount", "fusermount3", "SIGTERM"])
@pytest.mark.parametrize("io", ["auto", "mmap"])
def test_unmounting_while_reads_hang(mount, two_shards, how, io):
    mounted = mount(two_shards.model, f"io={io}")
    two_shards.fault(FIRST, "hang", start=20_000)
    readers = Background(mounted / "tensors/a.bin", range(CHUNK, 4 * MIB, MIB))
    wait_until(two_shards.hanging, 5, "a read that hangs")
    start = time.monotonic()
    end_by(mounted, how)
    wait_until(lambda: not is_mounted(mounted.path), 2, "the end of the mount")
    print(f"{how}: {time.monotonic() - start:.3f} s")
    if how == "SIGTERM":
        # Nobody waits for a source that does not answer when the mount is to go.
        assert set(readers.results(10)) == {-errno.EIO}
        wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")
    two_shards.clear()
    readers.results(20)
    wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")


@pytest.mark.parametrize("io", ["auto", "mmap"])
def test_one_who_reads_on_and_on_is_told_when_the_mount_goes(mount, two_shards, io):
    """Its next answer is being made in advance when the source hangs, by a thread that is not the one that took the question."""
    mounted = mount(two_shards.model, f"io={io},cache=direct")
    two_shards.fault(FIRST, "hang", start=2 * MIB + 20_000)
    reader = subprocess.Popen(["dd", "bs=64k", "of=/dev/null", f"if={mounted / 'tensors/a.bin'}"], stderr=subprocess.PIPE, text=True)
    wait_until(two_shards.hanging, 5, "a read that hangs")
    time.sleep(0.2)
    os.kill(mounted.pid, signal.SIGTERM)
    assert "Input/output error" in reader.communicate(timeout=10)[1]
    wait_until(lambda: not alive(mounted.pid), 5, "the end of the daemon")
    two_shards.clear()


def test_a_source_that_hangs_is_named_after_a_while(mount, two_shards, weightfs):
    mounted = mount(two_shards.model, "log_level=info")
    assert mounted.status["stalled"] == 0 and mounted.status["pid"] == mounted.pid
    two_shards.fault(FIRST, "hang", start=20_000)
    readers = Background(mounted / "tensors/a.bin", [CHUNK, 2 * MIB])
    wait_until(lambda: mounted.status["stalled"] == 2, 20, "word of the two")
    assert "weightfs_stalled_requests 2" in (mounted / ".weightfs/metrics").read_text()
    assert f"2 requests: a disk or server does not answer (kill -TERM {mounted.pid}" in weightfs.run("status", mounted.path).text
    two_shards.clear()
    assert readers.results() == [4096] * 2
    wait_until(lambda: mounted.status["stalled"] == 0, 5, "the end of it")
    log = Path(mounted.status["log"]).read_text()
    assert log.count("does not answer") == 1 and "answers again" in log


def test_hf_is_looked_up_while_reads_hang(mount, files, faulty):
    path = files / "m.gguf"
    size = MIB
    gguf = (
        Gguf()
        .key("general.architecture", "str", "llama")
        .key("llama.block_count", "u32", 1)
        .key("llama.embedding_length", "u32", 64)
        .key("llama.attention.head_count", "u32", 4)
        .key("llama.feed_forward_length", "u32", 64)
        .tensor("token_embd.weight", "F32", (size // 256, 64), pattern(size, 1))
        .tensor("output_norm.weight", "F32", (64,), pattern(256, 2))
    )
    gguf.write(path)
    source = faulty()
    mounted = mount(source / "m.gguf", "map=hf,threads=1")
    source.fault("m.gguf", "hang", start=gguf.data_start() + 8192)
    readers = Background(mounted / "tensors/model.embed_tokens.weight.bin", [CHUNK * i for i in range(2, 10)])
    wait_until(source.hanging, 5, "a read that hangs")
    took = timed(lambda: [os.stat(entry.path) for entry in os.scandir(mounted / "hf")])
    took = max(took, timed(lambda: mounted.json("hf/config.json")))
    print(f"hf/ while reads hang: {took * 1000:.0f} ms")
    assert took < PROMPT
    source.clear()
    assert readers.results() == [4096] * 8


def test_a_server_that_dies_and_comes_back(mount, weightfs, two_shards):
    mounted = mount(two_shards.model)
    data = two_shards.shards[0].data_of("a")
    assert pread(mounted / "tensors/a.bin", CHUNK, 0) == data[:CHUNK]
    two_shards.fault(FIRST, "hang", start=20_000)
    readers = Background(mounted / "tensors/a.bin", range(MIB, 4 * MIB, MIB))
    wait_until(two_shards.hanging, 5, "a read that hangs")
    two_shards.kill()
    assert set(readers.results()) == {-errno.EIO}
    assert error_of(mounted / "tensors/a.bin", 4096, MIB) == errno.EIO
    for call in METADATA_CALLS[:8]:
        assert timed(lambda call=call: call(mounted)) < PROMPT
    two_shards.unmount()
    two_shards.start()
    again = mount(two_shards.model)
    assert again.bin("a") == data and again.status["state"] == "verified"
    assert timed(mounted.unmount) < 5
    again.unmount()


def test_a_server_that_is_stopped_and_continued(mount, two_shards):
    mounted = mount(two_shards.model)
    os.kill(two_shards.server.pid, signal.SIGSTOP)
    readers = Background(mounted / "tensors/a2.json", [0])  # a document: answered from memory
    assert readers.results() == [len((mounted / "tensors/a2.json").read_bytes())]
    took = [timed(lambda call=call: call(mounted)) for call in METADATA_CALLS[:5]]
    assert max(took) < PROMPT
    os.kill(two_shards.server.pid, signal.SIGCONT)
    assert mounted.bin("a") == two_shards.shards[0].data_of("a")


# --- a source that errs --------------------------------------------------------------------
@pytest.fixture
def sealed(weightfs, files, faulty):
    """A sealed file of two tensors behind a faulty source."""
    file = model()
    file.write(files / "m.gguf")
    weightfs.run("seal", files / "m.gguf")
    source = faulty()
    source.file, source.model = file, source / "m.gguf"
    source.chunk = lambda n, name="a": file.place_of(name) + n * CHUNK
    return source


def test_auto_reads_a_fuse_source_by_pread(mount, sealed):
    mounted = mount(sealed.model)
    assert mounted.bin("a") == sealed.file.data_of("a")
    maps = open(f"/proc/{mounted.pid}/maps").read()
    assert "m.gguf" not in maps


@pytest.mark.parametrize("kind", ["eio", "flip", "zero", "short"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_stumble_is_healed_unseen(mount, sealed, kind, times):
    mounted = mount(sealed.model)
    at = sealed.chunk(5)
    number = sealed.fault("m.gguf", kind, start=at + 100, end=at + 200, at=at + 150, times=times)
    start = time.monotonic()
    assert mounted.bin("a") == sealed.file.data_of("a")
    print(f"{kind} {times} times: {time.monotonic() - start:.3f} s for the file, struck {sealed.struck(number)}")
    status = mounted.status
    assert sealed.struck(number) == times
    assert status["state"] == "verified" and status["bad"] == []
    assert xattr(mounted / "tensors/a.bin", "state") == "verified"


def test_a_bad_copy_in_the_page_cache_is_healed_a_hundred_times(mount, sealed):
    mounted = mount(sealed.model, "cache=direct")
    data = sealed.file.data_of("a")
    at = sealed.chunk(5)
    sealed.fault("m.gguf", "flip", start=at + 150, end=at + 151, direct=False)
    slowest = 0
    for round in range(100):
        start = time.monotonic()
        with open(mounted / "tensors/a.bin", "rb", buffering=0) as file:
            assert os.pread(file.fileno(), 5000, 5 * CHUNK + round) == data[5 * CHUNK + round : 5 * CHUNK + round + 5000]
        slowest = max(slowest, time.monotonic() - start)
    print(f"healed {mounted.status['healed']} times, the slowest read took {slowest * 1000:.1f} ms")
    assert mounted.status["state"] == "verified" and mounted.status["bad"] == []
    assert mounted.status["healed"] >= 1


@pytest.mark.parametrize("kind", ["eio", "flip"])
def test_a_chunk_that_stays_bad(mount, sealed, kind):
    mounted = mount(sealed.model, "cache=direct")
    data = sealed.file.data_of("a")
    path = mounted / "tensors/a.bin"
    at = sealed.chunk(5) + 2 * 4096  # in a page of its own: an error takes the whole page
    sealed.fault("m.gguf", kind, start=at + 150, end=at + 151)
    start = time.monotonic()
    assert error_of(path, 4096, 5 * CHUNK) == errno.EIO
    first = time.monotonic() - start
    asked = sealed.reads("m.gguf", at + 150, at + 151)
    later = [timed(lambda: error_of(path, 4096, 5 * CHUNK + 4096)) for _ in range(200)]
    later.sort()
    print(f"{kind}: first EIO after {first * 1000:.0f} ms and {len(asked)} reads; later {later[100] * 1e6:.0f} us, 99 of 100 within {later[197] * 1e6:.0f} us")
    assert first < 2 and later[100] < 0.1
    # All that within the first cool-down, give or take one probe.
    assert len(sealed.reads("m.gguf", at + 150, at + 151)) <= len(asked) + 4
    assert len(asked) <= 4
    # Its neighbours are served.
    assert pread(path, CHUNK, 4 * CHUNK) == data[4 * CHUNK : 5 * CHUNK]
    assert pread(path, CHUNK, 6 * CHUNK) == data[6 * CHUNK : 7 * CHUNK]
    with open(path, "rb", buffering=0) as file:
        assert os.pread(file.fileno(), MIB, 0) == data[: 5 * CHUNK]
    status = mounted.status
    assert [(bad["tensor"], bad["chunk"]) for bad in status["bad"]] == [("a", 5)]
    assert xattr(path, "state") == "degraded" and xattr(mounted / "tensors/b.bin", "state") != "degraded"
    assert len([line for line in mounted.log().splitlines() if "damaged" in line]) == 1, mounted.log()
    # Well again: good after the cool-down, without a word to anybody.
    sealed.clear()
    wait_until(lambda: error_of(path, 4096, 5 * CHUNK) is None, 20, "the end of the cool-down")
    assert mounted.bin("a") == data
    assert xattr(path, "state") == "verified" and mounted.status["bad"] == []


@pytest.mark.parametrize("kind", ["eio", "flip"])
@pytest.mark.parametrize("how", ["a page", "model.safetensors"])
def test_a_bad_chunk_costs_its_source_four_reads_a_cool_down(mount, sealed, kind, how):
    """However often, and by whatever way, its readers try again."""
    mounted = mount(sealed.model, "cache=direct")
    at = sealed.chunk(5) + 150
    path = mounted.path / ("tensors/a.bin" if how == "a page" else how)
    sealed.fault("m.gguf", kind, start=at, end=at + 1)
    begin, tries = time.monotonic(), 0
    while time.monotonic() - begin < 3.3:
        with open(path, "rb", buffering=0) as file:
            if how == "a page":
                with pytest.raises(OSError):
                    os.pread(file.fileno(), 4096, 5 * CHUNK)
            else:
                with pytest.raises(OSError):
                    while file.read(MIB):
                        pass
        tries += 1
    reads = len(sealed.reads("m.gguf", at, at + 1))
    print(f"{kind}, {how}: {tries} times in {time.monotonic() - begin:.1f} s, {reads} reads of the source")
    # Left alone for one second, then for two.
    cool_downs = 2 if time.monotonic() - begin < 3 else 3 if time.monotonic() - begin < 7 else 4
    assert tries > 5 and reads <= 4 * cool_downs


def test_five_bad_chunks_open_the_breaker(mount, weightfs, sealed):
    for n in range(1, 20, 2):
        sealed.fault("m.gguf", "flip", start=sealed.chunk(n) + 7, end=sealed.chunk(n) + 8)
    mounted = mount(sealed.model, "cache=direct")
    data = sealed.file.data_of("a")
    path = mounted / "tensors/a.bin"
    for n in range(10):
        assert error_of(path, 4096, n * CHUNK) == (errno.EIO if n % 2 else None)
    assert xattr(path, "state") == "open"
    status = mounted.status
    assert [(b["tensor"], b["state"]) for b in status["breakers"]] == [("a", "open")]
    assert status["breakers"][0]["until"] > time.time() + 5
    lines = weightfs.run("status", mounted.path).text.split("\nbreakers\n")[1].splitlines()
    assert [line.split()[:2] for line in lines] == [["TENSOR", "STATE"], ["a", "open"]]
    assert xattr(mounted / "tensors/b.bin", "state") != "open"
    # Good chunks are served all the same, the first time too; bad ones are tried once and not again.
    for n in range(10, 20):
        if n % 2:
            assert error_of(path, 4096, n * CHUNK) == errno.EIO
        else:
            assert pread(path, CHUNK, n * CHUNK) == data[n * CHUNK : (n + 1) * CHUNK]
    counts = [len(sealed.reads("m.gguf", sealed.chunk(n) + 7, sealed.chunk(n) + 8)) for n in range(1, 20, 2)]
    # Those before the breaker opened had all of their retries.
    assert max(counts[5:]) <= 3 < min(counts[:5]), counts
    before = len(sealed.reads("m.gguf", sealed.chunk(1), sealed.chunk(2)))
    for n in range(1, 20, 2):
        assert error_of(path, 4096, n * CHUNK) == errno.EIO
    assert len(sealed.reads("m.gguf", sealed.chunk(1), sealed.chunk(2))) == before
    sealed.clear()
    wait_until(lambda: error_of(path, 4096, CHUNK) is None, 30, "the half-open probe")
    assert mounted.status["breakers"] == []
    wait_until(lambda: error_of(path, 2 * MIB, 0) is None, 5, "the other chunks")
    assert mounted.bin("a") == data
    assert xattr(path, "state") == "verified"


def test_the_log_stays_short_however_much_is_bad(mount, weightfs, files, faulty):
    file = model(16 * MIB)
    file.write(files / "m.gguf")
    weightfs.run("seal", files / "m.gguf")
    source = faulty()
    source.fault("m.gguf", "zero", start=file.place_of("a"), end=file.place_of("a") + 16 * MIB)
    mounted = mount(source / "m.gguf", "cache=direct")
    bad = 0
    with open(mounted / "tensors/a.bin", "rb", buffering=0) as reader:
        for n in range(256):
            try:
                os.pread(reader.fileno(), 4096, n * CHUNK)
            except OSError:
                bad += 1
    assert bad == 256
    lines = [line for line in mounted.log().splitlines() if "damaged" in line]
    assert 100 <= len(lines) <= 102 and "suppressed" in lines[-1]
    assert len(mounted.status["bad"]) == 256


def test_a_mapping_of_the_mount_dies_on_bad_pages_only(mount, sealed, tmp_path):
    mounted = mount(sealed.model, "cache=page")
    at = sealed.chunk(5)
    sealed.fault("m.gguf", "flip", start=at + 150, end=at + 151)
    (tmp_path / "true").write_bytes(sealed.file.data_of("a"))
    good = """
import mmap, sys
with open(sys.argv[1], "rb") as f, open(sys.argv[2], "rb") as t:
    m, true = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ), t.read()
    for n in range(len(true) // 65536):
        if n != 5:
            assert m[n * 65536 : n * 65536 + 65536] == true[n * 65536 : n * 65536 + 65536], n
"""
    python(good, mounted / "tensors/a.bin", tmp_path / "true")
    touch = "import mmap, sys\nf = open(sys.argv[1], 'rb')\nprint(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[5 * 65536 + 10])"
    python(touch, mounted / "tensors/a.bin", returncode=-signal.SIGBUS)
    sealed.clear()
    wait_until(lambda: error_of(mounted / "tensors/a.bin", 4096, 5 * CHUNK) is None, 20, "the end of the cool-down")
    python(touch, mounted / "tensors/a.bin")


# --- big reads of a source that is far away ---------------------------------------------------
STREAM = """
import mmap, sys
path, true, how = sys.argv[1:]
true = open(true, "rb").read()
with open(path, "rb", buffering=0) as f:
    if how == "mmap":
        m, at = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ), 0
        while at < len(m):
            assert m[at : at + 65536] == true[at : at + 65536], at
            at += 65536
    else:
        at = 0
        while piece := f.read(int(how)):
            assert piece == true[at : at + len(piece)], at
            at += len(piece)
    assert at >= len(true), at
"""


@pytest.fixture
def far(weightfs, files, faulty, tmp_path):
    file = Gguf().key("general.architecture", "str", "llama").tensor("a", "F32", (16 * MIB,), pattern(64 * MIB, 1))
    file.write(files / "m.gguf")
    (tmp_path / "true").write_bytes(file.data_of("a"))
    source = faulty(attr_seconds=1.0)
    source.model = source / "m.gguf"
    return source


@pytest.mark.parametrize("how", ["4096", "131072", "1048576", "8388608", "mmap"])
@pytest.mark.parametrize("view", ["tensors/a.bin", "f32/a.bin", "model.safetensors"])
@pytest.mark.patience(120)
def test_a_sequential_reader_causes_large_reads(mount, far, tmp_path, view, how):  # C12
    mounted = mount(far.model)
    true = tmp_path / "true"
    if view == "model.safetensors":
        whole = mounted.path / view
        head = whole.stat().st_size - 64 * MIB
        (tmp_path / "whole").write_bytes(pread(whole, head, 0) + true.read_bytes())
        true = tmp_path / "whole"
    far.forget()
    start = time.monotonic()
    python(STREAM, mounted / view, true, how, timeout=100)
    took = time.monotonic() - start
    reads = far.reads("m.gguf")
    average = sum(size for _, size, _ in reads) / len(reads)
    print(f"{view} by {how}: {len(reads)} reads of {average / MIB:.3f} MiB on average, {64 / took:.0f} MiB/s; rss {mounted.rss_anon() / MIB:.0f} MiB")
    # All but the first small steps, and what the kernel's own order of requests tears apart.
    assert average >= 0.85 * MIB
    assert sum(size for _, size, _ in reads) < 70 * MIB
    assert mounted.rss_anon() < 48 * MIB


MANY = """
import mmap, os, random, sys, threading, time
folder, threads, touches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names = sorted(os.listdir(folder))
maps = []
for name in names:
    with open(os.path.join(folder, name), "rb") as f:
        if name.endswith(".bin"):
            maps.append(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
def touch(seed):
    rng = random.Random(seed)
    for _ in range(touches // threads):
        m = maps[rng.randrange(len(maps))]
        m[rng.randrange(len(m) // 4096) * 4096]
start = time.monotonic()
# A page fault holds Python's lock: each toucher is a process of its own.
children = []
for seed in range(threads):
    pid = os.fork()
    if pid == 0:
        touch(seed)
        os._exit(0)
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
print(time.monotonic() - start)
"""


@pytest.mark.patience(180)
@pytest.mark.parametrize("behind", ["fuse", "local"])
def test_many_page_faults_at_once_never_hang(mount, files, faulty, behind):  # C13
    file = Gguf().key("general.architecture", "str", "llama")
    for number in range(100):
        file.tensor(f"t{number:03}", "F32", (MIB // 4,), pattern(MIB, number))
    file.write(files / "m.gguf")
    took = {}
    for threads in (1, 64):
        source = faulty(attr_seconds=1.0)
        mounted = mount(source / "m.gguf" if behind == "fuse" else files / "m.gguf", "cache=page")
        took[threads] = float(python(MANY, mounted / "tensors", threads, 6400, timeout=80))
        assert alive(mounted.pid)
        mounted.unmount()
    print(f"{behind}: 6400 pages by 1 process {took[1]:.2f} s, by 64 {took[64]:.2f} s")
    assert took[64] < 2 * took[1] + 5


SHARED = """
import os, sys, time
path, readers, step = sys.argv[1], int(sys.argv[2]), 1 << 20
fd, size = os.open(path, os.O_RDONLY), os.stat(path).st_size
start = time.monotonic()
children = []
for reader in range(readers):
    pid = os.fork()
    if pid == 0:
        for at in range(reader * step, size, readers * step):
            assert len(os.pread(fd, step, at)) > 0
        os._exit(0)
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
print(size / (time.monotonic() - start) / (1 << 20))
"""


def test_readers_that_share_a_descriptor_are_not_taken_for_one_that_jumps(mount, far):  # C57
    rates, counts = {}, {}
    for readers in (1, 4):
        mounted = mount(far.model)
        far.forget()
        rates[readers] = float(python(SHARED, mounted / "tensors/a.bin", readers))
        counts[readers] = len(far.reads("m.gguf"))
        mounted.unmount()
    print(f"one reader {rates[1]:.0f} MiB/s, {counts[1]} reads of the source; four on one descriptor {rates[4]:.0f} MiB/s, {counts[4]} reads")
    # Taken for random access it would be a read for each request, eight times as many.
    assert counts[4] < 4 * counts[1]


# --- what is far away changes -----------------------------------------------------------------
@pytest.mark.parametrize("keep_time", [True, False])
def test_a_far_source_that_is_rewritten_gives_no_mix(mount, far, files, tmp_path, keep_time):  # C52
    mounted = mount(far.model)
    true = (tmp_path / "true").read_bytes()
    old = (files / "m.gguf").read_bytes()
    path = mounted / "tensors/a.bin"
    with open(path, "rb", buffering=0) as reader:
        # Far enough to be read ahead of.
        for at in range(0, 4 * MIB, MIB):
            assert os.pread(reader.fileno(), MIB, at) == true[at : at + MIB]
        times = (files / "m.gguf").stat()
        with open(files / "m.gguf", "r+b") as file:
            file.seek(len(old) - 60 * MIB)
            file.write(bytes(2 * MIB))
        if keep_time:
            os.utime(files / "m.gguf", ns=(times.st_atime_ns, times.st_mtime_ns))
        time.sleep(1.2)  # what the source's file system keeps attributes for
        with pytest.raises(OSError) as failed:
            os.pread(reader.fileno(), MIB, 4 * MIB)
        assert failed.value.errno == errno.ESTALE
    assert xattr(path, "state") == "stale" and mounted.status["state"] == "stale"
    assert alive(mounted.pid)


def test_a_far_source_that_is_renamed_or_unlinked_is_still_read(mount, far, files, tmp_path):
    mounted = mount(far.model)
    true = (tmp_path / "true").read_bytes()
    os.chmod(files / "m.gguf", 0o600)
    assert pread(mounted / "tensors/a.bin", MIB, MIB) == true[MIB : 2 * MIB]
    os.link(files / "m.gguf", files / "other")
    time.sleep(1.1)
    assert pread(mounted / "tensors/a.bin", MIB, 9 * MIB) == true[9 * MIB : 10 * MIB]
    os.unlink(files / "m.gguf")
    time.sleep(1.1)
    assert pread(mounted / "tensors/a.bin", MIB, 20 * MIB) == true[20 * MIB : 21 * MIB]
    assert mounted.status["state"] != "stale" and mounted.status["notes"]


def test_a_far_source_that_is_truncated(mount, far, files, tmp_path):  # C19
    mounted = mount(far.model)
    true = (tmp_path / "true").read_bytes()
    with open(mounted / "tensors/a.bin", "rb", buffering=0) as reader:
        assert os.pread(reader.fileno(), MIB, 0) == true[:MIB]
        os.truncate(files / "m.gguf", 32 * MIB)
        failed = None
        for at in range(MIB, 64 * MIB, MIB):
            try:
                got = os.pread(reader.fileno(), MIB, at)
                assert got == true[at : at + len(got)]
            except OSError as error:
                failed = error.errno
                break
        assert failed in (errno.ESTALE, errno.EIO)
    assert alive(mounted.pid)


# --- a disk whose cached copy is bad --------------------------------------------------------------
@pytest.fixture
def disk(root, tmp_path):
    """An ext4 in a file, mounted through a loop device: disk.image below, disk.path above."""
    image, point = tmp_path / "image", tmp_path / "disk"
    point.mkdir()
    with open(image, "wb") as file:
        file.truncate(24 * MIB)
    made = subprocess.run(f"mkfs.ext4 -q -F {image} && mount -o loop {image} {point}", shell=True, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no ext4 on a loop device: {made.stderr.strip()[-200:]}")
    yield image, point
    subprocess.run(["umount", "-l", point], check=False)


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_bad_page_over_a_good_disk_is_healed_unseen(mount, weightfs, disk, io):
    image, point = disk
    file = model()
    path = file.write(point / "m.gguf")
    weightfs.run("seal", path)
    os.sync()
    data = file.data_of("b")  # far from the header, which a mapping holds in the cache
    at = 5 * CHUNK + 10_000
    below = image.read_bytes().find(data[at - 2000 : at + 100])
    assert below > 0, "the file's blocks were not found on the disk"
    below += 2000
    source = os.open(path, os.O_RDONLY)
    os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
    mounted = mount(path, f"io={io},cache=direct")
    disk_file = os.open(image, os.O_RDWR)
    struck, slowest = 0, 0
    place = file.place_of("b") + at
    for round in range(100):
        # The cache is emptied and filled again while the disk is wrong; then the disk is right.
        os.pwrite(disk_file, bytes([data[at] ^ 0x20]), below)
        os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
        struck += os.pread(source, 1, place) != data[at : at + 1]
        os.pwrite(disk_file, data[at : at + 1], below)
        start = time.monotonic()
        assert pread(mounted / "tensors/b.bin", 5000, at - 100) == data[at - 100 : at + 4900], round
        slowest = max(slowest, time.monotonic() - start)
    status = mounted.status
    print(f"io={io}: {struck} bad pages, {status['healed']} healed, the slowest read took {slowest * 1000:.1f} ms")
    if not struck:
        pytest.skip("the cached copy could not be made bad here")
    assert status["state"] == "verified" and status["bad"] == []
    assert status["healed"] >= struck
    mounted.unmount()
    # A bad copy that was healed is gone, whatever else of the file is in the cache and mapped.
    mounted = mount(path, f"io={io},cache=direct")
    os.pwrite(disk_file, bytes([data[at] ^ 0x20]), below)
    os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(source, path.stat().st_size, 0)
    os.pwrite(disk_file, data[at : at + 1], below)
    for _ in range(3):
        assert mounted.bin("b") == data
    assert mounted.status["healed"] == 1
    os.close(disk_file)
    os.close(source)
    mounted.unmount()
