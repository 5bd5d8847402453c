package agent

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"outsight/internal/access"
	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/recorder"
)

type noFlights struct{}

func (noFlights) Flight(time.Duration) *recorder.FlightData { return nil }
func (noFlights) Anomalies() *recorder.Anomalies            { return nil }
func (noFlights) Anomaly(uint64) *recorder.FlightData       { return nil }
func (noFlights) KeepCapacity(model.Capacity)               {}

// Every route of an agent needs the role that is here. Who adds one decides who may have it.
func TestRoutesNeedRoles(t *testing.T) {
	newest := func() *frame.Frame { return nil }
	of := func(m *access.Mux) map[string]access.Roles {
		all := map[string]access.Roles{}
		for _, r := range m.Routes() {
			all[r.Pattern] = r.Needs
		}
		return all
	}
	auth, err := access.NewAuthenticator(map[string][]string{"": {"a-token-that-sends send", "a-token-that-reads read"}})
	if err != nil {
		t.Fatal(err)
	}
	h := metricsHandler(access.Access{Auth: auth}, newest)
	if got, want := of(h), (map[string]access.Roles{"/metrics": access.Read, "GET /healthz": access.Public,
		"GET /readyz": access.Public}); !maps.Equal(got, want) {
		t.Errorf("the address has %v, want %v", got, want)
	}
	want := map[string]access.Roles{
		"GET /frame": access.Read, "GET /flight": access.Record, "GET /anomalies": access.Record,
		"GET /anomalies/{number}": access.Record, "POST /capacity": access.Record,
	}
	if got := of(SocketHandler(func() *frame.Frame { return nil }, noFlights{})); !maps.Equal(got, want) {
		t.Errorf("the socket has %v, want %v", got, want)
	}
	ask := func(h http.Handler, path, token string, headers ...string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
			if headers[i] == "Host" {
				r.Host = headers[i+1]
			}
		}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey,
			net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8471})))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for token, want := range map[string]int{"": 401, "a-token-that-sends": 403,
		"a-token-that-reads": 503 /* nothing is counted yet */} {
		if got := ask(h, "/metrics", token); got != want {
			t.Errorf("/metrics with %q: %d, want %d", token, got, want)
		}
	}
	// On loopback without tokens, what a foreign page sends is refused: by its own name, or under the agent's.
	open := metricsHandler(access.Access{Hosts: &access.HostPolicy{}}, newest)
	for want, headers := range map[int][]string{
		503: {"Host", "127.0.0.1:8471"}, 403: {"Host", "evil.example:8471"},
	} {
		if got := ask(open, "/metrics", "", headers...); got != want {
			t.Errorf("/metrics with %q: %d, want %d", headers, got, want)
		}
	}
	if got := ask(open, "/metrics", "", "Sec-Fetch-Site", "cross-site"); got != 403 {
		t.Errorf("/metrics for a foreign page: %d, want 403", got)
	}
}

// What the listeners of an agent refuse is among its drops.
func TestListenersReport(t *testing.T) {
	var listeners access.Listeners
	var reporter Reporter = &listeners
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := listeners.Limit(l, "metrics", access.Limits{Authenticated: 1, Unauthenticated: 1})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- ServeHTTP(ctx, limited, http.NotFoundHandler(), slog.New(slog.DiscardHandler)) }()
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for {
		count := uint64(0)
		for _, d := range reporter.Drops() {
			if d.Name == "metrics/unauthenticated-connections" {
				count = d.Count
			}
		}
		if count == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
