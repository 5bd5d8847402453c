"""Reads frames (docs/format/frame.md). usage: read_frame.py KEY [FRAME ...] prints each as a line of JSON"""
import json
import struct
import sys

import zstandard

FIRST_BUCKET, MASK = -636, (1 << 64) - 1


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        assert self.at <= len(self.data), "the bytes end too early"
        return self.data[self.at - n : self.at]

    def number(self):
        n = shift = 0
        while True:
            byte = self.take(1)[0]
            n |= (byte & 0x7F) << shift
            if byte < 0x80:
                return n & MASK
            shift += 7

    def text(self):
        return self.take(self.number()).decode("utf-8", "surrogateescape")

    def float(self):
        return struct.unpack("<d", self.take(8))[0]

    def left(self):
        return self.at < len(self.data)


def decompress(data, size):
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)


def read_schema(data):
    r = Reader(data)

    def column():
        c = dict(name=r.text(), kind=r.number(), of=r.number(), file=r.number(), metric=r.text(), unit=r.text())
        return dict(c, label=r.text(), label_value=r.text(), per=r.float())

    tables = []
    for _ in range(r.number()):
        table = {"name": r.text()}
        table["attributes"] = [dict(name=r.text(), kind=r.number(), of=r.number()) for _ in range(r.number())]
        table["columns"] = [column() for _ in range(r.number())]
        table["histograms"] = [column() for _ in range(r.number())]
        tables.append(table)
    metrics = {}
    for _ in range(r.number()):
        metric = dict(name=r.text(), kind=r.number(), unit=r.text(), per=r.float())
        metric["labels"] = [r.text() for _ in range(r.number())]
        metrics[metric["name"]] = metric
    assert not r.left(), "bytes are left over"
    return tables, metrics


def read_rows(r, old_ids):
    removed, added = r.number(), r.number()
    gone, at = set(), -1
    for _ in range(removed):
        at += r.number() + 1
        gone.add(at)
    rows, at = {row: i for i, row in enumerate(old_ids) if i not in gone}, 0
    for _ in range(added):
        at += r.number() + 1
        rows[at] = None
    return sorted(rows), [rows[i] for i in sorted(rows)]  # the second are indexes in the key frame, None for a new row


def read_values(r, values):
    row = 0
    while r.left():
        row += r.number()
        for _ in range(r.number()):
            n = r.number()
            values[row] = (values[row] + ((n >> 1) ^ -(n & 1))) & MASK
            row += 1
    return values


def read_attribute(section, old, was):
    return read_values(Reader(section), [0 if i is None else old[i] for i in was])


def read_column(section, old, was):
    """Values of the rows, None for one that is missing; None where no row has one."""
    if section == b"\0" or not section and old is None:
        return None
    base = [0 if i is None or old is None else old[i] for i in was]
    missing = [v is None for v in base]
    r = Reader(section)
    if r.left() and r.number() == 3:
        row = 0
        for _ in range(r.number()):
            row += r.number()
            for _ in range(r.number()):
                missing[row] = not missing[row]
                row += 1
    values = read_values(r, [v or 0 for v in base])
    return [None if m else v for v, m in zip(values, missing)]


def read_histograms(section, old, was):
    if section == b"\0" or not section and old is None:
        return None
    empty = {"zero": 0, "overflow": 0, "sum": 0, "buckets": {}}
    all_rows = [empty if i is None or old is None else old[i] for i in was]
    all_rows = [dict(h, buckets=dict(h["buckets"])) for h in all_rows]
    r = Reader(section)
    if r.left():
        r.number(), r.number()  # the flags, and the number of buckets: for readers that allocate memory
    row = 0
    while r.left():
        row += r.number()
        for _ in range(r.number()):
            read_histogram(r, all_rows[row])
            row += 1
    return all_rows


def read_histogram(r, h):
    head = r.number()
    for bit, name in (1, "zero"), (2, "overflow"):
        if head & bit:
            h[name] = (h[name] + r.number()) & MASK
    h["sum"] = (h["sum"] + r.number()) & MASK
    bucket = FIRST_BUCKET
    for _ in range(head >> 2):
        bucket += r.number()
        for _ in range(r.number()):
            h["buckets"][bucket] = (h["buckets"].get(bucket, 0) + r.number()) & MASK
            bucket += 1
    h["buckets"] = {b: n for b, n in h["buckets"].items() if n}


def read_section(r, large):
    length = r.number()
    if length & 1 == 0:
        return r.take(length >> 1)
    begin, n = r.number(), r.number()
    return decompress(large[begin : begin + n], length >> 1)


def read_frame(data, key=None):
    magic, version, flags, host = struct.unpack_from("<4sBBH", data)
    assert (magic, version, flags) == (b"OSFR", 1, 0), "no frame of version 1"
    frame = dict(zip("epoch boot number key time clock_error".split(), struct.unpack_from("<6Q", data, 8)))
    schema_length, schema_size, main_length, main_size, large_length = struct.unpack_from("<5I", data, 56)
    r = Reader(data)
    r.take(76)
    frame["host"] = r.take(host).decode()
    schema, main, large = r.take(schema_length), r.take(main_length), r.take(large_length)
    assert not r.left(), "bytes are left over"
    if frame["key"] == frame["number"]:
        frame["schema"], frame["metrics"] = read_schema(decompress(schema, schema_size))
        key = {"strings": [], "tables": {}}
    else:
        assert (key["epoch"], key["number"]) == (frame["epoch"], frame["key"]), "another key frame"
        frame["schema"], frame["metrics"] = key["schema"], key["metrics"]
    r = Reader(decompress(main, main_size))
    lengths = [r.number() for _ in range(r.number())]
    frame["strings"] = key["strings"] + [r.take(n).decode("utf-8", "surrogateescape") for n in lengths]
    frame["tables"] = {t["name"]: read_table(r, t, key["tables"].get(t["name"]), large) for t in frame["schema"]}
    assert not r.left(), "bytes are left over"
    return frame


def read_table(r, schema, old, large):
    old = old or {"ids": [], "columns": {}}
    data = r.take(r.number())
    if not data:
        return old
    r = Reader(data)
    ids, was = read_rows(r, old["ids"])
    table = {"ids": ids, "columns": {}}
    for kind, read in ("attributes", read_attribute), ("columns", read_column), ("histograms", read_histograms):
        for c in schema[kind]:
            section = read_section(r, large)
            before = old["columns"].get(c["name"], [] if kind == "attributes" else None)
            table["columns"][c["name"]] = read(section, before, was)
    assert not r.left(), "bytes are left over"
    return table


if __name__ == "__main__":
    key = None
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            frame = read_frame(file.read(), key)
        key = key or frame
        print(json.dumps({k: v for k, v in frame.items() if k != "schema"}))
