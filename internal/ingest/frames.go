package ingest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/queue"
	"outsight/internal/store"
)

// Frames is where frames of agents go. They have a queue of their own: they must not wait for the store of series.
type Frames struct {
	Queue *queue.Queue
	// Log is where the consumer appends them.
	Log framelog.Log
	// Series makes series of some of them, and of no more than Only; nil for none.
	Series Deriver
	Only   *frame.Projection
	// KeyBytes bounds the key frames that are kept to check other frames (128 MiB).
	KeyBytes int64
}

// Deriver makes series of frames. It must not wait.
type Deriver interface {
	// Due reports whether Put takes a frame with this header.
	Due(tenant string, h *frame.Header) bool
	Put(tenant string, f *frame.Frame)
}

// Errors of a frame.
var (
	errFrame     = errors.New("not a frame")
	errFrameTime = errors.New("of a time that this server does not take")
)

// maxHostBytes bounds the name of a frame's host.
const maxHostBytes = 255

// postFrame serves frame.Path.
func (i *Ingest) postFrame(w http.ResponseWriter, r *http.Request) {
	i.counts.frameRequests.Add(1)
	tenant, wantKey, err := i.takeFrame(w, r)
	if err != nil {
		i.refuseRequest(sender{tenant, r.RemoteAddr}, err)
		responder{w: w}.failed(err, i.retryAfter(err))
		return
	}
	if wantKey {
		i.counts.keysWanted.Add(1)
		w.Header().Set(frame.WantKeyHeader, "1")
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

func (i *Ingest) takeFrame(w http.ResponseWriter, r *http.Request) (tenant string, wantKey bool, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return "", false, fmt.Errorf("%w: method %.20q, want POST", errUnsupported, r.Method)
	}
	if tenant, _, err = i.admit(r.Header.Values); err != nil {
		return tenant, false, err
	}
	if media := r.Header.Get("Content-Type"); media != frame.ContentType {
		return tenant, false, fmt.Errorf("%w: Content-Type %.80q, want %s", errUnsupported, media, frame.ContentType)
	}
	if e := strings.ToLower(r.Header.Get("Content-Encoding")); e != "" && e != "identity" {
		return tenant, false, fmt.Errorf("%w: Content-Encoding %.40q, want none: a frame is compressed", errUnsupported, e)
	}
	if r.ContentLength > i.options.MaxBody {
		return tenant, false, fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, r.ContentLength, i.options.MaxBody)
	}
	if wait := i.rates.Wait(tenant); wait > 0 {
		return tenant, false, rateError{tenant, i.options.Quotas.Of(tenant).SamplesPerSecond, wait}
	}
	body := patient(w, r.Body)
	hold := &reservation{from: i.inFlight, ctx: r.Context(), tenant: tenant, limitBodyTime: body.hurry}
	defer hold.release()
	data, err := i.read(body, i.options.MaxBody, hold)
	if err != nil {
		return tenant, false, asMalformed("reading the body", err)
	}
	// The queue and the cache of key frames have copies.
	defer func() { i.bodies.put(data) }()
	i.counts.frameBytes.Add(uint64(len(data)))
	wantKey, err = i.acceptFrame(r.Context(), tenant, data, hold)
	return tenant, wantKey, err
}

// acceptFrame queues a frame. When it returns without an error, the frame is durable. wantKey is that its key frame is
// not known here.
func (i *Ingest) acceptFrame(ctx context.Context, tenant string, data []byte, hold *reservation) (wantKey bool,
	err error) {
	// The series of the future that the store may have are not the frames' matter.
	if i.options.Room != nil {
		if err := i.options.Room(); err != nil && !errors.Is(err, store.ErrClock) {
			return false, fmt.Errorf("%w: %w", queue.ErrFull, err)
		}
	}
	head, err := frame.DecodeHeader(data)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errFrame, err)
	}
	if err := i.checkHeader(&head); err != nil {
		return false, err
	}
	checked, err := i.checkFrame(ctx, tenant, &head, data, hold)
	if err != nil {
		return false, err
	}
	i.rates.Charge(tenant, checked.rows)
	if err := i.publishing.acquire(ctx, tenant); err != nil {
		i.rates.Refund(tenant, checked.rows)
		return false, err
	}
	defer i.publishing.release()
	published, err := i.options.Frames.Queue.Publish(ctx, frameMessage(tenant, &head, data))
	if err != nil {
		i.rates.Refund(tenant, checked.rows)
		return false, err
	}
	if published.Duplicate {
		i.counts.duplicates.Add(1)
		return false, nil
	}
	i.counts.frames.Add(1)
	if head.IsKey() {
		i.keys.put(tenant, &head, data, checked.key, checked.rows)
	}
	if checked.series != nil {
		i.options.Frames.Series.Put(tenant, checked.series)
	}
	return checked.wantKey, nil
}

