package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"outsight/internal/place"
)

// measured is what a server answers to /api/outsight/place, as far as it is read here.
type measured struct {
	CoveredSeconds float64           `json:"covered_seconds"`
	Containers     []place.Container `json:"containers"`
	Traffic        [][3]float64      `json:"traffic"`
	OmittedTraffic int               `json:"omitted_traffic"`
}

// hosts are those of the cluster, each with the cores of this machine and so many bytes of memory.
func (c *Cluster) hosts(memory float64) (hosts []place.Host) {
	for i := range c.options.Hosts {
		hosts = append(hosts, place.Host{Name: fmt.Sprintf("host-%d", i+1), Cores: float64(runtime.NumCPU()),
			MemoryBytes: memory})
	}
	return hosts
}

// Spread is where Kubernetes' default scoring puts the containers, in the order of Names. Nothing is known of them yet:
// all ask for the same, and there is room for all on each host.
func (c *Cluster) Spread() []int {
	p := &place.Problem{Hosts: c.hosts(1)}
	share := 1 / float64(len(c.nodes))
	for range c.nodes {
		p.Containers = append(p.Containers, place.Container{
			CPU: place.Use{Peak: share * p.Hosts[0].Cores}, Memory: place.Use{Peak: share}})
	}
	place.Spread(p)
	return p.Present()
}

// Problem is that of a placement by what a server of Outsight that watches this machine has seen of a run. server is its
// URL, at the host of each container in the order of Names, memory what a host has as a share of what all containers take
// at their peaks; its cores are those of this machine. The rates of the problem are over so many seconds.
func (c *Cluster) Problem(ctx context.Context, server string, r Run, at []int, memory float64) (p *place.Problem,
	seconds float64, err error) {
	m, err := c.settled(ctx, server, r)
	if err != nil {
		return nil, 0, err
	}
	p = &place.Problem{}
	of, total := map[int]int{}, 0.0
	for i, n := range c.nodes {
		found := false
		for k, container := range m.Containers {
			if container.Name == n.name {
				of[k], found = i, true
				container.Host = at[i]
				p.Containers = append(p.Containers, container)
				total += container.Memory.Peak
			}
		}
		if !found {
			return nil, 0, fmt.Errorf("the map does not have %s", n.name)
		}
	}
	p.Hosts = c.hosts(memory * total)
	for _, t := range m.Traffic {
		a, knownA := of[int(t[0])]
		b, knownB := of[int(t[1])]
		if knownA && knownB {
			p.Traffic = append(p.Traffic, place.Traffic{A: a, B: b, Bytes: t[2]})
		}
	}
	return p, m.CoveredSeconds, nil
}

// settled asks until what was counted by the end of a run is in frames: it no longer changes.
func (c *Cluster) settled(ctx context.Context, server string, r Run) (m measured, err error) {
	deadline := time.Now().Add(time.Minute)
	last, same := -1.0, 0
	for same < 2 {
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-time.After(time.Second):
		}
		if m, err = ask(ctx, server, r.From, time.Now()); err != nil {
			return m, err
		}
		bytes := 0.0
		for _, t := range m.Traffic {
			bytes += t[2] * m.CoveredSeconds
		}
		same++
		if bytes < 0.999*last || bytes > 1.001*last || m.CoveredSeconds < r.To.Sub(r.From).Seconds()+1 {
			same = 0
		}
		if last = bytes; time.Now().After(deadline) {
			return m, fmt.Errorf("what the server has seen of a run still changes after a minute: %.0f bytes in %.1f s",
				bytes, m.CoveredSeconds)
		}
	}
	if m.OmittedTraffic > 0 {
		return m, fmt.Errorf("%d pairs of containers are left out", m.OmittedTraffic)
	}
	return m, nil
}

func ask(ctx context.Context, server string, from, to time.Time) (m measured, err error) {
	query := url.Values{"from": {from.UTC().Format(time.RFC3339Nano)}, "to": {to.UTC().Format(time.RFC3339Nano)}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/outsight/place?"+query.Encode(), nil)
	if err != nil {
		return m, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return m, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return m, fmt.Errorf("asking for a placement: %s: %s", response.Status, text)
	}
	return m, json.NewDecoder(response.Body).Decode(&m)
}

// Known waits until a server knows the containers by their names.
func (c *Cluster) Known(ctx context.Context, server string) error {
	for deadline := time.Now().Add(time.Minute); ; {
		m, err := ask(ctx, server, time.Now().Add(-5*time.Second), time.Now())
		names := map[string]bool{}
		for _, container := range m.Containers {
			names[container.Name] = true
		}
		missing := ""
		for _, n := range c.nodes {
			if !names[n.name] {
				missing = n.name
			}
		}
		if err == nil && missing == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server does not know container %q after a minute: %w", missing, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
