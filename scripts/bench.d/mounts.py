"""Mounts: made fresh for a sample, and taken down whatever happens."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import machine

LIMIT_SECONDS = 180  # a mount that is up for longer hangs: its daemon is killed, and readers get an error
READY_SECONDS = 60


def is_mounted(point):
    real = os.path.realpath(os.path.dirname(point)) + "/" + os.path.basename(point)
    real = real.replace("\\", "\\134").replace(" ", "\\040")
    return any(line.split(" ")[4] == real for line in Path("/proc/self/mountinfo").read_text().splitlines())


def unmount(point):
    """Takes the mount away; lazily when it is in use or dead."""
    for command in (["umount", point], ["fusermount3", "-u", point], ["umount", "-l", point], ["fusermount3", "-u", "-z", point]):
        if not is_mounted(point):
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)


class Failed(Exception):
    """A program could not do what was asked of it; its words are the text."""


class Weightfs:
    """The binary under test, with its caches, state and seals apart from the user's."""

    def __init__(self, binary, home, priority=False):
        self.binary, self.home = str(binary), Path(home)
        self.at_once = machine.at_once if priority else None
        self.points = self.home / "mounts"
        for left in self.points.glob("*"):  # of a run that was killed
            unmount(str(left))
        shutil.rmtree(self.home, ignore_errors=True)
        self.points.mkdir(parents=True, exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "OLLAMA_", "NOTIFY_", "WEIGHTFS_"))}
        self.env = kept | {f"XDG_{name.upper()}_HOME": str(self.home / name) for name in ("cache", "state")}
        self.memory = {}  # the most RssAnon that a daemon had at the end of a case, by case

    def run(self, *words, timeout=600):
        done = subprocess.run(
            [self.binary, *map(str, words)], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode:
            raise Failed(f"weightfs {' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def point(self):
        return tempfile.mkdtemp(dir=self.points)

    def mount(self, model, options="", case=""):
        return Mount(self, model, options, case)

    def start(self, model, options=""):
        """Mounts as a user does, in the background: the mount point, and the seconds until it was ready."""
        point = self.point()
        words = [self.binary, str(model), point, *(["-o", options] if options else [])]
        begin = time.perf_counter()
        done = subprocess.run(
            words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=READY_SECONDS, preexec_fn=self.at_once,
        )
        took = time.perf_counter() - begin
        if done.returncode:
            raise Failed(done.stderr.strip())
        return point, took

    def forget(self):
        """Nothing that an earlier mount observed is known any more."""
        shutil.rmtree(self.home / "cache", ignore_errors=True)


class Mount:
    """One mount whose daemon is a child of ours, so that its memory can be looked at."""

    def __init__(self, weightfs, model, options, case):
        self.weightfs, self.case = weightfs, (case or options).strip()
        self.path = Path(weightfs.point())
        ready_read, ready_write = os.pipe()
        words = [weightfs.binary, "mount", str(model), str(self.path), "-f", "--ready-fd", str(ready_write)]
        self.log = tempfile.TemporaryFile("w+")
        self.daemon = subprocess.Popen(
            words + (["-o", options] if options else []),
            env=weightfs.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log, pass_fds=[ready_write],
        )
        os.close(ready_write)
        with os.fdopen(ready_read) as ready:
            said = ready.readline()
        if not said:
            self.close()
            self.log.seek(0)
            raise Failed(self.log.read().strip() or f"{words}: no mount")
        self.timer = threading.Timer(LIMIT_SECONDS, self.daemon.kill)
        self.timer.daemon = True
        self.timer.start()

    def __truediv__(self, name):
        return self.path / name

    def memory(self):
        """Anonymous memory of the daemon, in bytes."""
        return machine.kib_of("RssAnon", Path(f"/proc/{self.daemon.pid}/status").read_text())

    def cpu_seconds(self):
        words = Path(f"/proc/{self.daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        if self.daemon.poll() is None and hasattr(self, "timer"):
            self.timer.cancel()
            known = self.weightfs.memory
            known[self.case] = max(known.get(self.case, 0), self.memory())
        unmount(str(self.path))
        if self.daemon.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.daemon.wait(timeout=10)
        if self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGKILL)
            self.daemon.wait()
            unmount(str(self.path))
        with contextlib.suppress(OSError):
            os.rmdir(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Foreign:
    """A mount by another program, which goes to the background by itself or is kept in front."""

    def __init__(self, words, point, env=None):
        self.path = Path(point)
        self.log = tempfile.TemporaryFile("w+")
        self.program = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        limit = time.monotonic() + READY_SECONDS
        while not is_mounted(point):
            if time.monotonic() > limit or self.program.poll() not in (None, 0):
                self.close()
                self.log.seek(0)
                raise Failed(f"{words[0]}: {self.log.read().strip()[-500:] or 'no mount'}")
            time.sleep(0.005)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        unmount(str(self.path))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.program.wait(timeout=10)
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()
        with contextlib.suppress(OSError):
            os.rmdir(self.path)
