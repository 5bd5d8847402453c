package kubernetes

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// remembered is a cluster whose history is in a file.
type remembered struct {
	*cluster
	path string
	o    HistoryOptions
}

func remember(t *testing.T, o HistoryOptions) *remembered {
	r := &remembered{newCluster(t, Options{}), filepath.Join(t.TempDir(), "names"), o}
	r.reopen()
	return r
}

// reopen opens the history again, as after a restart of the server.
func (r *remembered) reopen() {
	r.t.Helper()
	if r.history != nil {
		if err := r.history.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	h, err := OpenHistory(r.path, r.o)
	if err != nil {
		r.t.Fatal(err)
	}
	h.now = r.now
	r.Remember(h)
}

func (r *remembered) tell() {
	r.t.Helper()
	if err := r.tellHistory(); err != nil {
		r.t.Fatal(err)
	}
}

// end is what an end was called, as "namespace/pod container workload node service".
func (r *remembered) end(at time.Time, address, service string) string {
	var port netip.AddrPort
	if service != "" {
		port = netip.MustParseAddrPort(service)
	}
	e, _ := r.history.End(at, netip.MustParseAddr(address), port, model.TCP)
	return strings.TrimSpace(fmt.Sprintf("%s/%s %s %s %s %s", e.Namespace, e.Pod, e.Container, e.Workload, e.Node, e.Service))
}

func (r *remembered) want(at time.Time, address, service, want string) {
	r.t.Helper()
	if got := r.end(at, address, service); got != want {
		r.t.Errorf("%s at %s was %q, want %q", address, at.Format(time.TimeOnly), got, want)
	}
}

func started(at time.Time) string { return fmt.Sprintf(`,"startTime":%q`, at.Format(time.RFC3339)) }

func TestAnAddressIsEachPodsInItsTime(t *testing.T) {
	r := remember(t, HistoryOptions{})
	begin := r.clock
	const first, second = "shop/db-0 main db node-a", "shop/db-1 main db node-a"
	// It is learnt an hour after the pod began.
	r.put("pods", podAt("db-0", "10.0.0.1", "aaa", started(begin.Add(-time.Hour))))
	r.tell()
	check := func() {
		t.Helper()
		r.want(begin.Add(-61*time.Minute), "10.0.0.1", "", "/")
		r.want(begin.Add(-time.Hour), "10.0.0.1", "", first)
		r.want(begin, "10.0.0.1", "10.0.0.1:5432", first)
	}
	check()
	r.clock = begin.Add(time.Hour)
	r.delete(podAt("db-0", "10.0.0.1", "aaa", ""))
	r.tell()
	r.clock = begin.Add(2 * time.Hour)
	r.put("pods", podAt("db-1", "10.0.0.1", "bbb", started(begin.Add(90*time.Minute))))
	r.tell()
	later := func() {
		t.Helper()
		check()
		r.want(begin.Add(59*time.Minute), "10.0.0.1", "", first)
		r.want(begin.Add(62*time.Minute), "10.0.0.1", "", first) // numbers come late
		r.want(begin.Add(80*time.Minute), "10.0.0.1", "", "/")
		r.want(begin.Add(90*time.Minute), "10.0.0.1", "", second)
		r.want(begin.Add(100*time.Hour), "10.0.0.1", "", second)
	}
	later()
	r.reopen()
	later()
	for id, pod := range map[string]string{"aaa": "db-0", "bbb": "db-1"} {
		if is, ok := r.history.Container(id); !ok || is.Pod != pod || is.Container != "main" || is.Workload != "db" {
			t.Errorf("the container %s is of %+v", id, is)
		}
	}
	if _, ok := r.history.Container("ccc"); ok {
		t.Error("an unknown container has a name")
	}
	// The end of db-1 is not seen; another pod has its address, and ends it.
	r.clock = begin.Add(10 * time.Hour)
	r.put("pods", podAt("db-2", "10.0.0.1", "ccc", started(begin.Add(9*time.Hour))))
	r.tell()
	r.want(begin.Add(8*time.Hour), "10.0.0.1", "", second)
	r.want(begin.Add(9*time.Hour), "10.0.0.1", "", "shop/db-2 main db node-a")
}

func TestServicesInTheirTime(t *testing.T) {
	r := remember(t, HistoryOptions{})
	begin := r.clock
	service := func(name string, created time.Time, ip string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop","creationTimestamp":%q},"spec":{"clusterIP":%q,"ports":[{"port":80}]}}`,
			name, created.Format(time.RFC3339), ip)
	}
	slice := func(ips ...string) string {
		var targets []string
		for _, ip := range ips {
			targets = append(targets, fmt.Sprintf(`{"addresses":[%q]}`, ip))
		}
		return fmt.Sprintf(`{"metadata":{"name":"a-1","namespace":"shop","creationTimestamp":%q,"labels":{"kubernetes.io/service-name":"a"}},
"endpoints":[%s],"ports":[{"port":5432}]}`, begin.Add(-time.Hour).Format(time.RFC3339), strings.Join(targets, ","))
	}
	r.put("services", service("a", begin.Add(-time.Hour), "10.96.0.1"))
	r.put("pods", podAt("db-0", "10.0.0.1", "aaa", started(begin.Add(-time.Hour))),
		podAt("db-1", "10.0.0.2", "bbb", started(begin.Add(-time.Hour))))
	r.put("endpointslices", slice("10.0.0.1"))
	r.tell()
	r.clock = begin.Add(time.Hour)
	r.put("endpointslices", slice("10.0.0.1", "10.0.0.2"))
	r.put("services", service("a", begin.Add(-time.Hour), "10.96.0.9"), service("b", begin.Add(30*time.Minute), "10.96.0.1"))
	r.tell()
	for range 2 {
		r.want(begin.Add(-2*time.Hour), "10.96.0.1", "10.96.0.1:80", "/")
		r.want(begin, "10.96.0.1", "10.96.0.1:80", "shop/db-0 main db node-a a")
		r.want(begin, "10.0.0.1", "10.0.0.1:5432", "shop/db-0 main db node-a a")
		r.want(begin, "10.0.0.2", "10.0.0.2:5432", "shop/db-1 main db node-a")
		r.want(begin.Add(2*time.Hour), "10.0.0.2", "10.0.0.2:5432", "shop/db-1 main db node-a a")
		// Of several pods behind a service, what they have in common.
		r.want(begin.Add(2*time.Hour), "10.96.0.9", "10.96.0.9:80", "shop/  db  a")
		r.reopen()
	}
	if got := r.end(begin.Add(2*time.Hour), "10.96.0.1", "10.96.0.1:80"); !strings.HasSuffix(got, "b") {
		t.Errorf("10.96.0.1 is %q later", got)
	}
}

