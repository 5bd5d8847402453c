package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Answer is what a server answers a request.
type Answer struct {
	Status int
	Body   []byte
	// RetryAfter is when it wants to be asked again; 0 where it does not say.
	RetryAfter time.Duration
}

// Asker sends requests to a server, with the agent's credentials.
type Asker interface {
	// Ask posts a body of JSON to a path of the server.
	Ask(ctx context.Context, path string, body []byte) (Answer, error)
}

// ClientOptions of Follow. All but MaxBackoff and Logger are required.
type ClientOptions struct {
	Server Asker
	// Question is what the agent tells of itself; the version is filled in.
	Question func() Question
	// Apply is given each other state, and nil when the lease of the last one is over.
	Apply func(*State)
	// MaxBackoff bounds the time between two attempts (30 s).
	MaxBackoff time.Duration
	Logger     *slog.Logger
}

const (
	firstBackoff = 500 * time.Millisecond
	// patient is how long a server that works may have a question wait at least, and one that does not work does not.
	patient = 2 * time.Second
	// withoutChannel is the time between two attempts at a server that has no such channel.
	withoutChannel = 5 * time.Minute
	// askTime bounds a question, with the time for which the server lets it wait.
	askTime = 50 * time.Second
)

// Follow asks a server for the agent's state until ctx ends, and has it applied.
func Follow(ctx context.Context, o ClientOptions) {
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &leased{apply: o.Apply, log: o.Logger}
	l.timer = time.AfterFunc(time.Hour, l.over)
	defer l.timer.Stop()
	backoff, failing := firstBackoff, false
	// A server that answers at once, for whatever reason, is not asked without a pause.
	pace := rate.NewLimiter(1, 5)
	for pace.Wait(ctx) == nil {
		q, begun := o.Question(), time.Now()
		q.Version = l.version()
		state, after, err := question(ctx, o.Server, &q)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if failing {
				o.Logger.Info("the server says again what to measure")
			}
			backoff, failing = firstBackoff, false
			l.take(state)
			continue
		}
		if !failing {
			o.Logger.Warn("the server does not say what to measure", "error", err)
		}
		failing = true
		if time.Since(begun) > patient {
			backoff = firstBackoff // a server that had us wait was there
		}
		// Jitter, so that the agents of a fleet do not ask at once.
		if !sleep(ctx, max(after, backoff/2+rand.N(backoff))) {
			return
		}
		backoff = min(2*backoff, o.MaxBackoff)
	}
}

// leased is a state that is given up when its lease is over.
type leased struct {
	apply func(*State)
	log   *slog.Logger
	timer *time.Timer
	// mu guards the rest.
	mu sync.Mutex
	// state is what is applied, nil for none, until its lease is over.
	state *State
	until time.Time
}

// version is that of the state that is applied, empty for none.
func (l *leased) version() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil {
		return ""
	}
	return l.state.Version
}

// take takes an answer. One that is unchanged, from the version that was applied, renews the lease unless it is over.
func (l *leased) take(answer *State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answer.Unchanged && (l.state == nil || l.state.Version != answer.Version) {
		return // it was over before the answer came, and is asked for again
	}
	if !answer.Unchanged {
		l.state = answer
		l.apply(answer)
	}
	l.until = time.Now().Add(answer.Lease())
	l.timer.Reset(answer.Lease())
}

func (l *leased) over() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil || time.Now().Before(l.until) {
		return
	}
	l.log.Warn("the server did not say for long what to measure: nothing is measured for it any more")
	l.state = nil
	l.apply(nil)
}

// question asks once. After an error it is not to be asked again earlier than after.
func question(ctx context.Context, server Asker, q *Question) (state *State, after time.Duration, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, 0, fmt.Errorf("BUG: writing a question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer, err := server.Ask(ctx, Path, body)
	if err != nil {
		return nil, 0, fmt.Errorf("asking for the desired state: %w", err)
	}
	switch answer.Status {
	case http.StatusOK:
		s, err := ParseState(answer.Body)
		if err == nil && s.Unchanged && s.Version != q.Version {
			err = fmt.Errorf("%w: the version %q is unchanged, and we have %q", errMessage, s.Version, q.Version)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("asking for the desired state: %w", err)
		}
		return &s, 0, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		after = withoutChannel // a server of an older release, or one that measures nothing
	default:
		after = answer.RetryAfter
	}
	why := strings.ToValidUTF8(string(answer.Body[:min(len(answer.Body), 300)]), "?")
	return nil, after, fmt.Errorf("asking for the desired state: the server answers %d %s: %s", answer.Status,
		http.StatusText(answer.Status), strings.TrimSpace(why))
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
