package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

func known(c *Cluster, id, uid string) bool {
	_, ok := c.Identify(id, uid)
	return ok
}

func TestRecordedClusterIsNamed(t *testing.T) {
	s := serve(t)
	c := follows(t, s, Options{})
	<-c.Synced()
	eventually(t, "the deployment is known", func() bool { return len(s.requests("get", deploymentOf)) == 1 })
	check := func(id, uid string, want model.PodIdentity) {
		t.Helper()
		if got, ok := c.Identify(id, uid); !ok || got != want {
			t.Errorf("container %.4s of pod %.4s is %+v, want %+v", id, uid, got, want)
		}
	}
	cart := model.PodIdentity{Namespace: "shop", Pod: "cart-7d9f8b6c5-abcde", Container: "main", Workload: "cart",
		WorkloadKind: "Deployment"}
	check(cartID, "", cart)
	cart.Container = "" // the pod is known, which of its containers is not
	check("", cartUID, cart)
	check(redisID, redisUID, model.PodIdentity{Namespace: "shop", Pod: "redis-0", Container: "main", Workload: "redis-0",
		WorkloadKind: "Pod"})
	if known(c, "", "no such") || known(c, "", "") {
		t.Error("an unknown container has a name")
	}
	for name, want := range map[string]uint64{"pods": 2, "services": 3, "endpoint-slices": 1, "nodes": 2, "owners": 1} {
		if count, used := drop(t, c, name); used != want || count != 0 {
			t.Errorf("%d %s are known and %d found no room, want %d and 0", used, name, count, want)
		}
	}
	for _, f := range c.Features() {
		if f.State != model.FeatureWorks {
			t.Errorf("%s is %s: %s", f.Name, f.State, f.Reason)
		}
	}
	if q := s.requests("list", podsPath)[0]; q.Get("limit") != "500" || q.Get("resourceVersion") != "0" ||
		q.Has("fieldSelector") {
		t.Errorf("the first list asked for %v", q)
	}
}

func TestAgentAsksForItsNodeAlone(t *testing.T) {
	s := serve(t)
	c := follows(t, s, Options{Node: "node-b"})
	<-c.Synced()
	eventually(t, "a watch", func() bool { return len(s.requests("watch", podsPath)) > 0 })
	for _, kind := range []string{"list", "watch"} {
		if q := s.requests(kind, podsPath)[0]; q.Get("fieldSelector") != "spec.nodeName=node-b" {
			t.Errorf("the %s asked for %v", kind, q)
		}
	}
	for _, path := range []string{servicesPath, slicesPath, nodesPath} {
		if len(s.requests("list", path)) > 0 {
			t.Errorf("an agent asked for %s", path)
		}
	}
	empty := serve(t)
	empty.lists[podsPath] = text(200, listOf("5"))
	c = follows(t, empty, Options{Node: "misspelt"})
	<-c.Synced()
	if f := c.Features()[0]; f.State != model.FeatureAbsent || !strings.Contains(f.Reason, `"misspelt"`) {
		t.Errorf("a node without pods is %+v", f)
	}
}

func TestPages(t *testing.T) {
	for _, second := range []string{"03-pods-page2", "16-pods-continue-after-compaction"} {
		s := serve(t)
		s.lists[podsPath] = inTurn(replay(t, "02-pods-page1"), replay(t, second))
		c := follows(t, s, Options{})
		<-c.Synced()
		if !known(c, cartID, "") || !known(c, redisID, "") || c.Pods() != 2 {
			t.Errorf("%d pods are known after two pages", c.Pods())
		}
		asked := s.requests("list", podsPath)
		if len(asked) != 2 || !strings.HasPrefix(asked[1].Get("continue"), "eyJ2Ijoi") || asked[1].Has("resourceVersion") ||
			asked[1].Get("limit") != "500" {
			t.Errorf("the pages were asked for with %v", asked)
		}
		eventually(t, "a watch", func() bool { return len(s.requests("watch", podsPath)) > 0 })
		if q := s.requests("watch", podsPath)[0]; q.Get("resourceVersion") != "216" ||
			q.Get("allowWatchBookmarks") != "true" || q.Get("timeoutSeconds") == "" {
			t.Errorf("the watch asked for %v", q)
		}
	}
}

