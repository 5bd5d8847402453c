package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
)

// hostKey names an agent's life.
type hostKey struct {
	tenant, host string
	epoch        uint64
}

// hostState is what is remembered of an agent, to read its frames with.
type hostState struct {
	// key is the newest key frame.
	key *frame.Frame
	// middle is the newest interval of Options.Every that has a frame, used when it was asked for.
	middle int64
	used   time.Time
	// stored are the numbers of the frames of key that are stored.
	stored map[uint64]bool
}

// forgetAfter is how long an agent that sends nothing is remembered: its key frame is read again then.
const forgetAfter = 5 * time.Minute

// Append stores a batch: an INSERT for each table that has rows, and one for the headers. Frames whose key frame is not
// there are rejected after Options.KeyWait.
func (l *Log) Append(ctx context.Context, batch []framelog.Encoded) error {
	rows := &batchRows{}
	var rejected []error
	deadline := time.Now().Add(l.options.KeyWait)
	for i := range batch {
		e := &batch[i]
		if l.isStored(e) {
			l.count(func(s *framelog.Stats) { s.Duplicates++ })
			continue
		}
		f, key, err := l.decode(ctx, e, deadline)
		switch {
		case errors.Is(err, frame.ErrMalformed):
			l.count(func(s *framelog.Stats) { s.Damaged++ })
			rejected = append(rejected, fmt.Errorf("frame %d of %s: %w", e.Number, e.Host, err))
			continue
		case errors.Is(err, frame.ErrNoKey):
			l.count(func(s *framelog.Stats) { s.KeyMissing++ })
			rejected = append(rejected, fmt.Errorf("frame %d of %s: %w", e.Number, e.Host, err))
			continue
		case err != nil:
			return err
		}
		rows.add(e, f, key, l.class(e))
	}
	if err := l.insert(ctx, rows); err != nil {
		return err
	}
	for _, e := range rows.headers {
		if e.Number == 1 {
			if err := l.keepLast(ctx, keyOf(e)); err != nil {
				return err
			}
		}
	}
	l.markStored(rows.headers)
	if rejected != nil {
		return fmt.Errorf("%w: %w", framelog.ErrRejected, errors.Join(rejected...))
	}
	return nil
}

func (l *Log) count(add func(*framelog.Stats)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add(&l.stats)
}

func keyOf(e *framelog.Encoded) hostKey { return hostKey{e.Tenant, e.Host, e.Epoch} }

// isStored reports whether this process has stored a frame. What others stored is stored again, as the same.
func (l *Log) isStored(e *framelog.Encoded) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := l.hosts[keyOf(e)]
	return state != nil && state.stored[e.Number]
}

func (l *Log) markStored(all []*framelog.Encoded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range all {
		if state := l.hosts[keyOf(e)]; state != nil && state.key != nil && state.key.Number == e.Key {
			state.stored[e.Number] = true
		}
	}
}

// state is what is remembered of an agent. The caller holds l.mu.
func (l *Log) state(of hostKey) *hostState {
	now := time.Now()
	state := l.hosts[of]
	if state == nil {
		for k, s := range l.hosts {
			if now.Sub(s.used) > forgetAfter {
				delete(l.hosts, k)
			}
		}
		state = &hostState{middle: -1, stored: map[uint64]bool{}}
		l.hosts[of] = state
	}
	state.used = now
	return state
}

// class says for how long a frame is kept. Of several servers each may keep one frame of an interval.
func (l *Log) class(e *framelog.Encoded) uint8 {
	l.mu.Lock()
	defer l.mu.Unlock()
	state, interval := l.state(keyOf(e)), e.Time.UnixNano()/int64(l.options.Every)
	first := interval > state.middle
	state.middle = max(state.middle, interval)
	switch {
	case e.IsKey():
		return classKey
	case first:
		return classMiddle
	}
	return classFine
}

// decode answers a frame and its key frame, which is f itself for a key frame.
func (l *Log) decode(ctx context.Context, e *framelog.Encoded, deadline time.Time) (f, key *frame.Frame, err error) {
	if !e.IsKey() {
		if key, err = l.keyFrame(ctx, e, deadline); err != nil {
			return nil, nil, err
		}
	}
	if f, err = frame.Decode(e.Data, key); err != nil {
		return nil, nil, err
	}
	if f.Number != e.Number || f.Key != e.Key || f.Host != e.Host || f.Epoch != e.Epoch {
		return nil, nil, fmt.Errorf("%w: its header is that of another", frame.ErrMalformed)
	}
	if e.IsKey() {
		key = f
		l.remember(keyOf(e), f)
	}
	return f, key, nil
}

func (l *Log) remember(of hostKey, key *frame.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state := l.state(of); state.key == nil || key.Number > state.key.Number {
		state.key = key
		clear(state.stored)
	}
}

// keyFrame is the key frame that a frame is told as changes of.
func (l *Log) keyFrame(ctx context.Context, e *framelog.Encoded, deadline time.Time) (*frame.Frame, error) {
	of := keyOf(e)
	l.mu.Lock()
	key := l.state(of).key
	l.mu.Unlock()
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		if key != nil && key.Number == e.Key {
			return key, nil
		}
		var err error
		if key, err = l.readKeyFrame(ctx, of, e.Key); err != nil {
			return nil, err
		}
		if key != nil {
			l.remember(of, key)
			continue
		}
		if time.Now().Add(pause).After(deadline) {
			return nil, frame.ErrNoKey
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// readKeyFrame reads one that is stored, maybe by another server; nil where there is none.
func (l *Log) readKeyFrame(ctx context.Context, of hostKey, number uint64) (*frame.Frame, error) {
	body, err := l.client.do(ctx, fmt.Sprintf("SELECT data FROM %s WHERE tenant = %s AND host = %s AND epoch = %d AND "+
		"frame = %d AND key_frame = frame LIMIT 1 FORMAT RowBinary", l.table(framesTable), literal(of.tenant),
		literal(of.host), of.epoch, number), nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	r := newReader(body)
	if !r.more() {
		return nil, r.err
	}
	data := make([]byte, r.length(1))
	if r.err == nil {
		if _, err := io.ReadFull(r.in, data); err != nil {
			return nil, fmt.Errorf("reading a key frame: %w", err)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return frame.Decode(data, nil)
}

// insert stores the rows of all tables, and after them the headers.
func (l *Log) insert(ctx context.Context, rows *batchRows) error {
	if len(rows.headers) == 0 {
		return nil
	}
	for t := range frame.NumTables {
		if len(rows.tables[t]) > 0 {
			if err := l.insertRows(ctx, frame.Schema[t].Name, columnsOf(t), rows.tables[t]); err != nil {
				return err
			}
		}
	}
	return l.insertRows(ctx, framesTable, headerColumns, rows.header)
}

func (l *Log) insertRows(ctx context.Context, table string, columns []column, rows []byte) error {
	statement := "INSERT INTO " + l.table(table) + " ("
	for i := range columns {
		if i > 0 {
			statement += ", "
		}
		statement += quoted(columns[i].name)
	}
	if err := l.client.run(ctx, statement+") FORMAT RowBinary", rows); err != nil {
		return fmt.Errorf("storing rows of %s: %w", table, err)
	}
	return nil
}
