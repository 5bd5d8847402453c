package e2e

import (
	"testing"
	"time"

	"outsight/bench/traffic"
	"outsight/bench/truth"
	"outsight/internal/kernel"
	"outsight/internal/model"
)

// TestExactLatencies compares histograms with the log of single transactions: every one is in
// the bucket in which it was counted, whence the bound on the error of percentiles.
func TestExactLatencies(t *testing.T) {
	p, err := truth.Open(kernel.Options{LogTransactions: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, delay := range traffic.Delays {
		t.Run(delay.Name, func(t *testing.T) {
			server, err := traffic.StartDelayServer()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Stop()
			seen, err := traffic.Pace{Rate: 2000, Connections: 40, Duration: time.Second}.Run(t.Context(), server.Client(delay))
			if err != nil {
				t.Fatal(err)
			}
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				if c, err := truth.Settled(t.Context(), p, server.Address, role); err != nil || c.Closed != 40 {
					t.Fatalf("40 connections end, and are counted as %+v: %v", c, err)
				}
			}
			log, err := p.Transactions()
			if err != nil {
				t.Fatal(err)
			}
			for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
				l, err := truth.CompareLatencies(p, log, server.Address, role)
				if err != nil {
					t.Fatal(err)
				}
				if n := uint64(len(seen.Plain)); n != 2000 || l.Counted != n || l.Logged != n || l.Misplaced != 0 {
					t.Errorf("%v: of 2000 requests %d were answered, %d are counted and %d logged, %d misplaced", role,
						n, l.Counted, l.Logged, l.Misplaced)
				}
				if worst := l.WorstError(); worst > model.RelativeError {
					t.Errorf("%v: a percentile is off by %.3f %%: %+v", role, 100*worst, l.Quantiles)
				}
			}
		})
	}
}
