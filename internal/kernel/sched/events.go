package sched

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"outsight/internal/model"
	"outsight/internal/monotonic"
)

// readEventsFrom hands the ring's events on until the reader is closed.
func (p *Sched) readEventsFrom(events *ebpf.Map) error {
	ring, err := ringbuf.NewReader(events)
	if err != nil {
		return fmt.Errorf("opening the ring of events: %w", err)
	}
	p.OnClose(ring)
	p.reading = true
	go func() {
		defer close(p.events)
		var record ringbuf.Record
		for {
			if err := ring.ReadInto(&record); err != nil {
				return
			}
			event, ok := decodeEvent(record.RawSample)
			if !ok {
				continue
			}
			select {
			case p.events <- event:
			case <-p.done:
				return
			}
		}
	}()
	return nil
}

func decodeEvent(raw []byte) (model.CgroupEvent, bool) {
	var e cgroupsCgroupEvent
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, &e); err != nil {
		return model.CgroupEvent{}, false
	}
	path := make([]byte, 0, len(e.Path))
	for _, c := range e.Path {
		if c == 0 {
			break
		}
		path = append(path, byte(c))
	}
	return model.CgroupEvent{
		Kind: model.CgroupEventKind(e.Kind), ID: model.CgroupID(e.Id), Path: string(path),
		PID: int(e.Pid), Time: monotonic.Wall(e.TimeNs),
	}, true
}
