package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ask sends a request to a service's handler and checks the form of every reply.
func ask(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	if n := w.Header().Get("Content-Length"); n != strconv.Itoa(w.Body.Len()) && w.Code < 300 {
		t.Errorf("%s %s: Content-Length %q of %d bytes", method, path, n, w.Body.Len())
	}
	return w.Code, w.Body.String()
}

func expect(t *testing.T, h http.Handler, method, path, body string, status int, want string) {
	t.Helper()
	got, text := ask(t, h, method, path, body)
	if got != status || !strings.Contains(text, want) {
		t.Errorf("%s %s: %d %.200q, want %d with %q", method, path, got, text, status, want)
	}
}

func TestCatalogue(t *testing.T) {
	l := newLedger()
	c := &catalogue{redis: realRedis(t, l), random: rand.New(rand.NewPCG(1, 1))}
	h := http.NewServeMux()
	h.HandleFunc("GET /products", c.page)
	h.HandleFunc("GET /products/{id}", c.product)
	_, first := ask(t, h, "GET", "/products?page=3", "")
	_, second := ask(t, h, "GET", "/products?page=3", "")
	if first != second || first != string(describe(60, 80)) || len(first) < 2000 {
		t.Errorf("made %d bytes, from Redis %d", len(first), len(second))
	}
	calls, _ := l.counts()
	if n := calls["redis"].Requests; n != 3 { // GET, SET; GET
		t.Errorf("%d commands, want 3", n)
	}
	expect(t, h, "GET", "/products/7", "", 200, `"id":7`)
	expect(t, h, "GET", "/products/500", "", 404, "no product")
	expect(t, h, "GET", "/products/-1", "", 404, "no product")
	expect(t, h, "GET", "/products?page=25", "", 400, "no page")
	expect(t, h, "GET", "/products", "", 400, "no page")
}

func TestCatalogueStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &catalogue{random: rand.New(rand.NewPCG(1, 2))}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go c.run(ctx)
		<-ctx.Done()
		synctest.Wait()
		r := c.stallReport()
		// An hour of gaps between 4 and 6 seconds, and as many stalls.
		if r.Total < 3600*10/61 || r.Total > 3600/4 || len(r.Stalls) != maxStalls {
			t.Fatalf("%d stalls, %d of them listed", r.Total, len(r.Stalls))
		}
		for i, s := range r.Stalls {
			if s.End.Sub(s.Start) != stallTime {
				t.Errorf("stall %d lasted %v", i, s.End.Sub(s.Start))
			}
			if i == 0 {
				continue
			}
			if gap := s.Start.Sub(r.Stalls[i-1].End); gap < minStallGap || gap > maxStallGap {
				t.Errorf("stall %d after %v", i, gap)
			}
		}
	})
}

func TestCatalogueStallHoldsRequests(t *testing.T) {
	c := &catalogue{}
	c.world.Lock()
	answered := make(chan struct{})
	h := http.NewServeMux()
	h.HandleFunc("GET /products/{id}", c.product)
	h.HandleFunc("GET /stalls", c.serveStalls)
	go func() {
		defer close(answered)
		ask(t, h, "GET", "/products/1", "")
	}()
	expect(t, h, "GET", "/stalls", "", 200, `{"total":0,"stalls":[]}`) // is answered all the same
	select {
	case <-answered:
		t.Error("answered during a stall")
	default:
	}
	c.world.Unlock()
	<-answered
	c.stall()
	expect(t, h, "GET", "/stalls", "", 200, `{"total":1,"stalls":[{"start":"`)
}

func TestCart(t *testing.T) {
	f := func(name string, c *cart) {
		h := http.NewServeMux()
		h.HandleFunc("GET /cart/{user}", c.list)
		h.HandleFunc("POST /cart/{user}", c.add)
		h.HandleFunc("DELETE /cart/{user}", c.empty)
		t.Run(name, func(t *testing.T) {
			expect(t, h, "GET", "/cart/1", "", 200, `{"items":[],"user":"1"}`)
			for i := range maxCartItems + 2 {
				expect(t, h, "POST", "/cart/1", strconv.Itoa(i), 200, "added")
			}
			expect(t, h, "POST", "/cart/1", "{not json", 400, "not an item")
			expect(t, h, "GET", "/cart/1", "", 200, `{"items":["2","3",`)
			expect(t, h, "DELETE", "/cart/1", "", 200, "emptied")
			expect(t, h, "GET", "/cart/1", "", 200, `{"items":[],"user":"1"}`)
		})
	}
	f("memory", &cart{carts: map[string][]string{}})
	f("redis", &cart{redis: realRedis(t, newLedger())})
}

