package clickhouse

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
)

// tablesAtOnce bounds the statements that are computed at a time for one window.
const tablesAtOnce = 4

// hostsPerQuery bounds the hosts of one statement.
const hostsPerQuery = 256

// Windows answers windows of frames whose counters begin at 0 at the earlier moment: only what they gained in a window
// is right of counters and histograms, beside the values of columns with File.
func (l *Log) Windows(ctx context.Context, q framelog.Query) iter.Seq2[*frame.Window, error] {
	return func(yield func(*frame.Window, error) bool) {
		if len(q.Times) < 2 || !slices.IsSortedFunc(q.Times, time.Time.Compare) {
			yield(nil, fmt.Errorf("a query for %d moments: want two or more that ascend", len(q.Times)))
			return
		}
		epochs, err := l.epochs(ctx, q)
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range q.Times[1:] {
			w, err := l.window(ctx, q, epochs, i)
			if !yield(w, err) || err != nil {
				return
			}
		}
	}
}

// epoch is an agent's life, with the frames that a query is about.
type epoch struct {
	host   string
	number uint64
	// first and newest are the oldest and the newest frame between two moments, by the later one; nil for none.
	first, newest []*frame.Header
}

// newestAt is the newest frame that is no later than a moment and not older than oldest; nil where there is none.
func (e *epoch) newestAt(moment int, oldest time.Time) *frame.Header {
	for ; moment >= 0; moment-- {
		if h := e.newest[moment]; h != nil {
			if h.Time.Before(oldest) {
				return nil
			}
			return h
		}
	}
	return nil
}

