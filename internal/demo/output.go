package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// output follows what a part writes: status lines of our services, and plain text.
type output struct {
	name    string
	readyOn string
	ready   chan struct{} // closed when the part serves
	ended   chan struct{} // closed at the end of the output

	mu      sync.Mutex // guards all below
	status  Status
	changed chan struct{} // closed and made anew at each status
	serves  bool
	tail    []string
}

const (
	maxOutputLine = 1 << 20
	tailLines     = 10
)

func newOutput(name, readyOn string) *output {
	return &output{name: name, readyOn: readyOn, ready: make(chan struct{}),
		ended: make(chan struct{}), changed: make(chan struct{})}
}

// follow reads r to its end and closes it.
func (o *output) follow(r io.ReadCloser) {
	defer close(o.ended)
	defer r.Close()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxOutputLine)
	for lines.Scan() {
		o.line(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		o.line(fmt.Appendf(nil, "reading the output: %v", err))
		io.Copy(io.Discard, r) // a full pipe would stop the part
	}
}

func (o *output) line(b []byte) {
	var s Status
	isStatus := bytes.HasPrefix(b, []byte(`{"role":`)) && json.Unmarshal(b, &s) == nil
	o.mu.Lock()
	defer o.mu.Unlock()
	if isStatus {
		o.status = s
		close(o.changed)
		o.changed = make(chan struct{})
	} else {
		o.tail = append(o.tail, string(b))
		o.tail = o.tail[max(0, len(o.tail)-tailLines):]
	}
	serves := isStatus
	if o.readyOn != "" {
		serves = strings.Contains(string(b), o.readyOn)
	}
	if serves && !o.serves {
		o.serves = true
		close(o.ready)
	}
}

// last is the newest status, and a channel that is closed at the next one.
func (o *output) last() (Status, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status, o.changed
}

// waitReady returns when the part serves, or with what it said before it ended.
func (o *output) waitReady(ctx context.Context) error {
	select {
	case <-o.ready:
		return nil
	case <-o.ended:
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to serve: %w%s", o.name, ctx.Err(), o.said())
	}
	select {
	case <-o.ready: // it served and ended: the caller will see that in its own time
		return nil
	default:
		return fmt.Errorf("%s ended before it served%s", o.name, o.said())
	}
}

// waitRevision returns the first status that follows a control of that revision.
func (o *output) waitRevision(ctx context.Context, revision int) (Status, error) {
	for {
		s, changed := o.last()
		if s.Revision >= revision {
			return s, nil
		}
		select {
		case <-changed:
		case <-o.ended:
			return s, fmt.Errorf("%s has ended%s", o.name, o.said())
		case <-ctx.Done():
			return s, fmt.Errorf("waiting for %s: %w%s", o.name, ctx.Err(), o.said())
		}
	}
}

func (o *output) said() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tail) == 0 {
		return ""
	}
	return "; its last words: " + strings.Join(o.tail, " | ")
}