const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}`

func TestExpiredPageIsFollowedByAWholeList(t *testing.T) {
	s := serve(t)
	s.lists[podsPath] = inTurn(replay(t, "02-pods-page1"), text(410, gone), replay(t, "04-pods-list"))
	c := follows(t, s, Options{})
	<-c.Synced()
	asked := s.requests("list", podsPath)
	if len(asked) != 3 || asked[2].Has("continue") || asked[2].Has("limit") {
		t.Errorf("asked with %v", asked)
	}
	if expired, _ := drop(t, c, "expired-versions"); expired != 1 || c.Pods() != 2 {
		t.Errorf("%d versions expired, %d pods", expired, c.Pods())
	}
}

func TestRecordedWatch(t *testing.T) {
	s := serve(t)
	s.watches[podsPath] = inTurn(replay(t, "10-pods-watch"),
		func(_ int, w http.ResponseWriter, r *http.Request) { s.hold(w, r) })
	c := follows(t, s, Options{})
	eventually(t, "the watch goes on", func() bool { return len(s.requests("watch", podsPath)) == 2 })
	if q := s.requests("watch", podsPath)[1]; q.Get("resourceVersion") != "220" {
		t.Errorf("the watch goes on at %s, want 220", q.Get("resourceVersion"))
	}
	if !known(c, "", newCartUID) || !known(c, cartID, "") || c.Pods() != 2 {
		t.Errorf("after the watch: new pod %v, deleted one still named %v, %d pods", known(c, "", newCartUID),
			known(c, cartID, ""), c.Pods())
	}
	if n := len(s.requests("list", podsPath)); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
	if lost, _ := drop(t, c, "lost-watches"); lost != 0 {
		t.Errorf("%d watches are said to be lost", lost)
	}
}

func TestWatchFromTheBeginning(t *testing.T) {
	s := serve(t)
	s.lists[podsPath] = text(200, listOf("1"))
	s.watches[podsPath] = inTurn(replay(t, "11-pods-watch-from-1"),
		func(_ int, w http.ResponseWriter, r *http.Request) { s.hold(w, r) })
	c := follows(t, s, Options{})
	eventually(t, "the watch goes on", func() bool { return len(s.requests("watch", podsPath)) == 2 })
	if got, _ := c.Identify("", newCartUID); got.Pod != "cart-7d9f8b6c5-abcde" || !known(c, redisID, "") || c.Pods() != 2 {
		t.Errorf("%+v, %d pods", got, c.Pods())
	}
}

// TestDroppedWatchLosesNothing cuts the recorded watch at every event boundary and within lines.
func TestDroppedWatchLosesNothing(t *testing.T) {
	_, _, body := recorded(t, "10-pods-watch")
	second := strings.Index(body, "\n") + 1
	for _, cut := range []int{0, 1, second / 2, second, second + 100, len(body) - 3} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			s := serve(t)
			s.watches[podsPath] = inTurn(func(_ int, w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, body[:cut])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler) // the connection goes without an end
			}, func(_ int, w http.ResponseWriter, r *http.Request) {
				// The API server sends what came after the version that is asked for.
				for _, line := range strings.SplitAfter(body, "\n") {
					for _, version := range []string{"217", "218", "219", "220"} {
						if strings.Contains(line, `"resourceVersion":"`+version+`"`) && version > r.URL.Query().Get("resourceVersion") {
							io.WriteString(w, line)
						}
					}
				}
				s.hold(w, r)
			})
			c := follows(t, s, Options{})
			eventually(t, "the new pod", func() bool {
				return known(c, "", newCartUID) &&
					len(s.requests("watch", podsPath)) == 2
			})
			want := "216"
			if cut >= second {
				want = "217"
			}
			if cut == len(body)-3 {
				want = "220"
			}
			if q := s.requests("watch", podsPath)[1]; q.Get("resourceVersion") != want {
				t.Errorf("the watch goes on at %s, want %s", q.Get("resourceVersion"), want)
			}
			if n := len(s.requests("list", podsPath)); n != 1 {
				t.Errorf("%d lists, want 1", n)
			}
			if lost, _ := drop(t, c, "lost-watches"); lost != 1 {
				t.Errorf("%d watches lost, want 1", lost)
			}
		})
	}
}

// TestGoneIsFollowedByAListWithoutFlapping: while the second list is under way, all are still named.
func TestGoneIsFollowedByAListWithoutFlapping(t *testing.T) {
	for name, expired := range map[string]answer{
		"http": text(410, gone), "in the stream": text(200, `{"type":"ERROR","object":`+gone+"}\n"),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			var c *Cluster
			checked := make(chan error, 1)
			s.watches[podsPath] = inTurn(expired, func(_ int, w http.ResponseWriter, r *http.Request) { s.hold(w, r) })
			s.lists[podsPath] = inTurn(replay(t, "04-pods-list"), replay(t, "02-pods-page1"),
				func(_ int, w http.ResponseWriter, r *http.Request) {
					if !known(c, cartID, "") || !known(c, redisID, "") || c.Pods() != 2 {
						checked <- errors.New("a pod lost its name while the list was under way")
					}
					// The second page has no redis any more.
					text(200, listOf("300"))(0, w, r)
				})
			c, err := New(Config{Server: s.URL}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			c.timing = quick
			begin(t, c)
			eventually(t, "the second watch", func() bool { return len(s.requests("watch", podsPath)) == 2 })
			select {
			case err := <-checked:
				t.Error(err)
			default:
			}
			asked := s.requests("list", podsPath)
			if len(asked) != 3 || asked[1].Has("resourceVersion") ||
				s.requests("watch", podsPath)[1].Get("resourceVersion") != "300" {
				t.Errorf("asked for %v", asked)
			}
			if c.Pods() != 1 || !known(c, redisID, "") {
				t.Errorf("%d pods, want 1, and the one that went is still named", c.Pods())
			}
			if expired, _ := drop(t, c, "expired-versions"); expired != 1 {
				t.Errorf("%d versions expired, want 1", expired)
			}
		})
	}
}

func TestOtherErrorInTheStreamKeepsTheVersion(t *testing.T) {
	s := serve(t)
	s.watches[podsPath] = inTurn(replay(t, "15-pods-watch-initial-events"),
		func(_ int, w http.ResponseWriter, r *http.Request) { s.hold(w, r) })
	follows(t, s, Options{})
	eventually(t, "the second watch", func() bool { return len(s.requests("watch", podsPath)) == 2 })
	if n := len(s.requests("list", podsPath)); n != 1 || s.requests("watch", podsPath)[1].Get("resourceVersion") != "216" {
		t.Errorf("%d lists, the watch goes on at %v", n, s.requests("watch", podsPath)[1])
	}
}

func TestWhatMayNotBeReadIsSaidAndTheRestGoesOn(t *testing.T) {
	s := serve(t)
	s.lists[servicesPath] = inTurn(replay(t, "12-forbidden"), replay(t, "12-forbidden"), replay(t, "05-services-list"))
	s.gets[deploymentOf] = replay(t, "12-forbidden")
	allowed := make(chan struct{})
	recorded := s.lists[servicesPath]
	s.lists[servicesPath] = func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 2 {
			<-allowed
		}
		recorded(n, w, r)
	}
	c := follows(t, s, Options{})
	<-c.Synced()
	if !known(c, cartID, "") {
		t.Error("pods are not known because services may not be read")
	}
	eventually(t, "replica sets are refused", func() bool { return c.feature("replicasets").State == model.FeatureAbsent })
	f := c.feature("services")
	if f.State != model.FeatureAbsent || !strings.Contains(f.Reason,
		`listing services: 403 Forbidden: secrets is forbidden: User "monitor"`) ||
		!strings.Contains(f.Remedy, "list and watch on services") {
		t.Errorf("services are %+v", f)
	}
	if f := c.feature("replicasets"); !strings.Contains(f.Remedy, "get on replicasets") {
		t.Errorf("replica sets are %+v", f)
	}
	// The template's hash tells the deployment without the right to read its replica sets.
	if p, _ := c.Identify(cartID, ""); p.Workload != "cart" || p.WorkloadKind != "Deployment" {
		t.Errorf("the workload is %+v", p)
	}
	if f := c.feature("pods"); f.State != model.FeatureWorks {
		t.Errorf("pods are %+v", f)
	}
	close(allowed)
	eventually(t, "services are known once they may be read",
		func() bool { return c.feature("services").State == model.FeatureWorks })
}

func (c *Cluster) feature(resource string) model.Feature {
	for _, f := range c.Features() {
		if f.Name == "kubernetes/"+resource {
			return f
		}
	}
	return model.Feature{}
}

// TestOneRefusalTellsForAllOwners: a hundred jobs are not asked for one by one where none may be.
func TestOneRefusalTellsForAllOwners(t *testing.T) {
	s := serve(t)
	var jobs []string
	for i := range 100 {
		jobs = append(jobs, fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"n","uid":"u%d","ownerReferences":[{"kind":"Job","name":"j%d","controller":true}]}}`, i, i, i))
		s.gets[fmt.Sprintf("/apis/batch/v1/namespaces/n/jobs/j%d", i)] = replay(t, "12-forbidden")
	}
	s.lists[podsPath] = text(200, listOf("5", jobs...))
	pace := quick
	pace.refusal = time.Hour
	c := runs(t, Config{Server: s.URL}, Options{}, pace)
	<-c.Synced()
	eventually(t, "the queue is empty", func() bool { _, used := drop(t, c, "owners"); return used == 0 })
	asked := 0
	for i := range 100 {
		asked += len(s.requests("get", fmt.Sprintf("/apis/batch/v1/namespaces/n/jobs/j%d", i)))
	}
	if asked != 1 {
		t.Errorf("%d jobs were asked for, want 1", asked)
	}
	if p, _ := c.Identify("", "u7"); p.Workload != "j7" || p.WorkloadKind != "Job" {
		t.Errorf("the workload is %+v", p)
	}
}

