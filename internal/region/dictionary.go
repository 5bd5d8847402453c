package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"outsight/internal/model"
)

// Dictionary names what counters are of.
type Dictionary struct {
	Generation uint64
	Containers []Container
	// Groups are the control groups with the index of their container in Containers.
	Groups map[model.CgroupID]int
	// LeftOut is how many containers and control groups found no room.
	LeftOut int
}

// Container is what the dictionary says of a container.
type Container struct {
	ID, Name, Image       string
	Runtime               model.Runtime
	PodName, PodNamespace string
	Workload              string
	Addresses             []netip.Addr
	Started               time.Time
	// Figures is the index of its figures in the region of IndexFigures, None where there are none.
	Figures uint32
}

var (
	dictionaryHeaderBytes = binary.Size(dictionaryHeader{})
	containerBytes        = binary.Size(containerEntry{})
	groupBytes            = binary.Size(groupEntry{})
)

// DictionaryBytes is the size of a dictionary with room for so many control groups.
func DictionaryBytes(groups int) int {
	const each = 1024 // identifiers and names of a container, when each group is one of its own
	return (dictionaryHeaderBytes + groups*each + 8 + 4095) / 4096 * 4096
}

// encode is the dictionary as bytes, without its tail, for a region of size bytes. It sets LeftOut.
func (d *Dictionary) encode(groups []groupEntry, size int) []byte {
	var strings []byte
	h := dictionaryHeader{Magic: dictionaryMagic, Version: Version, HeaderBytes: uint32(dictionaryHeaderBytes),
		Generation: d.Generation, RegionBytes: uint32(size)}
	var containers []containerEntry
	room := size - 8 - dictionaryHeaderBytes
	// References to strings are relative to their beginning until their place is known.
	put := func(s string) text {
		at := text{uint32(len(strings)), uint32(len(s))}
		strings = append(strings, s...)
		return at
	}
	for _, c := range d.Containers {
		before := len(strings)
		e := containerEntry{ID: put(c.ID), Name: put(c.Name), Image: put(c.Image), Runtime: put(string(c.Runtime)),
			Pod: put(c.PodName), Namespace: put(c.PodNamespace), Workload: put(c.Workload), Addresses: put(joined(c.Addresses)),
			Figures: c.Figures}
		if !c.Started.IsZero() {
			e.StartedNS = uint64(c.Started.UnixNano())
		}
		if (len(containers)+1)*containerBytes+len(strings)+8 > room {
			strings = strings[:before]
			break
		}
		containers = append(containers, e)
	}
	h.LeftOut = uint32(len(d.Containers) - len(containers))
	room -= len(containers)*containerBytes + len(strings) + 8
	var kept []groupEntry
	for _, g := range groups {
		if int(g.Container) >= len(containers) || (len(kept)+1)*groupBytes > room {
			h.LeftOut++
			continue
		}
		kept = append(kept, g)
	}
	d.LeftOut = int(h.LeftOut)
	h.Containers = array{uint32(len(containers)), uint32(dictionaryHeaderBytes), uint32(containerBytes)}
	h.Groups = array{uint32(len(kept)), h.Containers.Offset + uint32(len(containers)*containerBytes), uint32(groupBytes)}
	texts := h.Groups.Offset + uint32(len(kept)*groupBytes)
	for i := range containers {
		e := &containers[i]
		for _, t := range e.texts() {
			t.Offset += texts
		}
	}
	h.UsedBytes = texts + uint32(len(strings))
	h.UsedBytes += -h.UsedBytes & 7
	return encodeAll(h, containers, kept, strings)
}

func (e *containerEntry) texts() [8]*text {
	return [8]*text{&e.ID, &e.Name, &e.Image, &e.Runtime, &e.Pod, &e.Namespace, &e.Workload, &e.Addresses}
}

func joined(addresses []netip.Addr) string {
	all := make([]string, len(addresses))
	for i, a := range addresses {
		all[i] = a.String()
	}
	return strings.Join(all, ",")
}

func decodeDictionaryHeader(b []byte) (h dictionaryHeader, err error) {
	if err := decode(b, &h); err != nil {
		return h, fmt.Errorf("reading the dictionary: %w", err)
	}
	if err := checkHead(h.Magic, dictionaryMagic, h.Version, h.HeaderBytes, dictionaryHeaderBytes, h.UsedBytes,
		h.RegionBytes); err != nil {
		return h, fmt.Errorf("reading the dictionary: %w", err)
	}
	return h, nil
}

// DecodeDictionary reads the dictionary from its first bytes, as many as its header says are used.
func DecodeDictionary(b []byte) (*Dictionary, error) {
	h, err := decodeDictionaryHeader(b)
	if err != nil {
		return nil, err
	}
	if uint64(h.UsedBytes) > uint64(len(b)) {
		return nil, fmt.Errorf("reading the dictionary: %w: %d bytes are used, and there are %d", ErrDamaged, h.UsedBytes,
			len(b))
	}
	b = b[:h.UsedBytes]
	containers, err1 := decodeArray[containerEntry](b, h.Containers)
	groups, err2 := decodeArray[groupEntry](b, h.Groups)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("reading the dictionary: %w", err)
	}
	d := &Dictionary{Generation: h.Generation, LeftOut: int(h.LeftOut), Groups: make(map[model.CgroupID]int, len(groups))}
	for i := range containers {
		e := &containers[i]
		var texts [8]string
		for k, t := range e.texts() {
			if uint64(t.Offset)+uint64(t.Length) > uint64(len(b)) {
				return nil, fmt.Errorf("reading the dictionary: %w: %d bytes of text at %d of %d", ErrDamaged, t.Length, t.Offset,
					len(b))
			}
			texts[k] = string(b[t.Offset : t.Offset+t.Length])
		}
		c := Container{ID: texts[0], Name: texts[1], Image: texts[2], Runtime: model.Runtime(texts[3]), PodName: texts[4],
			PodNamespace: texts[5], Workload: texts[6], Figures: e.Figures}
		if e.StartedNS != 0 {
			c.Started = time.Unix(0, int64(e.StartedNS))
		}
		for a := range strings.SplitSeq(texts[7], ",") {
			if address, err := netip.ParseAddr(a); err == nil {
				c.Addresses = append(c.Addresses, address)
			}
		}
		d.Containers = append(d.Containers, c)
	}
	for _, g := range groups {
		if int(g.Container) < len(d.Containers) {
			d.Groups[model.CgroupID(g.Cgroup)] = int(g.Container)
		}
	}
	return d, nil
}
