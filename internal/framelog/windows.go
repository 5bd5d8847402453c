package framelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"outsight/internal/frame"
)

// Silence is how old the newest frame of a host may be: after that the host counts as gone.
const Silence = 5 * time.Minute

// hostsAtOnce bounds the hosts of which encoded frames are in memory at a time.
const hostsAtOnce = 256

// query reads the windows of a Query.
type query struct {
	f      *Files
	v      *view
	only   *frame.Projection
	memory *frame.Memory
	hosts  []*hostReader
}

// hostReader reads the frames of a host. It keeps those that the next window needs again.
type hostReader struct {
	name    string
	streams []*stream // by epoch
	// frames are those that were decoded for this window, and those that the one before ends with.
	frames map[place]*frame.Frame
	// keys are the places of the key frames of those.
	keys map[place]place
	plan []spanPlan
}

// place says where a frame is.
type place struct {
	segment uint64
	offset  int64
}

func (l *located) place() place { return place{l.in.number, l.offset} }

// spanPlan are the frames of a span. fromZero says that it has none before.
type spanPlan struct {
	of            *stream
	before, after located
	fromZero      bool
}

// Windows implements Log.
func (f *Files) Windows(ctx context.Context, q Query) iter.Seq2[*frame.Window, error] {
	return func(yield func(*frame.Window, error) bool) {
		if len(q.Times) < 2 || !slices.IsSortedFunc(q.Times, time.Time.Compare) {
			yield(nil, fmt.Errorf("a query for %d moments: want two or more that ascend", len(q.Times)))
			return
		}
		v, err := f.view()
		if err != nil {
			yield(nil, err)
			return
		}
		defer v.done()
		r := f.query(v, q.Tenant, q.Hosts, q.Only)
		r.memory = q.Memory
		for i := 1; i < len(q.Times); i++ {
			w, err := r.window(ctx, q.Times[i-1], q.Times[i])
			if !yield(w, err) || err != nil {
				return
			}
		}
	}
}

func (f *Files) query(v *view, tenant string, hosts []string, only *frame.Projection) *query {
	q := &query{f: f, v: v, only: only}
	by, wanted := map[string]*hostReader{}, map[string]bool{}
	for _, host := range hosts {
		wanted[host] = true
	}
	f.mu.RLock()
	for name, s := range f.streams {
		if name.tenant != tenant || hosts != nil && !wanted[name.host] {
			continue
		}
		h := by[name.host]
		if h == nil {
			h = &hostReader{name: name.host, frames: map[place]*frame.Frame{}, keys: map[place]place{}}
			by[name.host] = h
			q.hosts = append(q.hosts, h)
		}
		h.streams = append(h.streams, s)
	}
	f.mu.RUnlock()
	slices.SortFunc(q.hosts, func(a, b *hostReader) int { return cmp.Compare(a.name, b.name) })
	for _, h := range q.hosts {
		slices.SortFunc(h.streams, compareStreams)
	}
	return q
}

// window reads one window.
func (q *query) window(ctx context.Context, from, to time.Time) (*frame.Window, error) {
	w := &frame.Window{From: from, To: to}
	for hosts := range slices.Chunk(q.hosts, hostsAtOnce) {
		if err := q.read(ctx, hosts, func(h *hostReader) error { return q.planWindow(h, from, to) }); err != nil {
			return nil, err
		}
		for _, h := range hosts {
			if spans := h.spans(); len(spans) > 0 {
				w.Hosts = append(w.Hosts, frame.HostSpans{Host: h.name, Spans: spans})
			}
		}
	}
	return w, nil
}

// spans are those of the plan. They release what the next window does not need: it begins with the frames that this one
// ends with, and what comes next may be told as changes of the same key frames.
func (h *hostReader) spans() (all []frame.Span) {
	kept, keys := map[place]*frame.Frame{}, map[place]place{}
	for i := range h.plan {
		p := &h.plan[i]
		span := frame.Span{After: h.frames[p.after.place()]}
		at := p.after.place()
		key := h.keys[at]
		kept[at], keys[at] = span.After, key
		if f := h.frames[key]; f != nil {
			kept[key], keys[key] = f, key
		}
		if !p.fromZero {
			span.Before = h.frames[p.before.place()]
		}
		all = append(all, span)
	}
	h.frames, h.keys = kept, keys
	return all
}

