package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outsight/internal/model"
)

// quiet are options with no runtime to ask.
func quiet(t testing.TB) Options {
	return Options{DockerSocket: filepath.Join(t.TempDir(), "none"), TaskRoots: []string{}, StorageRoots: []string{}}
}

func newRegistry(t testing.TB, l Layout, o Options) *Registry {
	t.Helper()
	r, err := New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// find returns the container with the id, nil if there is none.
func find(list []*model.Container, id string) *model.Container {
	for _, c := range list {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func ids(list []*model.Container) []string {
	var all []string
	for _, c := range list {
		all = append(all, c.ID)
	}
	return all
}

// tree is a hierarchy of plain directories, of which a Registry cannot tell the difference.
type tree struct {
	t testing.TB
	Layout
}

func newTree(t testing.TB) tree {
	root := t.TempDir()
	return tree{t, Layout{Name: "v2", MountPoint: root, unified: root}}
}

func (g tree) make(path string) model.CgroupID {
	g.t.Helper()
	if err := os.MkdirAll(g.MountPoint+path, 0o755); err != nil {
		g.t.Fatal(err)
	}
	return groupID(g.t, g.Layout, path)
}

func (g tree) remove(path string) {
	g.t.Helper()
	if err := os.Remove(g.MountPoint + path); err != nil {
		g.t.Fatal(err)
	}
}

func made(id model.CgroupID, path string) model.CgroupEvent {
	return model.CgroupEvent{Kind: model.CgroupMade, ID: id, Path: path, Time: time.Unix(100, 0)}
}

func removed(id model.CgroupID, path string) model.CgroupEvent {
	return model.CgroupEvent{Kind: model.CgroupRemoved, ID: id, Path: path, Time: time.Unix(200, 0)}
}

// TestRunningContainers is on real control groups: what runs at the start is known, and groups
// below a container are the container's.
func TestRunningContainers(t *testing.T) {
	l := hostLayout(t)
	path := "/osct-running/" + testID(1)
	own := makeGroup(t, l, path)
	child := makeGroup(t, l, path+"/child")
	r := newRegistry(t, l, quiet(t))

	c := find(r.Containers(), testID(1))
	if c == nil {
		t.Fatalf("not found in %v", ids(r.Containers()))
	}
	if c.Name != testID(1)[:12] || c.Cgroup != own || c.CgroupPath != path || !c.Ended.IsZero() {
		t.Errorf("%+v", c)
	}
	for _, id := range []model.CgroupID{own, child} {
		if got := r.Lookup(id); got != c {
			t.Errorf("group %d is of %+v", id, got)
		}
	}
	if got := r.Lookup(groupID(t, l, "/osct-running")); got.ID != model.HostContainerID {
		t.Errorf("the group above is of %+v", got)
	}
	if got := r.Lookup(groupID(t, l, "/")); got != r.Host() {
		t.Errorf("the root is of %+v", got)
	}
	if got := r.Lookup(0); got != r.Host() {
		t.Errorf("no group is of %+v", got)
	}
}

func TestLifecycle(t *testing.T) {
	g := newTree(t)
	r := newRegistry(t, g.Layout, quiet(t))
	path := "/docker/" + idA
	own := g.make(path)
	r.HandleEvent(made(own, path))
	c := r.Lookup(own)
	if c.ID != idA || c.Name != idA[:12] || c.Runtime != model.Docker || !c.Started.Equal(time.Unix(100, 0)) {
		t.Errorf("%+v", c)
	}
	child := g.make(path + "/child")
	r.HandleEvent(made(child, path+"/child"))
	r.HandleEvent(made(own, path)) // again
	g.remove(path + "/child")
	r.HandleEvent(removed(child, path+"/child"))
	if got := r.Collect(); !slices.Equal(ids(got.Containers), []string{idA, "host"}) ||
		!slices.Equal(got.Removed, []model.CgroupID{child}) {
		t.Errorf("with a child that ended: %v, removed %v", ids(got.Containers), got.Removed)
	}
	g.remove(path)
	r.HandleEvent(removed(own, path))
	r.HandleEvent(removed(own, path)) // again
	if got := ids(r.Containers()); !slices.Equal(got, []string{"host"}) {
		t.Errorf("running: %v", got)
	}
	got := r.Collect()
	if !slices.Equal(ids(got.Containers), []string{idA, "host"}) || !slices.Equal(got.Removed, []model.CgroupID{own}) {
		t.Errorf("first collection: %v, removed %v", ids(got.Containers), got.Removed)
	}
	if c := find(got.Containers, idA); !c.Ended.Equal(time.Unix(200, 0)) {
		t.Errorf("ended %v", c.Ended)
	}
	if got := r.Collect(); !slices.Equal(ids(got.Containers), []string{"host"}) || len(got.Removed) != 0 {
		t.Errorf("second collection: %v, removed %v", ids(got.Containers), got.Removed)
	}
	// Late numbers of its groups are still its own.
	for _, id := range []model.CgroupID{own, child} {
		if got := r.Lookup(id); got.ID != idA || got.Ended.IsZero() {
			t.Errorf("group %d is of %+v", id, got)
		}
	}
}

// TestShortLife is a container of which only the end was seen.
func TestShortLife(t *testing.T) {
	r := newRegistry(t, newTree(t).Layout, quiet(t))
	r.HandleEvent(removed(77, "/docker/"+idA))
	if got := r.Lookup(77); got.ID != idA {
		t.Errorf("%+v", got)
	}
	got := r.Collect()
	if c := find(got.Containers, idA); c == nil || c.Ended.IsZero() {
		t.Errorf("%v", ids(got.Containers))
	}
}

func TestLostEvents(t *testing.T) {
	g := newTree(t)
	r := newRegistry(t, g.Layout, quiet(t))
	a, b := g.make("/docker/"+idA), g.make("/docker/"+idB)
	if err := r.Resync(); err != nil {
		t.Fatal(err)
	}
	if got := ids(r.Containers()); !slices.Equal(got, []string{idB, idA, "host"}) {
		t.Errorf("running: %v", got)
	}
	g.remove("/docker/" + idA)
	if err := r.Resync(); err != nil {
		t.Fatal(err)
	}
	if got := ids(r.Containers()); !slices.Equal(got, []string{idB, "host"}) {
		t.Errorf("running: %v", got)
	}
	if got := r.Lookup(a); got.ID != idA || got.Ended.IsZero() {
		t.Errorf("%+v", got)
	}
	// A late event of a group that is gone does not bring it back.
	r.HandleEvent(made(a, "/docker/"+idA))
	if got := ids(r.Containers()); !slices.Equal(got, []string{idB, "host"}) {
		t.Errorf("running: %v", got)
	}
	if got := r.Lookup(b); got.ID != idB || !got.Ended.IsZero() {
		t.Errorf("%+v", got)
	}
}

// TestLookupSearches is about groups whose counters are read before their event is handled.
func TestLookupSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTree(t)
		r := newRegistry(t, g.Layout, quiet(t))
		time.Sleep(searchInterval)
		a := g.make("/docker/" + idA)
		if got := r.Lookup(a); got.ID != idA {
			t.Errorf("%+v", got)
		}
		b := g.make("/docker/" + idB)
		if got := r.Lookup(b); got != r.Host() {
			t.Errorf("walked twice within a second: %+v", got)
		}
		time.Sleep(searchInterval)
		if got := r.Lookup(b); got.ID != idB {
			t.Errorf("%+v", got)
		}
		// What no walk finds is not searched for again.
		time.Sleep(searchInterval)
		before := r.walked
		for range 3 {
			if got := r.Lookup(1 << 60); got != r.Host() {
				t.Errorf("%+v", got)
			}
			time.Sleep(searchInterval)
		}
		if want := before.Add(searchInterval); !r.walked.Equal(want) {
			t.Errorf("walked at %v, want %v", r.walked, want)
		}
	})
}

