package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/otlp"
)

// cluster is one that never asks anybody: a test puts objects into it.
type cluster struct {
	*Cluster
	t     *testing.T
	clock time.Time
}

func newCluster(t *testing.T, o Options) *cluster {
	c, err := New(Config{Server: "http://127.0.0.1:1"}, o)
	if err != nil {
		t.Fatal(err)
	}
	own := &cluster{c, t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.now = func() time.Time { return own.clock }
	return own
}

// put adds objects as the API server tells of them.
func (c *cluster) put(resource string, objects ...string) {
	c.t.Helper()
	for _, r := range c.reflectors {
		for _, o := range objects {
			if r.resource != resource {
				continue
			}
			if _, err := r.put([]byte(o), 1); err != nil {
				c.t.Fatalf("%s: %v", o, err)
			}
		}
	}
}

func (c *cluster) delete(pod string) {
	c.t.Helper()
	if _, err := c.reflectors[0].remove([]byte(pod)); err != nil {
		c.t.Fatal(err)
	}
}

// podAt is a pod of the stateful set "db" in the namespace "shop"; more is added to its status.
func podAt(name, ip, id, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop","uid":"uid-%s","ownerReferences":[{"kind":"StatefulSet","name":"db","controller":true}]},
"spec":{"nodeName":"node-a","containers":[{"name":"main"}]},
"status":{"phase":"Running","podIP":%q,"hostIP":"198.51.100.1","containerStatuses":[{"name":"main","containerID":"containerd://%s"}]%s}}`, name, name, ip, id, more)
}

// edge is a series of an edge, with labels in the form "name=value".
func edge(labels ...string) model.Series {
	s := model.Series{Name: otlp.EdgeRequestBytes, Kind: model.Counter, Value: 7}
	for _, l := range append(labels, "side=client", "host=h") {
		name, value, _ := strings.Cut(l, "=")
		s.Labels = append(s.Labels, model.Label{Name: name, Value: value})
	}
	slices.SortFunc(s.Labels, func(a, b model.Label) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// added are the labels that naming adds to a series, in the form "name=value".
func (c *cluster) added(s model.Series) string {
	c.t.Helper()
	before := slices.Clone(s.Labels)
	named := c.Name([]model.Series{s})
	if !slices.Equal(before, s.Labels) || len(named) != 1 {
		c.t.Errorf("naming changed its input %v", s.Labels)
	}
	var added []string
	for i, l := range named[0].Labels {
		if i > 0 && named[0].Labels[i-1].Name >= l.Name {
			c.t.Errorf("the labels are not in order: %v", named[0].Labels)
		}
		if !slices.Contains(before, l) {
			added = append(added, l.Name+"="+l.Value)
		}
	}
	if len(named[0].Labels) != len(before)+len(added) {
		c.t.Errorf("labels were lost: %v became %v", before, named[0].Labels)
	}
	return strings.Join(added, " ")
}

func (c *cluster) want(s model.Series, want string) {
	c.t.Helper()
	if got := c.added(s); got != want {
		c.t.Errorf("%v gained\n %s\nwant\n %s", s.Labels, got, want)
	}
}

const (
	db0 = "server_container=main server_namespace=shop server_node=node-a server_pod=db-0 server_workload=db " +
		"server_workload_kind=StatefulSet"
	db1 = "client_container=main client_namespace=shop client_node=node-a client_pod=db-1 client_workload=db " +
		"client_workload_kind=StatefulSet"
)

func TestEndsAreNamedByTheirAddress(t *testing.T) {
	c := newCluster(t, Options{})
	c.put("pods", podAt("db-0", "10.0.0.1", "aaa", `,"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]`),
		podAt("db-1", "10.0.0.2", "bbb", ""))
	c.want(edge("client_id=10.0.0.2", "server_id=10.0.0.1", "service=10.0.0.1:5432"), db1+" "+db0)
	c.want(edge("client_id=::ffff:10.0.0.2", "server_id=fd00::1", "service=[fd00::1]:5432"), db1+" "+db0)
	c.want(edge("client_id=10.0.0.9", "server_id=others", "service=others"), "")
	// The containers of this host are known by id; what the agent said stays.
	c.want(edge("client_id=bbb", "client_pod=other", "server_id=host", "service=10.0.0.1:5432"),
		"client_container=main client_namespace=shop client_workload=db client_workload_kind=StatefulSet")
	c.want(model.Series{Name: "container_x", Labels: []model.Label{{Name: "host", Value: "h"},
		{Name: "id", Value: "aaa"}}},
		"container=main namespace=shop pod=db-0 workload=db workload_kind=StatefulSet")
	// A container that no status tells of yet, of a pod that a runtime named.
	c.want(model.Series{Name: "container_x", Labels: []model.Label{{Name: "id", Value: "new"},
		{Name: "namespace", Value: "shop"}, {Name: "pod", Value: "db-0"}}},
		"workload=db workload_kind=StatefulSet")
	c.want(model.Series{Name: "host_x", Labels: []model.Label{{Name: "host", Value: "h"}}}, "")
}

