package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/api"
)

// BenchmarkMapRequest is what measureMapRequests times, for a profile: each request is for another window.
func BenchmarkMapRequest(b *testing.B) {
	const windows = 6
	log, err := fillLog(b.Context(), mapSize{nodes: mapNodes, edges: mapEdges}, windows)
	if err != nil {
		b.Fatal(err)
	}
	defer log.remove()
	h := api.New(api.Options{Log: log, Now: func() time.Time { return log.end }, Timeout: 10 * time.Minute})
	for _, path := range []string{"graph", "path", "services", "matrix?by=host&", "matrix?by=host&numbers=p99&", "matrix?by=host&numbers=bytes&", "whatif?load=2x&"} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			before := processorTime(b)
			i := 0
			for b.Loop() {
				to := log.end.Add(-mapWindow * time.Duration(i%windows))
				i++
				var w unread
				url := path
				if !strings.HasSuffix(url, "&") {
					url += "?"
				}
				h.ServeHTTP(&w, httptest.NewRequestWithContext(b.Context(), http.MethodGet,
					fmt.Sprintf("/api/outsight/%sfrom=%d&to=%d", url, to.Add(-mapWindow).Unix(), to.Unix()), nil))
				if w.status > http.StatusOK {
					b.Fatal(w.begin)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/1e6/float64(b.N), "cpu-ms/op")
		})
	}
}

// processorTime is that of the process: on a machine that does more than this, it says more than the clock.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
