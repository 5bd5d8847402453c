package agent

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"outsight/internal/appmetrics"
	"outsight/internal/model"
)

// refreshed are files that count how often they were brought up to date.
type refreshed struct {
	*script
	n int
}

func (r *refreshed) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
}

// An agent that is read from outside makes its first snapshots each second, then one each half minute, and one when a
// container has begun; in all other seconds it has figures brought up to date and does nothing else.
func TestSnapshotsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refreshed{script: newScript()}
		s.add("a", 7)
		sources := s.sources()
		sources.Files = s
		a := New(sources, Options{Rarely: 30 * time.Second})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = a.Run(ctx) }()
		after := func(d time.Duration, steps, refreshes int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.script.n != steps || s.n != refreshes {
				t.Errorf("%d snapshots and %d times figures alone, want %d and %d", s.script.n, s.n, steps, refreshes)
			}
		}
		time.Sleep(100 * time.Millisecond) // between two seconds
		after(9*time.Second, awakeSteps, 0)
		after(29*time.Second, awakeSteps, 29)
		after(time.Second, awakeSteps+1, 29)
		after(10*time.Second, awakeSteps+1, 39)
		s.events <- model.CgroupEvent{Kind: model.CgroupMade, ID: 7}
		after(time.Second, awakeSteps+2, 39)
		s.events <- model.CgroupEvent{Kind: model.TaskAttached, ID: 7}
		s.events <- model.CgroupEvent{Kind: model.CgroupMade, ID: 1} // of the host
		after(29*time.Second, awakeSteps+2, 68)
		s.events <- model.CgroupEvent{Kind: model.CgroupRemoved, ID: 7}
		after(time.Second, awakeSteps+3, 68)
		stop()
		<-ended
	})
}

// offered takes files or not, as it is told.
type offered struct {
	*appmetrics.Collector
	taken atomic.Bool
}

func (o *offered) Offer(model.CgroupEvent) bool { return o.taken.Load() }

// Where the kernel brings figures up to date by itself there is nothing to do between, and a container that begins or
// ends has its snapshot at the next second as well.
func TestSnapshotsAloneWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refreshed{script: newScript()}
		s.add("a", 7)
		sources := s.sources()
		applications := &offered{Collector: appmetrics.New(appmetrics.Options{ProcRoot: t.TempDir()})}
		sources.Files, sources.Applications = s, applications
		a := New(sources, Options{Rarely: 30 * time.Second, Refreshed: true})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = a.Run(ctx) }()
		after := func(d time.Duration, steps int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.script.n != steps || s.n != 0 {
				t.Errorf("%d snapshots and %d times figures, want %d and 0", s.script.n, s.n, steps)
			}
		}
		time.Sleep(100 * time.Millisecond)
		after(9*time.Second, awakeSteps)
		after(29*time.Second, awakeSteps)
		after(time.Second, awakeSteps+1)
		after(10*time.Second, awakeSteps+1)
		s.events <- model.CgroupEvent{Kind: model.CgroupMade, ID: 7}
		after(time.Second, awakeSteps+2)
		after(29*time.Second, awakeSteps+2)
		after(time.Second, awakeSteps+3)
		after(10*time.Second, awakeSteps+3)
		// A process has metrics of its own, which readers are to find; another one says so, and has none.
		s.events <- model.CgroupEvent{Kind: model.MetricsFile, ID: 7, Path: model.MetricsFilePrefix + "3"}
		after(time.Second, awakeSteps+3)
		applications.taken.Store(true)
		s.events <- model.CgroupEvent{Kind: model.MetricsFile, ID: 7, Path: model.MetricsFilePrefix + "3"}
		after(time.Second, awakeSteps+4)
		stop()
		<-ended
	})
}

// Without Rarely there is a snapshot each second.
func TestSnapshotsAreEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refreshed{script: newScript()}
		sources := s.sources()
		sources.Files = s
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = New(sources, Options{}).Run(ctx) }()
		time.Sleep(60*time.Second + 100*time.Millisecond)
		synctest.Wait()
		stop()
		<-ended
		if s.script.n != 61 || s.n != 0 {
			t.Errorf("%d snapshots and %d times figures alone, want 61 and 0", s.script.n, s.n)
		}
	})
}
