package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/api"
	"outsight/internal/fleet"
	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// TestEveryRow looks for each row of the registry of metrics on each surface that is made from it.
func TestEveryRow(t *testing.T) {
	s := newSurfaces(t)
	checkRows(t, s, model.ContainerRows, model.UsageGroups, func(t *testing.T, n model.Shown) {
		s.onNode(t, n)
		s.onPage(t, n, "USAGE_GROUPS", "USAGE_MEANING")
	})
	checkRows(t, s, model.EdgeRows, model.SideGroups, func(t *testing.T, n model.Shown) {
		s.onEdge(t, n)
		if n.PromQL != "" {
			s.onPage(t, n, "SIDE_GROUPS", "SIDE_MEANING")
		}
		if !strings.Contains(section(t, s.script, "export interface Side {"), "\n  "+n.Key) {
			t.Errorf("numbers.ts: the interface Side has no %s", n.Key)
		}
	})
	checkRows(t, s, model.EndpointRows, model.SideGroups, func(t *testing.T, n model.Shown) {
		s.onEndpoint(t, n)
	})
	checkRows(t, s, model.HostRows, model.HostGroups, func(t *testing.T, n model.Shown) {
		s.onHost(t, n)
		s.onPage(t, n, "", "HOST_MEANING")
	})
	for _, n := range model.EndsNumbers() {
		t.Run(n.Key, func(t *testing.T) {
			s.onEnds(t, n)
			s.onPage(t, n, "ENDS_GROUPS", "ENDS_MEANING")
		})
	}
	for _, n := range model.ProbeNumbers {
		t.Run(n.Key, func(t *testing.T) {
			s.described(t, n, s.numbers.Probe)
			s.onPage(t, n, "PROBE_GROUPS", "ENDS_MEANING")
		})
	}
}

// TestRowsOnPaper adds a counter of containers, one of edges and a gauge of hosts to the registry, by one row each, and
// has TestEveryRow find them on all surfaces.
func TestRowsOnPaper(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the packages from model up a second time")
	}
	paper, err := filepath.Abs("testdata/onpaper.go")
	if err != nil {
		t.Fatal(err)
	}
	into, err := filepath.Abs("../../internal/model/onpaper.go")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {into: paper}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "test", "-overlay="+file, "-run=^TestEveryRow$", "-v", "-count=1", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("with rows on paper: %v\n%s", err, out)
	}
	for _, name := range []string{"container_on_paper_total", "outsight_edge_on_paper_total", "outsight_host_on_paper"} {
		if !bytes.Contains(out, []byte("--- PASS: TestEveryRow/"+name+" ")) {
			t.Errorf("the row %s was not looked for:\n%s", name, out)
		}
	}
}

// checkRows looks for each row of an entity, and calls f for each of its numbers.
func checkRows[T any](t *testing.T, s *surfaces, rows []model.Row[T], groups []string,
	f func(*testing.T, model.Shown)) {
	shown := map[string]model.Shown{}
	for _, n := range model.Numbers(rows, groups) {
		shown[n.Key] = n
	}
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			m := row.Metric("")
			if row.Columns == nil {
				s.onWire(t, m, model.Label{})
			}
			for _, c := range row.Columns {
				s.onWire(t, m, c.Label)
				for _, n := range c.Shown {
					if !n.Ends {
						f(t, shown[n.Key])
					}
				}
			}
			if !strings.Contains(s.page, fmt.Sprintf("\n| `%s` | %s | %s | `%s` | %s |\n", m.Name, kinds[m.Kind], m.Unit,
				m.OTel, m.Help)) {
				t.Errorf("docs/metrics.md has no %s", m.Name)
			}
		})
	}
}

// seconds is how long the window of the surfaces is.
const seconds = 20

// surfaces are what was made from snapshots in which nothing is zero.
type surfaces struct {
	series       []model.Series
	wire         []byte
	text         string
	page, script string
	// nodes are those of two containers, pod is that of both; edges are theirs, by the transport.
	nodes        []map[string]float64
	pod, apiNode map[string]float64
	edges        map[string]*edges
	numbers      struct{ Usage, Side, Endpoint, Ends, Probe []numberInfo }
	endpoint     map[string]any
	host         map[string]float64
	fleetHost    map[string]float64 // the same of frames
	hostNumbers  []numberInfo
	charted      func(t *testing.T, query string) int
	// ends are a number of both ends of an edge, in its chart and in the cell of its ends.
	ends func(t *testing.T, key string) map[string]*float64
}

