package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"outsight/internal/model"
)

// A process that is killed is told of with the container that lost it, to the log, and in snapshots for as long as the
// container is there. The names are bounded.
func TestVictimsOfContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.add("shop", 7)
		var newest atomic.Pointer[model.Snapshot]
		a := New(s.sources(), Options{ProcRoot: t.TempDir(), whenRead: newest.Store})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = a.Run(ctx) }() // ends with ctx alone
		defer func() { stop(); <-ended }()
		kill := func(process string) {
			s.events <- model.CgroupEvent{Kind: model.OOMKill, ID: 7, PID: 42, Path: process, Time: time.Now()}
			synctest.Wait()
		}
		victims := func() *model.OOMVictims {
			time.Sleep(2 * time.Second)
			for _, c := range newest.Load().Containers {
				if c.Container.ID == "shop" {
					return c.Victims
				}
			}
			return nil
		}
		if got := victims(); got != nil {
			t.Errorf("got %+v before anything happened", got)
		}
		kill("java")
		first := victims()
		kill("java")
		kill("bash")
		last := victims()
		if first.Kills[0] != (model.OOMKills{Process: "java", Count: 1}) || len(first.Kills) != 1 {
			t.Errorf("a later kill changed an earlier snapshot: %+v", first)
		}
		if last.Process != "bash" || last.PID != 42 || fmt.Sprint(last.Kills) != "[{bash 1} {java 2}]" {
			t.Errorf("got %+v", last)
		}
		for i := range 20 {
			kill(fmt.Sprint("many", i))
		}
		sum := uint64(0)
		for _, k := range victims().Kills {
			sum += k.Count
		}
		if n := len(victims().Kills); n != maxVictimNames+1 || sum != 23 {
			t.Errorf("%d names and %d kills", n, sum)
		}
		if len(s.handled) != 0 {
			t.Errorf("the registry was given %+v", s.handled)
		}
		s.mu.Lock()
		s.end("shop")
		s.mu.Unlock()
		victims() // its last snapshot still has it
		if got := victims(); got != nil || len(a.victims.of) != 0 {
			t.Errorf("got %+v of a container that is gone", got)
		}
	})
}
