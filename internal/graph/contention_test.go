package graph

import (
	"encoding/json"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

var waitsFrom = time.Unix(1_790_000_000, 0)

func TestWaitsOfSnapshots(t *testing.T) {
	batch, cart := &model.Container{ID: "b1", Name: "batch"}, &model.Container{ID: "c1", Name: "cart"}
	snapshot := func(second int, c *model.Contention) *model.Snapshot {
		return &model.Snapshot{Time: waitsFrom.Add(time.Duration(second) * time.Second), Host: model.Host{Name: "h"},
			Containers: []model.ContainerSample{{Container: batch}, {Container: cart, Contention: c}}}
	}
	before := snapshot(0, &model.Contention{ContentionRest: model.ContentionRest{QuotaNS: 5e6, OwnNS: 1e6}})
	after := snapshot(2, &model.Contention{ContentionRest: model.ContentionRest{QuotaNS: 19e6, OwnNS: 1e6},
		By: []model.Contender{{ID: batch.ID, Name: batch.Name, WaitNS: 62e6, Preemptions: 3}}})
	w := waitsBetween(before, after)
	if got, want := w.Of("c1").Line, "cart waited 38 ms/s for a CPU: 31 behind batch, 7.0 own quota"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := w.Of("c1").Short(), "38 ms/s batch"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	calm := snapshot(2, &model.Contention{ContentionRest: model.ContentionRest{QuotaNS: 5e6, OwnNS: 1e6 + 1e4}})
	if got := waitsBetween(before, calm).Of("c1").Short() + (*Wait)(nil).Short(); got != "00" {
		t.Errorf("got %q of who hardly waited, and of nobody", got)
	}
	throttled := snapshot(2, &model.Contention{ContentionRest: model.ContentionRest{QuotaNS: 705e6, OwnNS: 2e6}})
	if got, want := waitsBetween(before, throttled).Of("c1").Short(), "350 ms/s own quota"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := json.Marshal(waitsBetween(nil, after)); err != nil {
		t.Error(err)
	}
	if got, want := waitsBetween(nil, after).Of("c1").Line,
		"cart waited 82 ms for a CPU: 62 behind batch, 19 own quota"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := waitsBetween(nil, nil); len(got.Containers) != 0 {
		t.Errorf("got %+v of nothing", got)
	}
}

// waitsBetween is what containers waited between two snapshots of an agent; without prev, all that cur has.
func waitsBetween(prev, cur *model.Snapshot) *Waits {
	if cur == nil {
		return WaitsFromFrames(&frame.Window{})
	}
	if prev == nil {
		prev = &model.Snapshot{Time: cur.Time, Host: cur.Host}
	}
	frames := framesOf(prev, cur)
	return WaitsFromFrames(windowBetween(frames[0], frames[1]))
}

// TestWaitsOfFrames: what a container waited is in the window, whether or not who ran or who waited is there any more.
func TestWaitsOfFrames(t *testing.T) {
	batch, cart := &model.Container{ID: "b1", Name: "batch"}, &model.Container{ID: "c1", Name: "cart"}
	snapshot := func(second int, cartWaits *model.Contention) *model.Snapshot {
		s := &model.Snapshot{Time: waitsFrom.Add(time.Duration(second) * time.Second), Host: model.Host{Name: "h"},
			Containers: []model.ContainerSample{{Container: batch}}}
		if cartWaits != nil {
			s.Containers = append(s.Containers, model.ContainerSample{Container: cart, Contention: cartWaits})
		}
		return s
	}
	f := framesOf(snapshot(0, &model.Contention{ContentionRest: model.ContentionRest{QuotaNS: 5e6, OwnNS: 1e6}}),
		snapshot(2, &model.Contention{ContentionRest: model.ContentionRest{QuotaNS: 19e6, OwnNS: 1e6},
			By: []model.Contender{{ID: batch.ID, Name: batch.Name, WaitNS: 62e6, Preemptions: 3}}}),
		snapshot(4, nil), snapshot(2000, nil))
	w := WaitsFromFrames(windowBetween(f[0], f[1]))
	got := w.Of("c1")
	if want := "cart waited 38 ms/s for a CPU: 31 behind batch, 7.0 own quota"; got == nil || got.Line != want {
		t.Fatalf("got %+v, want %q", got, want)
	}
	if got.Preemptions != 3 || got.Host != "h" || w.CoveredSeconds != 2 {
		t.Errorf("got %+v", got)
	}
	for _, last := range f[2:] { // in its own row, then in that of what ended
		if w := WaitsFromFrames(windowBetween(f[0], last)); len(w.Containers) != 1 || w.Containers[0].Name != "cart" ||
			w.Containers[0].Seconds != 0.076 || w.Containers[0].By[0].ID != "b1" {
			t.Errorf("after %s: %+v", last.Time.Sub(f[0].Time), w.Containers)
		}
	}
	if w := WaitsFromFrames(windowBetween(f[2], f[3])); len(w.Containers) != 0 {
		t.Errorf("got %+v of who had ended before", w.Containers[0])
	}
}
