package energy

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// fakeEvent is an event whose count a test sets.
type fakeEvent struct {
	count *uint64
	ended bool
}

func (e *fakeEvent) Read(b []byte) (int, error) {
	if e.ended {
		return 0, nil
	}
	binary.LittleEndian.PutUint64(b, *e.count)
	return 8, nil
}
func (e *fakeEvent) Close() error { return nil }

func TestPerfPMU(t *testing.T) {
	h := newHost(t, 2)
	const power = "bus/event_source/devices/power/"
	h.write(power+"type", "24\n")
	h.write(power+"cpumask", "0,4\n")
	for name, config := range map[string]string{"energy-pkg": "0x02", "energy-psys": "0x05"} {
		h.write(power+"events/"+name, "event="+config+"\n")
		h.write(power+"events/"+name+".scale", "2.3283064365386962890625e-10\n")
		h.write(power+"events/"+name+".unit", "Joules\n")
	}
	h.write(power+"events/energy-ram", "event=0x03\n") // without a scale: left out
	h.write("devices/system/cpu/cpu0/topology/physical_package_id", "0\n")
	h.write("devices/system/cpu/cpu4/topology/physical_package_id", "1\n")
	counts := map[string]*uint64{}
	events := map[string]*fakeEvent{}
	o := h.options()
	o.openEvent = func(pmu uint32, config uint64, cpu int) (event, error) {
		key := fmt.Sprintf("%d/%d/%d", pmu, config, cpu)
		n := uint64(1 << 40)
		counts[key] = &n
		events[key] = &fakeEvent{count: &n}
		return events[key], nil
	}
	h.run("a", 0, 0, 0)
	h.account = New(o)
	h.update()
	if len(counts) != 3 || h.source() != Perf {
		t.Fatalf("opened %v by %s, want a package event on each socket and one psys", counts, h.source())
	}
	h.run("a", 0, 0, 1e9)
	h.run("b", 1, 0, 1e9)
	*counts["24/2/0"] += 1 << 32 // a joule
	*counts["24/2/4"] += 1 << 31
	*counts["24/5/0"] += 1 << 33
	h.update()
	h.addsUp(Package, Perf, 1_500_000)
	h.addsUp(PSys, Perf, 2_000_000)
	if a, b := h.account.Of("a"), h.account.Of("b"); a[0].MicroJoules != 2*b[0].MicroJoules {
		t.Errorf("a has %+v, b %+v, want each its own socket", a, b)
	}
	events["24/2/4"].ended = true // its CPU went off line
	h.update()
	if h.source() != Model {
		t.Errorf("the meter is %s, want the next", h.source())
	}
}
