# SPDX-License-Identifier: Apache-2.0
"""Metrics of a Python program, read by Outsight from outside of it.

    import outsight

    jobs = outsight.counter("jobs_done", "{job}", "Jobs that were done")
    queue = outsight.gauge("queue_length", "{job}", "Jobs that wait")
    gets = outsight.counter("requests", "{request}", "Requests", method="GET")
    outsight.runtime()          # Python's own: garbage collections, threads, memory blocks

    jobs.add()                  # or jobs.add(3)
    queue.set(17)

This file is all: Linux, Python 3.9, nothing else. There is nothing to configure; without an agent on the host the program
counts all the same. A metric is made once for each set of labels; asking again gives the same one. Names are letters,
digits, '_' and ':', units UCUM ("s", "By", "{request}"). A counter of fractions is made with fine=True.

The values lie in a sealed memory file, which docs/format/appmetrics.md describes. A child of a fork has a file of its own,
with counters from 0 on. A metric that finds no room counts into memory that nobody reads; Outsight shows how many did.
"""

import fcntl
import gc
import mmap
import os
import re
import struct
import sys
import threading
import time

__all__ = ["counter", "gauge", "runtime", "Counter", "Gauge"]

_BYTES = 1 << 20
_METRICS = 4096
_HEADER, _DESCRIPTOR = 64, 16
_COUNTER, _GAUGE = 1, 2
_U64, _F64 = 1, 3
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,127}\Z")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# F_ADD_SEALS, and F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW.
_ADD_SEALS, _SEALS = 1033, 7

_lock = threading.RLock()


