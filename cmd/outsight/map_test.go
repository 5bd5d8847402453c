package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// mapServer is a server that the command starts, which has frames of three hosts. Those of "a" and "b" have one end each of
// edges between them.
type mapServer struct {
	page, tokens string
	from, to     time.Time
}

func serveMap(t *testing.T) *mapServer {
	t.Helper()
	const token = "0123456789abcdef"
	dir := t.TempDir()
	s := &mapServer{tokens: filepath.Join(dir, "tokens"), to: time.Now().Truncate(time.Second)}
	s.from = s.to.Add(-time.Minute)
	if err := os.WriteFile(s.tokens, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addresses := make([]string, 2)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses[i] = l.Addr().String()
		l.Close()
	}
	s.page = "http://" + addresses[0]
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		root := newRoot()
		root.SetArgs([]string{"server", "--data", filepath.Join(dir, "data"), "--listen", addresses[0], "--otlp", "",
			"--otlp-http", addresses[1], "--token-file", s.tokens, "--kubernetes", "off"})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	send := func(data []byte) (taken bool) {
		r, err := http.NewRequest(http.MethodPost, "http://"+addresses[1]+frame.Path, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", frame.ContentType)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return false // it has not begun to listen
		}
		defer answer.Body.Close()
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
			t.Fatalf("a frame is answered with %s: %s", answer.Status, text)
		}
		return true
	}
	for _, host := range []string{"a", "b", "c"} {
		b := frame.NewBuilder(s.from.Add(-time.Hour))
		var key *frame.Frame
		for n, at := range []time.Time{s.from, s.to} {
			f := b.Build(mapSnapshot(host, at, uint64(n+1)))
			if f.IsKey() {
				key = f
			}
			data := frame.Encode(nil, f, key)
			eventually(t, "a frame of "+host+" in the queue", func() bool { return send(data) })
		}
	}
	eventually(t, "all hosts on the map", func() bool {
		var g graph.Graph
		s.read(t, "graph", url.Values{"by": {"process"}}, &g)
		return len(g.Edges) == 3
	})
	return s
}

// mapSnapshot is a host where each connection had 10, 20 or 30 requests of 1,000 bytes in each of n minutes: on a, web asks
// db on b, by two processes; on c, batch asks cache on the same host.
func mapSnapshot(host string, at time.Time, n uint64) *model.Snapshot {
	address := map[string]netip.Addr{"web": netip.MustParseAddr("10.0.1.2"), "db": netip.MustParseAddr("10.0.2.2"),
		"batch": netip.MustParseAddr("10.0.3.2"), "cache": netip.MustParseAddr("10.0.3.3")}
	s := &model.Snapshot{Time: at, Host: model.Host{Name: host, Cores: 2}}
	here := map[string]*model.Container{}
	for _, name := range map[string][]string{"a": {"web"}, "b": {"db"}, "c": {"batch", "cache"}}[host] {
		here[name] = &model.Container{ID: strings.Repeat(name, 20), Name: name, Runtime: model.Docker,
			Addresses: []netip.Addr{address[name]}}
		s.Containers = append(s.Containers, model.ContainerSample{Container: here[name], CPU: &model.CPUCounters{UsageNS: n * 1e9}})
	}
	peer := func(name, process string) model.Peer {
		if c := here[name]; c != nil {
			return model.Peer{Container: c, Process: process}
		}
		return model.Peer{Address: address[name]}
	}
	for i, e := range []struct{ client, process, server, program string }{{"web", "app", "db", "postgres"},
		{"web", "job", "db", "postgres"}, {"batch", "run", "cache", "redis"}} {
		for _, side := range []model.Role{model.RoleClient, model.RoleServer} {
			own := map[model.Role]string{model.RoleClient: e.client, model.RoleServer: e.server}[side]
			if here[own] == nil {
				continue
			}
			requests := n * uint64(10*(i+1))
			c := model.EdgeCounters{Opens: n, Closes: n, Requests: requests, Replies: requests,
				Latency: &model.Histogram{Count: requests, SumNS: requests * 1e6, Offset: model.BucketOf(time.Millisecond),
					Buckets: []uint64{requests}}}
			if c.SentBytes = 1000 * requests; side == model.RoleServer {
				c.SentBytes, c.ReceivedBytes = 0, 1000*requests
			}
			both := here[e.client] != nil && here[e.server] != nil
			confidence := model.NotFound
			if both {
				confidence = model.Exact
			}
			s.Edges = append(s.Edges, model.Edge{Instance: uint64(len(s.Edges) + 1), Side: side, Client: peer(e.client, e.process),
				Server: peer(e.server, e.program), Service: netip.AddrPortFrom(address[e.server], uint16(5432+i)),
				Confidence: confidence, Paired: both, Counters: c})
		}
	}
	return s
}

// window are the times of the window, as flags or as a query.
func (s *mapServer) window() (from, to string) {
	return strconv.FormatInt(s.from.Unix(), 10), strconv.FormatInt(s.to.Unix(), 10)
}

