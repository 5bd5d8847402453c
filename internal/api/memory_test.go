package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/store"
	"outsight/test/memorygroup"
)

// littleServer makes the test binary a server with so many series, which says on its output where it listens.
const littleServer = "OUTSIGHT_TEST_SERIES"

// serveLittle serves a store with n series until its input ends.
func serveLittle(n int) error {
	dir, err := os.MkdirTemp("", "outsight-memory-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	process, err := strconv.ParseInt(os.Getenv("OUTSIGHT_TEST_MEMORY"), 10, 64)
	if err != nil {
		return err
	}
	st, err := store.Open(dir, store.Options{MaxSeries: max(n, 1),
		QueryBounds: store.QueryBounds{Memory: process / 16 * 3, ProcessMemory: process / 16 * 13}})
	if err != nil {
		return err
	}
	batch := make([]model.Series, n)
	now := time.Now().Truncate(time.Second)
	for i := range batch {
		batch[i] = model.Series{Name: "x", Kind: model.Gauge, Time: now, Value: float64(i),
			Labels: []model.Label{{Name: "host", Value: fmt.Sprint("h", i%10)}, {Name: "u0", Value: fmt.Sprintf("%050d", i)}}}
	}
	if err := st.Append(context.Background(), batch); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() { _ = http.Serve(l, New(Options{Prometheus: Prometheus(st), Hold: st.Hold})) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startLittle starts it with n series in a memory cgroup of its own, and returns its URL.
func startLittle(t *testing.T, n int, bytes int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to limit the memory of a process")
	}
	group, err := memorygroup.New(t, bytes)
	if err != nil {
		t.Skip(err)
	}
	c := group.Command(os.Args[0])
	c.Env = append(os.Environ(), littleServer+"="+fmt.Sprint(n), fmt.Sprint("OUTSIGHT_TEST_MEMORY=", bytes),
		fmt.Sprint("GOMEMLIMIT=", bytes/4*3))
	c.SysProcAttr, c.Stderr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := c.Wait(); err != nil {
			t.Error("the server:", err)
		}
	})
	var address string
	if _, err := fmt.Fscanln(out, &address); err != nil {
		t.Fatal("the server did not begin:", err)
	}
	return "http://" + address
}

// survives sends what has taken servers down, each several times at once, and wants answers to it and to an ordinary
// query after it.
func survives(t *testing.T, series int, memory int64) {
	base := startLittle(t, series, memory)
	terms := make([]string, 600)
	for i := range terms {
		terms[i] = fmt.Sprintf(`label_replace(vector(1),"a","%dx","","")`, i)
	}
	nested := func(levels int) string {
		query := strings.Join(terms, " or ")
		for range levels {
			query = `label_join(` + query + `,"a","","a","a")`
		}
		return query
	}
	now := time.Now().Unix()
	span := map[string]string{"start": fmt.Sprint(now - 10_999), "end": fmt.Sprint(now), "step": "1"}
	attacks := []struct {
		path, query string
		form        map[string]string
	}{
		{"query", nested(20), nil},
		{"query", nested(14), nil},
		{"query", `label_replace(x, "z", "` + strings.Repeat("$1", 2000) + `", "u0", "(.*)")`, nil},
		{"query", `count(label_replace(x, "z", "` + strings.Repeat("$1", 2000) + `", "u0", "(.*)"))`, nil},
		{"query", `max_over_time(vector(1)[30d:1ms])`, nil},
		{"query", `x{u0=~"` + strings.Repeat("a{1000}", 4000) + `"}`, nil},
		{"query_range", `abs(x)`, span},
		{"query_range", `abs(sum by (u0) (x))`, span},
		{"query_range", `count_values("v", vector(time())) or count_values("w", vector(time()))`, span},
		{"query", strings.Repeat("-(", 10000) + "1" + strings.Repeat(")", 10000), nil},
	}
	ask := func(path, query string, form map[string]string) (int, string) {
		values := url.Values{"query": {query}}
		for name, v := range form {
			values.Set(name, v)
		}
		r, err := http.PostForm(base+"/api/v1/"+path, values)
		if err != nil {
			return 0, err.Error()
		}
		defer r.Body.Close()
		text, err := io.ReadAll(io.LimitReader(r.Body, 400))
		if err != nil {
			return 0, err.Error()
		}
		return r.StatusCode, string(text)
	}
	for _, attack := range attacks {
		done := make(chan string)
		const atOnce = 4
		for range atOnce {
			go func() {
				code, text := ask(attack.path, attack.query, attack.form)
				if code == 0 || code >= 400 && !strings.Contains(text, `"error":"`) {
					done <- fmt.Sprintf("%d %s", code, text)
				}
				done <- ""
			}()
		}
		for range atOnce {
			if fault := <-done; fault != "" {
				t.Fatalf("%.100s: %s", attack.query, fault)
			}
		}
		if code, text := ask("query", `sum by (host) (x) or vector(1)`, nil); code != http.StatusOK {
			t.Fatalf("after %.100s an ordinary query is answered %d %s", attack.query, code, text)
		}
	}
}