// epochs finds the frames of a query: in order of hosts and time.
func (l *Log) epochs(ctx context.Context, q framelog.Query) ([]*epoch, error) {
	times := make([]string, len(q.Times))
	for i, t := range q.Times {
		times[i] = fmt.Sprintf("toUInt64(%d)", max(t.UnixNano(), 0))
	}
	oldest := q.Times[0].Add(-framelog.Silence)
	where := fmt.Sprintf("tenant = %s AND at >= toDateTime(%d) AND at <= toDateTime(%d) AND time_ns >= %d AND time_ns <= %s",
		literal(q.Tenant), max(oldest.Unix(), 0), max(q.Times[len(times)-1].Unix(), 0), max(oldest.UnixNano(), 0),
		times[len(times)-1])
	if q.Hosts != nil {
		where += " AND host IN (" + literals(q.Hosts) + ")"
	}
	const columns = "(time_ns, frame, key_frame, boot, clock_error_ns)"
	body, err := l.client.do(ctx, fmt.Sprintf("SELECT host, epoch, toUInt32(arrayCount(t -> t < time_ns, [%s])) AS moment, "+
		"min(%s), max(%[2]s) FROM %s WHERE %s GROUP BY host, epoch, moment ORDER BY host, epoch, moment FORMAT RowBinary",
		strings.Join(times, ", "), columns, l.table(framesTable), where), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	r := newReader(body)
	var all []*epoch
	for r.more() {
		host, number, moment := r.text(), r.uint64(), int(r.uint32())
		first, last := r.header(host, number), r.header(host, number)
		if r.err != nil || moment >= len(q.Times) {
			break
		}
		if first.Number == last.Number {
			first = last
		}
		if n := len(all); n == 0 || all[n-1].host != host || all[n-1].number != number {
			all = append(all, &epoch{host: host, number: number, first: make([]*frame.Header, len(q.Times)),
				newest: make([]*frame.Header, len(q.Times))})
		}
		e := all[len(all)-1]
		e.first[moment], e.newest[moment] = first, last
	}
	return all, r.err
}

func (r *reader) header(host string, epoch uint64) *frame.Header {
	h := &frame.Header{Host: host, Epoch: epoch, Time: time.Unix(0, int64(r.uint64()))}
	h.Number, h.Key, h.Boot = r.uint64(), r.uint64(), r.uint64()
	h.ClockError = time.Duration(r.uint64())
	return h
}

// span is a frame.Span that is to be read.
type span struct {
	before, after *frame.Header // before is nil for none
}

// window reads one window, which ends at moment i+1.
func (l *Log) window(ctx context.Context, q framelog.Query, epochs []*epoch, i int) (*frame.Window, error) {
	w := &frame.Window{From: q.Times[i], To: q.Times[i+1]}
	for len(epochs) > 0 {
		hosts, n := 0, 0
		var spans []*span
		for n < len(epochs) && hosts < hostsPerQuery {
			end := n + 1
			for end < len(epochs) && epochs[end].host == epochs[n].host {
				end++
			}
			spans = append(spans, spansOf(epochs[n:end], i, w.From)...)
			n, hosts = end, hosts+1
		}
		epochs = epochs[n:]
		all, err := l.readSpans(ctx, q.Tenant, spans, q.Only)
		if err != nil {
			return nil, err
		}
		for k, s := range spans {
			if n := len(w.Hosts); n == 0 || w.Hosts[n-1].Host != s.after.Host {
				w.Hosts = append(w.Hosts, frame.HostSpans{Host: s.after.Host})
			}
			of := &w.Hosts[len(w.Hosts)-1]
			of.Spans = append(of.Spans, all[k])
		}
	}
	return w, nil
}

// spansOf are the spans of a host's epochs between moments i and i+1, as framelog.Files has them.
func spansOf(epochs []*epoch, i int, from time.Time) (spans []*span) {
	oldest := from.Add(-framelog.Silence)
	for _, e := range epochs {
		s := &span{before: e.newestAt(i, oldest), after: e.newestAt(i+1, oldest)}
		switch {
		case s.after == nil:
			continue
		case s.before != nil && s.before.Number > s.after.Number: // the host's clock was set back meanwhile
			s.before = s.after
		case s.before == nil && (len(spans) == 0 || e.number <= uint64(max(from.UnixNano(), 0))):
			s.before = e.first[i+1]
		}
		spans = append(spans, s)
	}
	return spans
}

// Newest are the newest frames of a tenant's hosts.
func (l *Log) Newest(ctx context.Context, tenant string) ([]*frame.Frame, error) {
	const columns = "(time_ns, frame, key_frame, boot, clock_error_ns)"
	body, err := l.client.do(ctx, fmt.Sprintf("SELECT host, max((%s, epoch)) FROM %s WHERE tenant = %s GROUP BY host "+
		"ORDER BY host FORMAT RowBinary", columns, l.table(framesTable), literal(tenant)), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var spans []*span
	r := newReader(body)
	for r.more() {
		h := r.header(r.text(), 0)
		h.Epoch = r.uint64()
		spans = append(spans, &span{after: h})
	}
	if r.err != nil {
		return nil, r.err
	}
	var all []*frame.Frame
	for some := range slices.Chunk(spans, hostsPerQuery) {
		read, err := l.readSpans(ctx, tenant, some, nil)
		if err != nil {
			return nil, err
		}
		for i := range read {
			all = append(all, read[i].After)
		}
	}
	return all, nil
}

func literals(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = literal(text)
	}
	if len(all) == 0 {
		return "''"
	}
	return strings.Join(all, ", ")
}

// condition names the frames, with their key frames, that a side of spans is read from; "" for none.
func condition(tenant string, headers []*frame.Header) string {
	if len(headers) == 0 {
		return ""
	}
	var frames []string
	first, last := headers[0].Time, headers[0].Time
	for _, h := range headers {
		if h.Time.Before(first) {
			first = h.Time
		}
		if h.Time.After(last) {
			last = h.Time
		}
		frames = append(frames, fmt.Sprintf("(%s, %d, %d)", literal(h.Host), h.Epoch, h.Key))
		if !h.IsKey() {
			frames = append(frames, fmt.Sprintf("(%s, %d, %d)", literal(h.Host), h.Epoch, h.Number))
		}
	}
	// The bounds of time leave out parts of other days.
	return fmt.Sprintf("tenant = %s AND (host, epoch, frame) IN (%s) AND at >= toDateTime(%d) AND at <= toDateTime(%d)",
		literal(tenant), strings.Join(frames, ", "), max(first.Add(-2*frame.KeyInterval).Unix(), 0), last.Unix())
}

// readSpans reads the frames of spans, in their order.
func (l *Log) readSpans(ctx context.Context, tenant string, spans []*span, only *frame.Projection) ([]frame.Span,
	error) {
	if len(spans) == 0 {
		return nil, nil
	}
	var after, before []*frame.Header
	frames := make([]*spanFrames, len(spans))
	for i, s := range spans {
		frames[i] = newSpanFrames(s)
		after = append(after, s.after)
		if s.before != nil && s.before != s.after {
			before = append(before, s.before)
		}
	}
	// Rows come in the order of host, epoch and number.
	inOrder := slices.Clone(frames)
	slices.SortFunc(inOrder, func(x, y *spanFrames) int {
		return cmp.Or(strings.Compare(x.after.Host, y.after.Host), cmp.Compare(x.after.Epoch, y.after.Epoch))
	})
	// The engine computes the answers for some tables while others are read.
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	var answers [frame.NumTables]chan answer
	defer func() { // what was not read is closed
		cancel()
		asking.Wait()
		for _, a := range answers {
			if len(a) > 0 {
				(<-a).close()
			}
		}
	}()
	slots := make(chan struct{}, tablesAtOnce)
	for t := range frame.NumTables {
		if !only.HasTable(t) {
			continue
		}
		d := newDifference(t, only)
		query := d.query(l.table(d.info.Name), condition(tenant, after), condition(tenant, before))
		answers[t] = make(chan answer, 1)
		asking.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			body, err := l.client.do(ctx, query, nil)
			answers[t] <- answer{body, err}
		})
	}
	for t, a := range answers {
		if a == nil {
			continue
		}
		d := newDifference(frame.TableID(t), only)
		if err := (<-a).read(d, inOrder); err != nil {
			return nil, fmt.Errorf("reading %s: %w", d.info.Name, err)
		}
	}
	all := make([]frame.Span, len(spans))
	for i, f := range frames {
		all[i] = f.span()
	}
	return all, nil
}
