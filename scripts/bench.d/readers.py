"""The programs that read: the same for the source, for weightfs and for every peer.

Each function reads a file in one way and returns when it began and ended. Bytes go into
one buffer that was touched before, as with dd. Opening counts where a whole file is read:
some programs do half of their work then.
"""

import ctypes
import mmap
import os
import pickle
import random
import time
from typing import NamedTuple

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_libc = ctypes.CDLL(None, use_errno=True)


def room(size):
    """A page-aligned buffer whose pages are there."""
    buffer = mmap.mmap(-1, size)
    buffer[:] = bytes(size)
    return buffer


class Span(NamedTuple):
    """Seconds of the clock that all processes share."""

    start: float
    end: float

    @property
    def seconds(self):
        return self.end - self.start


class Part:
    """Bytes of a file: where they begin, how many."""

    def __init__(self, path, offset=0, length=None):
        self.path = os.fspath(path)
        self.offset = offset
        self.length = os.stat(self.path).st_size - offset if length is None else length

    def cut(self, index, count):
        """The index-th of count equal pieces."""
        size = self.length // count // MIB * MIB or self.length // count
        return Part(self.path, self.offset + index * size, size)

    def first(self, length):
        return Part(self.path, self.offset, min(length, self.length))


def sequential(part, block):
    """preadv from the beginning to the end, block bytes at a time."""
    buffer = room(block)
    start = time.perf_counter()
    descriptor = os.open(part.path, os.O_RDONLY)
    try:
        at, end = part.offset, part.offset + part.length
        while at < end:
            got = os.preadv(descriptor, [buffer], at)
            if not got:
                raise EOFError(f"{part.path}: ends at {at}, not at {end}")
            at += got
        return Span(start, time.perf_counter())
    finally:
        os.close(descriptor)


def mapped(part, block=MIB):
    """Copies a shared mapping out, block bytes at a time."""
    buffer = memoryview(room(block))
    down = part.offset // mmap.PAGESIZE * mmap.PAGESIZE
    start = time.perf_counter()
    descriptor = os.open(part.path, os.O_RDONLY)
    try:
        with mmap.mmap(descriptor, part.offset - down + part.length, mmap.MAP_SHARED, mmap.PROT_READ, offset=down) as view:
            with memoryview(view) as whole:
                for at in range(part.offset - down, len(whole), block):
                    piece = whole[at : at + block]
                    buffer[: len(piece)] = piece
                    piece.release()
        return Span(start, time.perf_counter())
    finally:
        os.close(descriptor)


def scattered(part, block, count, seed=1):
    """count reads at multiples of block, in no order: the span, and the nanoseconds of each."""
    buffer, places = [room(block)], part.length // block
    dice = random.Random(seed)
    offsets = [part.offset + dice.randrange(places) * block for _ in range(count)]
    descriptor = os.open(part.path, os.O_RDONLY)
    took, clock, read = [0] * count, time.perf_counter_ns, os.preadv
    try:
        begin = time.perf_counter()
        for index, offset in enumerate(offsets):
            start = clock()
            got = read(descriptor, buffer, offset)
            took[index] = clock() - start
            if got != block:
                raise EOFError(f"{part.path}: {got} bytes at {offset}, not {block}")
        return Span(begin, time.perf_counter()), took
    finally:
        os.close(descriptor)


def together(count, work):
    """Runs work(0) .. work(count - 1) in processes of their own that begin together.

    work returns a span and a value; the result is the span of all, from the first
    beginning to the last end, and the values.
    """
    gate_read, gate_write = os.pipe()
    children = []
    for index in range(count):
        answer_read, answer_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(gate_write)
                os.close(answer_read)
                os.read(gate_read, 1)
                with os.fdopen(answer_write, "wb") as out:
                    pickle.dump(work(index), out)
                status = 0
            finally:
                os._exit(status)
        os.close(answer_write)
        children.append((pid, answer_read))
    os.close(gate_read)
    os.close(gate_write)
    answers, failed = [], False
    for pid, answer in children:
        with os.fdopen(answer, "rb") as file:
            raw = file.read()
        failed |= os.waitpid(pid, 0)[1] != 0
        if raw:
            answers.append(pickle.loads(raw))
    if failed or len(answers) != count:
        raise OSError("a reader failed")
    spans = [span for span, _ in answers]
    whole = Span(min(span.start for span in spans), max(span.end for span in spans))
    return whole, [value for _, value in answers]


def evict(path):
    """Drops the file's pages from the page cache, where nobody maps or writes them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def refill(path):
    """The file in the page cache as one sequential reader leaves it: in large folios."""
    evict(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        buffer, at = [room(MIB)], 0
        while got := os.preadv(descriptor, buffer, at):
            at += got
    finally:
        os.close(descriptor)


def resident(path):
    """Bytes of the file that are in the page cache."""
    size = os.stat(path).st_size
    if size == 0:
        return 0
    found, window = 0, GIB
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for offset in range(0, size, window):
            length = min(window, size - offset)
            with mmap.mmap(descriptor, length, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset) as view:
                pages = -(-length // mmap.PAGESIZE)
                states = (ctypes.c_ubyte * pages)()
                first = ctypes.c_char.from_buffer(view)
                failed = _libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(length), states)
                del first
                if failed:
                    raise OSError(ctypes.get_errno(), "mincore", path)
                found += sum(state & 1 for state in states) * mmap.PAGESIZE
        return found
    finally:
        os.close(descriptor)
