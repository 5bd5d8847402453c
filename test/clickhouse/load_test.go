package clickhouse

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/framelog/clickhouse"
	"outsight/internal/model"
)

// loadHosts is how many hosts of 1,000 edges TestLoad stores; make test-clickhouse sets it to 10.
func loadHosts() int {
	n, _ := strconv.Atoi(os.Getenv("OUTSIGHT_CLICKHOUSE_HOSTS"))
	return max(n, 2)
}

const edgesPerHost = 1000

// TestLoad stores two key frames, ten minutes apart, of hosts whose edges all transport something, with a frame between
// them in which half of them do, and reads windows. It logs time and size.
func TestLoad(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			server := engine.start(t)
			l := open(t, server.address+"load", clickhouse.Options{})
			start := time.Now().Truncate(time.Minute).Add(-20 * time.Minute)
			var encoded [3][]framelog.Encoded
			for i := range loadHosts() {
				h := busyHost(i, start)
				for k, after := range []time.Duration{0, 10 * time.Minute, 10*time.Minute + 10*time.Second} {
					for e, l := range h.alive {
						if l.busy = k < 2 || e%2 == 0; l.busy {
							h.work(l)
						}
					}
					f := h.agent.Build(h.snapshot(start.Add(after)))
					encoded[k] = append(encoded[k], h.encode(tenant, f))
				}
			}
			edges := loadHosts() * edgesPerHost
			bytes := int64(0)
			for k, batch := range encoded {
				begin, cpu := time.Now(), server.cpu(t)
				if err := l.Append(t.Context(), batch); err != nil {
					t.Fatal(err)
				}
				took, size := time.Since(begin), edgeBytes(t, l)
				t.Logf("frame %d of %d edges stored in %v, %v of CPU time there, %d bytes an edge", k+1, edges,
					took.Round(time.Millisecond), server.cpu(t)-cpu, (size-bytes)/int64(edges))
				bytes = size
			}
			begin, cpu := time.Now(), server.cpu(t)
			for w, err := range l.Windows(t.Context(), framelog.Query{Tenant: tenant, Times: []time.Time{start.Add(time.Second),
				start.Add(15 * time.Minute)}}) {
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, h := range w.Hosts {
					d := frame.Since(frame.Edges, h.Spans[0].Before, h.Spans[0].After)
					for row := range d.After.IDs {
						if requests, _ := d.Gain(frame.Column(frame.Edges, "transactions"), row); requests > 0 {
							n++
						}
					}
				}
				if n != edges {
					t.Errorf("%d edges have transactions in the window, want %d", n, edges)
				}
			}
			t.Logf("a window of %d edges in %v, %v of CPU time there", edges, time.Since(begin).Round(time.Millisecond),
				server.cpu(t)-cpu)
		})
	}
}

func edgeBytes(t *testing.T, l *clickhouse.Log) int64 {
	t.Helper()
	sizes, err := l.Sizes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sizes[frame.Schema[frame.Edges].Name]
}

// busyHost is a host of 50 containers with edges between them.
func busyHost(i int, start time.Time) *history {
	h := newHistory(fmt.Sprintf("host-%03d", i), uint64(i), start.Add(-time.Hour))
	for range 50 {
		h.begin(start)
	}
	containers := h.alive
	for e := range edgesPerHost {
		client, server := containers[e%50].c, containers[(e*7+e/50)%50].c
		l := &life{c: client, edge: model.Edge{Instance: uint64(e + 1000), Side: model.RoleClient,
			Client:  model.Peer{Container: client, Process: fmt.Sprint("worker-", e/50)},
			Server:  model.Peer{Container: server, Process: "server"},
			Service: netip.AddrPortFrom(server.Addresses[0], 80)}}
		l.sample = containers[e%50].sample
		h.alive = append(h.alive, l)
	}
	h.alive = h.alive[50:]
	h.restart(start)
	return h
}
