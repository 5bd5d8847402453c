package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	podsPath     = "/api/v1/pods"
	servicesPath = "/api/v1/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	nodesPath    = "/api/v1/nodes"

	cartUID      = "a9057ccd-b9c0-45c7-9673-d4b19b7c60f2"
	newCartUID   = "f730007b-143c-401e-bf4a-444e63ffdc63"
	redisUID     = "9ca0252d-ae39-4f85-9413-0b6c184b394b"
	cartID       = "aa34567890123456789012345678901234567890123456789012345678901234"
	redisID      = "bb34567890123456789012345678901234567890123456789012345678901234"
	cartVIP      = "10.96.54.82"
	deploymentOf = "/apis/apps/v1/namespaces/shop/replicasets/cart-7d9f8b6c5"
)

// answer writes one response; n counts the requests of its kind from 0.
type answer func(n int, w http.ResponseWriter, r *http.Request)

// apiServer answers as the recorded API server did, but where a test scripts something else.
type apiServer struct {
	*httptest.Server
	mu sync.Mutex // guards what follows
	// lists, watches and gets are scripts by path; asked has the queries of all requests.
	lists, watches, gets map[string]answer
	asked                map[string][]url.Values
	ending               chan struct{}
}

func serve(t *testing.T) *apiServer {
	s := newServer(t)
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.stop)
	return s
}

func newServer(t *testing.T) *apiServer {
	s := &apiServer{lists: map[string]answer{}, watches: map[string]answer{}, gets: map[string]answer{},
		asked: map[string][]url.Values{}, ending: make(chan struct{})}
	for path, file := range map[string]string{podsPath: "04-pods-list", servicesPath: "05-services-list",
		slicesPath: "06-endpointslices-list", nodesPath: "07-nodes-list"} {
		s.lists[path] = replay(t, file)
	}
	s.gets[deploymentOf] = text(200, itemOf(t, "09-replicasets-list", "cart-7d9f8b6c5"))
	return s
}

func (s *apiServer) stop() {
	close(s.ending)
	s.Close()
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	key, scripts := "list "+r.URL.Path, s.lists
	switch {
	case query.Get("watch") != "":
		key, scripts = "watch "+r.URL.Path, s.watches
	case strings.Contains(r.URL.Path, "/namespaces/"):
		key, scripts = "get "+r.URL.Path, s.gets
	}
	s.mu.Lock()
	script, n := scripts[r.URL.Path], len(s.asked[key])
	s.asked[key] = append(s.asked[key], query)
	s.mu.Unlock()
	switch {
	case script != nil:
		script(n, w, r)
	case query.Get("watch") != "":
		s.hold(w, r)
	default:
		text(404, `{"kind":"Status","message":"not found","reason":"NotFound","code":404}`)(n, w, r)
	}
}

// hold leaves a watch open and silent.
func (s *apiServer) hold(w http.ResponseWriter, r *http.Request) {
	w.(http.Flusher).Flush()
	select {
	case <-r.Context().Done():
	case <-s.ending:
	}
}

// requests are the queries of all requests of a kind for a path.
func (s *apiServer) requests(kind, path string) []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]url.Values(nil), s.asked[kind+" "+path]...)
}

func text(status int, body string) answer {
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
		w.(http.Flusher).Flush()
	}
}

// recorded splits a recorded answer.
func recorded(t testing.TB, name string) (status int, header http.Header, body string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".http"))
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		t.Fatalf("%s has no end of its head", name)
	}
	first, lines, _ := strings.Cut(string(head), "\n")
	if status, err = strconv.Atoi(strings.Fields(first)[1]); err != nil {
		t.Fatal(err)
	}
	header = http.Header{}
	for _, line := range strings.Split(lines, "\n") {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && key != "content-length" {
			header.Set(key, value)
		}
	}
	return status, header, string(rest)
}

// replay answers with recorded bytes.
func replay(t testing.TB, name string) answer {
	status, header, body := recorded(t, name)
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		for key := range header {
			w.Header().Set(key, header.Get(key))
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
		w.(http.Flusher).Flush()
	}
}

// inTurn gives the first request the first answer and so on; the last one is for all that follow.
func inTurn(answers ...answer) answer {
	return func(n int, w http.ResponseWriter, r *http.Request) { answers[min(n, len(answers)-1)](n, w, r) }
}

// itemOf is one object of a recorded list.
func itemOf(t testing.TB, list, name string) string {
	t.Helper()
	_, _, body := recorded(t, list)
	var l struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(body), &l); err != nil {
		t.Fatal(err)
	}
	for _, raw := range l.Items {
		var o struct{ Metadata metadata }
		if json.Unmarshal(raw, &o) == nil && o.Metadata.Name == name {
			return string(raw)
		}
	}
	t.Fatalf("%s has no %s", list, name)
	return ""
}

// listOf is a list of objects that a test made.
func listOf(version string, objects ...string) string {
	return fmt.Sprintf(`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[%s]}`, version,
		strings.Join(objects, ","))
}

// quick are short pauses, and requests that are given up soon.
var quick = timing{least: time.Millisecond, most: 20 * time.Millisecond, refusal: 20 * time.Millisecond,
	watch: time.Minute, request: time.Minute}

// follows runs a cluster against the server for the duration of the test.
func follows(t *testing.T, s *apiServer, o Options) *Cluster {
	t.Helper()
	return runs(t, Config{Server: s.URL}, o, quick)
}

func runs(t *testing.T, config Config, o Options, pace timing) *Cluster {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c, err := New(config, o)
	if err != nil {
		t.Fatal(err)
	}
	c.timing = pace
	begin(t, c)
	return c
}

// begin runs a cluster until the test ends.
func begin(t *testing.T, c *Cluster) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		c.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	for lines := bufio.NewScanner(bytes.NewReader(p)); lines.Scan(); {
		w.t.Log(lines.Text())
	}
	return len(p), nil
}

// eventually waits until f is true. The limit is reached only when something is broken.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// drop is the count of a bounded thing.
func drop(t *testing.T, c *Cluster, name string) (count, used uint64) {
	t.Helper()
	for _, d := range c.Drops() {
		if d.Name == "kubernetes/"+name {
			return d.Count, d.Used
		}
	}
	t.Fatalf("there is no counter of %s", name)
	return 0, 0
}