// TestHistoryOfTheRecordedCluster reads what a real API server answered.
func TestHistoryOfTheRecordedCluster(t *testing.T) {
	r := remember(t, HistoryOptions{})
	r.clock = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for resource, file := range map[string]string{"pods": "04-pods-list", "services": "05-services-list",
		"endpointslices": "06-endpointslices-list", "nodes": "07-nodes-list"} {
		for _, text := range replayed(t, file) {
			r.put(resource, text)
		}
	}
	r.tell()
	r.reopen()
	named := 0
	for _, known := range r.pods.items {
		p := known.object
		for _, a := range p.addresses {
			if p.hostNetwork || p.ended {
				continue
			}
			named++
			if e, ok := r.history.End(r.clock.Add(1000*24*time.Hour), a, netip.AddrPort{}, model.TCP); !ok || e.Pod != p.name ||
				e.Namespace != p.namespace || e.Node != p.node {
				t.Errorf("%v is %+v, want %s/%s", a, e, p.namespace, p.name)
			}
			if e, ok := r.history.End(p.began.Add(-time.Hour), a, netip.AddrPort{}, model.TCP); ok && e.Pod == p.name {
				t.Errorf("%v was %+v before it began at %v", a, e, p.began)
			}
		}
	}
	if named == 0 {
		t.Error("no pod with an address was recorded")
	}
}

