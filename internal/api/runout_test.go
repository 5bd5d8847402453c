package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"outsight/internal/derive"
	"outsight/internal/model"
	"outsight/internal/predict"
)

const limit, perSecond = 1 << 30, 3 << 20

// leaks makes cart fill its memory, and gives gateway a limit.
func leaks(second int, s *model.Snapshot) *model.Snapshot {
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.Memory == nil || c.Container.Name != "cart" && c.Container.Name != "gateway" {
			continue
		}
		c.Memory.LimitBytes, c.Memory.WorkingSetBytes = limit, 300<<20+uint64(second%3)<<10
		if c.Container.Name == "cart" {
			c.Memory.WorkingSetBytes += uint64(second) * perSecond
		}
	}
	return s
}

// TestRunOut: of two containers with a limit one fills its memory, and it is told when it will have.
func TestRunOut(t *testing.T) {
	h, _, now := filled(t, 120, leaks)
	var a runOutAnswer
	get200(t, h, "/api/outsight/runout?from=now-120s", &a)
	first := a.Resources[0]
	if first.Name != "cart" || first.Kind != "memory" || first.Course == nil || first.Course.Kind != predict.Grows ||
		first.RunsOut == nil || first.RunsOut.At == nil || first.RunsOut.Latest == nil {
		t.Fatalf("first is %+v, course %+v, runs out %+v", first, first.Course, first.RunsOut)
	}
	left := float64(limit-300<<20)/perSecond - 120 // seconds
	if off := first.RunsOut.At.Sub(now).Seconds() - left; math.Abs(off) > 4 {
		t.Errorf("runs out in %v, want in %v s", first.RunsOut.At.Sub(now), left)
	}
	if a.HorizonSeconds != 240 || a.StepSeconds != 2 {
		t.Errorf("steps of %v s, looks %v s ahead", a.StepSeconds, a.HorizonSeconds)
	}
	found := map[string]bool{}
	for _, r := range a.Resources[1:] {
		found[string(r.Kind)+" "+r.Name] = true
		if r.Name == "gateway" && (r.Course == nil || r.Course.Kind != predict.Steady) || r.RunsOut != nil {
			t.Errorf("%s of %s: %+v", r.Kind, r.Name, r)
		}
	}
	if !found["memory gateway"] || !found["cpu "+first.Host] {
		t.Errorf("found %v", found)
	}
	// Too short for any course.
	var short runOutAnswer
	get200(t, h, "/api/outsight/runout?from=now-5s", &short)
	for _, r := range short.Resources {
		if r.Unknown == "" || r.Course != nil {
			t.Errorf("in 5 s: %+v", r)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/outsight/runout?from="+time.Hour.String(), nil))
	if w.Code != http.StatusBadRequest {
		t.Errorf("status %d", w.Code)
	}
}

// The series that PromQL has, what an alert asks of them, and the answer for the page and the command line are the same.
func TestRunOutSeries(t *testing.T) {
	k, h, now := fillSeries(t, 120, leaks)
	f := derive.NewFollower(RunOutSeries(Options{Log: k.log}), k.series, derive.FollowOptions{Every: time.Millisecond,
		Now: func() time.Time { return now }})
	ctx, end := context.WithCancel(t.Context())
	go func() {
		defer end()
		for len(f.Newest()) == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	f.Run(ctx)
	var a runOutAnswer
	get200(t, h, "/api/outsight/runout", &a)
	value := func(query string) (float64, bool) {
		t.Helper()
		found, err := k.series.Instant(t.Context(), query, now)
		if err != nil || len(found) > 1 {
			t.Fatalf("%s: %v, %v", query, found, err)
		}
		if len(found) == 0 {
			return 0, false
		}
		return found[0].Points[0].Value, true
	}
	compared := 0
	for _, r := range a.Resources {
		of := fmt.Sprintf(`resource=%q,host=%q,name=%q`, r.Kind, r.Host, r.Name)
		if r.Node != "" {
			of += fmt.Sprintf(`,id=%q`, r.Node)
		}
		if got, ok := value(model.RunOutUsed + "{" + of + "}"); !ok || got != r.Used/r.Capacity {
			t.Errorf("%s: %v of it is used, %v, want %v", of, got, ok, r.Used/r.Capacity)
		}
		out := r.RunsOut
		if out == nil {
			out = new(predict.RunOut)
		}
		for bound, at := range map[string]*time.Time{"expected": out.At, "earliest": out.Earliest, "latest": out.Latest} {
			got, ok := value(fmt.Sprintf("%s{%s,bound=%q}", model.RunOutTime, of, bound))
			if ok != (at != nil) || ok && math.Abs(got-float64(at.UnixMilli())/1e3) > 1e-3 {
				t.Errorf("%s: %s at %v, %v, want %v", of, bound, got, ok, at)
			}
			if ok {
				compared++
			}
		}
	}
	if compared < 3 || a.Resources[0].Name != "cart" {
		t.Errorf("%d times of %+v", compared, a.Resources)
	}
	left, _ := value(model.RunOutTime + `{name="cart",bound="expected"} - time() < 86400`)
	if want := a.Resources[0].RunsOut.At.Sub(now).Seconds(); math.Abs(left-want) > 0.01 {
		t.Errorf("used up in %v s, want %v", left, want)
	}
}

// What else runs out: threads, open files, and space of a filesystem that is told by its mount point.
func TestRunOutKinds(t *testing.T) {
	h, _, _ := filled(t, 120, func(second int, s *model.Snapshot) *model.Snapshot {
		for i := range s.Containers {
			if c := &s.Containers[i]; c.Container.Name == "cart" {
				n := uint64(second)
				c.Processes = &model.ProcessCounters{Threads: 100 + n, ThreadsLimit: 300, OpenFiles: 20 + 3*n, OpenFilesLimit: 1024}
			}
		}
		s.Self.FileSystems = []model.FileSystem{{Mount: "/", UsedBytes: 5 << 30, SizeBytes: 9 << 30},
			{Mount: "/data", UsedBytes: 1<<30 + uint64(second)<<20, SizeBytes: 1<<30 + 200<<20}}
		return s
	})
	var a runOutAnswer
	get200(t, h, "/api/outsight/runout", &a)
	found := map[string]float64{} // in how many seconds after the window; 0 where it does not
	for _, r := range a.Resources {
		left := 0.0
		if r.RunsOut != nil && r.RunsOut.At != nil {
			left = r.RunsOut.At.Sub(a.To).Seconds()
		}
		found[string(r.Kind)+" "+r.Name] = left
	}
	for name, want := range map[string]float64{"threads cart": 80, "open files cart": (1024.0-20)/3 - 120, "filesystem /data": 80,
		"filesystem /": 0} {
		if got, ok := found[name]; !ok || math.Abs(got-want) > 2 {
			t.Errorf("%s: used up in %v s, %v, want %v", name, got, ok, want)
		}
	}
}
