package framelog

import (
	"fmt"
	"math/rand/v2"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// start is when simulated hosts begin: a full hour.
var start = time.Unix(1_800_000_000, 0).Truncate(time.Hour).UTC()

// simulated is a host of which containers come and go, and whose agent restarts.
type simulated struct {
	name    string
	random  *rand.Rand
	builder *frame.Builder
	key     *frame.Frame
	epoch   time.Time
	edges   []*model.Edge
	made    int
	// counted is what all edges of this epoch have counted.
	counted uint64
}

func newSimulated(name string, seed uint64, edges int, epoch time.Time) *simulated {
	s := &simulated{name: name, random: rand.New(rand.NewPCG(seed, 1))}
	s.restart(epoch)
	for range edges {
		s.addEdge()
	}
	return s
}

// restart begins another epoch. Edges that are there go on from 0.
func (s *simulated) restart(epoch time.Time) {
	s.builder, s.epoch, s.key, s.counted = frame.NewBuilder(epoch), epoch, nil, 0
	for _, e := range s.edges {
		e.Counters = model.EdgeCounters{}
	}
}

func (s *simulated) addEdge() {
	s.made++
	id := fmt.Sprintf("%s-%d", s.name, s.made)
	c := &model.Container{ID: id, Name: fmt.Sprint("job-", s.made%5), Image: "image", Runtime: model.Docker}
	s.edges = append(s.edges, &model.Edge{Instance: uint64(s.made), Side: model.RoleClient,
		Client: model.Peer{Container: c}})
}

// next makes the frame of a time.
func (s *simulated) next(now time.Time) Encoded {
	snapshot := &model.Snapshot{Time: now, Host: model.Host{Name: s.name, Cores: 2, BootTime: start.Add(-time.Hour)}}
	for _, e := range s.edges {
		n := uint64(s.random.IntN(1000))
		e.Counters.SentBytes += n
		e.Counters.Requests++
		s.counted += n
		copied := *e
		snapshot.Containers = append(snapshot.Containers, model.ContainerSample{Container: e.Client.Container,
			CPU: &model.CPUCounters{UsageNS: e.Counters.SentBytes}})
		snapshot.Edges = append(snapshot.Edges, copied)
	}
	f := s.builder.Build(snapshot)
	if f.IsKey() {
		s.key = f
	}
	return Encoded{Tenant: "t", Header: f.Header, Data: frame.Encode(nil, f, s.key)}
}

// churn lets a container end and another one begin.
func (s *simulated) churn() {
	s.edges = s.edges[1:]
	s.addEdge()
}

// total is what all edges of a frame have counted.
func total(f *frame.Frame) (sum uint64) {
	if f == nil {
		return 0
	}
	t := &f.Tables[frame.Edges]
	column := frame.Column(frame.Edges, "request_bytes")
	for row := range t.IDs {
		n, _ := t.Columns[column].At(row)
		sum += n
	}
	return sum
}

// opaque are frames whose data is no frame, of one host: the first of each minute is a key frame.
func opaque(host string, epoch uint64, from time.Time, every time.Duration, n int) (all []Encoded) {
	key := uint64(0)
	for i := range n {
		at := from.Add(time.Duration(i) * every)
		number := uint64(i + 1)
		if i == 0 || minuteOf(at.UnixNano()) != minuteOf(all[i-1].Time.UnixNano()) {
			key = number
		}
		all = append(all, Encoded{Tenant: "t", Header: frame.Header{Host: host, Epoch: epoch, Number: number, Key: key,
			Time: at}, Data: fmt.Appendf(nil, "frame %d of %s", number, host)})
	}
	return all
}