type edges struct {
	members    []map[string]float64
	group, api map[string]float64
}

type numberInfo struct{ Key, Title, Unit, Query string }

func newSurfaces(t *testing.T) *surfaces {
	first, last := snapshotAt(0), snapshotAt(seconds)
	s := &surfaces{series: otlp.FromFrame(frame.Of(last), otlp.SeriesOptions{}), page: metricsText(t), script: script()}
	s.wire = otlp.Encode(nil, s.series)
	var text bytes.Buffer
	if err := otlp.WriteMetrics(&text, frame.Of(last), false); err != nil {
		t.Fatal(err)
	}
	s.text = text.String()

	frames := allFrames()
	w := &frame.Window{From: first.Time, To: last.Time, Hosts: []frame.HostSpans{{Host: last.Host.Name,
		Spans: []frame.Span{{Before: frames[0], After: frames[seconds]}}}}}
	byContainer := graph.FromFrames(w, graph.Options{})
	byPod := graph.FromFrames(w, graph.Options{By: graph.ByPod})
	for _, h := range fleet.Hosts(w) {
		s.fleetHost = h.Numbers
	}
	for _, id := range []string{"client-1", "client-2"} {
		s.nodes = append(s.nodes, numbersIn(t, byContainer.Node(id).Usage))
	}
	s.edges = map[string]*edges{"tcp": {}, "udp": {}}
	for _, e := range byContainer.Edges {
		of := s.edges[e.Transport]
		of.members = append(of.members, numbersIn(t, e.ClientSide))
	}
	for _, e := range byPod.Edges {
		s.edges[e.Transport].group = numbersIn(t, e.ClientSide)
	}
	s.pod = numbersIn(t, byPod.Node(byPod.Edges[0].Client).Usage)

	kept, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range seconds + 1 {
		if err := kept.Append(t.Context(), otlp.FromFrame(frame.Of(snapshotAt(i)), otlp.SeriesOptions{})); err != nil {
			t.Fatal(err)
		}
	}
	now := func() time.Time { return last.Time }
	log := frameLog(t, now)
	handler := api.New(api.Options{Log: log, Prometheus: api.Prometheus(kept), Now: now})
	get := func(t *testing.T, path string, into any) {
		t.Helper()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		if answer.Code != 200 {
			t.Fatalf("%s: status %d: %s", path, answer.Code, answer.Body)
		}
		if err := json.Unmarshal(answer.Body.Bytes(), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	window := fmt.Sprintf("from=%d&to=%d", first.Time.Unix(), last.Time.Unix())
	var a struct {
		Nodes []struct {
			ID    string
			Usage map[string]float64
		}
		Edges []struct {
			Client, Transport string
			ClientSide        map[string]float64 `json:"client_side"`
			Endpoints         []map[string]any
		}
		Numbers struct{ Usage, Side, Endpoint, Ends, Probe []numberInfo }
	}
	get(t, "/api/outsight/graph?"+window, &a)
	for _, n := range a.Nodes {
		if n.ID == "client-1" {
			s.apiNode = n.Usage
		}
	}
	for _, e := range a.Edges {
		if e.Client == "client-1" {
			s.edges[e.Transport].api, s.endpoint = e.ClientSide, e.Endpoints[0]
		}
	}
	s.numbers = a.Numbers
	var hosts struct {
		Hosts   []struct{ Numbers map[string]float64 }
		Numbers []numberInfo
	}
	get(t, "/api/outsight/hosts?"+window, &hosts)
	s.host, s.hostNumbers = hosts.Hosts[0].Numbers, hosts.Numbers
	endsOf := func(t *testing.T, id, key string) map[string]*float64 {
		var a struct{ Lines map[string][]*float64 }
		last := map[string]*float64{}
		get(t, "/api/outsight/chart?points=1&edge="+url.QueryEscape(id)+"&numbers=ends."+key+"&"+window, &a)
		if line := a.Lines["ends."+key]; len(line) > 0 {
			last["chart"] = line[len(line)-1]
		}
		var m struct {
			Rows, Columns []struct{ ID string }
			Cells         []struct {
				Row, Column int
				Numbers     map[string]*float64
			}
		}
		get(t, "/api/outsight/matrix?numbers="+key+"&"+window, &m)
		for _, c := range m.Cells {
			if m.Rows[c.Row].ID+">"+m.Columns[c.Column].ID == id {
				last["matrix"] = c.Numbers[key]
			}
		}
		return last
	}
	s.ends = func(t *testing.T, key string) map[string]*float64 {
		for _, id := range append([]string{"client-1>server"}, betweenHosts...) {
			if of := endsOf(t, id, key); of["chart"] != nil {
				return of
			}
		}
		return nil
	}
	s.charted = func(t *testing.T, query string) int {
		var a struct{ Data struct{ Result []any } }
		query = strings.NewReplacer("$match", `host!=""`, "$window", "15s").Replace(query)
		get(t, fmt.Sprintf("/api/v1/query?time=%d&query=%s", last.Time.Unix(), url.QueryEscape(query)), &a)
		return len(a.Data.Result)
	}
	return s
}

// allFrames are those of all seconds.
func allFrames() (all []*frame.Frame) {
	b := frame.NewBuilder(snapshotAt(0).Time)
	for i := range seconds + 1 {
		all = append(all, b.Build(snapshotAt(i)))
	}
	return all
}

// frameLog has the frames of all seconds.
func frameLog(t *testing.T, now func() time.Time) framelog.Log {
	log, err := framelog.Open(t.TempDir(), framelog.Options{Now: now, TidyEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	var key *frame.Frame
	for _, f := range append(allFrames(), framesBetweenHosts()...) {
		if f.IsKey() {
			key = f
		}
		if err := log.Append(t.Context(), []framelog.Encoded{{Header: f.Header, Data: frame.Encode(nil, f, key)}}); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// numbersIn are the numbers of something that is written as JSON, without those that are infinite.
func numbersIn(t *testing.T, of any) map[string]float64 {
	b, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	numbers := map[string]float64{}
	for key, v := range all {
		if n, ok := v.(float64); ok {
			numbers[key] = n
		}
	}
	return numbers
}

// onWire holds that a metric is in what is sent and what is scraped, with its label.
func (s *surfaces) onWire(t *testing.T, m model.Metric, label model.Label) {
	t.Helper()
	there := slices.ContainsFunc(s.series, func(one model.Series) bool {
		return one.Name == m.Name && one.Kind == m.Kind && (label.Name == "" || slices.Contains(one.Labels, label))
	})
	if !there {
		t.Errorf("no series %s%v", m.Name, label)
	}
	if !bytes.Contains(s.wire, []byte(m.Name)) {
		t.Errorf("OTLP has no %s", m.Name)
	}
	if !strings.Contains(s.text, "\n# TYPE "+m.Name+" "+kinds[m.Kind]+"\n") &&
		!strings.HasPrefix(s.text, "# HELP "+m.Name+" ") {
		t.Errorf("/metrics does not say of which kind %s is", m.Name)
	}
	suffix := ""
	if m.Kind == model.HistogramSeries {
		suffix = "_bucket"
	}
	var lines []string
	for line := range strings.Lines(s.text) {
		if strings.HasPrefix(line, m.Name+suffix+"{") {
			lines = append(lines, line)
		}
	}
	if !slices.ContainsFunc(lines, func(line string) bool {
		return label.Name == "" || strings.Contains(line, fmt.Sprintf("%s=%q", label.Name, label.Value))
	}) {
		t.Errorf("/metrics has no %s%v: %q", m.Name, label, lines)
	}
}

// onNode holds that containers and their groups have a number, in the graph and in the JSON of the API.
func (s *surfaces) onNode(t *testing.T, n model.Shown) {
	t.Helper()
	s.folded(t, n, s.nodes, s.pod)
	s.answered(t, n, s.numbers.Usage, s.nodes[0], s.apiNode)
}

// onEdge is as onNode, of edges of TCP, or of UDP where TCP has no such number.
func (s *surfaces) onEdge(t *testing.T, n model.Shown) {
	t.Helper()
	e := s.edges["tcp"]
	if e.members[0][n.Key] == 0 {
		e = s.edges["udp"]
	}
	s.folded(t, n, e.members, e.group)
	s.answered(t, n, s.numbers.Side, e.members[0], e.api)
}

// folded holds that a group has the sum of a number of its members, or what else its formula says.
func (s *surfaces) folded(t *testing.T, n model.Shown, members []map[string]float64, group map[string]float64) {
	t.Helper()
	sum, least := 0.0, math.Inf(1)
	for _, m := range members {
		v, ok := m[n.Key]
		if !ok || v == 0 {
			t.Errorf("the graph has no %s: %v", n.Key, slices.Sorted(maps.Keys(m)))
			return
		}
		sum, least = sum+v, min(least, v)
	}
	want := sum
	switch n.Formula {
	case model.Gain, model.Rate, model.Level, model.Limit:
	case model.LeastLevel:
		want = least
	default: // of a ratio, a histogram or more there is no sum
		want = group[n.Key]
	}
	if got, ok := group[n.Key]; !ok || math.Abs(got-want) > 1e-9*want {
		t.Errorf("the group has %s %v, want %v", n.Key, got, want)
	}
}

// answered holds that the API has the value of a number, and a query that charts it.
func (s *surfaces) answered(t *testing.T, n model.Shown, numbers []numberInfo, want, got map[string]float64) {
	t.Helper()
	if v, ok := got[n.Key]; !ok || math.Abs(v-want[n.Key]) > 1e-9*math.Abs(want[n.Key]) {
		t.Errorf("the API has %s %v, want %v", n.Key, v, want[n.Key])
	}
	s.described(t, n, numbers)
}

func (s *surfaces) described(t *testing.T, n model.Shown, numbers []numberInfo) {
	t.Helper()
	if n.PromQL == "" {
		return
	}
	if !slices.Contains(numbers, numberInfo{n.Key, n.Title, n.Unit, n.PromQL}) {
		t.Errorf("the API does not describe %s: %v", n.Key, numbers)
	}
	if s.charted(t, n.PromQL) != 1 {
		t.Errorf("the chart of %s is of no series: %s", n.Key, n.PromQL)
	}
}

// onEnds holds that the chart of an edge and the matrix have a number of both ends.
func (s *surfaces) onEnds(t *testing.T, n model.Shown) {
	t.Helper()
	of := s.ends(t, n.Key)
	for _, where := range []string{"chart", "matrix"} {
		if of[where] == nil {
			t.Errorf("the %s has no %s", where, n.Key)
		}
	}
	s.described(t, n, s.numbers.Ends)
}

// onEndpoint holds that the API has a number of endpoints, and the page's type of them.
func (s *surfaces) onEndpoint(t *testing.T, n model.Shown) {
	t.Helper()
	if v, ok := s.endpoint[n.Key].(float64); !ok || v == 0 {
		t.Errorf("the API's endpoint has no %s: %v", n.Key, s.endpoint)
	}
	s.described(t, n, s.numbers.Endpoint)
	types, err := os.ReadFile("../../web/src/types.ts")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(section(t, string(types), "export interface Endpoint {"), "\n  "+n.Key) {
		t.Errorf("types.ts: the interface Endpoint has no %s", n.Key)
	}
}

// onHost holds that the API has a number of hosts.
func (s *surfaces) onHost(t *testing.T, n model.Shown) {
	t.Helper()
	if v, ok := s.host[n.Key]; !ok || v == 0 {
		t.Errorf("the API's host has no %s: %v", n.Key, s.host)
	} else if s.fleetHost[n.Key] != v {
		t.Errorf("of frames the host has %s %v, want %v", n.Key, s.fleetHost[n.Key], v)
	}
	s.described(t, n, s.hostNumbers)
}

// onPage holds that the page has a number under its heading, and explains it.
func (s *surfaces) onPage(t *testing.T, n model.Shown, groups, meanings string) {
	t.Helper()
	if groups != "" {
		_, line, _ := strings.Cut(section(t, s.script, "export const "+groups), "\n  ['"+n.Group+"', [")
		line, _, _ = strings.Cut(line, "]")
		if !strings.Contains(line, "'"+n.Key+"'") {
			t.Errorf("numbers.ts: %s has no %s: %s", groups, n.Key, line)
		}
	}
	if n.Meaning != "" && !strings.Contains(section(t, s.script, "export const "+meanings), "\n  "+n.Key+": ") {
		t.Errorf("numbers.ts: %s has no %s", meanings, n.Key)
	}
}

// section is what stands in a script from a declaration to the end of its braces.
func section(t *testing.T, script, declaration string) string {
	t.Helper()
	_, after, ok := strings.Cut(script, declaration)
	if !ok {
		t.Fatalf("no %s", declaration)
	}
	body, _, _ := strings.Cut(after, "\n}")
	body, _, _ = strings.Cut(body, "\n]")
	return body
}

// snapshotAt has two containers of one pod, each with edges to a third in another, after so many seconds. Everything
// in it is above 0, and every counter grows.
func snapshotAt(second int) *model.Snapshot {
	now := time.Unix(1_790_000_000, 0).UTC().Add(time.Duration(second) * time.Second)
	filler := &filler{now: now.Add(-time.Hour), n: uint64(second + 1)}
	s := &model.Snapshot{}
	filler.fill(reflect.ValueOf(s).Elem())
	s.Time, s.Host.Name, s.Translations = now, "node", nil
	first := s.Containers[0]
	container := func(id, pod string) *model.Container {
		c := *first.Container
		c.ID, c.Name, c.PodName, c.PodNamespace, c.Runtime, c.Ended = id, id, pod, "shop", model.Docker, time.Time{}
		return &c
	}
	server := container("server", "behind")
	edge := s.Edges[0]
	s.Containers, s.Edges = nil, nil
	// What is shown is the difference of these and others.
	first.Memory.PageFaults *= 4
	edge.Counters.Opens *= 4
	edge.Counters.Requests *= 4
	edge.Endpoints[0].Protocol, edge.Endpoints[0].Status = model.HTTP, "5xx"
	s.Self.Budget.Parts[0].Fixed = false
	ofHosts := s.Probes.Sessions[0]
	ofHosts.Client, ofHosts.Server = "", ""
	s.Probes.Sessions = append(s.Probes.Sessions, ofHosts)
	for i := range 2 {
		sample := first
		sample.Container = container(fmt.Sprintf("client-%d", i+1), "front")
		s.Containers = append(s.Containers, sample)
		for _, transport := range []model.Transport{model.TCP, model.UDP} {
			e := edge
			e.Side, e.Transport, e.Confidence, e.Paired, e.Via = model.RoleClient, transport, model.Exact, true, ""
			e.Instance = uint64(len(s.Edges) + 1)
			e.Client, e.Server = model.Peer{Container: sample.Container}, model.Peer{Container: server}
			s.Edges = append(s.Edges, e)
			e.Side, e.Instance = model.RoleServer, e.Instance+1
			s.Edges = append(s.Edges, e)
		}
	}
	sample := first
	sample.Container = server
	s.Containers = append(s.Containers, sample)
	return s
}

// filler gives every field a value above 0; n is how often what is counted has happened.
type filler struct {
	now time.Time
	n   uint64
	// field makes values differ.
	field uint64
}

func (f *filler) fill(v reflect.Value) {
	f.field++
	switch value := v.Addr().Interface().(type) {
	case *time.Time:
		*value = f.now
		return
	case *netip.Addr:
		*value = netip.MustParseAddr("10.0.0.1")
		return
	case *netip.AddrPort:
		*value = netip.MustParseAddrPort("10.0.0.1:80")
		return
	case *model.Histogram:
		at := model.BucketOf(time.Duration(f.field) * time.Millisecond)
		*value = model.Histogram{Count: 2 * f.n, SumNS: 2 * f.n * f.field * 1e6, Offset: at, Buckets: []uint64{f.n, f.n}}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Uint64, reflect.Uint32:
		v.SetUint(f.n * (1000 + f.field))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.field))
	case reflect.Float64:
		v.SetFloat(float64(f.field) / 8)
	case reflect.String:
		v.SetString(fmt.Sprintf("v%d", f.field))
	case reflect.Bool:
		v.SetBool(true)
	}
}