// Small requests do not take a server down: each of these has.
func TestQueriesInLittleMemory(t *testing.T) { survives(t, 20_000, 512<<20) }

// stuckWriter is a client that reads nothing.
type stuckWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	written  int
}

func (w *stuckWriter) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }

func (w *stuckWriter) Write(p []byte) (int, error) {
	if w.deadline.IsZero() {
		return 0, fmt.Errorf("a write of %d bytes without a deadline", len(p))
	}
	if w.written += len(p); w.written > 3*paceChunk {
		return 0, os.ErrDeadlineExceeded
	}
	return len(p), nil
}

// An answer has a deadline, which goes on as long as it is read, and ends with it.
func TestPace(t *testing.T) {
	w := &stuckWriter{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequest("GET", "/", nil)
	p := pace{time.Hour, paceChunk}
	p.write(w, r, make([]byte, 10*paceChunk))
	if w.written != 4*paceChunk || time.Until(w.deadline) < time.Hour || time.Until(w.deadline) > time.Hour+4*time.Second {
		t.Errorf("%d bytes were written, the deadline is in %v", w.written, time.Until(w.deadline))
	}
	whole := &stuckWriter{ResponseRecorder: httptest.NewRecorder()}
	if p.write(whole, r, make([]byte, 2*paceChunk)); !whole.deadline.IsZero() {
		t.Errorf("the deadline of an answer that was read is still %v", whole.deadline)
	}
}

// Readers that do not read hold a bounded number of bytes, and not for long.
func TestSlowReaders(t *testing.T) {
	const memory = 96 << 20
	st, err := store.Open(t.TempDir(), store.Options{QueryBounds: store.QueryBounds{Memory: memory}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	batch := make([]model.Series, 20_000)
	now := time.Now().Truncate(time.Second)
	for i := range batch {
		batch[i] = model.Series{Name: "x", Kind: model.Gauge, Time: now,
			Labels: []model.Label{{Name: "a", Value: fmt.Sprintf("%0600d", i)}}}
	}
	if err := st.Append(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	p := Prometheus(st)
	// Of 13 MB each, which no socket takes whole.
	server := httptest.NewServer(p)
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	var slow []net.Conn
	refused := 0
	first := make([]byte, 12)
	for range 12 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /api/v1/query?query=x HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := io.ReadFull(c, first); err != nil {
			t.Fatal(err)
		}
		if bytes.HasSuffix(first, []byte("503")) {
			refused++
		}
		slow = append(slow, c)
	}
	if held := st.Stats().QueryMemory; refused < 6 || held == 0 || held > memory {
		t.Errorf("%d of %d were refused, and %d bytes are held of %d", refused, len(slow), held, int64(memory))
	}
	for _, c := range slow {
		c.Close()
	}
	for st.Stats().QueryMemory > 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if r, err := http.Get(server.URL + "/api/v1/query?query=x"); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("when they have gone: %v %v", r, err)
	} else {
		r.Body.Close()
	}
}

// A tenant sees its own use of queries alone, the operator everybody's.
func TestTenantsSeeTheirQueries(t *testing.T) {
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, tenant := range []string{"a", "a", "b"} {
		now := time.Now()
		of := store.Evaluation{Query: "1", From: now, To: now}
		if _, err := store.ForTenant(st, tenant).Evaluate(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}
	f := func(tenant string, want ...string) {
		t.Helper()
		s := &server{Options: Options{TenantQueries: st.TenantQueries, Tenant: tenant}}
		var got []string
		limits := map[string]int64{model.QuotaQueries: 2, model.QuotaQueryTime: 120_000, model.QuotaQueryMemory: 512 << 20}
		for _, q := range s.quotas() {
			if q.What == model.QuotaQueries {
				got = append(got, q.Tenant)
			}
			if q.Limit != limits[q.What] || q.What != model.QuotaQueryTime && q.Used != 0 {
				t.Errorf("got %+v, want a limit of %d", q, limits[q.What])
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q sees %v, want %v", tenant, got, want)
		}
	}
	f("", "a", "b")
	f("a", "a")
	f("c")
	var text strings.Builder
	store.WriteTenantQueries(&text, st.TenantQueries())
	if !strings.Contains(text.String(), "outsight_tenant_query_requests_total{tenant=\"a\"} 2\n") {
		t.Error(text.String())
	}
}
