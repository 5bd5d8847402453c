package api

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"outsight/internal/fleet"
)

// probesAnswer is what was measured of the network between hosts, and between containers of them.
type probesAnswer struct {
	From   time.Time     `json:"from"`
	To     time.Time     `json:"to"`
	Probes []fleet.Probe `json:"probes"`
}

// probes answers GET /api/outsight/probes: from and to as everywhere, address=192.0.2.7 for those alone of the hosts
// that have this address now, or a container with it, and host=NAME, which may be repeated, for those of each of these
// hosts: of two, those between them.
func (s *server) probes(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	var of []string
	text := r.URL.Query().Get("address")
	if text != "" {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, badRequest("address=%.60q, want an address as in 192.0.2.7", text)
		}
		if s.HostsWith == nil {
			return nil, badRequest("address=%.60q: this server does not know the addresses of agents", text)
		}
		of = s.HostsWith(s.framesOf(), address)
	}
	hosts := r.URL.Query()["host"]
	all, err := s.probesOf(ctx, from, to, hosts)
	if err != nil {
		return nil, err
	}
	for _, host := range hosts {
		all = slices.DeleteFunc(all, func(p fleet.Probe) bool { return p.From != host && p.To != host })
	}
	if text != "" {
		all = slices.DeleteFunc(all, func(p fleet.Probe) bool {
			return !slices.Contains(of, p.From) && !slices.Contains(of, p.To)
		})
	}
	return probesAnswer{from, to, all}, nil
}

// probesOf are those of a window, that these hosts send; nil for all.
func (s *server) probesOf(ctx context.Context, from, to time.Time, hosts []string) ([]fleet.Probe, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	data, err := s.readOnly(ctx, from, to, hosts, fleet.ProbeColumns)
	if err != nil {
		return nil, err
	}
	return fleet.Probes(data.window), nil
}
