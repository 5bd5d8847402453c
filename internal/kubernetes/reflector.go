package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// timing of requests. Tests make it faster.
type timing struct {
	// least and most are the pauses after the first failure and after many.
	least, most time.Duration
	// refusal is the pause after a 403, which only a person changes.
	refusal time.Duration
	// watch is how long a watch lasts, at least; half as much is added at random. request bounds
	// other requests, and how much longer than asked for a watch may be.
	watch, request time.Duration
}

var usualTiming = timing{200 * time.Millisecond, 30 * time.Second, time.Minute, 5 * time.Minute, 2 * time.Minute}

// pageSize is how many objects are asked for at a time.
const pageSize = 500

// reflector keeps the objects of one resource like those of the API server: it lists them, and
// watches what changes.
type reflector struct {
	client *client
	logger *slog.Logger
	timing timing
	// resource as in rights ("pods"), path of its collection, and a field selector or none.
	resource, path, selector string
	maxObject                int
	// put and remove take the JSON of objects; listed says that a list is complete.
	put    func(text []byte, list uint64) (metadata, error)
	remove func(text []byte) (metadata, error)
	listed func(list uint64)

	// What follows is of the goroutine that runs it. version is where to watch from, empty before
	// a list; lists numbers the lists; recent asks for a list that is no older than the request.
	version  string
	lists    uint64
	recent   bool
	failures int

	mu     sync.Mutex // guards what follows
	synced bool
	err    error
	counts counts
}

// counts of what went wrong.
type counts struct{ large, unreadable, lost, expired uint64 }

// errGone says that the API server no longer knows what changed since the version asked from.
var errGone = errors.New("the version to watch from is too old")

// run works until ctx ends.
func (r *reflector) run(ctx context.Context, tried func()) {
	for ctx.Err() == nil {
		err := r.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		r.note(err)
		tried()
		if err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.pause(err)):
		}
	}
}

// quietWatch is how long a watch lasts at least for its end to be nothing special.
const quietWatch = time.Second

// turn lists, or watches once. A watch that ended as it should is no error.
func (r *reflector) turn(ctx context.Context) error {
	if r.version == "" {
		return r.list(ctx)
	}
	begin := time.Now()
	progress, err := r.watch(ctx)
	// A resource may be quiet, but an API server that ends each watch at once is broken.
	if progress = progress || time.Since(begin) > quietWatch; progress {
		r.failures = 0
	}
	switch {
	case errors.Is(err, errGone):
		r.version, r.recent = "", true
		r.count(func(c *counts) { c.expired++ })
	case err != nil:
		r.count(func(c *counts) { c.lost++ })
	case !progress:
		return errors.New("a watch ended before anything came")
	}
	return err
}

// pause grows with each failure in a row and is never the same for all clients.
func (r *reflector) pause(err error) time.Duration {
	pause := r.timing.most
	if r.failures < 20 {
		pause = min(pause, r.timing.least<<r.failures)
	}
	r.failures++
	var status *statusError
	if errors.As(err, &status) {
		pause = max(pause, status.retryAfter)
		if status.Code == http.StatusForbidden || status.Code == http.StatusNotFound {
			pause = r.timing.refusal
		}
	}
	return pause/2 + rand.N(max(pause, 1))
}