// TestLostLives is about groups whose events were all lost: what the kernel counted of them is to
// be forgotten, each once.
func TestLostLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTree(t)
		r := newRegistry(t, g.Layout, quiet(t))
		time.Sleep(searchInterval)
		late := g.make("/docker/" + idA)
		lost := []model.CgroupID{1 << 60, 1<<60 + 1, 1<<60 + 2}
		// One walk a second answers for all of them; the first of them starts it.
		for range 3 {
			for _, id := range lost {
				r.Lookup(id)
			}
			r.Lookup(late)
			time.Sleep(searchInterval)
		}
		got := r.Collect().Removed
		slices.Sort(got)
		if !slices.Equal(got, lost) {
			t.Errorf("removed %v, want %v", got, lost)
		}
		for _, id := range append(lost, late) {
			r.Lookup(id)
		}
		if err := r.Resync(); err != nil {
			t.Fatal(err)
		}
		if got := r.Collect().Removed; len(got) != 0 {
			t.Errorf("removed once more: %v", got)
		}
	})
}

// TestManyLostLives: those that were told as removed make room for others.
func TestManyLostLives(t *testing.T) {
	r := newRegistry(t, newTree(t).Layout, quiet(t))
	released := 0
	for i := range 3 * unknownCapacity {
		r.Lookup(model.CgroupID(1<<60 + i))
		if i%unknownCapacity == unknownCapacity-1 {
			if err := r.Resync(); err != nil {
				t.Fatal(err)
			}
			released += len(r.Collect().Removed)
		}
	}
	if released != 3*unknownCapacity || len(r.unknown) > unknownCapacity || r.drops.unknown != 0 {
		t.Errorf("%d released, %d kept, %d dropped", released, len(r.unknown), r.drops.unknown)
	}
}