class _File:
    """The memory file of this process; without one, memory that nobody reads."""

    def __init__(self):
        self.used = _HEADER + _METRICS * _DESCRIPTOR
        self.texts = _BYTES
        self.count = 0
        self.nowhere = None  # the place of what finds no room
        self.map()
        self.nowhere = self.room()

    def map(self):
        self.fd = -1
        try:
            fd = os.memfd_create("outsight-metrics", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                os.ftruncate(fd, _BYTES)
                fcntl.fcntl(fd, _ADD_SEALS, _SEALS)
                memory = mmap.mmap(fd, _BYTES)
            except OSError:
                os.close(fd)
                raise
            self.fd = fd
        except (OSError, AttributeError):
            memory = mmap.mmap(-1, _BYTES)
        self.memory = memory
        view = memoryview(memory)
        self.numbers, self.floats = view.cast("Q"), view.cast("d")
        struct.pack_into("<8sHHIIIII", memory, 0, b"", 1, _HEADER, _BYTES, _HEADER, _METRICS, 0, 0)
        memory[0:8] = b"OSAPPMET"

    def room(self):
        """Eight bytes, by their index; None where there are none."""
        if self.used + 8 > self.texts:
            return None
        self.used += 8
        return self.used // 8 - 1

    def refuse(self):
        self.numbers[4] += 1
        return self.nowhere

    def add(self, kind, of, name, unit, help, labels):
        parts = [name, unit, help] + [text for pair in sorted(labels.items()) for text in pair]
        text = b"".join(p.encode("utf-8", "replace").replace(b"\0", b"") + b"\0" for p in parts)
        bad = not _NAME.match(name) or not all(_LABEL.match(k) for k in labels) or len(labels) > 8 or len(text) > 4096
        if bad or self.count >= _METRICS or self.used + 8 + len(text) > self.texts:
            return self.refuse()
        at = self.room()
        self.texts -= len(text)
        self.memory[self.texts:self.texts + len(text)] = text
        struct.pack_into("<IIHBBI", self.memory, _HEADER + self.count * _DESCRIPTOR, at * 8, self.texts, len(text), kind, of, 0)
        self.count += 1
        struct.pack_into("<I", self.memory, 24, self.count)  # after what it counts
        return at

    def announce(self):
        """Tells the host that the file is there: the thread has another name for a moment."""
        if self.fd < 0:
            return
        try:
            with open("/proc/thread-self/comm", "r+b", buffering=0) as comm:
                name = comm.read().rstrip(b"\n")
                comm.write(b"outsight:%d" % self.fd)
                comm.write(name)
        except OSError:
            pass  # it is found later, by its descriptor

    def forked(self):
        """The child counts into a file of its own, from 0 on; gauges are as they were."""
        old, before = self.memory, self.fd
        self.map()
        self.memory[_HEADER:] = old[_HEADER:]
        for i in range(self.count):
            value, _, _, kind = struct.unpack_from("<IIHB", self.memory, _HEADER + i * _DESCRIPTOR)
            if kind == _COUNTER:
                self.numbers[value // 8] = 0
        struct.pack_into("<I", self.memory, 24, self.count)
        if before >= 0:
            os.close(before)
        self.announce()


class Counter:
    """Counts what happens. It never goes down."""

    __slots__ = ("_at", "_lock", "_fine")

    def __init__(self, at, fine):
        self._at, self._fine, self._lock = at, fine, threading.Lock()

    def add(self, n=1):
        if n < 0:
            raise ValueError("a counter never goes down")
        with self._lock:
            if self._fine:
                _file.floats[self._at] += n
            else:
                _file.numbers[self._at] += n

    def _set(self, n):
        """Takes the value of a counter that is kept elsewhere."""
        (_file.floats if self._fine else _file.numbers)[self._at] = n


class Gauge:
    """Says how things are now."""

    __slots__ = ("_at", "_lock")

    def __init__(self, at):
        self._at, self._lock = at, threading.Lock()

    def set(self, value):
        _file.floats[self._at] = value

    def add(self, n=1):
        with self._lock:
            _file.floats[self._at] += n


_metrics = {}


def _metric(kind, fine, name, unit, help, labels):
    key = (kind, name, tuple(sorted(labels.items())))
    with _lock:
        if key not in _metrics:
            at = _file.add(kind, _F64 if fine else _U64, name, unit, help, labels)
            _metrics[key] = Counter(at, fine) if kind == _COUNTER else Gauge(at)
        return _metrics[key]


def counter(name, unit="", help="", fine=False, **labels):
    """A counter; fine=True is one of fractions, as of seconds."""
    return _metric(_COUNTER, fine, name, unit, help, labels)


def gauge(name, unit="", help="", **labels):
    """A gauge."""
    return _metric(_GAUGE, True, name, unit, help, labels)


_running = None


def runtime(every=1.0):
    """Counts what Python itself does, from now on, by a thread that looks every so many seconds."""
    global _running
    with _lock:
        if _running is not None:
            return
        _running = every
    collections = [counter("python_gc_collections", "{collection}", "Garbage collections", generation=str(g)) for g in range(3)]
    collected = [counter("python_gc_collected", "{object}", "Objects that were freed by them", generation=str(g)) for g in range(3)]
    pauses = counter("python_gc_pause_seconds", "s", "Time in garbage collections", fine=True)
    threads = gauge("python_threads", "{thread}", "Threads of Python")
    blocks = gauge("python_allocated_blocks", "{block}", "Blocks of memory that Python has allocated")
    begun = [0.0]
    before = []  # what Python had counted at a fork, which is the parent's

    def collection(phase, _):
        if phase == "start":
            begun[0] = time.perf_counter()
        else:
            pauses.add(time.perf_counter() - begun[0])

    def look():
        for g, stats in enumerate(gc.get_stats()):
            of_parent = before[g] if before else {"collections": 0, "collected": 0}
            collections[g]._set(stats["collections"] - of_parent["collections"])
            collected[g]._set(stats["collected"] - of_parent["collected"])
        threads.set(threading.active_count())
        blocks.set(sys.getallocatedblocks())

    def watch():
        while True:
            time.sleep(every)
            look()

    def begin():
        look()
        threading.Thread(target=watch, name="outsight", daemon=True).start()

    def begin_child():
        before[:] = gc.get_stats()
        begin()

    gc.callbacks.append(collection)
    begin()
    os.register_at_fork(after_in_child=begin_child)


def _forked():
    global _lock
    _lock = threading.RLock()
    for metric in _metrics.values():
        metric._lock = threading.Lock()
    _file.forked()


_file = _File()
_file.announce()
os.register_at_fork(after_in_child=_forked)
