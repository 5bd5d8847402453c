package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// send makes one part carry a control out and returns its status then. s.mu is held.
func (s *Shop) send(ctx context.Context, p *part, c control) (Status, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return Status{}, err
	}
	if err := s.stage.send(ctx, p, b); err != nil {
		return Status{}, fmt.Errorf("demo: sending a control to %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime+5*time.Second)
	defer cancel()
	st, err := p.output.waitRevision(ctx, c.Revision)
	if err != nil {
		return Status{}, fmt.Errorf("demo: %w", err)
	}
	return st, nil
}

// tellRoles changes the control and carries it out, one role after the other.
func (s *Shop) tellRoles(ctx context.Context, change func(*control), roles ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.control)
	s.control.Revision++
	c := s.control
	s.control.CloseIdle = false
	for _, role := range roles {
		for _, p := range s.parts {
			if p.Role != role {
				continue
			}
			if _, err := s.send(ctx, p, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetRate changes the rate of the load, in requests per second; 0 sends none.
func (s *Shop) SetRate(ctx context.Context, rate float64) error {
	if !validRate(rate) {
		return fmt.Errorf("demo: rate %v is not between 0 and a million requests per second", rate)
	}
	return s.tellRoles(ctx, func(c *control) { c.Rate = rate }, "load")
}

// Pause stops the load, waits for the requests under way, and then stops the worker's polling,
// so that nothing moves in the shop. The connections between services stay open, or are closed
// by their clients.
func (s *Shop) Pause(ctx context.Context, closeConnections bool) error {
	roles := []string{"load", "worker"}
	if closeConnections {
		roles = append(roles, "gateway", "catalogue", "cart", "payment")
	}
	return s.tellRoles(ctx, func(c *control) { c.Paused, c.CloseIdle = true, closeConnections }, roles...)
}

// Resume ends a Pause.
func (s *Shop) Resume(ctx context.Context) error {
	return s.tellRoles(ctx, func(c *control) { c.Paused = false }, "worker", "load")
}
