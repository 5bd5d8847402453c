package export

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"outsight/internal/frame"
	"outsight/internal/otlp"
)

// keyPause is the least time between two key frames that are asked for.
const keyPause = 10 * time.Second

// frames is the state of an Exporter that sends frames.
type frames struct {
	// key is the key frame that was written last, nil where it could not be; last is when a frame was.
	key  *frame.Frame
	last time.Time
	// wanted says that a key frame should be made; asked is when one was asked for last.
	wanted atomic.Bool
	asked  time.Time
	// current is the number of the key frame that frames are told as changes of now.
	current atomic.Uint64
	// sent is of the goroutine that sends: the key frame that went last. It is not known until one goes: those of the
	// agent's last life may have.
	sent struct {
		known         bool
		epoch, number uint64
	}
}

// Consume implements agent.Sink: it writes a frame to the spool, or its series as a batch of OTLP. It must not be called
// concurrently.
func (e *Exporter) Consume(_ context.Context, f *frame.Frame) error {
	if e.OTLP() {
		return e.Put(otlp.FromFrame(f, otlp.SeriesOptions{}))
	}
	if !f.IsKey() {
		every := e.options.SendEvery
		if every > 0 && f.Time.Truncate(every).Equal(e.frames.last.Truncate(every)) {
			return nil
		}
		if !f.IsOf(e.frames.key) {
			// Its key frame is not there: it would be of no use.
			e.counts.keyless.Add(1)
			e.frames.wanted.Store(true)
			return nil
		}
	}
	e.buffer = frame.Encode(e.buffer[:0], f, e.frames.key)
	err := e.write(rows(f), e.buffer)
	if err == nil {
		e.frames.last = f.Time
	}
	if f.IsKey() {
		if e.frames.key = f; err != nil {
			e.frames.key = nil
		}
		e.frames.current.Store(f.Number)
	}
	return err
}

// WantsKey implements agent.KeyWanter.
func (e *Exporter) WantsKey() bool {
	if !e.frames.wanted.Load() || time.Since(e.frames.asked) < keyPause {
		return false
	}
	e.frames.asked = time.Now()
	e.frames.wanted.Store(false)
	return true
}

func rows(f *frame.Frame) (n uint64) {
	for i := range f.Tables {
		n += uint64(len(f.Tables[i].IDs))
	}
	return n
}

// zstdMagic begins what is compressed as a whole.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// isFrame tells frames from OTLP, which an older agent may have left in the spool.
func isFrame(data []byte) bool { return !bytes.HasPrefix(data, zstdMagic) }

// useless reports whether a batch is a frame whose key frame was lost on the way: dropped because the spool was full,
// or refused. Those that wait in the spool for the same one follow.
func (e *Exporter) useless(b *Batch) bool {
	sent := &e.frames.sent
	h, ok := frameHeader(b)
	known := sent.known || e.spool.Stats().DroppedBatches > 0
	if !ok || h.IsKey() || !known || h.Epoch == sent.epoch && h.Key == sent.number {
		return false
	}
	if h.Key == e.frames.current.Load() {
		e.frames.wanted.Store(true) // those that come are of no use, too
	}
	return true
}

// passed takes note of a batch that was taken, or refused for good.
func (e *Exporter) passed(b *Batch, taken bool) {
	h, ok := frameHeader(b)
	if !ok || !h.IsKey() {
		return
	}
	sent := &e.frames.sent
	sent.known, sent.epoch, sent.number = true, h.Epoch, h.Number
	if !taken {
		sent.number = 0 // none has it
	}
}

func frameHeader(b *Batch) (frame.Header, bool) {
	if !isFrame(b.Data) {
		return frame.Header{}, false
	}
	h, err := frame.DecodeHeader(b.Data)
	return h, err == nil
}
