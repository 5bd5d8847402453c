package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"outsight/bench/traffic"
	"outsight/bench/truth"
	"outsight/internal/model"
)

// TestExactCounts holds what Outsight tells of programs of the host against the books of these
// programs: every request and every byte, at both ends. bench-accuracy does it with more of them.
func TestExactCounts(t *testing.T) {
	t.Parallel()
	o := shared(t)
	for _, protocol := range []struct {
		name string
		run  func(context.Context, traffic.Load) ([]traffic.Truth, error)
	}{
		{"HTTP", traffic.HTTP},
		{"gRPC", traffic.GRPC},
		{"Redis", traffic.Redis},
		{"PostgreSQL", traffic.Postgres},
	} {
		for _, l := range []traffic.Load{
			{Connections: 1, Requests: 50},
			{Connections: 100, Requests: 5},
			{Connections: 100, OneRequestEach: true},
		} {
			t.Run(fmt.Sprintf("%s/%d connections of %d", protocol.name, l.Connections, max(l.Requests, 1)), func(t *testing.T) {
				truths, err := protocol.run(t.Context(), l)
				if err != nil {
					t.Fatal(err)
				}
				for _, one := range truths {
					for _, role := range []model.Role{model.RoleClient, model.RoleServer} {
						eventually(t, func() error { return o.counts(one.Service, role).Differ(one, role) })
					}
				}
			})
		}
	}
}

// counts is what the store has of one end of a service.
func (o *outsight) counts(service netip.AddrPort, role model.Role) truth.Counts {
	o.t.Helper()
	sum := func(name string) uint64 {
		return uint64(o.query(fmt.Sprintf("sum(outsight_edge_%s_total{side=%q,service=%q})", name, role, service)).sum())
	}
	return truth.Counts{Opened: sum("connections_opened"), Closed: sum("connections_closed"),
		Transactions: sum("transactions"),
		Unanswered:   sum("aborted_transactions"), SentBytes: sum("request_bytes"), ReceivedBytes: sum("response_bytes")}
}