// TestUnseenIsNotRemoved: where a walk cannot see all groups, what it did not see may be there.
func TestUnseenIsNotRemoved(t *testing.T) {
	g := newTree(t)
	for i := range 3 {
		g.make("/docker/" + testID(i))
	}
	o := quiet(t)
	o.MaxGroups = 3
	r := newRegistry(t, g.Layout, o)
	r.mu.Lock()
	r.sought[1<<60] = struct{}{}
	r.mu.Unlock()
	if err := r.Resync(); err != nil {
		t.Fatal(err)
	}
	if got := r.Collect().Removed; len(got) != 0 {
		t.Errorf("removed %v", got)
	}
	// The event of its end is enough, although it never had room.
	for i := range 3 {
		r.HandleEvent(removed(model.CgroupID(1<<60+i), "/docker/"+testID(7+i)))
	}
	if got := r.Collect().Removed; !slices.Equal(got, []model.CgroupID{1 << 60, 1<<60 + 1, 1<<60 + 2}) {
		t.Errorf("removed %v, want those whose end was told", got)
	}
}

func TestDockerSocket(t *testing.T) {
	for host, want := range map[string]string{
		"": "/var/run/docker.sock", "tcp://10.0.0.1:2375": "/var/run/docker.sock", "unix://": "/var/run/docker.sock",
		"unix:///run/user/1000/docker.sock": "/run/user/1000/docker.sock",
	} {
		if got := DockerSocket(host); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}

// TestCutPath is about paths that do not fit into an event.
func TestCutPath(t *testing.T) {
	g := newTree(t)
	r := newRegistry(t, g.Layout, quiet(t))
	path := "/docker/" + idB + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/" +
		"kubelet-kubepods-burstable-pod" +
		uidUnit + ".slice/cri-containerd-" + idA + ".scope"
	if len(path) <= 255 {
		t.Fatalf("%d bytes are not long", len(path))
	}
	id := g.make(path)
	r.HandleEvent(made(id, path[:255]))
	got := find(r.Containers(), idA)
	if got == nil || got.PodUID != uid || got.Cgroup != id || got.CgroupPath != path {
		t.Fatalf("%v: %+v", ids(r.Containers()), got)
	}
	// The group is gone before it could be looked at: what the path shows counts.
	g.remove(path)
	r.HandleEvent(removed(id, path[:255]))
	r.HandleEvent(made(id+1, path[:255]))
	r.HandleEvent(removed(id+1, path[:255]))
	if got := r.Lookup(id + 1); got.ID != idB {
		t.Errorf("%+v", got)
	}
}

// TestRestart is a container that is started again before or after its end was collected.
func TestRestart(t *testing.T) {
	for _, collect := range []bool{false, true} {
		g := newTree(t)
		r := newRegistry(t, g.Layout, quiet(t))
		path := "/docker/" + idA
		r.HandleEvent(made(501, path))
		r.update(idA, func(m *member, c *model.Container) bool {
			c.Name, c.PID, c.NetNS = "web", 42, 4026531999
			return true
		})
		r.HandleEvent(removed(501, path))
		if collect {
			r.Collect()
		}
		r.HandleEvent(made(502, path))
		c := r.Lookup(502)
		if !c.Ended.IsZero() || c.Name != "web" || c.Cgroup != 502 || c.PID != 0 || c.NetNS != 0 {
			t.Errorf("collect %v: %+v", collect, c)
		}
		if r.Lookup(501) != c {
			t.Errorf("collect %v: its first group is of %+v", collect, r.Lookup(501))
		}
		if got := r.Drops()[0].Used; got != 1 {
			t.Errorf("collect %v: %d containers, want 1", collect, got)
		}
	}
}

func TestServices(t *testing.T) {
	g := newTree(t)
	g.make("/system.slice/nginx.service/child")
	o := quiet(t)
	if got := ids(newRegistry(t, g.Layout, o).Containers()); !slices.Equal(got, []string{"host"}) {
		t.Errorf("without All: %v", got)
	}
	o.All = true
	r := newRegistry(t, g.Layout, o)
	if got := ids(r.Containers()); !slices.Equal(got, []string{"/system.slice/nginx.service", "host"}) {
		t.Errorf("with All: %v", got)
	}
	c := r.Lookup(groupID(t, g.Layout, "/system.slice/nginx.service/child"))
	if c.Name != "nginx.service" || c.Runtime != model.Systemd {
		t.Errorf("%+v", c)
	}
}

func TestNewFails(t *testing.T) {
	_, err := New(Layout{MountPoint: filepath.Join(t.TempDir(), "gone")}, quiet(t))
	if err == nil || !strings.Contains(err.Error(), "walking the control groups") {
		t.Errorf("error %v", err)
	}
}

func BenchmarkWalk(b *testing.B) {
	l := hostLayout(b)
	for i := range 200 {
		makeGroup(b, l, fmt.Sprintf("/osct-walk/%s", testID(i)))
	}
	r := newRegistry(b, l, quiet(b))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Resync(); err != nil {
			b.Fatal(err)
		}
	}
}