// TestOwnerThatIsGone: the last pods of a replica set that was deleted stay those of its deployment.
func TestOwnerThatIsGone(t *testing.T) {
	s := serve(t)
	s.gets[deploymentOf] = nil
	s.lists[podsPath] = text(200, listOf("5", itemOf(t, "04-pods-list", "cart-7d9f8b6c5-abcde"),
		`{"metadata":{"name":"p","namespace":"n","uid":"u","ownerReferences":[{"kind":"Job","name":"j","controller":true}]}}`))
	c := follows(t, s, Options{})
	eventually(t, "the job is not there", func() bool {
		p, _ := c.Identify("", "u")
		return p.Workload == "j" &&
			p.WorkloadKind == "Job"
	})
	eventually(t, "the replica set was asked for", func() bool { return len(s.requests("get", deploymentOf)) == 1 })
	if p, _ := c.Identify(cartID, ""); p.Workload != "cart" || p.WorkloadKind != "Deployment" {
		t.Errorf("the workload is %+v", p)
	}
}

// TestWatchThatEndsAtOnceIsNotRepeatedInALoop: each end is a failure, so that the pause grows.
func TestWatchThatEndsAtOnceIsNotRepeatedInALoop(t *testing.T) {
	s := serve(t)
	s.watches[podsPath] = text(200, "")
	c := follows(t, s, Options{})
	eventually(t, "it is said", func() bool {
		return strings.Contains(c.feature("pods").Reason,
			"ended before anything came")
	})
	if !known(c, cartID, "") {
		t.Error("the names are lost")
	}
}

