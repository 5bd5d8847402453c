# Reads the regions of a host over TCP and prints their figures as JSON. Written from docs/format/region.md alone.
# usage: region.py HOST PORT KEY_NUMBER KEY_HEX
import collections, hashlib, hmac, ipaddress, json, os, socket, struct, sys

host, port, number, secret = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
s = socket.create_connection((host, port), timeout=60)
stream = s.makefile("rb")
hello = stream.read(48)
assert hello[:8] == b"OSREADER" and struct.unpack("<I", hello[8:12])[0] == 1, hello
challenge, count = hello[16:], 0


def mac(kind, *parts):
    return hmac.new(secret, kind + b"".join(parts), hashlib.sha256).digest()


def read(*parts):  # parts are (region, offset, length)
    global count
    count += 1
    nonce = os.urandom(16)
    q = b"OSRQ" + struct.pack("<IQII", number, count, len(parts), 0) + nonce
    for region, offset, length in parts:
        q += struct.pack("<IIQ", region, length, offset)
    s.sendall(q + mac(b"request", challenge, q))
    head = stream.read(24)
    status, sequence, length, at = struct.unpack("<IQII", head[4:])
    data, got = stream.read(length), stream.read(32)
    assert head[:4] == b"OSRP" and status == 0, (status, at)
    assert sequence == count and hmac.compare_digest(got, mac(b"reply", challenge, nonce, head, data))
    out = []
    for _, _, length in parts:
        out.append(data[:length])
        data = data[length:]
    return out


def whole(region, used_at):
    while True:
        head = read((region, 0, 64))[0]
        used, size = struct.unpack("<II", head[used_at : used_at + 8])
        body, tail = read((region, 0, used), (region, size - 8, 8))
        if body[used_at : used_at + 4] == head[used_at : used_at + 4] and tail == body[16:24]:
            return body


def entries(body, at):
    n, offset, size = struct.unpack("<III", body[at : at + 12])
    return [body[offset + i * size : offset + (i + 1) * size] for i in range(n)]


def text(b):
    return b.split(b"\0")[0].decode()


control = whole(0, 56)
assert control[:8] == b"OSREGION" and struct.unpack("<I", control[8:12])[0] <= 1
trusted = struct.unpack("<I", control[104:108])[0]
metrics = []
for m in entries(control, 88):
    series = text(m[:80])
    if text(m[104:128]):
        series += '{%s="%s"}' % (text(m[104:128]), text(m[128:152]))
    metrics.append((series, struct.unpack("<Q", m[152:160])[0]))

Field = collections.namedtuple("Field", "name offset type role count refers via mask metric server")
Region = collections.namedtuple("Region", "name id index size records lanes fields")
fields = [
    Field(text(f[:32]), *struct.unpack("<IBBHIIIHH", f[32:56])) for f in entries(control, 76)
]
regions = {}
for r in entries(control, 64):
    id, index, fill, size, records, lanes, first, n = struct.unpack("<IHHIIIII", r[32:60])
    regions[id] = Region(text(r[:32]), id, index, size, records, lanes, fields[first : first + n])

names = whole(1, 24)
assert names[:8] == b"OSRNAMES"


def string(b):
    offset, length = struct.unpack("<II", b)
    return names[offset : offset + length].decode()


containers = []
for c in entries(names, 32):
    containers.append((string(c[8:16]), struct.unpack("<I", c[64:68])[0]))
groups = {}
for g in entries(names, 44):
    cgroup, container = struct.unpack("<QI", g[:12])
    groups[cgroup] = container

FORMATS = {1: ("<Q", 8), 2: ("<I", 4), 3: ("<H", 2), 4: ("<B", 1), 5: ("<q", 8)}


def value(record, f, i=0):
    form, size = FORMATS[f.type]
    return struct.unpack_from(form, record, f.offset + i * size)[0]


def role(region, which):
    return next((f for f in region.fields if f.role == which), None)


def records(region, indexes):
    size = region.size * region.lanes
    out = {}
    for i in indexes:
        out[i] = read((region.id, i * size, size))[0]
    return out


def owned(index):
    for r in regions.values():
        owner = role(r, 3)
        if r.index == index and owner:
            memory = b"".join(
                read((r.id, at, min(1 << 20, r.size * r.records - at)))[0] for at in range(0, r.size * r.records, 1 << 20)
            )
            return {
                i: memory[i * r.size : (i + 1) * r.size]
                for i in range(r.records)
                if value(memory[i * r.size : (i + 1) * r.size], owner)
            }, r
    return {}, None


