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
	// last is what was told last, which holds while applied.
	var last *State
	applied := false
	lease := time.NewTimer(time.Hour)
	lease.Stop()
	defer lease.Stop()
	answers := make(chan *State)
	go func() {
		defer close(answers)
		ask(ctx, o, answers)
	}()
	for {
		select {
		case <-lease.C:
			applied = false
			o.Logger.Warn("the server did not say for long what to measure: nothing is measured for it any more")
			o.Apply(nil)
		case state, ok := <-answers:
			if !ok {
				return
			}
			lease.Reset(state.Lease())
			again := last != nil && state.Version == last.Version
			if !again {
				last = state
			}
			if !again || !applied {
				o.Apply(last)
			}
			applied = true
		}
	}
}

// ask asks again and again.
func ask(ctx context.Context, o ClientOptions, answers chan<- *State) {
	backoff, failing := firstBackoff, false
	// A server that answers at once, for whatever reason, is not asked without a pause.
	pace := rate.NewLimiter(1, 5)
	var version string
	for {
		if pace.Wait(ctx) != nil {
			return
		}
		q := o.Question()
		q.Version = version
		state, after, err := question(ctx, o.Server, &q)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if !failing {
				o.Logger.Warn("the server does not say what to measure", "error", err)
			}
			failing = true
			// Jitter, so that the agents of a fleet do not ask at once.
			if !sleep(ctx, max(after, backoff/2+rand.N(backoff))) {
				return
			}
			backoff = min(2*backoff, o.MaxBackoff)
			continue
		}
		if failing {
			o.Logger.Info("the server says again what to measure")
		}
		backoff, failing = firstBackoff, false
		version = state.Version
		select {
		case answers <- state:
		case <-ctx.Done():
			return
		}
	}
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
	return nil, after, fmt.Errorf("asking for the desired state: the server answers %d %s: %s", answer.Status,
		http.StatusText(answer.Status), strings.TrimSpace(strings.ToValidUTF8(string(answer.Body[:min(len(answer.Body), 300)]), "?")))
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