func TestConfidenceOfWhatWasFound(t *testing.T) {
	c := newCluster(t, Options{})
	c.put("pods", podAt("db-0", "10.0.0.1", "aaa", ""))
	check := func(given, want float64, id string) {
		t.Helper()
		s := edge("client_id=x", "server_id="+id, "service=10.0.0.1:1")
		s.Name, s.Value = otlp.EdgeConfidence, given
		if got := c.Name([]model.Series{s})[0].Value; got != want {
			t.Errorf("the confidence is %v, want %v", got, want)
		}
	}
	check(float64(model.NotFound), float64(model.ByAddress), "10.0.0.1")
	check(float64(model.NotFound), float64(model.NotFound), "10.0.0.7")
	check(float64(model.ByListener), float64(model.ByListener), "10.0.0.1")
}

func TestServices(t *testing.T) {
	c := newCluster(t, Options{})
	service := func(name, spec, status string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"spec":%s,"status":%s}`, name, spec, status)
	}
	slice := func(name, service string, endpoints ...string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop","labels":{"kubernetes.io/service-name":%q}},"ports":[{"port":5432,"protocol":"TCP"}],"endpoints":[%s]}`,
			name, service, strings.Join(endpoints, ","))
	}
	at := func(address, pod string) string {
		return fmt.Sprintf(`{"addresses":[%q],"targetRef":{"kind":"Pod","namespace":"shop","name":%q}}`, address, pod)
	}
	c.put("pods", podAt("db-0", "10.0.0.1", "aaa", ""), podAt("db-1", "10.0.0.2", "bbb", ""),
		strings.Replace(podAt("web", "10.0.0.3", "ccc", ""), `"StatefulSet","name":"db"`, `"DaemonSet","name":"web"`, 1))
	c.put("services",
		service("db", `{"clusterIP":"10.96.0.10","clusterIPs":["10.96.0.10","fd01::10"],"externalIPs":["203.0.113.5"],"ports":[{"port":80,"nodePort":30080,"protocol":"TCP"}]}`,
			`{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"},{"hostname":"lb.example"}]}}`),
		service("one", `{"clusterIP":"10.96.0.11","ports":[{"port":80}]}`, `{}`),
		service("mixed", `{"clusterIP":"10.96.0.12","ports":[{"port":80}]}`, `{}`),
		service("headless", `{"clusterIP":"None","ports":[{"port":5432}]}`, `{}`),
		service("dns", `{"clusterIP":"10.96.0.53","ports":[{"port":53,"protocol":"UDP"}]}`, `{}`))
	c.put("endpointslices", slice("db-1", "db", at("10.0.0.1", "db-0")), slice("db-2", "db", at("10.0.0.2", "db-1")),
		slice("one-1", "one", at("10.0.0.1", "db-0")),
		slice("mixed-1", "mixed", at("10.0.0.1", "db-0"), at("10.0.0.3", "web")))
	c.put("nodes", `{"metadata":{"name":"node-a"},"status":{"addresses":[{"type":"InternalIP","address":"198.51.100.1"},{"type":"Hostname","address":"node-a"}]}}`)
	named := func(name string) string { return "service_name=" + name + " service_namespace=shop" }
	workload := "server_namespace=shop server_workload=db server_workload_kind=StatefulSet " + named("db")
	for _, address := range []string{"10.96.0.10", "fd01::10", "203.0.113.5", "203.0.113.9"} {
		place := address + ":80"
		if strings.Contains(address, ":") {
			place = "[" + address + "]:80"
		}
		// Two pods of one workload are behind it.
		c.want(edge("client_id=x", "server_id="+address, "service="+place), workload)
	}
	c.want(edge("client_id=x", "server_id=198.51.100.1", "service=198.51.100.1:30080"), "server_node=node-a "+named("db"))
	c.want(edge("client_id=x", "server_id=10.96.0.11", "service=10.96.0.11:80"), db0+" "+named("one"))
	c.want(edge("client_id=x", "server_id=10.96.0.12", "service=10.96.0.12:80"), "server_namespace=shop "+named("mixed"))
	c.want(edge("client_id=x", "server_id=10.96.0.11", "service=10.96.0.11:81"), "")
	c.want(edge("client_id=x", "server_id=10.96.0.53", "service=10.96.0.53:53", "transport=udp"), named("dns"))
	c.want(edge("client_id=x", "server_id=10.96.0.53", "service=10.96.0.53:53", "transport=tcp"), "")
	// The agent found the pod behind a virtual address: both are told.
	c.want(edge("client_id=x", "server_id=aaa", "service=10.96.0.11:80"),
		"server_container=main server_namespace=shop server_pod=db-0 server_workload=db server_workload_kind=StatefulSet "+named("one"))
	// A pod's own address: of three services one could be the one that was asked for.
	c.want(edge("client_id=x", "server_id=10.0.0.1", "service=10.0.0.1:5432"), db0)
	// Behind a headless service the pod's address is dialled.
	c.put("endpointslices", slice("db-2", "db"), slice("headless-1", "headless", at("10.0.0.2", "db-1")))
	c.want(edge("client_id=x", "server_id=10.0.0.2", "service=10.0.0.2:5432"),
		strings.ReplaceAll(db1, "client_", "server_")+" "+named("headless"))
	c.want(edge("client_id=x", "server_id=10.96.0.10", "service=10.96.0.10:80"), db0+" "+named("db"))
}

