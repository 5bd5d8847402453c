package ingest

import (
	"bytes"
	"container/list"
	"sync"

	"outsight/internal/frame"
)

// Bounds of what is known of key frames.
const (
	// keyHosts bounds the hosts of which anything is known.
	keyHosts = 100_000
	// defaultKeyBytes is the default of Frames.KeyBytes.
	defaultKeyBytes = 128 << 20
	// decodedShare is one over the part of the bound that decoded key frames may take. One that has no room is decoded
	// again for each frame after it, without histograms.
	decodedShare = 8
)

// keyFrames has the newest key frame of each host, as long as there is room: the frames after it are checked with it.
type keyFrames struct {
	// most bounds bytes, decodedMost the part of them that is decoded.
	most, decodedMost int64

	// mu guards the rest.
	mu             sync.Mutex
	hosts          map[keyOwner]*list.Element
	bytes, decoded int64
	// recent has a *keyFrame for each host, the one that was used last first.
	recent *list.List
}

type keyOwner struct{ tenant, host string }

// keyFrame is what is known of a host's newest key frame.
type keyFrame struct {
	keyOwner
	epoch, number uint64
	rows          int
	// data and frame are nil where there was no room.
	data    []byte
	frame   *frame.Frame
	decoded int64
	// asked is that the agent was asked for a key frame, since this one was never here.
	asked bool
}

func newKeyFrames(most int64) *keyFrames {
	return &keyFrames{most: most, decodedMost: most / decodedShare, hosts: map[keyOwner]*list.Element{},
		recent: list.New()}
}

// knownKey is what find found.
type knownKey struct {
	data    []byte
	frame   *frame.Frame
	rows    int
	wantKey bool
}

// find finds the key frame of a frame.
func (k *keyFrames) find(tenant string, h *frame.Header) knownKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.of(tenant, h.Host)
	if one.epoch == h.Epoch && one.number == h.Key {
		known := knownKey{data: one.data, frame: one.frame, rows: one.rows}
		return known
	}
	// A late frame of an older key frame asks for none.
	newer := h.Epoch > one.epoch || h.Epoch == one.epoch && h.Key > one.number
	if !newer {
		return knownKey{rows: one.rows}
	}
	k.drop(one)
	one.epoch, one.number, one.asked = h.Epoch, h.Key, true
	return knownKey{rows: one.rows, wantKey: true}
}

// of is the entry of a host, which is made if there is none; mu is held.
func (k *keyFrames) of(tenant, host string) *keyFrame {
	owner := keyOwner{tenant, host}
	if e := k.hosts[owner]; e != nil {
		k.recent.MoveToFront(e)
		return e.Value.(*keyFrame)
	}
	one := &keyFrame{keyOwner: owner}
	k.hosts[owner] = k.recent.PushFront(one)
	if k.recent.Len() > keyHosts {
		last := k.recent.Back()
		old := last.Value.(*keyFrame)
		k.drop(old)
		delete(k.hosts, old.keyOwner)
		k.recent.Remove(last)
	}
	return one
}

// drop forgets the frame of an entry; mu is held.
func (k *keyFrames) drop(one *keyFrame) {
	k.bytes -= int64(len(one.data))
	one.data = nil
	k.dropDecoded(one)
}

func (k *keyFrames) dropDecoded(one *keyFrame) {
	k.bytes -= one.decoded
	k.decoded -= one.decoded
	one.frame, one.decoded = nil, 0
}

// put remembers a key frame.
func (k *keyFrames) put(tenant string, h *frame.Header, data []byte, f *frame.Frame, rows int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one := k.of(tenant, h.Host)
	if h.Epoch < one.epoch || h.Epoch == one.epoch && h.Number < one.number {
		return // it is late
	}
	k.drop(one)
	one.epoch, one.number, one.rows, one.asked = h.Epoch, h.Number, rows, false
	one.data = bytes.Clone(data)
	one.frame, one.decoded = f, decodedBytes(f)
	k.bytes += int64(len(data)) + one.decoded
	k.decoded += one.decoded
	k.shrink()
}

// shrink drops what was not used for longest: first what is decoded, which can be decoded again.
func (k *keyFrames) shrink() {
	for e := k.recent.Back(); e != nil && k.decoded > k.decodedMost; e = e.Prev() {
		k.dropDecoded(e.Value.(*keyFrame))
	}
	for e := k.recent.Back(); e != nil && k.bytes > k.most; e = e.Prev() {
		k.drop(e.Value.(*keyFrame))
	}
}

// used is how many bytes are kept.
func (k *keyFrames) used() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes
}

// decodedBytes is roughly the memory of a frame.
func decodedBytes(f *frame.Frame) (n int64) {
	for _, s := range f.Strings {
		n += int64(len(s)) + 16
	}
	for t := range f.Tables {
		table := &f.Tables[t]
		n += 4 * int64(len(table.IDs))
		n += 8 * int64(len(table.Attributes)*len(table.IDs))
		for c := range table.Columns {
			n += 8 * int64(len(table.Columns[c].Of)+len(table.Columns[c].Missing))
		}
		for c := range table.Histograms {
			h := &table.Histograms[c]
			n += 28*int64(len(h.End)) + 12*int64(len(h.Bucket))
		}
	}
	return n
}