// planWindow finds the frames of a window.
func (q *query) planWindow(h *hostReader, from, to time.Time) error {
	h.plan = h.plan[:0]
	begin, end := from.UnixNano(), to.UnixNano()
	silent := begin - int64(Silence)
	for _, s := range h.streams {
		q.f.mu.RLock()
		outside := s.last < silent || s.first > end
		q.f.mu.RUnlock()
		if outside {
			continue
		}
		p := spanPlan{of: s}
		var ok, there bool
		var err error
		if p.after, ok, err = q.f.newestAt(q.v, s, end, minuteOf(silent)); err != nil {
			return err
		}
		if !ok || p.after.time < silent {
			continue
		}
		if p.before, there, err = q.f.newestAt(q.v, s, begin, minuteOf(silent)); err != nil {
			return err
		}
		if there = there && p.before.time >= silent; !there {
			if p.before, ok, err = q.f.firstAfter(q.v, s, begin, end); err != nil {
				return err
			}
			if !ok {
				continue // its only frames of this time cannot be read
			}
			p.fromZero = len(h.plan) > 0 && s.epoch > uint64(max(begin, 0))
		}
		if p.before.number > p.after.number {
			p.before = p.after // the host's clock was set back meanwhile
		}
		h.plan = append(h.plan, p)
	}
	return nil
}

// read plans and reads the frames of hosts. What cannot be read is left out, and planned again.
func (q *query) read(ctx context.Context, hosts []*hostReader, plan func(h *hostReader) error) error {
	for len(hosts) > 0 {
		all := make([]hostTasks, len(hosts))
		if err := parallel(ctx, len(hosts), func(i int) (err error) {
			if err = plan(hosts[i]); err == nil {
				all[i], err = q.tasks(hosts[i])
			}
			return err
		}); err != nil {
			return err
		}
		again, err := q.decode(ctx, all)
		if err != nil {
			return err
		}
		hosts = again
	}
	return nil
}

// task is a frame that is to be decoded, after its key frame.
type task struct {
	h      *hostReader
	l, key located
}

// hostTasks are the frames of a host that are not decoded yet, and all that is to be read for them.
type hostTasks struct {
	h      *hostReader
	tasks  []task
	wanted []located
}

// raw is the record that was read of a frame.
type raw struct {
	record []byte
	err    error
}

// records are what was read of frames, by their places.
type records map[place]raw

// decode reads and decodes all frames of the plans. It answers the hosts of which one cannot be read.
func (q *query) decode(ctx context.Context, all []hostTasks) (again []*hostReader, err error) {
	var remote, local []located
	for i := range all {
		for _, l := range all[i].wanted {
			if l.in.remote {
				remote = append(remote, l)
			} else {
				local = append(local, l)
			}
		}
	}
	fetched, release, err := q.fetch(ctx, remote)
	defer release()
	if err != nil {
		return nil, err
	}
	failed := make([]bool, len(all))
	// The disk reads ahead while the first hosts are decoded. To ask for many pages that are not in memory takes a while,
	// so that one processor asks while another one begins. Each host is read by itself then: its records are in the
	// processor's cache when they are decoded.
	err = parallel(ctx, 1+len(all), func(i int) error {
		if i--; i < 0 {
			for _, one := range together(local) {
				readAhead(one)
			}
			return nil
		}
		data, release := fetched.with(all[i].wanted)
		defer release()
		for _, t := range all[i].tasks {
			ok, err := q.decodeTask(t, data)
			if err != nil {
				return err
			}
			failed[i] = failed[i] || !ok
		}
		return nil
	})
	for i, bad := range failed {
		if bad {
			again = append(again, all[i].h)
		}
	}
	return again, err
}

// tasks are the frames of a host's plan that are not decoded yet.
func (q *query) tasks(h *hostReader) (all hostTasks, err error) {
	all.h = h
	want := func(l located) (added bool) {
		if h.frames[l.place()] != nil ||
			slices.ContainsFunc(all.wanted, func(w located) bool { return w.place() == l.place() }) {
			return false
		}
		all.wanted = append(all.wanted, l)
		return true
	}
	for j := range h.plan {
		p := &h.plan[j]
		needed := []located{p.before, p.after}
		if p.fromZero {
			needed = needed[1:]
		}
		for _, l := range needed {
			if !want(l) {
				continue
			}
			t, err := q.task(h, p.of, l)
			if err != nil {
				return all, err
			}
			if t.key.in != nil {
				want(t.key)
			}
			all.tasks = append(all.tasks, t)
		}
	}
	return all, nil
}

// task is that of a frame. It has no key frame where that cannot be found.
func (q *query) task(h *hostReader, of *stream, l located) (task, error) {
	if l.behind == 0 {
		return task{h: h, l: l, key: l}, nil
	}
	key, err := q.f.keyOf(q.v, of, l)
	switch {
	case errors.Is(err, ErrUnavailable):
		return task{}, err
	case err != nil:
		q.f.damage(l.in, l.offset, err)
		return task{h: h, l: l}, nil
	}
	return task{h: h, l: l, key: key}, nil
}