// read reads an answer of the server's API.
func (s *mapServer) read(t *testing.T, path string, query url.Values, into any) {
	t.Helper()
	from, to := s.window()
	q := url.Values{"from": {from}, "to": {to}}
	maps.Copy(q, query)
	r, err := http.NewRequest(http.MethodGet, s.page+"/api/outsight/"+path+"?"+q.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("any", "0123456789abcdef")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v: %s", path, answer.Status, err, text)
	} else if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// write is what the command writes of the server's map.
func (s *mapServer) write(t *testing.T, output string, more ...string) string {
	t.Helper()
	from, to := s.window()
	var out, errOut bytes.Buffer
	args := append([]string{"map", "--server", s.page, "--token-file", s.tokens, "--from", from, "--to", to, "--output", output},
		more...)
	if code := run(args, &out, &errOut); code != 0 {
		t.Fatalf("%v ends with %d: %s", args, code, &errOut)
	}
	return out.String()
}

// calls are the requests of each edge, by the names of its ends.
func calls(g *graph.Graph) map[string]float64 {
	all := map[string]float64{}
	for _, e := range g.Edges {
		all[g.Node(e.Client).Name+" > "+g.Node(e.Server).Name] = e.Best().Of(graph.Transactions)
	}
	return all
}

// TestMapOfAServer: the command writes what the server's API has of all hosts, by container and by process, as JSON, as
// a picture, and as statements for Neo4j that have the same edges and requests.
func TestMapOfAServer(t *testing.T) {
	s := serveMap(t)
	for _, by := range []struct {
		grouping string
		want     map[string]float64
		hosts    map[string]string
	}{
		{"container", map[string]float64{"web > db": 30, "batch > cache": 30},
			map[string]string{"web": "a", "db": "b", "batch": "c", "cache": "c"}},
		{"process", map[string]float64{"web/app > db/postgres": 10, "web/job > db/postgres": 20, "batch/run > cache/redis": 30},
			map[string]string{"web/app": "a", "web/job": "a", "db/postgres": "b", "batch/run": "c", "cache/redis": "c"}},
	} {
		var typed, asked graph.Graph
		if err := json.Unmarshal([]byte(s.write(t, "json", "--by", by.grouping)), &typed); err != nil {
			t.Fatal(err)
		}
		s.read(t, "graph", url.Values{"by": {by.grouping}}, &asked)
		for of, g := range map[string]*graph.Graph{"command": &typed, "server": &asked} {
			if got := calls(g); !maps.Equal(got, by.want) {
				t.Errorf("by %s, of the %s: %v, want %v", by.grouping, of, got, by.want)
			}
			for _, n := range g.Nodes {
				if by.hosts[n.Name] != n.Host {
					t.Errorf("by %s, of the %s: %s is on %q, want %q", by.grouping, of, n.Name, n.Host, by.hosts[n.Name])
				}
			}
		}
		if got := callsOfCypher(t, s.write(t, "cypher", "--by", by.grouping)); !maps.Equal(got, by.want) {
			t.Errorf("by %s, in Cypher: %v, want %v", by.grouping, got, by.want)
		}
		picture := s.write(t, "svg", "--by", by.grouping)
		for edge := range by.want {
			if client, _, _ := strings.Cut(edge, " > "); !strings.HasPrefix(picture, "<svg") || !strings.Contains(picture, client) {
				t.Errorf("by %s the picture lacks %s: %s", by.grouping, client, picture)
			}
		}
	}
	var shown graph.Graph
	if err := json.Unmarshal([]byte(s.write(t, "json", "--by", "process", "--min-share", "0.2")), &shown); err != nil {
		t.Fatal(err)
	}
	if got := calls(&shown); len(got) != 2 || got["web/app > db/postgres"] != 0 {
		t.Errorf("of edges with a fifth of all bytes there are %v", got)
	}

	var out, errOut bytes.Buffer
	code := run([]string{"map", "--server", s.page, "--output", "cypher"}, &out, &errOut)
	if code != 1 || out.Len() > 0 || !strings.Contains(errOut.String(), "401") {
		t.Errorf("without a token it ends with %d, %q and %q", code, &out, &errOut)
	}
}

// callsOfCypher are the requests of each edge in statements of graph.WriteCypher, by the names of its ends.
func callsOfCypher(t *testing.T, text string) map[string]float64 {
	t.Helper()
	names, all := map[string]string{}, map[string]float64{}
	for statement := range strings.SplitSeq(text, ";\n") {
		rows, rest, ok := strings.Cut(strings.TrimPrefix(statement, "UNWIND split('"), `', '\n') AS line `)
		if !ok {
			continue
		}
		field := func(row []string, property string) string {
			t.Helper()
			_, at, found := strings.Cut(rest, property+" = ")
			_, at, _ = strings.Cut(at, "f[")
			at, _, _ = strings.Cut(at, "]")
			i, err := strconv.Atoi(at)
			if !found || err != nil || i >= len(row) {
				t.Fatalf("no %s in %s of %q", property, rest, row)
			}
			return row[i]
		}
		for line := range strings.SplitSeq(rows, "\n") {
			switch row := strings.Split(line, "\t"); {
			case strings.Contains(rest, "MERGE (n:Node {id: f[0]})"):
				names[row[0]] = field(row, "n.name")
			case strings.Contains(rest, "[r:CALLS"):
				requests, err := strconv.ParseFloat(field(row, "r.requests"), 64)
				if err != nil {
					t.Fatal(err)
				}
				all[fmt.Sprint(names[row[0]], " > ", names[row[1]])] = requests
			}
		}
	}
	if len(names) == 0 || slices.Contains(slices.Collect(maps.Values(names)), "") {
		t.Fatalf("nodes without a name: %v", names)
	}
	return all
}
