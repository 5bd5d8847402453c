package otlp

import (
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// A container whose pod is learnt after it was first seen has its series with the pod's names from then on, and so have
// its edges, also where nothing is counted any more.
func TestSeriesOfARenamedContainer(t *testing.T) {
	s := testSnapshot()
	b, sparse := frame.NewBuilder(s.Time), SparseSeries(SeriesOptions{})
	renamed := s.Containers[0].Container
	of := func(series []model.Series, labels ...model.Label) (n int) {
		for _, one := range series {
			has := true
			for _, want := range labels {
				has = has && slices.Contains(one.Labels, want)
			}
			if has {
				n++
			}
		}
		return n
	}
	id := model.NewLabel(LabelID, renamed.ID)
	next := func() []model.Series {
		s.Time = s.Time.Add(time.Second)
		return sparse(b.Build(s))
	}
	next()
	before := next()
	now := *renamed
	now.Name, now.PodNamespace, now.PodName = "cart", "shop", "cart-0"
	for i := range s.Containers {
		if s.Containers[i].Container == renamed {
			s.Containers[i].Container = &now
		}
	}
	edges := 0
	for i := range s.Edges {
		for _, end := range []*model.Peer{&s.Edges[i].Client, &s.Edges[i].Server} {
			if end.Container == renamed {
				end.Container = &now
				edges++
			}
		}
	}
	after := next()
	pod, client, server := model.NewLabel(LabelPod, "cart-0"), model.NewLabel(ClientPrefix+LabelPod, "cart-0"),
		model.NewLabel(ServerPrefix+LabelPod, "cart-0")
	if n := of(before, id); n == 0 || of(after, id, pod) != n || of(after, id) != n {
		t.Errorf("%d series before, %d after, %d of them with the pod", n, of(after, id), of(after, id, pod))
	}
	if n := of(after, client) + of(after, server); edges == 0 || n == 0 {
		t.Errorf("%d ends of edges in the container, %d series of edges with its pod", edges, n)
	}
	if len(after) != len(before) {
		t.Errorf("%d series before, %d after", len(before), len(after))
	}
	keys := map[uint64]string{}
	for _, one := range append(before, after...) {
		one.Value, one.Histogram = 0, nil
		if was, ok := keys[one.Key]; ok && was != render(one) {
			t.Errorf("one key is of %s and of %s", was, render(one))
		}
		keys[one.Key] = render(one)
	}
}
