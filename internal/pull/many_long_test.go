//go:build long

package pull

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"

	"outsight/internal/frame"
	"outsight/internal/model"
	"outsight/internal/region"
	"outsight/internal/region/tcp"
)

// processes is the record of the map of that name.
type processes struct{ Forks, Execs, Exits, ThreadStarts uint64 }

// memory of a region begins at a multiple of 8.
func memory(bytes uint64) []byte {
	words := make([]uint64, (bytes+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), bytes)
}

// served is a host whose regions are read over TCP: a container with a control group that has executed something.
type served struct {
	address string
	execs   *uint64
}

func serve(t *testing.T, ctx context.Context, running *sync.WaitGroup, name string, key region.Key) served {
	t.Helper()
	regions, metrics, err := region.Describe([]region.Source{{Name: "cgroup_slots", Record: reflect.TypeFor[uint64](), Records: 4,
		Lanes: 1}, {Name: "processes", Record: reflect.TypeFor[processes](), Records: 4, Lanes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	all := map[uint32][]byte{region.ControlID: memory(region.ControlBytes),
		region.DictionaryID: memory(uint64(region.DictionaryBytes(4)))}
	for _, r := range regions {
		all[r.ID] = memory(r.Bytes())
	}
	w, err := region.NewWriter(all[region.ControlID], all[region.DictionaryID], region.Control{
		EpochNS: uint64(time.Now().UnixNano()), CPUs: 1, BootID: name, Host: name, Regions: regions, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Update(region.Names{Containers: []region.Container{{ID: "id-" + name, Name: name, Runtime: model.Docker,
		Figures: region.None}}, Groups: map[model.CgroupID]string{7: "id-" + name}}, 1, 1); err != nil {
		t.Fatal(err)
	}
	(*[4]uint64)(unsafe.Pointer(&all[region.FirstDataID][0]))[2] = 7
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := tcp.NewServer(l, all, []region.Key{key}, tcp.Options{})
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.Close() })
	return served{l.Addr().String(), &(*[4]processes)(unsafe.Pointer(&all[region.FirstDataID+1][0]))[2].Execs}
}

// TestAThousandHosts: a server reads a thousand hosts over a shared credit. Each has its frames, in order, and the last one
// has what the host has counted.
func TestAThousandHosts(t *testing.T) {
	const hosts, frames = 1000, 2
	key := region.Key{ID: 3, Secret: make([]byte, 32)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var list []Host
	for i := range hosts {
		s := serve(t, ctx, &running, fmt.Sprintf("web%d", i), key)
		*s.execs = uint64(1000 + i)
		list = append(list, Host{Address: s.address, Interval: 5 * time.Second})
	}
	var mu sync.Mutex // guards the maps
	counted, last := map[string]int{}, map[string]time.Time{}
	execs := map[string]uint64{}
	take := func(_ context.Context, _ string, encoded []byte) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		f, err := frame.Decode(encoded, nil)
		if err != nil {
			return false, err
		}
		if !f.Time.After(last[f.Host]) {
			t.Errorf("a frame of %s is of %v, the one before of %v", f.Host, f.Time, last[f.Host])
		}
		counted[f.Host]++
		last[f.Host] = f.Time
		n, _ := f.Tables[frame.Containers].Columns[frame.Column(frame.Containers, "execs")].At(0)
		execs[f.Host] = n
		return true, nil // the next one is a key frame too
	}
	p, err := New(list, Options{Key: key, DialOptions: DialOptions{Transport: TransportTCP}, Credit: 256 << 10, Take: take,
		Newest: func(context.Context, string) ([]*frame.Frame, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for i := range hosts {
			if counted[fmt.Sprintf("web%d", i)] < frames {
				return false
			}
		}
		return true
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); !done(); <-tick.C {
		if time.Since(begin) > 4*time.Minute {
			mu.Lock()
			late := p.Features()
			t.Fatalf("%d of %d hosts have frames, and %d are late: %v", len(counted), hosts, len(late), late[:min(len(late), 3)])
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range hosts {
		if name := fmt.Sprintf("web%d", i); execs[name] != uint64(1000+i) {
			t.Errorf("%s has %d executions, want %d", name, execs[name], 1000+i)
		}
	}
}