// TestHistoryTornAnywhere: of a file that ends at any byte, all records that are whole are read.
func TestHistoryTornAnywhere(t *testing.T) {
	r := remember(t, HistoryOptions{})
	for i := range 8 {
		r.put("pods", podAt(fmt.Sprintf("db-%d", i), fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("id%d", i), started(r.clock)))
		r.tell()
	}
	whole, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(t.TempDir(), "torn")
	for n := 0; n < len(whole); n += 7 {
		if err := os.WriteFile(torn, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := max(bytes.Count(whole[:n], []byte("\n"))-1, 0)
		for range 2 { // what is cut off stays away
			h, err := OpenHistory(torn, HistoryOptions{})
			if err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if got := len(h.records()); got != want {
				t.Fatalf("%d bytes: %d records, want %d", n, got, want)
			}
			h.Close()
		}
	}
	if err := os.WriteFile(torn, []byte("something else\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenHistory(torn, HistoryOptions{}); err == nil {
		t.Error("another file was taken for a history")
	}
	broken := slices.Clone(whole)
	broken[len(broken)/2] ^= 1
	if err := os.WriteFile(torn, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := OpenHistory(torn, HistoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if n := len(h.records()); n >= 8 || n < 2 {
		t.Errorf("%d records before a broken one in the middle", n)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	r := remember(t, HistoryOptions{Keep: 24 * time.Hour, MaxVersions: 50, MaxBytes: 32 << 10})
	begin := r.clock
	for i := range 300 {
		pod := podAt(fmt.Sprintf("job-%d", i), "10.0.0.1", fmt.Sprintf("id%d", i), started(r.clock))
		r.put("pods", pod)
		r.tell()
		r.clock = r.clock.Add(time.Minute)
		r.delete(pod)
		r.tell()
		r.clock = r.clock.Add(time.Minute)
	}
	info, err := os.Stat(r.path)
	if err != nil || info.Size() > 32<<10 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	r.want(r.clock.Add(-2*time.Minute), "10.0.0.1", "", "shop/job-299 main db node-a")
	r.want(begin, "10.0.0.1", "", "/")
	drops := r.history.Drops()[0]
	if drops.Count == 0 || drops.Used == 0 || drops.Used > 300 {
		t.Errorf("the history's bounds are %+v", drops)
	}
	r.reopen()
	r.want(r.clock.Add(-2*time.Minute), "10.0.0.1", "", "shop/job-299 main db node-a")
}

// TestAbsentAfterARestart: what went while the server was down has ended.
func TestAbsentAfterARestart(t *testing.T) {
	r := remember(t, HistoryOptions{})
	begin := r.clock
	r.put("pods", podAt("db-0", "10.0.0.1", "aaa", started(begin)), podAt("db-1", "10.0.0.2", "bbb", started(begin)))
	r.tell()
	old := r.history
	r.cluster = newCluster(t, Options{})
	r.clock = begin.Add(time.Hour)
	old.now = r.now
	r.Remember(old)
	r.put("pods", podAt("db-1", "10.0.0.2", "bbb", started(begin)))
	for _, reflector := range r.reflectors {
		reflector.synced = true
	}
	if err := r.endAbsent(); err != nil {
		t.Fatal(err)
	}
	r.tell()
	r.want(begin.Add(30*time.Minute), "10.0.0.1", "", "shop/db-0 main db node-a")
	r.want(begin.Add(2*time.Hour), "10.0.0.1", "", "/")
	r.want(begin.Add(2*time.Hour), "10.0.0.2", "", "shop/db-1 main db node-a")
}

func FuzzHistory(f *testing.F) {
	line, _ := appendRecord([]byte(historyHeader), &record{Kind: kindPod, Key: "a", From: 1, Is: []byte(`{"name":"a"}`)})
	f.Add(line)
	f.Add([]byte(historyHeader))
	f.Fuzz(func(t *testing.T, data []byte) {
		count := 0
		whole, err := readRecords(bytes.NewReader(data), func(record) { count++ })
		if whole < 0 || whole > int64(len(data)) || err == nil && whole > 0 && count != bytes.Count(data[:whole], []byte("\n"))-1 {
			t.Errorf("%d bytes, %d records of %q, %v", whole, count, data, err)
		}
	})
}
