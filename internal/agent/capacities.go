package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"outsight/internal/model"
)

// Bounds of the capacities that are kept.
const (
	// maxCapacities is how many: the one that was measured the longest ago gives way.
	maxCapacities = 256
	// maxCapacityBytes bounds one on the socket, maxEndBytes an ID or a name.
	maxCapacityBytes, maxEndBytes = 8 << 10, 1024
	// futureCapacity is by how much another program's clock may be ahead.
	futureCapacity = time.Second
)

// capacities are those of paths that were measured on request, the newest of each two ends.
type capacities struct {
	// mu guards by, which has them by their ends.
	mu sync.Mutex
	by map[[2]string]model.Capacity
}

func (c *capacities) keep(one model.Capacity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[[2]string]model.Capacity{}
	}
	ends := [2]string{one.From, one.To}
	if known, ok := c.by[ends]; ok && known.Measured.After(one.Measured) {
		return
	}
	c.by[ends] = one
	if len(c.by) <= maxCapacities {
		return
	}
	oldest := ends
	for at, other := range c.by {
		if other.Measured.Before(c.by[oldest].Measured) {
			oldest = at
		}
	}
	delete(c.by, oldest)
}

// of are those between these containers, in order of the ends. Others, which have ended, are forgotten.
func (c *capacities) of(containers []*model.Container) (all []model.Capacity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.by) == 0 {
		return nil
	}
	lives := map[string]bool{}
	for _, one := range containers {
		lives[one.ID] = one.Ended.IsZero()
	}
	for ends, one := range c.by {
		if lives[ends[0]] && lives[ends[1]] {
			all = append(all, one)
		} else {
			delete(c.by, ends)
		}
	}
	slices.SortFunc(all, func(x, y model.Capacity) int { return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To)) })
	return all
}

// KeepCapacity keeps what was measured, beside what the agent counts, until it ends or one of the containers does.
func (a *Agent) KeepCapacity(c model.Capacity) { a.capacities.keep(c) }

// parseCapacity reads what is told at the socket.
func parseCapacity(body io.Reader) (c model.Capacity, err error) {
	if err := json.NewDecoder(io.LimitReader(body, maxCapacityBytes)).Decode(&c); err != nil {
		return c, fmt.Errorf("reading a capacity: %w", err)
	}
	for _, text := range []string{c.From, c.To, c.FromName, c.ToName} {
		if text == "" || len(text) > maxEndBytes {
			return c, fmt.Errorf("an end has %d bytes, want 1 to %d", len(text), maxEndBytes)
		}
	}
	switch {
	case c.From == c.To:
		return c, errors.New("both ends are the same")
	case !(c.BytesPerSecond > 0) || math.IsInf(c.BytesPerSecond, 0):
		return c, fmt.Errorf("a capacity of %v bytes a second", c.BytesPerSecond)
	case c.Measured.IsZero() || c.Measured.After(time.Now().Add(futureCapacity)):
		return c, fmt.Errorf("measured at %v", c.Measured)
	}
	return c, nil
}

// handleCapacity takes one at the socket.
func handleCapacity(keep func(model.Capacity)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := parseCapacity(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		keep(c)
	}
}