def figures(index, indexes, other=lambda i: False):
    out = {i: {} for i in indexes}
    for r in regions.values():
        if r.index != index or not any(f.metric != 0xFFFF for f in r.fields):
            continue
        for i, b in records(r, indexes).items():
            known = role(r, 10)
            known = value(b, known) & trusted if known else ~0
            for f in r.fields:
                m = f.server if other(i) else f.metric
                if m == 0xFFFF or known & f.mask != f.mask or f.role not in (1, 2, 5, 14):
                    continue
                n = sum(value(b[lane * r.size :], f) for lane in range(r.lanes))
                series, per = metrics[m]
                if f.role == 14:
                    out[i][series] = max(0, out[i][series] - n / per)
                    continue
                if f.role != 5:
                    out[i][series] = out[i].get(series, 0) + n / per
                    continue
                at = i if f.via == 0xFFFFFFFF else struct.unpack_from("<I", b, f.via)[0]
                if f.via != 0xFFFFFFFF and at == 0:
                    continue
                pool = regions[f.refers]
                cells = role(pool, 6)
                h = records(pool, [at])[at]
                out[i][series + " count"] = sum(
                    value(h[lane * pool.size :], cells, k) for lane in range(pool.lanes) for k in range(cells.count)
                )
    return out


result = {"containers": {}, "edges": [], "disks": [], "endpoints": []}
slots, r = owned(1)
of = {i: groups[value(b, role(r, 3))] for i, b in slots.items() if value(b, role(r, 3)) in groups}
for i, numbers in figures(1, sorted(of)).items():
    into = result["containers"].setdefault(containers[of[i]][0], {})
    for series, n in numbers.items():
        into[series] = into.get(series, 0) + n
place = {figure: name for name, figure in containers if figure != 0xFFFFFFFF}
for i, numbers in figures(5, sorted(place)).items():
    result["containers"].setdefault(place[i], {}).update(numbers)
edges, r = owned(2)
key = {f.name: f for f in r.fields if f.role == 4}
is_server = lambda i: value(edges[i], key["key.role"]) == 2
end = {}
for i, numbers in figures(2, sorted(edges), is_server).items():
    b, at = edges[i], key["key.service"].offset
    address = ipaddress.IPv6Address(b[at : at + 16])
    owner = groups.get(value(b, key["key.owner"]))
    end[i] = {
        "owner": containers[owner][0] if owner is not None else "",
        "side": "server" if is_server(i) else "client",
        "service": "%s:%d" % (address.ipv4_mapped or "[%s]" % address, value(b, key["key.port"])),
    }
    result["edges"].append({**end[i], "figures": numbers})
disks, r = owned(6)
key = {f.name: f for f in r.fields if f.role == 4}
is_sync = lambda i: value(disks[i], key["key.device"]) == 2**64 - 1
for i, numbers in figures(6, sorted(disks), is_sync).items():
    owner, at = groups.get(value(disks[i], key["owner"])), key["name"].offset
    name = "" if is_sync(i) else text(disks[i][at : at + key["name"].count])
    result["disks"].append(
        {"owner": containers[owner][0] if owner is not None else "host", "device": name, "figures": numbers}
    )
endpoints, r = owned(7)
key = {f.name: f for f in r.fields if f.role == 4}
for i, numbers in figures(7, sorted(endpoints)).items():
    b, at = endpoints[i], key["key.name"].offset
    numbers["outsight_endpoint_requests_total"] += numbers["outsight_endpoint_request_duration_seconds count"]
    of = end.get(value(b, key["key.edge"]))
    if of:
        result["endpoints"].append({**of, "endpoint": text(b[at : at + key["key.name"].count]), "figures": numbers})


def applications(region):
    while True:  # until the list is the same before and after the values
        listed = whole(region.id, 24)
        assert listed[:8] == b"OSRAPPLS" and struct.unpack("<I", listed[8:12])[0] <= 1
        values, sums = entries(listed, 44), []
        for m in entries(listed, 56):
            container, name, labels = (listed[a : a + n].decode() for a, n in struct.iter_unpack("<II", m[:24]))
            ended, kind, fine = struct.unpack("<QBB", m[40:50])
            start = ended / (1e9 if fine else 1) if kind == 1 else struct.unpack("<d", m[40:48])[0]
            sums.append([container, name + ("{%s}" % labels if labels else ""), start, kind])
        for f in entries(listed, 32):
            id, size, first, n = struct.unpack("<IIII", f[:16])
            own = [struct.unpack("<IIB", v[:9]) for v in values[first : first + n]]
            for (at, metric, type), b in zip(own, read(*[(id, at, 8) for at, _, _ in own])):
                sums[metric][2] += struct.unpack({1: "<Q", 2: "<q", 3: "<d"}[type], b)[0]
        if read((region.id, 16, 8))[0] == listed[16:24]:
            return sums


ids = {string(c[:8]): string(c[8:16]) for c in entries(names, 32)}
result["applications"] = {}
for r in regions.values():
    for container, series, n, kind in applications(r) if r.index == 8 else []:
        if container in ids:
            result["applications"].setdefault(ids[container], {})[series] = n
json.dump(result, sys.stdout)