// manyPods is a list of pods in the shape of a recorded one, each with its own names and ids.
func manyPods(t testing.TB, count int) (body string, id func(int) string) {
	shape := itemOf(t, "04-pods-list", "cart-7d9f8b6c5-abcde")
	objects := make([]string, count)
	id = func(i int) string { return fmt.Sprintf("%064x", i) }
	for i := range objects {
		objects[i] = strings.NewReplacer("cart-7d9f8b6c5-abcde", fmt.Sprintf("cart-7d9f8b6c5-%05d", i), cartUID,
			fmt.Sprintf("a9057ccd-b9c0-45c7-9673-%012x", i),
			cartID, id(i), "192.0.2.11", fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)).Replace(shape)
	}
	return listOf("9000", objects...), id
}

func TestFiveThousandPods(t *testing.T) {
	const count = 5000
	body, id := manyPods(t, count)
	s := serve(t)
	s.lists[podsPath] = text(200, body)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	c := follows(t, s, Options{})
	<-c.Synced()
	if c.Pods() != count {
		t.Errorf("%d pods, want %d", c.Pods(), count)
	}
	for _, i := range []int{0, 1, 2500, count - 1} {
		if p, _ := c.Identify(id(i), ""); p.Pod != fmt.Sprintf("cart-7d9f8b6c5-%05d", i) || p.Workload != "cart" {
			t.Errorf("pod %d is %+v", i, p)
		}
	}
	if n := len(s.requests("get", deploymentOf)); n > 1 {
		t.Errorf("the replica set of all was asked for %d times", n)
	}
	used := int64(heap() - before)
	t.Logf("%d pods of %d bytes of JSON each take %d bytes each", count, len(body)/count, used/count)
	if used > count*4096 {
		t.Errorf("%d pods take %d bytes, want at most 4 KiB each", count, used)
	}
	runtime.KeepAlive(c)
}

