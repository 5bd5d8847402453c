package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// kubeAPI is an API server over objects that a test puts there: lists, and watches that go on from
// the version that is asked for. The shape of its answers is that of recorded ones, which the tests
// of internal/kubernetes replay.
type kubeAPI struct {
	*httptest.Server
	mu      sync.Mutex // guards what follows
	objects map[string]map[string]map[string]any
	// selectors counts the field selectors of requests.
	selectors map[string]int
	events    []kubeEvent
	news      chan struct{} // closed and replaced with each event
}

type kubeEvent struct {
	path, line string
	version    int
}

const (
	kubePods     = "/api/v1/pods"
	kubeServices = "/api/v1/services"
	kubeSlices   = "/apis/discovery.k8s.io/v1/endpointslices"
)

func newKubeAPI(t *testing.T) *kubeAPI {
	k := &kubeAPI{objects: map[string]map[string]map[string]any{}, selectors: map[string]int{}, news: make(chan struct{})}
	k.Server = httptest.NewServer(k)
	t.Cleanup(func() {
		k.CloseClientConnections()
		k.Close()
	})
	return k
}

// config writes a kubeconfig for it.
func (k *kubeAPI) config(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: %q}}]\nusers: [{name: u, user: {token: x}}]\n", k.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// put makes or changes the object of a collection with a name that the JSON in text describes.
func (k *kubeAPI) put(t *testing.T, path, text string) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	meta := object["metadata"].(map[string]any)
	version := len(k.events) + 2
	meta["resourceVersion"] = strconv.Itoa(version)
	if k.objects[path] == nil {
		k.objects[path] = map[string]map[string]any{}
	}
	kind := "MODIFIED"
	if k.objects[path][meta["name"].(string)] == nil {
		kind = "ADDED"
	}
	k.objects[path][meta["name"].(string)] = object
	line, _ := json.Marshal(map[string]any{"type": kind, "object": object})
	k.events = append(k.events, kubeEvent{path, string(line) + "\n", version})
	close(k.news)
	k.news = make(chan struct{})
}

func (k *kubeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	k.selectors[r.URL.Query().Get("fieldSelector")]++
	k.mu.Unlock()
	switch {
	case r.URL.Query().Get("watch") != "":
		k.watch(w, r)
	case strings.HasSuffix(r.URL.Path, "/replicasets/cart-7d9f8b6c5"):
		fmt.Fprint(w, `{"metadata":{"name":"cart-7d9f8b6c5","namespace":"shop","ownerReferences":[{"kind":"Deployment","name":"cart","controller":true}]}}`)
	case strings.Contains(r.URL.Path, "/namespaces/"):
		http.Error(w, `{"message":"not found","reason":"NotFound","code":404}`, http.StatusNotFound)
	default:
		k.mu.Lock()
		defer k.mu.Unlock()
		items := []any{}
		for _, object := range k.objects[r.URL.Path] {
			items = append(items, object)
		}
		json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(len(k.events) + 1)}, "items": items})
	}
}

func (k *kubeAPI) watch(w http.ResponseWriter, r *http.Request) {
	version, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.(http.Flusher).Flush()
	for {
		k.mu.Lock()
		for _, e := range k.events {
			if e.path == r.URL.Path && e.version > version {
				fmt.Fprint(w, e.line)
				version = e.version
			}
		}
		news := k.news
		k.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}

// kubePod is a pod's JSON; without a container's id its status is as before a kubelet writes it.
func kubePod(namespace, name, uid, owner, node, container, id, address string) string {
	status := "{}"
	if address != "" {
		status = fmt.Sprintf(`{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}],"containerStatuses":[{"name":%q,"containerID":"docker://%s"}]}`, address, address, container, id)
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":%q,"ownerReferences":[%s]},"spec":{"nodeName":%q,"containers":[{"name":%q}]},"status":%s}`,
		name, namespace, uid, owner, node, container, status)
}

// podGroup is the control group that a kubelet makes for a pod. It is removed with the test.
func podGroup(t *testing.T, uid string) string {
	group := "/kubepods/burstable/pod" + uid
	t.Cleanup(func() {
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			for _, path := range []string{group, "/kubepods/burstable", "/kubepods"} {
				for _, made := range glob(root + path) {
					os.Remove(made) // those in use by others stay
				}
			}
		}
	})
	return group
}

