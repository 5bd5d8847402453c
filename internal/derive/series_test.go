package derive

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

var began = time.Unix(1_800_000_000, 0)

// shop is a snapshot with two containers and edges, of which some have labels.
func shop(at time.Time) *model.Snapshot {
	spread := func(n uint64) *model.Histogram {
		return &model.Histogram{Count: n, SumNS: n * 1e6, Offset: -300, Buckets: []uint64{n}}
	}
	s := &model.Snapshot{Time: at, Host: model.Host{Name: "web-1", Cores: 8, Kernel: "6.1"}}
	for i, name := range []string{"cart", "database"} {
		s.Containers = append(s.Containers, model.ContainerSample{Container: &model.Container{ID: fmt.Sprintf("%064x", i),
			Name: name, Image: name + ":1", Runtime: model.Docker, PodName: "pod-" + name, PodNamespace: "shop",
			Started: began.Add(-time.Hour)},
			CPU:    &model.CPUCounters{UsageNS: 5e9, Voluntary: 3, RunQueue: spread(7)},
			Memory: &model.MemorySample{UsageBytes: 4096}, Network: &model.NetworkCounters{ReceiveBytes: 99}})
	}
	s.Containers[0].Contention = &model.Contention{By: []model.Contender{{ID: s.Containers[1].Container.ID, Name: "database",
		WaitNS: 17}}}
	s.Edges = []model.Edge{{Instance: 1, Side: model.RoleClient, Client: model.Peer{Container: s.Containers[0].Container,
		Process: "java"}, Server: model.Peer{Container: s.Containers[1].Container, Process: "postgres"},
		Service: netip.MustParseAddrPort("10.0.0.1:5432"), Start: began.Add(-time.Minute),
		Counters:  model.EdgeCounters{SentBytes: 11, ReceivedBytes: 22, Opens: 1, Requests: 4, Replies: 3, Latency: spread(3)},
		Endpoints: []model.Endpoint{{EndpointKey: model.EndpointKey{Protocol: model.HTTP, Name: "GET /", Status: "2xx"}, Latency: spread(2)}}},
		{Instance: 2, Side: model.RoleServer, Client: model.Peer{Address: netip.MustParseAddr("192.0.2.7")},
			Server: model.Peer{Container: s.Containers[0].Container}, Service: netip.MustParseAddrPort("192.0.2.1:80"),
			Counters: model.EdgeCounters{SentBytes: 5}}}
	return s
}

// texts are series as texts: name, labels and value. Counters that are 0 are left out unless all are wanted.
func texts(series []model.Series, zeros bool) (all []string) {
	for _, s := range series {
		if s.Kind == model.Counter && s.Value == 0 && !zeros {
			continue
		}
		value := fmt.Sprintf("%.6g", s.Value)
		if s.Histogram != nil {
			if s.Histogram.Count == 0 {
				continue
			}
			value = fmt.Sprint(s.Histogram.Count, s.Histogram.SumNS, s.Histogram.Offset, s.Histogram.Buckets)
		}
		all = append(all, fmt.Sprint(s.Name, s.Labels, s.Kind, " ", value))
	}
	slices.Sort(all)
	return all
}

// The series of a frame are those of the snapshot that it was made of, but for counters that are 0.
func TestSeriesAreThoseOfTheSnapshot(t *testing.T) {
	s := shop(began)
	want := texts(otlp.FromFrame(frame.Of(s), otlp.SeriesOptions{}), false)
	got := SeriesOf("", true)(frame.NewBuilder(began).Build(s))
	compare(t, texts(got, true), want)
	keys := map[uint64]bool{}
	for _, one := range got {
		if keys[one.Key] || one.Key == 0 {
			t.Errorf("%s: its key is another one's", one.Name)
		}
		keys[one.Key] = true
	}
}

// Without edges, the series are those of containers and hosts.
func TestSeriesOfContainers(t *testing.T) {
	s := shop(began)
	f := frame.NewBuilder(began).Build(s)
	only, err := frame.DecodeOnly(frame.Encode(nil, f, nil), nil, Projection(false))
	if err != nil {
		t.Fatal(err)
	}
	want := texts(slices.DeleteFunc(otlp.FromFrame(frame.Of(s), otlp.SeriesOptions{}), func(s model.Series) bool {
		return slices.ContainsFunc(s.Labels, func(l model.Label) bool { return l.Name == otlp.LabelSide })
	}), false)
	compare(t, texts(SeriesOf("", false)(only), true), want)
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	for _, one := range got {
		if !slices.Contains(want, one) {
			t.Errorf("not of the snapshot: %s", one)
		}
	}
	for _, one := range want {
		if !slices.Contains(got, one) {
			t.Errorf("missing: %s", one)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d series, want %d", len(got), len(want))
	}
}

// one finds a series by its name and a label's value.
func one(all []model.Series, name, value string) *model.Series {
	for i := range all {
		if all[i].Name == name && slices.ContainsFunc(all[i].Labels, func(l model.Label) bool { return l.Value == value }) {
			return &all[i]
		}
	}
	return nil
}

// A counter that does not move has no series. When it moves, it was 0 at the frame before.
func TestCountersThatMoveLate(t *testing.T) {
	b, series := frame.NewBuilder(began), SeriesOf("", true)
	s := shop(began)
	name := frame.Schema[frame.Edges].Columns[frame.Column(frame.Edges, "resets")].Metric
	if got := one(series(b.Build(s)), name, "postgres"); got != nil {
		t.Errorf("before it moves: %+v", got)
	}
	s.Time = began.Add(15 * time.Second)
	s.Edges[0].Counters.Resets = 2
	if got := one(series(b.Build(s)), name, "postgres"); got == nil || got.Value != 2 || !got.Start.Equal(began) {
		t.Errorf("when it moves: %+v", got)
	}
	s.Time = began.Add(30 * time.Second)
	if got := one(series(b.Build(s)), name, "postgres"); got == nil || got.Value != 2 {
		t.Errorf("after that: %+v", got)
	}
}

// A row that has ended has series once more. One that ends and begins again with the same labels has those of the new one.
func TestRowsThatEnd(t *testing.T) {
	b, series := frame.NewBuilder(began), SeriesOf("shop", true)
	s := shop(began)
	series(b.Build(s))
	edges := s.Edges
	name := frame.Schema[frame.Edges].Columns[frame.Column(frame.Edges, "request_bytes")].Metric
	for n, want := range []bool{true, false, false} {
		s.Time = s.Time.Add(15 * time.Second)
		s.Edges = edges[1:]
		got := one(series(b.Build(s)), name, "postgres")
		if (got != nil) != want {
			t.Errorf("%d frames after it ended: %+v", n, got)
		}
		if got != nil && (got.Value != 11 || one([]model.Series{*got}, name, "shop") == nil) {
			t.Errorf("its last sample is %+v", got)
		}
	}
	// The other edge ends, and one with another instance begins.
	s.Time = s.Time.Add(15 * time.Second)
	again := edges[1]
	again.Instance, again.Counters.SentBytes = 3, 2
	s.Edges = []model.Edge{again}
	var values []float64
	for _, got := range series(b.Build(s)) {
		if slices.ContainsFunc(got.Labels, func(l model.Label) bool { return l.Value == "192.0.2.7" }) &&
			got.Kind == model.Counter {
			values = append(values, got.Value)
		}
	}
	if !slices.Equal(values, []float64{2}) {
		t.Errorf("the edge that began again has %v", values)
	}
}
