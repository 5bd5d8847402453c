// Package truth compares what Outsight counted with what is true.
package truth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"outsight/bench/traffic"
	"outsight/internal/container"
	"outsight/internal/kernel"
	"outsight/internal/model"
)

// Counts are what one end of a service's connections counted, in the view of the client.
type Counts struct {
	Opened, Closed, Transactions uint64
	// Unanswered requests are none here: all programs wait for their answers.
	Unanswered               uint64
	SentBytes, ReceivedBytes uint64
}

// Of is what an end must have counted if nothing is missed and nothing is invented.
func Of(t traffic.Truth, role model.Role) Counts {
	end := t.Client
	if role == model.RoleServer {
		end = t.Server
	}
	return Counts{Opened: end.Connections, Closed: end.Connections, Transactions: t.Client.Requests,
		SentBytes: end.SentBytes, ReceivedBytes: end.ReceivedBytes}
}

// Differ tells how what an end counted differs from the truth.
func (c Counts) Differ(t traffic.Truth, role model.Role) error {
	if want := Of(t, role); c != want {
		return fmt.Errorf("the %v's end of %v: counted %+v, want %+v", role, t.Service, c, want)
	}
	return nil
}

// Open opens the probes as this host's control groups want it.
func Open(o kernel.Options) (*kernel.Probes, error) {
	layout, err := container.Detect(container.Options{})
	if err != nil {
		return nil, err
	}
	o.Controller = layout.Subsystem
	return kernel.Open(o)
}

// Read sums what the kernel programs counted at one end of all connections to a service.
func Read(p *kernel.Probes, service netip.AddrPort, role model.Role) (Counts, error) {
	edges, err := p.ReadEdges()
	if err != nil {
		return Counts{}, err
	}
	var sum Counts
	for _, e := range edges {
		if e.Key.Service != service || e.Key.Role != role {
			continue
		}
		c := e.Counters
		sent, received := c.SentBytes, c.ReceivedBytes
		if role == model.RoleServer {
			sent, received = received, sent
		}
		sum.Opened += c.Opens
		sum.Closed += c.Closes
		sum.Transactions += c.Transactions()
		sum.Unanswered += c.Aborts
		sum.SentBytes += sent
		sum.ReceivedBytes += received
	}
	return sum, nil
}

// settleTime bounds how long the kernel may take to end connections that programs have closed.
const settleTime = 30 * time.Second

// Settled reads one end of a service once all of its connections have ended.
func Settled(ctx context.Context, p *kernel.Probes, service netip.AddrPort, role model.Role) (Counts, error) {
	for end := time.Now().Add(settleTime); ; {
		c, err := Read(p, service, role)
		if err != nil || c.Opened > 0 && c.Opened == c.Closed || time.Now().After(end) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return c, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Check compares both ends of services with what is true of them.
func Check(ctx context.Context, p *kernel.Probes, truths []traffic.Truth) error {
	var errs []error
	for _, t := range truths {
		for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
			c, err := Settled(ctx, p, t.Service, role)
			errs = append(errs, err, c.Differ(t, role))
		}
	}
	return errors.Join(errs...)
}