// readBuffers have records until they are decoded.
var readBuffers = sync.Pool{New: func() any { return new([]byte) }}

// fetch reads the records of frames in as few reads as their places allow. They are good until release.
func (q *query) fetch(ctx context.Context, wanted []located) (data records, release func(), err error) {
	reads := together(wanted)
	buffers := make([]*[]byte, len(reads))
	release = func() {
		for _, b := range buffers {
			if b != nil {
				readBuffers.Put(b)
			}
		}
	}
	data = make(records, len(wanted))
	var mu sync.Mutex
	err = parallel(ctx, len(reads), func(i int) error {
		buffers[i] = readBuffer(lengthOf(reads[i]))
		readRecords(reads[i], *buffers[i], func(l located, record []byte, err error) {
			mu.Lock()
			defer mu.Unlock()
			data[l.place()] = raw{record, err}
		})
		return nil
	})
	return data, release, err
}

// readBuffer has room for n bytes.
func readBuffer(n int) *[]byte {
	b := readBuffers.Get().(*[]byte)
	*b = slices.Grow((*b)[:0], n)
	return b
}

// with has the records of a host, those that were not fetched being read now. They are good until release.
func (fetched records) with(wanted []located) (data records, release func()) {
	data = make(records, len(wanted))
	var local []located
	for _, l := range wanted {
		if one, ok := fetched[l.place()]; ok {
			data[l.place()] = one
		} else {
			local = append(local, l)
		}
	}
	reads := together(local)
	n := 0
	for _, one := range reads {
		n += lengthOf(one)
	}
	buffer := readBuffer(n)
	room := (*buffer)[:n]
	for _, one := range reads {
		own := lengthOf(one)
		readRecords(one, room[:own:own], func(l located, record []byte, err error) { data[l.place()] = raw{record, err} })
		room = room[own:]
	}
	return data, func() { readBuffers.Put(buffer) }
}

// decodeTask decodes a frame, and its key frame if that is not decoded yet; ok is false where it cannot be read.
func (q *query) decodeTask(t task, data records) (ok bool, err error) {
	if t.key.in == nil {
		return false, nil
	}
	var key *frame.Frame
	if t.l.behind > 0 {
		if key, err = q.decodeOne(t.h, t.key, nil, data); key == nil {
			return false, err
		}
	}
	f, err := q.decodeOne(t.h, t.l, key, data)
	t.h.keys[t.l.place()] = t.key.place()
	return f != nil, err
}

func (q *query) decodeOne(h *hostReader, l located, key *frame.Frame, data records) (*frame.Frame, error) {
	if f := h.frames[l.place()]; f != nil {
		return f, nil
	}
	from := data[l.place()]
	var f *frame.Frame
	encoded, err := from.record, from.err
	if err == nil {
		encoded, err = dataOf(encoded, l)
	}
	if err == nil {
		f, err = frame.DecodeInto(q.memory, encoded, key, q.only)
	}
	switch {
	case errors.Is(err, ErrUnavailable):
		return nil, err
	case err != nil:
		q.f.damage(l.in, l.offset, err)
		return nil, nil
	}
	h.frames[l.place()] = f
	return f, nil
}

// Newest implements Log.
func (f *Files) Newest(ctx context.Context, tenant string) ([]*frame.Frame, error) {
	v, err := f.view()
	if err != nil {
		return nil, err
	}
	defer v.done()
	q := f.query(v, tenant, nil, nil)
	var all []*frame.Frame
	for hosts := range slices.Chunk(q.hosts, hostsAtOnce) {
		if err := q.read(ctx, hosts, q.planNewest); err != nil {
			return nil, err
		}
		for _, h := range hosts {
			for _, span := range h.spans() {
				all = append(all, span.After)
			}
		}
	}
	return all, nil
}

// planNewest finds the newest frame of a host.
func (q *query) planNewest(h *hostReader) error {
	h.plan = h.plan[:0]
	var newest spanPlan
	for _, s := range h.streams {
		l, ok, err := q.f.newestAt(q.v, s, math.MaxInt64, math.MinInt64)
		if err != nil {
			return err
		}
		if ok && (newest.of == nil || l.time >= newest.after.time) {
			newest = spanPlan{of: s, before: l, after: l}
		}
	}
	if newest.of != nil {
		h.plan = append(h.plan, newest)
	}
	return nil
}