func glob(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

// TestKubernetes runs two containers in the control groups of pods and lets one dial the other by the
// virtual address of a service, which real rules translate. Containers and both ends of the edge
// carry the names of the API server exactly, and so do the map's workloads and namespaces.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	if driver := docker(t, "info", "-f", "{{.CgroupDriver}}"); driver != "cgroupfs" {
		t.Skipf("Docker's cgroup driver is %s, and the groups here are named as kubelets with cgroupfs do", driver)
	}
	const (
		cartUID, webUID, dbUID = "a9057ccd-b9c0-45c7-9673-d4b19b7c60f2", "b9057ccd-b9c0-45c7-9673-d4b19b7c60f2",
			"c9057ccd-b9c0-45c7-9673-d4b19b7c60f2"
		cartPod     = "cart-7d9f8b6c5-abcde"
		replicaSet  = `{"kind":"ReplicaSet","name":"cart-7d9f8b6c5","controller":true}`
		statefulSet = `{"kind":"StatefulSet","name":"web","controller":true}`
	)
	k := newKubeAPI(t)
	k.put(t, kubePods, kubePod("shop", cartPod, cartUID, replicaSet, "here", "cart", "", ""))
	o := up(t, "--kubernetes", k.config(t))
	own := newNetwork(t)
	cart := start(t, "cart", []string{"--network", own, "--cgroup-parent", podGroup(t, cartUID)},
		"redis-server", "--save", "", "--protected-mode", "no", "--dir", "/tmp")
	web := shell(t, "web", "sleep 3600", "--network", own, "--cgroup-parent", podGroup(t, webUID))
	address := func(c container) string {
		return docker(t, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", c.name)
	}
	cartAddress := address(cart)
	elsewhere := cartAddress[:strings.LastIndexByte(cartAddress, '.')] + ".250"
	// Statuses come after the containers, as from a kubelet.
	k.put(t, kubePods, kubePod("shop", cartPod, cartUID, replicaSet, "here", "cart", cart.id, cartAddress))
	k.put(t, kubePods, kubePod("front", "web-0", webUID, statefulSet, "here", "main", web.id, address(web)))
	k.put(t, kubePods, kubePod("data", "db-0", dbUID, "", "elsewhere", "db", strings.Repeat("d", 64), elsewhere))
	k.put(t, kubeServices, `{"metadata":{"name":"cart","namespace":"shop"},"spec":{"clusterIP":"10.96.54.82","ports":[{"port":80,"protocol":"TCP","targetPort":6379}]}}`)
	k.put(t, kubeSlices, fmt.Sprintf(`{"metadata":{"name":"cart-1","namespace":"shop","labels":{"kubernetes.io/service-name":"cart"}},"ports":[{"port":6379,"protocol":"TCP"}],
"endpoints":[{"addresses":[%q],"targetRef":{"kind":"Pod","namespace":"shop","name":%q}}]}`, cartAddress, cartPod))
	pid := docker(t, "inspect", "-f", "{{.State.Pid}}", web.name)
	rule := exec.Command("nsenter", "-t", pid, "-n", "iptables", "-w", "-t", "nat", "-A", "OUTPUT", "-d", "10.96.54.82",
		"-p", "tcp", "--dport", "80", "-j", "DNAT", "--to", cartAddress+":6379")
	if output, err := rule.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", rule, err, output)
	}

	for id, labels := range map[string]string{
		cart.id: `namespace="shop",pod="` + cartPod +
			`",container="cart",name="cart",workload="cart",workload_kind="Deployment"`,
		web.id: `namespace="front",pod="web-0",container="main",name="main",workload="web",workload_kind="StatefulSet"`,
	} {
		eventually(t, func() error {
			if n := len(o.query(fmt.Sprintf("container_cpu_usage_seconds_total{id=%q,%s}", id, labels))); n != 1 {
				return fmt.Errorf("%d series of container %.12s have the labels %s", n, id, labels)
			}
			return nil
		})
	}
	eventually(t, func() error {
		if output, err := exec.Command("docker", "exec", web.name, "redis-cli", "-h", cartAddress,
			"ping").CombinedOutput(); err != nil || !strings.Contains(string(output), "PONG") {
			return fmt.Errorf("redis: %v: %s", err, output)
		}
		return nil
	})

	const pings = 25
	web.exec("redis-cli", "-h", "10.96.54.82", "-p", "80", "-r", strconv.Itoa(pings), "ping")
	// Nobody answers for the pod of a host that is not watched; the edge has its name nevertheless.
	exec.Command("docker", "exec", web.name, "timeout", "60", "redis-cli", "-h", elsewhere, "ping").Run()
	client := `client_namespace="front",client_pod="web-0",client_container="main",client_workload="web",client_workload_kind="StatefulSet"`
	server := `server_namespace="shop",server_pod="` + cartPod +
		`",server_container="cart",server_workload="cart",server_workload_kind="Deployment"`
	service := `service="10.96.54.82:80",service_namespace="shop",service_name="cart"`
	expect := func(expression string, want float64) {
		t.Helper()
		eventually(t, func() error {
			found := o.query(expression)
			if len(found) != 1 || found[0].value != want {
				return fmt.Errorf("%s is %v, want %v", expression, found, want)
			}
			return nil
		})
	}
	for _, side := range []string{"client", "server"} {
		labels := fmt.Sprintf(`{side=%q,%s,%s,%s}`, side, client, server, service)
		expect("sum(histogram_count(outsight_edge_transaction_duration_seconds"+labels+"))", pings)
		expect("sum(outsight_edge_request_bytes_total"+labels+")", 14*pings)
		expect("sum(outsight_edge_response_bytes_total"+labels+")", 7*pings)
	}
	expect(`sum(outsight_edge_connection_failures_total{side="client",server_id="`+elsewhere+`",`+client+
		`,server_namespace="data",server_pod="db-0",server_container="db",server_workload="db-0",server_workload_kind="Pod",server_node="elsewhere"})`, 1)

	for by, ends := range map[string][2]string{
		"workload":  {"workload/front/StatefulSet/web", "workload/shop/Deployment/cart"},
		"namespace": {"namespace/front", "namespace/shop"},
		"pod":       {"pod/front/web-0", "pod/shop/" + cartPod},
	} {
		o.checkKubeMap(by, ends[0], ends[1], elsewhere)
		if text := o.run("map", "--by", by, "--for", "1s", "--output", "json"); !strings.Contains(text, `"`+ends[1]+`"`) {
			t.Errorf("outsight map --by %s has no %s:\n%s", by, ends[1], text)
		}
	}
	k.checkAgent(t, cart.id, `container="cart"`, `namespace="shop"`, `pod="`+cartPod+`"`, `workload="cart"`,
		`workload_kind="Deployment"`)
	if text := o.run("doctor", "--kubernetes", k.config(t)); !strings.Contains(text, "works    kubernetes/pods") {
		t.Errorf("doctor does not say that pods are known:\n%s", text)
	}
}

