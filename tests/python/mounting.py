"""Runs weightfs, mounts with it, and takes every mount down again, whatever happens.

A hang is a failure: commands have time limits, and each test has a watchdog that kills
the daemons, so that a reader that waits for one gets an error.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

COMMAND_SECONDS = 60
TEST_SECONDS = 60
LIVE = set()  # every mount that is up


@contextlib.contextmanager
def watchdog(seconds):
    """Kill the daemons when time is up: whoever waits for one gets an error instead."""

    def bite():
        for mounted in list(LIVE):
            mounted.kill()

    timer = threading.Timer(seconds, bite)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass
class Result:
    args: list
    code: int
    out: bytes
    err: str
    seconds: float  # of processor time
    pages: int  # that it touched for the first time

    def json(self):
        return json.loads(self.out)

    @property
    def text(self):
        return self.out.decode()


class Weightfs:
    """The program under test, with its caches, state and logs under one directory."""

    def __init__(self, binary, home):
        self.binary = str(binary)
        self.home = Path(home)
        for name in ("cache", "state", "run"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "OLLAMA_", "NOTIFY_"))} | {
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "LC_ALL": "C.UTF-8",
        }

    def run(self, *args, code=0, timeout=COMMAND_SECONDS, env=None, **options):
        """Run to the end; code is the exit code that must come, None for any."""
        words = [self.binary, *map(os.fspath, map(as_path, args))]
        before = used()
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env | (env or {}),
            timeout=timeout,
            **options,
        )
        seconds, pages = (after - before for after, before in zip(used(), before))
        result = Result(words, done.returncode, done.stdout, done.stderr.decode(errors="replace"), seconds, pages)
        assert "panicked" not in result.err, result.err
        if code is not None:
            assert result.code == code, f"{words}: exit {result.code}, not {code}\nstderr: {result.err}\nstdout: {result.out[:2000]!r}"
        return result

    def start(self, *args, env=None, **options):
        words = [self.binary, *map(os.fspath, map(as_path, args))]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, env=self.env | (env or {}), **options)


def used():
    """Processor seconds and pages of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime, usage.ru_minflt + usage.ru_majflt


def as_path(word):
    return word if isinstance(word, (str, bytes, os.PathLike)) else str(word)


def mounts():
    """{mount point: (type, source, options)} as this process sees them; the last one on top."""
    found = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, right = line.rstrip("\n").split(" - ", 1)
            point = left.split(" ")[4].encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1")
            kind, source, options = right.split(" ", 2)
            found[os.fsdecode(point)] = (kind, source, left.split(" ")[5] + "," + options)
    return found


def is_mounted(point):
    return os.path.realpath(os.path.dirname(point)) + "/" + os.path.basename(point) in mounts()


