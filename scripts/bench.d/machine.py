"""What the figures were measured on: one line, and how busy it was meanwhile."""

import contextlib
import ctypes
import os
import platform
import struct
from pathlib import Path


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Hardware", "cpu model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def kib_of(field, text):
    """A field of /proc/meminfo or /proc/PID/status, in bytes; 0 where it is absent."""
    for line in text.splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def meminfo(field):
    return kib_of(field, Path("/proc/meminfo").read_text())


def file_system(path):
    """The type of the file system that path is on."""
    best, kind = "", "?"
    real = os.path.realpath(path)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        point = left.split(" ")[4]
        if (real + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind


def describe(directory):
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "memory_bytes": meminfo("MemTotal"),
        "file_system": file_system(directory),
        "root": os.geteuid() == 0,
    }


def prioritise():
    """Gives this process and its children more of the CPUs than all others, and at once.

    The ordinary scheduler stays: with real-time priorities reader and daemon would run on
    other CPUs than they do for everybody else.
    """
    os.nice(-15)
    with contextlib.suppress(OSError):  # where each session is a group, the group counts
        Path("/proc/self/autogroup").write_text("-15")
    # struct sched_attr: size, policy, flags, nice, priority, runtime (the slice), deadline, period
    wanted = struct.pack("IIQiIQQQ", 48, 0, 0, -15, 0, 100_000, 0, 0)
    number = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
    if number:
        ctypes.CDLL(None).syscall(number, 0, wanted, 0)  # a kernel that knows no slices leaves them as they are


def at_once():
    """Real-time priority, for a command that ends soon: its daemon begins a session of its own, which loses the group's."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


class Busy:
    """How much of the machine others used: all CPU time but ours and our daemons'.

    Counted from /proc/stat less what this process and its children used; a daemon that
    is still running counts as other, so ask when all are gone.
    """

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        ticks = [int(word) for word in words[:8]]
        hertz = os.sysconf("SC_CLK_TCK")
        own = os.times()
        ours = own.user + own.system + own.children_user + own.children_system
        idle = ticks[3] + ticks[4]
        return {"all": sum(ticks) / hertz, "busy": (sum(ticks) - idle - ticks[7]) / hertz, "stolen": ticks[7] / hertz, "ours": ours}

    def report(self):
        """Shares of the machine's CPU time since the start: ours, others', stolen by the host."""
        end = self.now()
        total = max(end["all"] - self.start["all"], 1e-9)
        ours = end["ours"] - self.start["ours"]
        others = max(end["busy"] - self.start["busy"] - ours, 0.0)
        return {
            "ours": ours / total,
            "others": others / total,
            "stolen": (end["stolen"] - self.start["stolen"]) / total,
            "load": os.getloadavg()[0],
        }


def line(facts, busy):
    gib = facts["memory_bytes"] / 2**30
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {gib:.0f} GiB, Linux {facts['kernel']}, {facts['file_system']}, "
        f"{'root' if facts['root'] else 'an ordinary user'}; others used {busy['others']:.0%} of the CPUs, "
        f"the host took {busy['stolen']:.0%}, load {busy['load']:.1f} at the end"
    )


def remark(busy):
    """A warning where others were at work."""
    if busy["others"] + busy["stolen"] < 0.1:
        return ""
    return "Others were at work: reader and daemon waited for a CPU now and then, so most figures are lower than on a quiet machine."