// checkAgent runs an agent without a server, which asks for the pods of its own node and has their names
// in its metrics.
func (k *kubeAPI) checkAgent(t *testing.T, id string, labels ...string) {
	t.Helper()
	address := freePort(t)
	var log lockedBuffer
	command := exec.Command(outsightBinary, "agent", "--listen", address, "--socket", socket(t), "--kubernetes",
		k.config(t), "--node-name", "here")
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		command.Process.Signal(os.Interrupt)
		if err := command.Wait(); err != nil {
			t.Errorf("outsight agent ended with %v:\n%s", err, &log)
		}
	}()
	a := &outsight{t: t, address: address}
	want := map[string]string{"id": id}
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		want[name] = strings.Trim(value, `"`)
	}
	eventually(t, func() error {
		metrics, err := a.metrics()
		if err == nil && len(metrics.find("container_cpu_usage_seconds_total", want)) != 1 {
			err = fmt.Errorf("the agent has no container with the labels %v", want)
		}
		return err
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.selectors["spec.nodeName=here"] < 2 {
		t.Errorf("the agent did not list and watch its node's pods alone: %v", k.selectors)
	}
}

// checkKubeMap asks for the map and expects the edge between two groups with what is true of it.
func (o *outsight) checkKubeMap(by, client, server, elsewhere string) {
	o.t.Helper()
	response, err := http.Get("http://" + o.address + "/api/outsight/graph?from=now-5m&by=" + by)
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	var m drawnMap
	if err := json.NewDecoder(response.Body).Decode(&m); err != nil {
		o.t.Fatal(err)
	}
	found := false
	for _, e := range m.Edges {
		if e.Server == elsewhere {
			o.t.Errorf("by %s: the pod on another host is a bare address", by)
		}
		if e.Client != client || e.Server != server {
			continue
		}
		found = true
		// One more was sent to the pod's own address, to see whether it answers.
		if want := (drawnSide{26, 26 * 14, 26 * 7}); e.ClientSide == nil || e.ServerSide == nil ||
			*e.ClientSide != want || *e.ServerSide != want || !e.Paired {
			o.t.Errorf("by %s: the edge is %+v and %+v, want %+v at both ends", by, e.ClientSide, e.ServerSide, want)
		}
	}
	if !found {
		o.t.Errorf("by %s: no edge from %s to %s among %+v", by, client, server, m.Edges)
	}
}
