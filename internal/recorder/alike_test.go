package recorder

import (
	"fmt"
	"testing"
	"time"

	"outsight/internal/model"
)

func TestAlikeAnomaliesAreTogether(t *testing.T) {
	var list []KeptAnomaly
	add := func(resource, id string, at, length, waited int) {
		from := time.Unix(int64(at), 0)
		list = append(list, KeptAnomaly{uint64(len(list) + 1),
			model.Anomaly{Resource: resource, Container: "c" + id, ID: id, From: from,
				To: from.Add(time.Duration(length) * time.Millisecond), WaitedMS: float64(waited)}})
	}
	for i := range 60 {
		add("host-cpu", "a", 1000-i, 100+i%7, 10+i%11) // not in order of time
	}
	add("stall", "a", 400, 30, 5)
	add("host-cpu", "b", 2000, 20, 1)
	got := AlikeOf(list)
	if len(got) != 3 || fmt.Sprint(got[0].List[0].Resource, got[1].List[0].ID, got[2].List[0].ID) != "stall a b" &&
		got[0].List[0].Resource != "stall" {
		t.Fatalf("got %d groups", len(got))
	}
	a := got[1]
	if len(a.List) != 60 || a.First().Unix() != 941 || a.Last().Unix() != 1000 {
		t.Errorf("%d from %v to %v, want 60 from 941 to 1000", len(a.List), a.First().Unix(), a.Last().Unix())
	}
	longest, most, sum := a.List[a.Longest], a.List[a.MostWaited], 0.0
	for _, k := range a.List {
		sum += k.WaitedMS
		if k.To.Sub(k.From) > longest.To.Sub(longest.From) || k.WaitedMS > most.WaitedMS {
			t.Errorf("number %d is longer than %d, or waited more than %d", k.Number, longest.Number, most.Number)
		}
	}
	if a.WaitedMS != sum {
		t.Errorf("waited %v, want %v", a.WaitedMS, sum)
	}
	if AlikeOf(nil) != nil {
		t.Error("of none there are some")
	}
}
