package container

import (
	"sync"
	"testing"

	"outsight/internal/model"
)

func TestBounds(t *testing.T) {
	drops := func(r *Registry) map[string]model.Drop {
		all := make(map[string]model.Drop)
		for _, d := range r.Drops() {
			all[d.Name] = d
		}
		return all
	}
	t.Run("containers", func(t *testing.T) {
		o := quiet(t)
		o.MaxContainers = 2
		r := newRegistry(t, newTree(t).Layout, o)
		for i := range 5 {
			r.HandleEvent(made(model.CgroupID(1000+i), "/docker/"+testID(i)))
		}
		if d := drops(r)["container/containers"]; d != (model.Drop{Name: d.Name, Count: 3, Capacity: 2, Used: 2}) {
			t.Errorf("%+v", d)
		}
		if got := r.Lookup(1004); got != r.Host() {
			t.Errorf("%+v", got)
		}
		if got := len(r.Containers()); got != 3 { // the host is no container of a runtime
			t.Errorf("%d containers", got)
		}
	})
	t.Run("groups", func(t *testing.T) {
		o := quiet(t)
		o.MaxGroups = 4 // the root is one
		r := newRegistry(t, newTree(t).Layout, o)
		for i := range 5 {
			r.HandleEvent(made(model.CgroupID(1000+i), "/docker/"+testID(i)))
		}
		if d := drops(r)["container/groups"]; d != (model.Drop{Name: d.Name, Count: 2, Capacity: 4, Used: 4}) {
			t.Errorf("%+v", d)
		}
		// Those that ended make room, the first first.
		r.HandleEvent(removed(1000, "/docker/"+testID(0)))
		r.HandleEvent(removed(1001, "/docker/"+testID(1)))
		r.Collect()
		r.HandleEvent(made(1003, "/docker/"+testID(3)))
		if got := r.Lookup(1003); got.ID != testID(3) {
			t.Errorf("%+v", got)
		}
		if got := r.Lookup(1001); got.ID != testID(1) {
			t.Errorf("%+v", got)
		}
		if d := drops(r)["container/retired-groups"]; d.Count != 1 || d.Used != 1 {
			t.Errorf("%+v", d)
		}
		if _, ok := r.members[testID(0)]; ok {
			t.Error("a container without a group was kept")
		}
	})
	t.Run("many short lives", func(t *testing.T) {
		o := quiet(t)
		o.MaxGroups, o.MaxContainers = 100, 50
		r := newRegistry(t, newTree(t).Layout, o)
		for i := range 5000 {
			path := "/docker/" + testID(i)
			r.HandleEvent(made(model.CgroupID(1000+i), path))
			r.HandleEvent(removed(model.CgroupID(1000+i), path))
		}
		if len(r.groups) > 100 || len(r.members) > 101 || len(r.removed) > 100 || len(r.retired) > 100 {
			t.Errorf("%d groups, %d members, %d removed, %d retired", len(r.groups), len(r.members), len(r.removed),
				len(r.retired))
		}
		d := drops(r)
		if d["container/removed-groups"].Count != 4900 || d["container/containers"].Count == 0 {
			t.Errorf("%+v", d)
		}
		// Nothing runs any more, so that there is room again.
		r.Collect()
		r.HandleEvent(made(9, "/docker/"+testID(9999)))
		if got := r.Lookup(9); got.ID != testID(9999) {
			t.Errorf("%+v", got)
		}
	})
}

// TestConcurrentUse is for the race detector; what it asserts is that nothing is lost. It is on
// real control groups, whose ids are not used twice.
func TestConcurrentUse(t *testing.T) {
	g := tree{t, hostLayout(t)}
	r := newRegistry(t, g.Layout, quiet(t))
	const n = 200
	ended := make(map[string]int)
	var work sync.WaitGroup
	stop := make(chan struct{})
	background := func(f func()) {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	background(func() { r.Resync() })
	background(func() { r.Containers(); r.Features(); r.Drops() })
	background(func() { r.Lookup(1<<40 + 7) })
	background(func() {
		for _, c := range r.Collect().Containers {
			if !c.Ended.IsZero() {
				ended[c.ID]++
			}
		}
	})
	g.make("/osct-concurrent")
	defer g.remove("/osct-concurrent")
	for i := range n {
		path := "/osct-concurrent/" + testID(i)
		id := g.make(path)
		r.HandleEvent(made(id, path))
		if got := r.Lookup(id); got.ID != testID(i) {
			t.Errorf("%+v", got)
		}
		g.remove(path)
		r.HandleEvent(removed(id, path))
	}
	close(stop)
	work.Wait()
	for _, c := range r.Collect().Containers {
		if !c.Ended.IsZero() {
			ended[c.ID]++
		}
	}
	for i := range n {
		if ended[testID(i)] != 1 {
			t.Errorf("container %d was collected %d times", i, ended[testID(i)])
		}
	}
}
