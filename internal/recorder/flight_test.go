package recorder

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"outsight/internal/csvy"
	"outsight/internal/model"
	"outsight/internal/monotonic"
)

// TestFlightIsTheRecording holds what was kept, sent as JSON and written again, against what a
// recording of the same ticks wrote.
func TestFlightIsTheRecording(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newScript()
	s.begun = monotonic.Now() - uint64(time.Minute)
	s.add(&model.Container{ID: "web", Name: "web", Cgroup: 10, Labels: map[string]string{"a": "b"}})
	s.add(&model.Container{ID: "db", Name: "db", Cgroup: 11})
	twin := *s
	straight, kept := sheets{}, sheets{}
	r, f := New(s, s, &files{}, Options{Create: straight.create}), NewFlight(&twin, &twin, FlightOptions{CgroupVersion: 2})
	var cpu [3]uint64
	for i := range 1000 { // 50 s: more than one block
		if i%100 == 99 {
			s.next += uint64(random.IntN(3)) // lost
		}
		var samples []model.TickSample
		for j, group := range []model.CgroupID{10, 11, 12}[:1+random.IntN(3)] {
			cpu[j] += random.Uint64N(2) * random.Uint64N(uint64(interval))
			samples = append(samples, sample(group, cpu[j]))
		}
		s.tick(samples...)
	}
	twin.ticks = append(twin.ticks, s.ticks...)
	web := s.running[1]
	if err := r.drain(); err != nil {
		t.Fatal(err)
	}
	f.drain()
	if len(f.blocks) < 4 || f.Err() != nil {
		t.Fatalf("%d blocks, error %v", len(f.blocks), f.Err())
	}
	text, err := json.Marshal(f.Data(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var data FlightData
	if err := json.Unmarshal(text, &data); err != nil {
		t.Fatal(err)
	}
	p, err := data.Write(time.Time{}, Options{Create: kept.create})
	if err != nil {
		t.Fatal(err)
	}
	if q := r.Progress(); p != q {
		t.Errorf("%+v, want %+v", p, q)
	}
	if len(kept) != len(straight) {
		t.Errorf("%d files, want %d", len(kept), len(straight))
	}
	for id, w := range straight {
		got := kept[id]
		if got == nil || got.lost != w.lost {
			t.Fatalf("%s: %+v", id, got)
		}
		for _, name := range kernelColumns {
			want(t, id+"'s "+name, got.column(t, name), w.column(t, name))
		}
	}
	if h := kept["web"].head; h.Container.Labels["a"] != "b" || h.Container.Name != web.Name || h.Interval != interval {
		t.Errorf("%+v", h)
	}
	// What is asked for begins in the middle of a block.
	late := sheets{}
	since := clock{data.Wall, data.MonotonicNS}.at(s.at(900))
	if p, err := data.Write(since, Options{Create: late.create,
		Wanted: func(c *model.Container) bool { return c.ID == "web" }}); err != nil ||
		len(late) != 1 || p.Ticks != p.Rows || p.Ticks < 80 {
		t.Errorf("%+v, %d files, %v", p, len(late), err)
	}
	if first := late["web"].column(t, csvy.Tick)[0]; first < 900 || first > 902 {
		t.Errorf("the part that was asked for begins with tick %v, want 900", first)
	}
	all := straight["web"].column(t, csvy.CPUNS)
	want(t, "the part's cpu", late["web"].column(t, csvy.CPUNS), all[len(all)-len(late["web"].rows):])
	if _, err := data.Write(time.Now().Add(time.Hour), Options{Create: late.create}); !errors.Is(err, ErrNothingKept) {
		t.Errorf("%v, want ErrNothingKept", err)
	}
}

// TestFlightKnowsNamesThatCameLater: a container's first block is of before its name was known.
func TestFlightKnowsNamesThatCameLater(t *testing.T) {
	s := newScript()
	s.begun = monotonic.Now() - uint64(time.Minute)
	s.add(&model.Container{ID: "web", Cgroup: 10})
	f := NewFlight(s, s, FlightOptions{})
	for i := range uint64(300) { // more than one block
		s.tick(sample(10, i*1000))
	}
	f.drain()
	for _, named := range []string{"web-1", "web-2"} { // within a block, and in a later one
		s.running[1] = &model.Container{ID: "web", Name: named, Cgroup: 10}
		s.tick(sample(10, 400_000))
		f.drain()
		kept := sheets{}
		if _, err := f.Data(time.Hour).Write(time.Time{}, Options{Create: kept.create,
			Wanted: func(c *model.Container) bool { return c.Name == named }}); err != nil {
			t.Fatal(err)
		}
		if w := kept["web"]; len(kept) != 1 || w.head.Container.Name != named || len(w.rows) < 300 {
			t.Errorf("%d files of %s, want one with all rows", len(kept), named)
		}
	}
}

func TestFlightIsBounded(t *testing.T) {
	s := newScript()
	s.begun = monotonic.Now() - uint64(500*time.Second)
	s.add(&model.Container{ID: "web", Name: "web", Cgroup: 10})
	f := NewFlight(s, s, FlightOptions{MaxBytes: 20000, Keep: 300 * time.Second})
	for i := range uint64(9900) { // 495 s
		s.tick(sample(10, i*12345))
	}
	f.drain()
	drops := f.Drops()
	if used := drops[1]; used.Used > 20000 || used.Used < 5000 || used.Capacity != 20000 {
		t.Errorf("%+v", used)
	}
	// With room for more, time is the bound.
	for i := range uint64(10) {
		s.tick(sample(10, i+9900*12345))
	}
	f.o.MaxBytes = 1 << 20
	f.drain()
	if oldest := monotonic.Now() - f.blocks[0].LastNS; oldest > uint64(301*time.Second) {
		t.Errorf("the oldest block is %v old", time.Duration(oldest))
	}
	if len(f.Data(15*time.Second).Blocks) > 4 {
		t.Errorf("%d blocks of the last 15 s", len(f.Data(15*time.Second).Blocks))
	}
}

// TestIdleContainersTakeNoRoom: what a hundred containers that do nothing take is what the ticks
// themselves take.
func TestIdleContainersTakeNoRoom(t *testing.T) {
	s := newScript()
	var samples []model.TickSample
	for i := range model.CgroupID(100) {
		c := &model.Container{ID: string(rune('a' + i)), Cgroup: 1000 + i}
		s.add(c)
		samples = append(samples, sample(c.Cgroup, 1000))
	}
	f := NewFlight(s, s, FlightOptions{})
	for range 200 {
		s.tick(samples...)
	}
	f.drain()
	if perTick := f.open.size() / 200; perTick > 40 {
		t.Errorf("%d bytes a tick", perTick)
	}
}

func FuzzBlock(f *testing.F) {
	s := newScript()
	s.add(&model.Container{ID: "web", Name: "web", Cgroup: 10})
	flight := NewFlight(s, s, FlightOptions{})
	s.tick(sample(10, 5))
	s.tick(sample(10, 500))
	flight.drain()
	f.Add(flight.Data(time.Hour).Blocks[0].Data)
	f.Fuzz(func(t *testing.T, data []byte) {
		d := FlightData{Interval: interval, Blocks: []Block{{Data: data,
			Targets: []BlockTarget{{Container: s.running[1], To: 1 << 60}}}}}
		d.Write(time.Time{}, Options{Create: sheets{}.create})
	})
}