def daemons(point):
    """Processes of ours whose command line names the mount point: it is kept as it was typed."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                if os.fsencode(point) in words and words[0].endswith(b"weightfs"):
                    found.append(int(entry))
    return found


def alive(pid):
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_until(true, seconds=5.0, what="the condition"):
    limit = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < limit, f"{what} did not come within {seconds} s"
        time.sleep(0.01)
    return value


def promptly(seconds, what, tries=5):
    """What it gives, done in so many seconds at least once: a machine that is busy may be slow, but not always."""
    for left in reversed(range(tries)):
        begin = time.monotonic()
        given = what()
        took = time.monotonic() - begin
        if took < seconds:
            return given
        assert left, f"it took {took:.3f} s at the {tries}th try as well"


def force_unmount(point):
    for command in (["umount", "-l", "--", point], ["fusermount3", "-u", "-z", "--", point]):
        if not is_mounted(point):
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, timeout=10)


class Mounted:
    """A mount; closed (unmounted, daemon gone) by the fixture that made it."""

    def __init__(self, weightfs, point, log, result):
        self.weightfs = weightfs
        self.path = Path(point)
        self.log_path = log
        self.result = result
        found = daemons(point)
        assert len(found) == 1, f"one daemon should keep {point} on its command line, found {found}"
        self.pid = found[0]
        LIVE.add(self)

    def __truediv__(self, name):
        return self.path / name

    def kill(self):
        # Its number may be somebody else's by now.
        if self.pid in daemons(str(self.path)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def json(self, name):
        return json.loads((self.path / name).read_bytes())

    @property
    def model(self):
        return self.json("model.json")

    @property
    def status(self):
        return self.json(".weightfs/status.json")

    def bin(self, name):
        return (self.path / "tensors" / f"{name}.bin").read_bytes()

    def names(self):
        return sorted(name[:-4] for name in os.listdir(self.path / "tensors") if name.endswith(".bin"))

    def log(self):
        return self.log_path.read_text() if self.log_path.exists() else ""

    def rss_anon(self):
        """Bytes of memory that are the daemon's own: no mapped file pages."""
        for line in Path("/proc", str(self.pid), "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon in /proc/PID/status")

    def unmount(self):
        """As a user does it; the daemon must go too."""
        self.weightfs.run("umount", self.path)
        assert not is_mounted(self.path)
        wait_until(lambda: not alive(self.pid), 5, "the end of the daemon after umount")
        LIVE.discard(self)

    def close(self):
        if self not in LIVE:
            return  # it is unmounted, and its number may be somebody else's by now
        force_unmount(str(self.path))
        limit = time.monotonic() + 5
        while alive(self.pid) and time.monotonic() < limit:
            time.sleep(0.01)
        self.kill()
        LIVE.discard(self)


class Mounts:
    """Makes mounts under one directory and closes all of them."""

    def __init__(self, weightfs, directory):
        self.weightfs = weightfs
        self.directory = Path(directory)
        self.points = []
        self.open = []

    def point(self):
        point = self.directory / f"mnt{len(self.points)}"
        point.mkdir()
        self.points.append(point)
        return point

    def __call__(self, model, *options, flags=(), point=None, command=(), env=None, timeout=COMMAND_SECONDS):
        """Mount model in the background with -o options (one word each) and flags."""
        point = self.point() if point is None else point
        if point not in self.points:
            self.points.append(point)
        log = next((Path(word[4:]) for word in options if word.startswith("log=")), None)
        words = list(options)
        if log is None:
            log = self.directory / f"{point.name}.log"
            words.append(f"log={log}")
        arguments = [*command, model, point]
        for word in words:
            arguments += ["-o", word]
        result = self.weightfs.run(*arguments, *flags, env=env, timeout=timeout)
        mounted = Mounted(self.weightfs, str(point), log, result)
        self.open.append(mounted)
        return mounted

    def refused(self, model, *options, code=1, point=None, flags=(), env=None):
        """Mounting must fail with this exit code and leave nothing mounted; what it said."""
        point = self.point() if point is None else point
        if point not in self.points:
            self.points.append(point)
        arguments = [model, point]
        for word in options:
            arguments += ["-o", word]
        result = self.weightfs.run(*arguments, *flags, code=code, env=env)
        assert not is_mounted(point)
        assert not daemons(str(point))
        assert result.err.startswith("weightfs: "), result.err
        assert len(result.err.splitlines()) <= 4, result.err
        return result.err

    def close(self):
        for mounted in self.open:
            mounted.close()
        for point in self.points:
            force_unmount(str(point))
            for pid in daemons(str(point)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def python(code, *args, timeout=60, returncode=0):
    """Run Python code in a child, which may die of SIGBUS, or hang, without taking us along."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == returncode, f"exit {done.returncode}, not {returncode}: {done.stderr}"
    return done.stdout


def shell(script, *args, timeout=60, code=0):
    """Run a shell script with the stock tools; "$1" and so on are the arguments."""
    done = subprocess.run(["sh", "-c", script, "sh", *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
    assert code is None or done.returncode == code, f"{script}: exit {done.returncode}\n{done.stderr.decode(errors='replace')}"
    return Result([script, *args], done.returncode, done.stdout, done.stderr.decode(errors="replace"), *used())


def xattr(path, name):
    return os.getxattr(path, f"user.weightfs.{name}").decode()