func (r *reflector) count(add func(*counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add(&r.counts)
}

// note remembers the state for people, and says once what is new.
func (r *reflector) note(err error) {
	r.mu.Lock()
	before := r.err
	r.err = err
	r.synced = r.synced || err == nil
	r.mu.Unlock()
	switch {
	case err == nil && before != nil:
		r.logger.Info("Kubernetes answers again", "resource", r.resource)
	case err != nil && (before == nil || before.Error() != err.Error()) && !errors.Is(err, errGone):
		r.logger.Warn("Kubernetes: what is known of a resource may be old", "resource", r.resource, "error", err)
	}
}

func (r *reflector) state() (synced bool, c counts, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced, r.counts, r.err
}

const acceptJSON = "application/json"

func (r *reflector) query() url.Values {
	query := url.Values{}
	if r.selector != "" {
		query.Set("fieldSelector", r.selector)
	}
	return query
}

// list reads all objects, page by page. A page that has expired is no reason to fail: then all are
// read in one answer, which is decoded as it comes. Nothing is removed before the end.
func (r *reflector) list(ctx context.Context) error {
	query := r.query()
	query.Set("limit", strconv.Itoa(pageSize))
	if !r.recent {
		// Any version will do at the start: the API server answers from its memory. A watch
		// that was too old is followed by a list that is not.
		query.Set("resourceVersion", "0")
	}
	r.lists++
	for {
		meta, err := r.page(ctx, query)
		if refused(err, http.StatusGone) && query.Get("continue") != "" {
			r.count(func(c *counts) { c.expired++ })
			r.lists++
			query = r.query()
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", r.resource, err)
		}
		if meta.Continue != "" {
			query.Set("continue", meta.Continue)
			query.Del("resourceVersion")
			continue
		}
		if meta.ResourceVersion == "" {
			return fmt.Errorf("listing %s: the answer has no resource version", r.resource)
		}
		r.listed(r.lists)
		r.version, r.recent = meta.ResourceVersion, false
		return nil
	}
}

func (r *reflector) page(ctx context.Context, query url.Values) (listMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timing.request)
	defer cancel()
	body, err := r.client.get(ctx, r.path, query, acceptJSON)
	if err != nil {
		return listMeta{}, err
	}
	defer body.Close()
	return newCutter(body, r.maxObject).list(func(text []byte) error {
		r.accept(text, func() (metadata, error) { return r.put(text, r.lists) })
		return nil
	})
}

// accept stores an object; one that has no room is counted.
func (r *reflector) accept(text []byte, take func() (metadata, error)) (version string) {
	if text == nil {
		r.count(func(c *counts) { c.large++ })
		return ""
	}
	m, err := take()
	if err != nil {
		r.count(func(c *counts) { c.unreadable++ })
		r.logger.Debug("Kubernetes: an object was left out", "resource", r.resource, "error", err)
	}
	return m.ResourceVersion
}

// watch follows changes until the API server ends the answer. It reports whether anything came.
func (r *reflector) watch(ctx context.Context) (progress bool, err error) {
	length := r.timing.watch + rand.N(r.timing.watch/2+1)
	query := r.query()
	query.Set("watch", "1")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", r.version)
	query.Set("timeoutSeconds", strconv.Itoa(max(1, int(length.Seconds()))))
	ctx, cancel := context.WithTimeout(ctx, length+r.timing.request)
	defer cancel()
	body, err := r.client.get(ctx, r.path, query, acceptJSON)
	if refused(err, http.StatusGone) {
		return false, fmt.Errorf("watching %s: %w: %w", r.resource, errGone, err)
	}
	if err != nil {
		return false, fmt.Errorf("watching %s: %w", r.resource, err)
	}
	defer body.Close()
	events := newCutter(body, r.maxObject)
	for {
		text, err := events.next()
		switch {
		case errors.Is(err, errTooLarge):
			r.accept(nil, nil)
			progress = true
			continue
		case errors.Is(err, io.EOF):
			return progress, nil
		case err != nil:
			return progress, fmt.Errorf("watching %s: %w", r.resource, err)
		}
		if err := r.event(text); err != nil {
			return progress, fmt.Errorf("watching %s: %w", r.resource, err)
		}
		progress = true
	}
}

// event handles one event of a watch.
func (r *reflector) event(text []byte) error {
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("reading an event: %w", err)
	}
	version := ""
	switch e.Type {
	case "ADDED", "MODIFIED":
		version = r.accept(e.Object, func() (metadata, error) { return r.put(e.Object, r.lists) })
	case "DELETED":
		version = r.accept(e.Object, func() (metadata, error) { return r.remove(e.Object) })
	case "BOOKMARK":
		var o struct {
			Metadata metadata `json:"metadata"`
		}
		if err := json.Unmarshal(e.Object, &o); err != nil {
			return fmt.Errorf("reading a bookmark: %w", err)
		}
		version = o.Metadata.ResourceVersion
	case "ERROR":
		status := &statusError{}
		if err := json.Unmarshal(e.Object, status); err != nil {
			return fmt.Errorf("reading an error: %w", err)
		}
		if status.Code == http.StatusGone {
			return fmt.Errorf("%w: %w", errGone, status)
		}
		return status
	default:
		return fmt.Errorf("reading an event: its type is %q", e.Type)
	}
	if version != "" {
		r.version = version
	}
	return nil
}