func TestHostNetworkPodsAreToldByTheirPorts(t *testing.T) {
	c := newCluster(t, Options{})
	host := func(name, port string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"kube-system","uid":%q},"spec":{"nodeName":"node-a","hostNetwork":true,"containers":[{"name":"c","ports":[{"containerPort":%s}]}]},
"status":{"phase":"Running","podIP":"198.51.100.1","hostIP":"198.51.100.1"}}`, name, name, port)
	}
	c.put("pods", host("proxy", "10256"), host("agent", "8471"), podAt("db-0", "10.0.0.1", "aaa", ""))
	node := "server_node=node-a"
	pod := "server_container=c server_namespace=kube-system server_node=node-a server_pod=proxy server_workload=proxy " +
		"server_workload_kind=Pod"
	c.want(edge("client_id=10.0.0.1", "server_id=198.51.100.1", "service=198.51.100.1:10256"),
		strings.ReplaceAll(db0, "server_", "client_")+" "+pod)
	// No pod has said that it serves there, and a client's port tells nothing.
	c.want(edge("client_id=198.51.100.1", "server_id=198.51.100.1", "service=198.51.100.1:22"), "client_node=node-a "+node)
	// A port that two pods declare is neither's.
	c.put("pods", host("rival", "10256"))
	c.want(edge("client_id=x", "server_id=198.51.100.1", "service=198.51.100.1:10256"), node)
	// A host port leads to a pod with an address of its own.
	c.put("pods", strings.Replace(podAt("db-1", "10.0.0.2", "bbb", ""), `{"name":"main"}`,
		`{"name":"main","ports":[{"containerPort":5432,"hostPort":15432}]}`, 1))
	c.want(edge("client_id=x", "server_id=198.51.100.1", "service=198.51.100.1:15432"),
		strings.ReplaceAll(db1, "client_", "server_"))
}

func TestPodsThatAreGoneAreNamedForAWhile(t *testing.T) {
	c := newCluster(t, Options{})
	old, next := podAt("db-0", "10.0.0.1", "aaa", ""), podAt("db-1", "10.0.0.1", "bbb", "")
	c.put("pods", old)
	c.delete(old)
	toOld := edge("client_id=x", "server_id=10.0.0.1", "service=10.0.0.1:5432")
	c.clock = c.clock.Add(4*time.Minute + 59*time.Second)
	c.sweep()
	c.want(toOld, db0)
	// Who has the address now is meant, and the container's id is never another's.
	c.put("pods", next)
	c.want(toOld, strings.ReplaceAll(db1, "client_", "server_"))
	if p, _ := c.Identify("aaa", ""); p.Pod != "db-0" {
		t.Errorf("the container that is gone is of %+v", p)
	}
	c.clock = c.clock.Add(time.Second)
	c.sweep()
	if known(c.Cluster, "aaa", "uid-db-0") || len(c.retired) != 0 || len(c.entryOf) != 1 || len(c.byAddress) != 1 {
		t.Errorf("what is gone for long is still there: %d retired, %d held", len(c.retired), len(c.entryOf))
	}
	c.want(toOld, strings.ReplaceAll(db1, "client_", "server_"))
}

// TestAddressOfAnEndedPod: a job's pod stays in the API for long after its address has become
// somebody else's.
func TestAddressOfAnEndedPod(t *testing.T) {
	c := newCluster(t, Options{})
	to := edge("client_id=x", "server_id=10.0.0.1", "service=10.0.0.1:5432")
	running := podAt("db-0", "10.0.0.1", "aaa", "")
	ended := strings.Replace(running, `"Running"`, `"Succeeded"`, 1)
	c.put("pods", running, ended)
	c.want(to, db0)
	c.clock = c.clock.Add(3 * time.Minute)
	c.put("pods", ended) // a change of something else does not begin the time anew
	c.clock = c.clock.Add(3 * time.Minute)
	c.want(to, "")
	if !known(c.Cluster, "aaa", "") {
		t.Error("its container has no name any more")
	}
	c.put("pods", podAt("db-1", "10.0.0.1", "bbb", ""))
	c.want(to, strings.ReplaceAll(db1, "client_", "server_"))
	// One that had ended before it was seen has no address.
	fresh := newCluster(t, Options{})
	fresh.put("pods", ended)
	fresh.want(to, "")
	// Two pods that run with one address are a contradiction, and none is named.
	c.put("pods", podAt("db-2", "10.0.0.1", "ccc", ""))
	c.want(to, "")
}

func TestContainersOfAPod(t *testing.T) {
	c := newCluster(t, Options{})
	first := podAt("db-0", "10.0.0.1", "one",
		`,"initContainerStatuses":[{"name":"setup","containerID":"","state":{"terminated":{"containerID":"cri-o://init"}}}],"ephemeralContainerStatuses":[{"name":"debugger","containerID":"containerd://eph"}]`)
	c.put("pods", first)
	check := func(id, want string) {
		t.Helper()
		if p, _ := c.Identify(id, ""); p.Container != want || p.Pod != "db-0" {
			t.Errorf("%s is %+v, want the container %s of db-0", id, p, want)
		}
	}
	check("init", "setup")
	check("eph", "debugger")
	// It restarts: the status has the new id and the last one's. Runs before that are remembered.
	for i := range 5 {
		c.put("pods", strings.Replace(first, `"containerID":"containerd://one"`,
			fmt.Sprintf(`"containerID":"containerd://run-%d","lastState":{"terminated":{"containerID":"containerd://run-%d"}}`,
				i+1, i), 1))
	}
	for _, id := range []string{"one", "run-0", "run-3", "run-5"} {
		check(id, "main")
	}
	// However often it does.
	for i := 5; i < 100; i++ {
		c.put("pods", strings.Replace(first, "containerd://one", fmt.Sprintf("containerd://run-%d", i), 1))
	}
	check("run-99", "main")
	check("run-90", "main")
	if known(c.Cluster, "run-50", "") || len(c.byContainer) > maxPast+3 {
		t.Errorf("%d runs are remembered, want at most %d", len(c.byContainer), maxPast+3)
	}
}

func TestWorkloads(t *testing.T) {
	c := newCluster(t, Options{})
	check := func(name, owners, more string, want model.PodIdentity) {
		t.Helper()
		c.put("pods", fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"n","uid":%q%s,"ownerReferences":[%s]},"spec":{"nodeName":"node-a"}}`, name, name, more, owners))
		want.Namespace, want.Pod = "n", name
		if got, ok := c.Identify("", name); !ok || got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	controller := func(kind, name string) string {
		return fmt.Sprintf(`{"kind":"Other","name":"x"},{"kind":%q,"name":%q,"controller":true}`, kind, name)
	}
	check("bare", "", "", model.PodIdentity{Workload: "bare", WorkloadKind: "Pod"})
	check("db-0", controller("StatefulSet", "db"), "", model.PodIdentity{Workload: "db", WorkloadKind: "StatefulSet"})
	check("etl-1", controller("Workflow", "etl"), "", model.PodIdentity{Workload: "etl", WorkloadKind: "Workflow"})
	check("kube-apiserver-node-a", controller("Node", "node-a"),
		`,"annotations":{"kubernetes.io/config.mirror":"0123456789abcdef0123456789abcdef"}`,
		model.PodIdentity{Workload: "kube-apiserver", WorkloadKind: "StaticPod"})
	// The kubelet's control group of a pod from a file has the hash for a uid.
	if p, _ := c.Identify("", "0123456789abcdef0123456789abcdef"); p.Pod != "kube-apiserver-node-a" {
		t.Errorf("the static pod is %+v", p)
	}
	check("web-5d9f-x", controller("ReplicaSet", "web-5d9f"), `,"labels":{"pod-template-hash":"5d9f"}`,
		model.PodIdentity{Workload: "web", WorkloadKind: "Deployment"})
	// Whether a cron job owns a job, or a replica set stands for itself, is for the API server to say.
	check("tick-123-x", controller("Job", "tick-123"), "", model.PodIdentity{})
	check("rs-x", controller("ReplicaSet", "rs"), "", model.PodIdentity{})
	c.owners.known[ownerKey{owner{"Job", "tick-123"}, "n"}] = owner{"CronJob", "tick"}
	check("tick-123-x", controller("Job", "tick-123"), "", model.PodIdentity{Workload: "tick", WorkloadKind: "CronJob"})
	c.owners.refused["ReplicaSet"] = refusal{err: errors.New("refused")}
	check("rs-x", controller("ReplicaSet", "rs"), "", model.PodIdentity{Workload: "rs", WorkloadKind: "ReplicaSet"})
	if used := len(c.owners.asked); used != 3 {
		t.Errorf("%d owners are asked for, want 3", used)
	}
}