func TestPaymentIsOneThread(t *testing.T) {
	l := newLedger()
	redis := realRedis(t, l)
	p := &payment{redis: redis, queue: make(chan chan<- [32]byte)}
	ctx, cancel := context.WithCancel(t.Context())
	var work, callers sync.WaitGroup
	work.Go(func() { p.work(ctx) })
	h := http.NewServeMux()
	h.HandleFunc("POST /pay", p.pay)
	start := time.Now()
	const payments = 20
	for i := range payments {
		callers.Go(func() { expect(t, h, "POST", "/pay", fmt.Sprint("order", i), 200, `"paid":true`) })
	}
	callers.Wait()
	elapsed := time.Since(start)
	cancel()
	work.Wait()
	var s Status
	p.report(&s)
	// The CPU time of one thread is never more than the time that passed.
	if s.Payment.Payments != payments || s.Payment.CPU < payments*paymentCPU || s.Payment.CPU > elapsed ||
		s.Payment.Waiting != 0 {
		t.Errorf("%+v in %v", *s.Payment, elapsed)
	}
	if n, err := redis.do(t.Context(), "LLEN", "orders"); n != int64(payments) {
		t.Errorf("orders in the queue: %v %v", n, err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := p.sign(gone); err == nil {
		t.Error("signed for a caller that had left, by a thread that had ended")
	}
}

func TestWorker(t *testing.T) {
	c := realRedis(t, newLedger())
	w := &worker{redis: c}
	orders := func() uint64 {
		if err := w.poll(t.Context()); err != nil {
			t.Error(err)
		}
		var s Status
		w.report(&s)
		return s.Orders
	}
	c.do(t.Context(), "LPUSH", "orders", "a", "b", "c")
	if n := orders(); n != 3 {
		t.Errorf("%d orders, want 3", n)
	}
	w.apply(control{Paused: true})
	c.do(t.Context(), "LPUSH", "orders", "d")
	if n := orders(); n != 3 {
		t.Errorf("%d orders while paused, want 3", n)
	}
	w.apply(control{})
	if n := orders(); n != 4 {
		t.Errorf("%d orders, want 4", n)
	}
}

func TestLoadIsReproducible(t *testing.T) {
	list := func(seed uint64) (out []string) {
		g := &load{random: rand.New(rand.NewPCG(seed, 3))}
		for range 10_000 {
			o := g.next()
			out = append(out, o.kind+" "+o.method+" "+o.path+" "+string(o.body))
		}
		return out
	}
	if !slices.Equal(list(1), list(1)) || slices.Equal(list(1), list(2)) {
		t.Error("the seed does not decide the sequence")
	}
	count := map[string]int{}
	for _, o := range list(1) {
		count[strings.Fields(o)[0]]++
	}
	for kind, want := range map[string]int{"page": 2500, "product": 1500, "add": 1500, "cart": 500, "checkout": 4000} {
		if n := count[kind]; math.Abs(float64(n-want)) > 200 {
			t.Errorf("%d of 10000 are %s, want about %d", n, kind, want)
		}
	}
}

// TestLoadIsAnOpenLoop: with a server that does not answer, requests go on to be sent until the
// bound; the rest is counted as shed.
func TestLoadIsAnOpenLoop(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-release
		if strings.HasPrefix(r.URL.Path, "/checkout") {
			respondError(w, 500, io.ErrUnexpectedEOF)
			return
		}
		respondJSON(w, []byte("{}"))
	}))
	defer server.Close()
	r := newLoad(serviceFlags{target: server.Listener.Addr().String(), rate: 20_000, seed: 1}, newLedger())
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { r.run(ctx) })
	report := func() *LoadReport {
		var s Status
		r.report(&s)
		return s.Load
	}
	waitFor(t, "shed requests", func() bool { return report().Shed > 10 })
	if l := report(); l.Sent != maxInFlight || l.InFlight != maxInFlight || l.Completed+l.Errors != 0 {
		t.Errorf("%+v", l)
	}
	close(release)
	r.apply(control{Paused: true, Rate: 20_000})
	l := report()
	if l.InFlight != 0 || l.Sent != l.Completed+l.Errors || l.Errors != l.Paths["checkout"].Sent || l.Errors == 0 {
		t.Errorf("after a pause: %+v", l)
	}
	if l.Counts.Requests != l.Sent || l.Latency.Count != l.Completed || l.Response.Count != l.Completed {
		t.Errorf("after a pause: %+v", l)
	}
	r.apply(control{Rate: 20_000})
	waitFor(t, "more requests", func() bool { return report().Sent > l.Sent })
	cancel()
	work.Wait()
	if l := report(); l.InFlight != 0 || l.Sent != l.Completed+l.Errors {
		t.Errorf("at the end: %+v", l)
	}
}

