package api

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/predict"
)

// TestRunOut: of two containers with a limit one fills its memory, and it is told when it will have.
func TestRunOut(t *testing.T) {
	const limit, perSecond = 1 << 30, 3 << 20
	h, _, now := filled(t, 120, func(second int, s *model.Snapshot) *model.Snapshot {
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
	})
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