func TestOwnersAreForgottenWithTheirPods(t *testing.T) {
	c := newCluster(t, Options{MaxOwners: 1})
	job := `{"metadata":{"name":"a","namespace":"n","uid":"a","ownerReferences":[{"kind":"Job","name":"a","controller":true}]}}`
	other := strings.ReplaceAll(job, `"a"`, `"b"`)
	c.put("pods", job, other)
	if full, used := drop(t, c.Cluster, "owners"); full != 1 || used != 1 {
		t.Errorf("%d owners are known and %d found no room, want 1 and 1", used, full)
	}
	c.delete(job)
	c.clock = c.clock.Add(time.Hour)
	c.sweep()
	c.sweep() // the room that became free is used
	if _, ok := c.owners.asked[ownerKey{owner{"Job", "b"}, "n"}]; !ok || len(c.owners.asked) != 1 {
		t.Errorf("asked are %v", c.owners.asked)
	}
}

func TestGonePodsMakeRoom(t *testing.T) {
	c := newCluster(t, Options{MaxPods: 2})
	a, b, third := podAt("a", "10.0.0.1", "aaa", ""), podAt("b", "10.0.0.2", "bbb", ""), podAt("c", "10.0.0.3", "ccc", "")
	c.put("pods", a, b)
	c.delete(a)
	c.put("pods", third)
	if full, used := drop(t, c.Cluster, "pods"); full != 1 || used != 2 || known(c.Cluster, "aaa", "") ||
		!known(c.Cluster, "ccc", "") {
		t.Errorf("%d pods are known, %d lost their room", used, full)
	}
}

func TestNothingToName(t *testing.T) {
	series := []model.Series{edge("client_id=10.0.0.1", "server_id=x", "service=y")}
	var none *Cluster
	if got := none.Name(series); &got[0] != &series[0] {
		t.Error("no cluster changed the series")
	}
}

func BenchmarkName(b *testing.B) {
	c, err := New(Config{Server: "http://127.0.0.1:1"}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	var series []model.Series
	for i := range 100 {
		id := fmt.Sprintf("%064x", i)
		if _, err := c.reflectors[0].put([]byte(podAt(fmt.Sprintf("db-%d", i), fmt.Sprintf("10.0.0.%d", i+1), id, "")),
			1); err != nil {
			b.Fatal(err)
		}
		one := edge("client_id="+id, fmt.Sprintf("server_id=10.0.0.%d", i+1), "service=10.0.0.1:80")
		for range 35 {
			series = append(series, one)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Name(series)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(series)), "ns/series")
}
