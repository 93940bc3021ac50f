"""This machine with changes of its own: an overlay over / in namespaces, gone when it is closed.

Packages are really installed in it and services really started; nothing of that is to be seen
outside. What cannot be had (root, overlayfs) is a NoMachine with the reason.
"""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

# $1 is an empty directory; PID 1 of the namespace ends as "$@" behind it, in the overlay.
SETUP = """
set -e
umount -a -l -t fuse.weightfs || true  # of this namespace: copies of others' mounts would keep their daemons
cd "$1" && shift
mount -t tmpfs tmpfs . && cd "$PWD" && mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount -t proc proc root/proc
for dir in dev tmp; do mount --rbind /$dir root/$dir; done
"""
PLAIN = SETUP + 'mount --rbind /sys root/sys && echo ready && exec chroot root "$@"'
# A system with nothing to start but what a test asks for. /run and the groups are its own.
BOOT = (
    SETUP
    + """
mount -t sysfs sysfs root/sys && mkdir -p root/sys/fs/cgroup && mount -t cgroup2 cgroup2 root/sys/fs/cgroup
mount -t tmpfs tmpfs root/run
for dir in lib etc; do
    for wants in sysinit local-fs multi-user timers; do rm -rf root/$dir/systemd/system/$wants.target.wants; done
    rm -f root/$dir/systemd/system/sockets.target.wants/*udev*
done
: >root/etc/fstab
printf '[Unit]\\nWants=systemd-journald.service\\n' >root/etc/systemd/system/bare.target
echo ready
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot root "$@"
"""
)
SYSTEMD = ("/lib/systemd/systemd", "--system", "--unit=bare.target", "--log-target=null", "--show-status=no")


class NoMachine(Exception):
    pass


class Machine:
    """run(SCRIPT, ARGUMENT...) runs in it as root."""

    def __init__(self, directory, boot=False):
        if os.getuid() != 0:
            raise NoMachine("needs root")
        self.group = self._group() if boot else None
        words = ["unshare", "-m", "-p", "-u", "-i", *(["-C"] if boot else []), "-f", "--kill-child", "--propagation", "private", "sh", "-c"]
        words += [BOOT, "sh", str(directory), *SYSTEMD] if boot else [PLAIN, "sh", str(directory), "sleep", "infinity"]
        if boot:
            words = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self.group), *words]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if self.process.stdout.readline() != "ready\n":
                self.process.kill()
                raise NoMachine(self.process.communicate()[1].strip() or "the namespaces cannot be had")
            self.pid = int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text())
            if boot:
                self._wait_for_systemd()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _group():
        """A control group below our own, of the second kind."""
        if not os.path.exists(SYSTEMD[0]):
            raise NoMachine("systemd is not installed")
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, right = line.split(" - ", 1)
            if right.startswith("cgroup2 "):
                own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
                group = Path(left.split(" ")[4] + own.rstrip("/"), f"weightfs-test-{os.getpid()}")
                try:
                    group.mkdir()
                except OSError as error:
                    raise NoMachine(f"no control group: {error}") from error
                return group
        raise NoMachine("no cgroup2 is mounted")

    def _wait_for_systemd(self):
        limit = time.monotonic() + 30
        while self.run("systemctl is-active bare.target", code=None).returncode != 0:
            if time.monotonic() > limit or self.process.poll() is not None:
                raise NoMachine("systemd does not come up in a namespace here")
            time.sleep(0.05)

    def enter(self, *words):
        """The command line that runs words inside."""
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-r", "-w", "--", *map(str, words)]

    def run(self, script, *arguments, code=0, timeout=120, env=None):
        done = subprocess.run(
            self.enter("sh", "-c", script, "sh", *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root", "TERM": "dumb"} | (env or {}),
        )
        assert code is None or done.returncode == code, f"exit {done.returncode}, not {code}\nstderr: {done.stderr}\nstdout: {done.stdout}"
        return done

    def close(self):
        """Every process in it dies with its first, and every mount with them."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        if self.group:
            limit = time.monotonic() + 5
            while self.group.exists() and time.monotonic() < limit:
                for path, _, _ in os.walk(self.group, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(path)
                time.sleep(0.02)


def needed(*programs):
    """What of these is not here, in words; empty when all are."""
    return ", ".join(program for program in programs if shutil.which(program) is None)
