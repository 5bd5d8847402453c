package api

import (
	"net/http/httptest"
	"testing"

	"outsight/internal/graph"
	"outsight/internal/model"
)

// What the store was given second by second is what the window answers, for a node, and for the server of an edge.
func TestContentionOfAWindow(t *testing.T) {
	h, _, now := filled(t, 60, func(second int, s *model.Snapshot) *model.Snapshot {
		copied := *s
		copied.Containers = append([]model.ContainerSample(nil), s.Containers...)
		for i := range copied.Containers {
			c := &copied.Containers[i]
			if c.Container.Name != "cart" {
				continue
			}
			ms := uint64(second) * 1e6
			c.Contention = &model.Contention{ContentionRest: model.ContentionRest{QuotaNS: 7 * ms, OwnNS: 100}}
			if second >= 30 { // the other one came later
				c.Contention.By = []model.Contender{{ID: "b1", Name: "batch", WaitNS: 31 * (ms - 30e6),
					Preemptions: uint64(second)}}
			}
		}
		return &copied
	})
	var answer struct {
		Seconds    float64       `json:"covered_seconds"`
		Containers []*graph.Wait `json:"containers"`
	}
	at := "&from=" + now.Add(-20e9).Format("2006-01-02T15:04:05Z") + "&to=" + now.Format("2006-01-02T15:04:05Z")
	get200(t, h, "/api/outsight/contention?node=cart"+at, &answer)
	const want = "cart waited 38 ms/s for a CPU: 31 behind batch, 7.0 own quota"
	if len(answer.Containers) != 1 || answer.Containers[0].Line != want || answer.Seconds != 20 {
		t.Fatalf("got %+v, want %q", answer, want)
	}
	if by := answer.Containers[0].By[0]; by.ID != "b1" || by.Preemptions != 20 {
		t.Errorf("got %+v, want 20 preemptions by b1", by)
	}
	id := answer.Containers[0].ID
	get200(t, h, "/api/outsight/contention?edge=someone>"+id+at, &answer)
	if len(answer.Containers) != 1 || answer.Containers[0].ID != id {
		t.Errorf("got %+v for the edge's server", answer.Containers)
	}
	// Over the whole time, the other one's waits began at 0.
	get200(t, h, "/api/outsight/contention?from="+now.Add(-60e9).Format("2006-01-02T15:04:05Z")+"&to="+now.Format("2006-01-02T15:04:05Z"), &answer)
	if got := answer.Containers[0].By[0].Seconds; got < 0.9299 || got > 0.9301 {
		t.Errorf("waited %v s behind batch, want 0.93", got)
	}
	get200(t, h, "/api/outsight/contention?node=nobody"+at, &answer)
	if len(answer.Containers) != 0 {
		t.Errorf("got %+v for nobody", answer.Containers)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/api/outsight/contention?edge=nonsense", nil))
	if w.Code != 400 {
		t.Errorf("an edge that is none: %d", w.Code)
	}
}
