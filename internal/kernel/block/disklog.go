package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"outsight/internal/model"
)

// DiskRequest is one entry of a device's latency histogram, by itself. Times are nanoseconds of the
// monotonic clock.
type DiskRequest struct {
	BlockGroup        uint64
	Device            model.BlockDevice
	Write             bool
	Bytes             uint64
	IssuedNS, EndedNS uint64
}

// requestLog reads what disk.bpf.c logs.
type requestLog struct {
	ring     *ringbuf.Reader
	record   ringbuf.Record
	unlogged *ebpf.Variable
}

const loggedRequestBytes = int(unsafe.Sizeof(diskDiskEvent{})) + 8

func prepareRequestLog(object *diskSpecs, requests int) error {
	if requests <= 0 {
		return nil
	}
	size := os.Getpagesize()
	for size < requests*loggedRequestBytes {
		size *= 2
	}
	object.DiskLog.MaxEntries = uint32(size)
	return object.LogRequests.Set(true)
}

func openRequestLog(log *ebpf.Map, unlogged *ebpf.Variable, requests int) (*requestLog, error) {
	if requests <= 0 {
		return nil, nil
	}
	ring, err := ringbuf.NewReader(log)
	if err != nil {
		return nil, fmt.Errorf("opening the log of requests: %w", err)
	}
	return &requestLog{ring: ring, unlogged: unlogged}, nil
}

// DiskRequests hands out the reads and writes that were counted since the last call. It is for tests and
// benchmarks, and needs Options.LogRequests; Drops tells how many found no room. It fails where the log is off.
func (p *Block) DiskRequests() ([]DiskRequest, error) {
	if p.disks == nil || p.disks.log == nil {
		return nil, errors.New("reading the log of requests: it is off (Options.LogRequests)")
	}
	l := p.disks.log
	var all []DiskRequest
	for {
		l.ring.SetDeadline(time.Unix(0, 1)) // long ago: what is there, without waiting
		err := l.ring.ReadInto(&l.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("reading the log of requests: %w", err)
		}
		var e diskDiskEvent
		if _, err := binary.Decode(l.record.RawSample, binary.NativeEndian, &e); err != nil {
			return all, fmt.Errorf("BUG: decoding a request: %w", err)
		}
		if e.Operation >= diskHistograms {
			continue
		}
		all = append(all, DiskRequest{BlockGroup: e.Group, Device: model.BlockDevice{Major: uint32(e.Device >> 32),
			Minor: uint32(e.Device)},
			Write: e.Operation == uint32(diskDiskOperationDISK_WRITE), Bytes: e.Bytes, IssuedNS: e.IssuedNs, EndedNS: e.DoneNs})
	}
}

func (l *requestLog) drop() model.Drop {
	d := model.Drop{Name: "disk_log", Capacity: uint64(l.ring.BufferSize() / loggedRequestBytes)}
	_ = l.unlogged.Get(&d.Count)
	return d
}
