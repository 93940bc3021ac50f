"""A directory served again through FUSE, by a server that fails as it is told.

For tests of what weightfs does when its source stumbles, lies, hangs or dies. Speaks
/dev/fuse itself, so that nothing has to be built or installed:

    faulty = FaultySource(directory, point)
    faulty.fault("m.gguf", kind="eio", start=4096, end=8192, times=3)
    faulty.counts("m.gguf")        what the kernel asked the server for
    faulty.clear()                 all faults end, whoever hangs goes on
    faulty.kill()                  the server dies: ENOTCONN from now on

A fault is looked for at each read of its file that touches [start, end):

    eio     an error (errno=, EIO unless told)        short   only the bytes before start
    flip    one bit of byte `at` is wrong             hang    no answer before clear()
    zero    zeros                                     delay   `seconds` before the answer

times is how often it strikes (None: always). direct=True or False: only reads past the
page cache, or only others. op="getattr": stat calls of the file instead of its reads.

    faulty.chaos(path, rate, kinds)    of all reads of the file so many (0.01: one in a hundred)
                                       go wrong, each in one of these ways, wherever they read;
    faulty.struck_by_chaos()           {kind: how many did}

Run as a program (DIRECTORY POINT SOCKET) it is that server; it ends when its standard
input does, so no server outlives its test.
"""

import contextlib
import ctypes
import errno
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time

WORKERS = 160  # each read that hangs holds one
LOGGED = 100_000  # reads remembered

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH = 1, 2, 3, 14, 15, 17, 18, 25
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 26, 27, 28, 29, 36, 38, 42
ASYNC_READ, BIG_WRITES, ASYNC_DIO, PARALLEL_DIROPS, MAX_PAGES = 1, 1 << 5, 1 << 15, 1 << 18, 1 << 22
DIRECT_IO = 1  # FOPEN_DIRECT_IO

libc = ctypes.CDLL(None, use_errno=True)