func TestLatencies(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	var l latencies
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(math.Exp(random.NormFloat64()*1.5) * float64(time.Millisecond))
		all = append(all, d)
		l.add(d)
	}
	slices.Sort(all)
	s := l.summary()
	f := func(got time.Duration, q float64) {
		t.Helper()
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		if e := math.Abs(float64(got)/float64(want) - 1); e > 0.0011 {
			t.Errorf("quantile %v: %v, want %v (off by %.3f %%)", q, got, want, 100*e)
		}
	}
	f(s.P50, .5)
	f(s.P75, .75)
	f(s.P90, .9)
	f(s.P99, .99)
	f(s.P999, .999)
	if s.Count != 20_000 || s.Max != all[len(all)-1] {
		t.Errorf("%+v", s)
	}
	l.add(0)
	l.add(time.Hour)
	if got := l.summary(); got.Max != time.Hour || got.Count != 20_002 {
		t.Errorf("%+v", got)
	}
	if (&latencies{}).summary() != (LatencySummary{}) {
		t.Error("an empty summary is not empty")
	}
}

func TestLedgerIsBounded(t *testing.T) {
	l := newLedger()
	for i := range maxPeers + 10 {
		l.caller(fmt.Sprint(i)).requests.Add(1)
	}
	_, callers := l.counts()
	if len(callers) != maxPeers+1 || callers[otherPeers].Requests != 10 {
		t.Errorf("%d callers, %+v others", len(callers), callers[otherPeers])
	}
}

func TestRunServiceRefuses(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if err := RunService(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	f("which one")
	f("not one of", "shopkeeper")
	f("flag provided but not defined", "cart", "--nonsense")
	f("unexpected", "cart", "extra")
	f("invalid value", "load", "--rate", "fast")
	f("host name and program", "enter")
	busy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	f("address already in use", "cart", "--listen", busy.Addr().String())
}

func TestServiceObeys(t *testing.T) {
	var out bytes.Buffer
	var got []control
	closed := 0
	file := filepath.Join(t.TempDir(), "control")
	s := &service{name: "x", flags: serviceFlags{controlFile: file}, ledger: newLedger(), out: &out, role: &role{
		apply: func(c control) { got = append(got, c) }, closeIdle: []func(){func() { closed++ }},
	}}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.obey(); err == nil {
		t.Error("no file, and no error")
	}
	write(`{"revision":`)
	if err := s.obey(); err == nil {
		t.Error("half a file, and no error")
	}
	write(`{"revision":4,"rate":7,"paused":true,"close_idle":true}`)
	if err := s.obey(); err != nil {
		t.Error(err)
	}
	var st Status
	if err := json.Unmarshal(out.Bytes(), &st); err != nil || st.Revision != 4 || st.Role != "x" {
		t.Errorf("%q %v", out.String(), err)
	}
	if len(got) != 1 || got[0] != (control{4, 7, true, true}) || closed != 1 {
		t.Errorf("%+v, closed %d times", got, closed)
	}
}

func TestOutput(t *testing.T) {
	o := newOutput("x", "")
	o.follow(io.NopCloser(strings.NewReader("hello\n" + strings.Repeat("y", maxOutputLine+1))))
	if err := o.waitReady(t.Context()); err == nil || !strings.Contains(err.Error(), "hello") ||
		!strings.Contains(err.Error(), "too long") {
		t.Errorf("%v", err)
	}
	o = newOutput("x", "")
	o.follow(io.NopCloser(strings.NewReader("{\"role\":\"x\",\"revision\":2}\n{\"role\":broken\n")))
	if err := o.waitReady(t.Context()); err != nil {
		t.Error(err)
	}
	if s, err := o.waitRevision(t.Context(), 2); err != nil || s.Revision != 2 {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := o.waitRevision(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "{\"role\":broken") {
		t.Errorf("%v", err)
	}
	o = newOutput("x", "up and running")
	o.follow(io.NopCloser(strings.NewReader("[1] up and running now\n")))
	if err := o.waitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEdges(t *testing.T) {
	if n := len(Edges()); n != 9 {
		t.Errorf("%d edges", n)
	}
	if !slices.Contains(Edges(), Edge{"shop-gateway", "shop-payment", 8080}) {
		t.Error("no edge from gateway to payment")
	}
	want := []Edge{{"a-load", "a-gateway", 8080}, {"a-gateway", "a-catalogue", 8080}, {"a-gateway", "a-cart", 8080},
		{"a-gateway", "a-payment", 8080}}
	if got := edgesOf("a", []string{"nginx", "redis", "worker"}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	f := func(o Options, want string) {
		t.Helper()
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	f(Options{Rate: -1}, "rate")
	f(Options{Rate: math.NaN()}, "rate")
	f(Options{Instance: "Shop!"}, "instance")
	f(Options{Instance: "waytoolonganame"}, "instance")
}