// frameMessage is a frame in the queue. The name of its host may have any characters, and the id is in a header.
func frameMessage(tenant string, h *frame.Header, data []byte) queue.Message {
	host := sha256.Sum256([]byte(h.Host))
	m := queue.Message{Data: data, ID: fmt.Sprintf("%s/frame/%x/%d/%d", tenant, host[:16], h.Epoch, h.Number),
		Header: map[string]string{}}
	m.Header[headerID] = m.ID
	if tenant != "" {
		m.Header[headerTenant] = tenant
	}
	return m
}

// checkHeader checks what all readers of a frame rely on.
func (i *Ingest) checkHeader(h *frame.Header) error {
	control := func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }
	if h.Host == "" || len(h.Host) > maxHostBytes || strings.ContainsFunc(h.Host, control) {
		return fmt.Errorf("%w: the name of its host is empty, too long or no text", errFrame)
	}
	now, doubtful := i.clock.now()
	limits := &i.options.Limits
	switch {
	case h.Time.After(now.Add(limits.Ahead)) && !h.Time.After(doubtful.Add(limits.Ahead)):
		return errClock
	case h.Time.After(now.Add(limits.Ahead)):
		return fmt.Errorf("%w: ahead of this server's clock, which is at %s: set the host's clock", errFrameTime,
			now.UTC().Format(time.RFC3339))
	case h.Time.Before(now.Add(-limits.Behind)):
		return fmt.Errorf("%w: more than %v old: it is %s by this server's clock", errFrameTime, limits.Behind,
			now.UTC().Format(time.RFC3339))
	}
	return nil
}

// withoutHistograms is what is decoded of frames to check them: histograms are most of a frame.
var withoutHistograms = func() *frame.Projection {
	all := map[frame.TableID][]string{}
	for t := range frame.Schema {
		names := []string{}
		for _, c := range frame.Schema[t].Columns {
			names = append(names, c.Name)
		}
		all[frame.TableID(t)] = names
	}
	return frame.NewProjection(all)
}()

// checkedFrame is what is known of a frame that makes sense.
type checkedFrame struct {
	// key is what frames after it are checked with, if it is a key frame.
	key *frame.Frame
	// series is what becomes series; nil if nothing does now.
	series *frame.Frame
	rows   int
	// wantKey is that the host is to be asked for a key frame.
	wantKey bool
}

// checkFrame decodes a key frame completely, and of any other what is not histograms, where its key frame is known. What
// is not checked here, readers find out, who decode with the same bounds. What it decodes counts as bytes in flight.
func (i *Ingest) checkFrame(ctx context.Context, tenant string, h *frame.Header, data []byte, hold *reservation) (
	checked checkedFrame, err error) {
	if err := i.frameSlots.acquire(ctx, tenant); err != nil {
		return checked, err
	}
	defer i.frameSlots.release()
	due := i.options.Frames.Series != nil && i.options.Frames.Series.Due(tenant, h)
	if h.IsKey() {
		if checked.series, err = decodeFrame(data, nil, nil, hold); err != nil {
			return checked, err
		}
		checked.rows = rowsOf(checked.series)
		if !due {
			checked.series = nil
		}
		checked.key, err = decodeFrame(data, nil, withoutHistograms, hold)
		return checked, err
	}
	known := i.keys.find(tenant, h)
	checked.rows, checked.wantKey = known.rows, known.wantKey
	if known.data == nil {
		return checked, nil
	}
	if known.frame == nil {
		if known.frame, err = decodeFrame(known.data, nil, withoutHistograms, hold); err != nil {
			return checked, err
		}
	}
	f, err := decodeFrame(data, known.frame, withoutHistograms, hold)
	if err != nil {
		return checked, err
	}
	checked.rows = rowsOf(f)
	if due {
		checked.series, err = i.decodeForSeries(known.data, data, hold)
	}
	return checked, err
}

// decodeForSeries decodes what series are made of.
func (i *Ingest) decodeForSeries(keyData, data []byte, hold *reservation) (*frame.Frame, error) {
	only := i.options.Frames.Only
	key, err := decodeFrame(keyData, nil, only, hold)
	if err != nil {
		return nil, err
	}
	return decodeFrame(data, key, only, hold)
}

func decodeFrame(data []byte, key *frame.Frame, only *frame.Projection, hold *reservation) (*frame.Frame, error) {
	f, err := frame.DecodeWithin(data, key, only, hold.grow)
	if errors.Is(err, errBusy) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return f, nil
}

func rowsOf(f *frame.Frame) (n int) {
	for t := range f.Tables {
		n += len(f.Tables[t].IDs)
	}
	return n
}

// TakeFrame takes an encoded frame that came in another way than by a request, as if it were one of a tenant. When it
// returns without an error, the frame is durable. wantKey is that its key frame is not known here.
func (i *Ingest) TakeFrame(ctx context.Context, tenant string, data []byte) (wantKey bool, err error) {
	hold := &reservation{from: i.inFlight, ctx: ctx, tenant: tenant}
	defer hold.release()
	if err := hold.grow(int64(len(data))); err != nil {
		return false, err
	}
	return i.acceptFrame(ctx, tenant, data, hold)
}