# --- the server --------------------------------------------------------------------------
class Server:
    def __init__(self, directory, point, direct_io, attr_seconds):
        self.directory, self.point = os.fsencode(directory), os.fsencode(point)
        self.direct_io, self.attr_seconds = direct_io, attr_seconds
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.names = {1: b""}  # node number to path below the directory
        self.numbers = {b"": 1}
        self.open_files = {}
        self.opened = {}  # node number to its last handle
        self.next_handle = 1
        self.rules = []
        self.chaotic = {}  # path to (rate, kinds)
        self.struck = {}  # by chaos: kind to how many
        self.generation = 0  # of the rules: who hangs goes on when they are cleared
        self.hanging = 0
        self.log = {}  # path to [(offset, size, past the page cache?)]
        self.asked = {}  # path to number of stat calls

    def mount(self):
        if os.getuid() == 0:
            self.fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
            options = f"fd={self.fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
            if libc.mount(b"faulty", self.point, b"fuse.faulty", 1 | 2 | 4, options) != 0:  # ro, nosuid, nodev
                raise OSError(ctypes.get_errno(), "mount")
            return
        ours, theirs = socket.socketpair()
        command = ["fusermount3", "-o", "ro,subtype=faulty,fsname=faulty", "--", os.fsdecode(self.point)]
        environment = os.environ | {"_FUSE_COMMFD": str(theirs.fileno())}
        subprocess.run(command, env=environment, pass_fds=[theirs.fileno()], check=True)
        _, (self.fuse, *_), _, _ = socket.recv_fds(ours, 1, 1)

    def serve(self):
        threading.stack_size(256 * 1024)
        for _ in range(WORKERS):
            threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            try:
                request = os.read(self.fuse, 1 << 16)
            except OSError as failed:
                if failed.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                os._exit(0)  # unmounted
            _, opcode, unique, node, *_ = struct.unpack_from("<IIQQIII", request)
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                data = self.answer(opcode, node, request[40:])
                head = struct.pack("<IiQ", 16 + len(data), 0, unique)
            except OSError as failed:
                data, head = b"", struct.pack("<IiQ", 16, -(failed.errno or errno.EIO), unique)
            except Exception as failed:  # a fault of this file: say so, do not hang
                print(f"faulty_source: {opcode}: {failed!r}", file=sys.stderr, flush=True)
                data, head = b"", struct.pack("<IiQ", 16, -errno.EIO, unique)
            with contextlib.suppress(OSError):
                os.writev(self.fuse, [head, data])

    def answer(self, opcode, node, body):
        if opcode == INIT:
            _, minor, readahead, _ = struct.unpack_from("<IIII", body)
            flags = ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL_DIROPS | MAX_PAGES
            limits = (64, 48, 4096, 1, 256, 0)  # background, congestion, max_write, time_gran, max_pages
            return struct.pack("<IIIIHHIIHH", 7, min(minor, 31), readahead, flags, *limits) + bytes(32)
        if opcode == LOOKUP:
            path = os.path.join(self.path(node), body.split(b"\0")[0])
            about = os.stat(os.path.join(self.directory, path))
            with self.lock:
                number = self.numbers.setdefault(path, len(self.numbers) + 1)
                self.names[number] = path
            seconds, nanos = divmod(int(self.attr_seconds * 1e9), 10**9)
            return struct.pack("<QQQQII", number, 0, seconds, seconds, nanos, nanos) + self.attributes(number, about)
        if opcode == GETATTR:
            path = self.path(node)
            with self.lock:
                self.asked[path] = self.asked.get(path, 0) + 1
            self.strike(path, "getattr", 0, 1, None)
            number, _, handle = struct.unpack_from("<IIQ", body)
            with self.lock:  # an unlinked file has no path any more
                open_file = self.open_files.get(handle if number & 1 else self.opened.get(node))
            about = os.stat(os.path.join(self.directory, path)) if open_file is None else os.fstat(open_file)
            seconds, nanos = divmod(int(self.attr_seconds * 1e9), 10**9)
            return struct.pack("<QII", seconds, nanos, 0) + self.attributes(node, about)
        if opcode in (OPEN, OPENDIR):
            handle = 0
            if opcode == OPEN:
                descriptor = os.open(os.path.join(self.directory, self.path(node)), os.O_RDONLY | os.O_CLOEXEC)
                with self.lock:
                    handle, self.next_handle = self.next_handle, self.next_handle + 1
                    self.open_files[handle] = descriptor
                    self.opened[node] = handle
            return struct.pack("<QIi", handle, DIRECT_IO if self.direct_io else 0, 0)
        if opcode == READ:
            return self.read(node, *struct.unpack_from("<QQIIQI", body))
        if opcode == READDIR:
            return self.list(node, *struct.unpack_from("<QQI", body))
        if opcode == RELEASE:
            with self.lock:
                descriptor = self.open_files.pop(struct.unpack_from("<Q", body)[0], None)
            if descriptor is not None:
                os.close(descriptor)
            return b""
        if opcode == STATFS:
            return struct.pack("<QQQQQIII", 1 << 20, 0, 0, 1000, 0, 4096, 255, 4096) + bytes(28)
        if opcode in (RELEASEDIR, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not here")

    def path(self, node):
        with self.lock:
            return self.names[node]

    @staticmethod
    def attributes(number, about):
        times = [divmod(t, 10**9) for t in (about.st_atime_ns, about.st_mtime_ns, about.st_ctime_ns)]
        return struct.pack(
            "<QQQQQQIIIIIIIIII",
            *(number, about.st_size, about.st_blocks),
            *(seconds for seconds, _ in times),
            *(nanos for _, nanos in times),
            *(about.st_mode, about.st_nlink, about.st_uid, about.st_gid, 0, 4096, 0),
        )

    def list(self, node, _, offset, size):
        names = [b".", b"..", *sorted(os.listdir(os.path.join(self.directory, self.path(node))))]
        out = b""
        for place, name in enumerate(names[offset:], offset + 1):
            entry = struct.pack("<QQII", 0xFFFF_FFFF, place, len(name), 0) + name
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out

    def read(self, node, handle, offset, size, _, __, flags):
        path, direct = self.path(node), bool(flags & os.O_DIRECT)
        with self.lock:
            log = self.log.setdefault(path, [])
            if len(log) < LOGGED:
                log.append((offset, size, direct))
        data = None
        for rule in self.strike(path, "read", offset, offset + size, direct):
            if data is None:
                data = bytearray(os.pread(self.open_files[handle], size, offset))
            start, end = max(rule["start"] - offset, 0), min(rule["end"] - offset, len(data))
            if rule["kind"] == "zero":
                data[start:end] = bytes(max(end - start, 0))
            elif rule["kind"] == "flip":
                at = rule["start"] if rule.get("at") is None else rule["at"]
                if offset <= at < offset + len(data):
                    data[at - offset] ^= 1 << rule.get("bit", 5)
            elif rule["kind"] == "short":
                del data[start:]
        return os.pread(self.open_files[handle], size, offset) if data is None else data

    def strike(self, path, op, start, end, direct):
        """The faults that change the bytes of this request; those that need none strike here."""
        due = []
        rate, kinds = self.chaotic.get(os.fsdecode(path), (0, []))
        if op == "read" and random.random() < rate:
            kind, at = random.choice(kinds), random.randrange(start, end)
            due.append({"kind": kind, "start": at, "end": at + random.choice([1, 100, 5000]), "bit": random.randrange(8), "seconds": random.random() * 0.03, "errno": random.choice([errno.EIO, errno.ETIMEDOUT])})
            with self.lock:
                self.struck[kind] = self.struck.get(kind, 0) + 1
        with self.lock:
            for rule in self.rules:
                if rule["path"] != os.fsdecode(path) or rule["op"] != op or rule["times"] == 0:
                    continue
                if op == "read" and (end <= rule["start"] or start >= rule["end"]):
                    continue
                if rule["direct"] is not None and rule["direct"] != direct:
                    continue
                if rule["times"] is not None:
                    rule["times"] -= 1
                rule["struck"] += 1
                due.append(rule)
            if any(rule["kind"] == "hang" for rule in due):
                self.hanging += 1
                self.changed.notify_all()
                generation = self.generation
                self.changed.wait_for(lambda: self.generation != generation)
                self.hanging -= 1
        for rule in due:
            if rule["kind"] == "delay":
                time.sleep(rule["seconds"])
            elif rule["kind"] == "eio":
                raise OSError(rule.get("errno", errno.EIO), "as told")
        return [rule for rule in due if rule["kind"] not in ("hang", "delay")]

    # --- what it is told --------------------------------------------------------------------
    def command(self, words):
        with self.lock:
            match words["do"]:
                case "fault":
                    defaults = {"start": 0, "end": 1 << 62, "times": None, "direct": None, "op": "read", "struck": 0}
                    self.rules.append(defaults | words["rule"])
                    return len(self.rules) - 1
                case "struck":
                    return self.rules[words["number"]]["struck"]
                case "chaos":
                    self.chaotic[words["path"]] = (words["rate"], words["kinds"])
                case "struck by chaos":
                    return self.struck
                case "clear":
                    self.rules, self.chaotic = [], {}
                    self.generation += 1
                    self.changed.notify_all()
                case "forget":
                    self.log, self.asked = {}, {}
                case "reads":
                    return self.log.get(os.fsencode(words["path"]), [])
                case "asked":
                    return self.asked.get(os.fsencode(words["path"]), 0)
                case "hanging":
                    return self.hanging
        return None


def main(directory, point, path, direct_io, attr_seconds):
    control = socket.socket(socket.AF_UNIX)
    control.bind(path)
    control.listen()
    server = Server(directory, point, direct_io == "1", float(attr_seconds))
    server.mount()
    server.serve()
    print("ready", flush=True)

    def end_with_the_test():
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_the_test, daemon=True).start()
    while True:
        peer, _ = control.accept()
        with peer, peer.makefile("rwb") as lines:
            for line in lines:
                lines.write(json.dumps(server.command(json.loads(line))).encode() + b"\n")
                lines.flush()