func TestBoundOfPods(t *testing.T) {
	body, _ := manyPods(t, 500)
	s := serve(t)
	s.lists[podsPath] = text(200, body)
	c := follows(t, s, Options{MaxPods: 100})
	<-c.Synced()
	if full, used := drop(t, c, "pods"); full != 400 || used != 100 {
		t.Errorf("%d pods are known and %d found no room, want 100 and 400", used, full)
	}
}

func TestLargeAndUnreadableObjectsAreLeftOut(t *testing.T) {
	s := serve(t)
	large := strings.Replace(itemOf(t, "04-pods-list", "redis-0"), `"labels":`,
		`"x":"`+strings.Repeat("y", 100_000)+`","labels":`, 1)
	if len(large) < 100_000 {
		t.Fatal("the object is not large")
	}
	s.lists[podsPath] = text(200, listOf("7", large, itemOf(t, "04-pods-list", "cart-7d9f8b6c5-abcde"),
		`{"metadata":{"name":"x"}}`, `{"metadata":3}`))
	s.watches[podsPath] = inTurn(func(_ int, w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":%s}\n", large)
		fmt.Fprintf(w, "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"8\"}}}\n")
		s.hold(w, r)
	})
	c := follows(t, s, Options{MaxObjectBytes: 50_000})
	eventually(t, "the watch was read", func() bool { n, _ := drop(t, c, "large-objects"); return n == 2 })
	if n, _ := drop(t, c, "unreadable-objects"); n != 2 || c.Pods() != 1 || !known(c, cartID, "") {
		t.Errorf("%d unreadable objects, %d pods", n, c.Pods())
	}
}

func TestHotLoopsArePaused(t *testing.T) {
	r := &reflector{timing: usualTiming}
	for i, most := range []time.Duration{300, 600, 1200, 2400, 4800, 9600, 19200, 38400, 45000, 45000} {
		got := r.pause(errGone)
		least := min(usualTiming.least<<i, usualTiming.most) / 2
		if got < least || got > most*time.Millisecond {
			t.Errorf("pause %d is %v, want %v to %v", i, got, least, most*time.Millisecond)
		}
	}
	if got := r.pause(&statusError{Code: 429, retryAfter: 2 * time.Minute}); got < time.Minute {
		t.Errorf("the API server asked for 2 min, the pause is %v", got)
	}
}