# --- the other end -------------------------------------------------------------------------
class FaultySource:
    """A running server; close() ends it and its mount."""

    def __init__(self, directory, point, direct_io=False, attr_seconds=0.0):
        self.directory, self.path = directory, os.path.abspath(point)
        self.options = ["1" if direct_io else "0", str(attr_seconds)]
        self.socket = self.path + ".socket"
        os.makedirs(self.path, exist_ok=True)
        self.start()

    def start(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        command = [sys.executable, os.path.abspath(__file__), self.directory, self.path, self.socket, *self.options]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.server.stdout.readline() == b"ready\n", "the faulty source could not be mounted"

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def ask(self, **words):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(60)
            peer.connect(self.socket)
            peer.sendall(json.dumps(words, default=os.fspath).encode() + b"\n")
            return json.loads(peer.makefile("rb").readline())

    def fault(self, path, kind, **rule):
        """From now on; its number, for struck()."""
        return self.ask(do="fault", rule={"path": path, "kind": kind, **rule})

    def struck(self, number):
        return self.ask(do="struck", number=number)

    def chaos(self, path, rate, kinds):
        self.ask(do="chaos", path=path, rate=rate, kinds=kinds)

    def struck_by_chaos(self):
        return self.ask(do="struck by chaos")

    def clear(self):
        self.ask(do="clear")

    def forget(self):
        """Forget what was asked for so far."""
        self.ask(do="forget")

    def reads(self, path, start=0, end=1 << 62):
        """(offset, size, past the page cache?) of each read that touched [start, end)."""
        return [(o, n, d) for o, n, d in self.ask(do="reads", path=path) if o < end and o + n > start]

    def asked(self, path):
        """How often the attributes of an open file were asked for."""
        return self.ask(do="asked", path=path)

    def hanging(self):
        return self.ask(do="hanging")

    def kill(self):
        self.server.kill()
        self.server.wait()

    def unmount(self):
        subprocess.run(["umount", "-l", "--", self.path] if os.getuid() == 0 else ["fusermount3", "-u", "-z", "--", self.path], capture_output=True)

    def close(self):
        self.kill()
        self.unmount()


if __name__ == "__main__":
    main(*sys.argv[1:])
