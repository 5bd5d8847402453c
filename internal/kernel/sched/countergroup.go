package sched

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"outsight/internal/topology"
)

// CounterMode says which counters are read per control group.
type CounterMode string

// The modes of counters. CountersSoftware counts the kernel's software events in the same way, for
// machines that have no hardware counters: it is for tests and measurements.
const (
	CountersOff      CounterMode = "off"
	CountersAuto     CounterMode = "auto"
	CountersSoftware CounterMode = "software"
	// CountersProcesses is CountersAuto, for each process as well.
	CountersProcesses CounterMode = "processes"
)

// ParseCounterMode tells a mode from its name; empty is off.
func ParseCounterMode(name string) (CounterMode, error) {
	mode := CounterMode(cmp.Or(name, string(CountersOff)))
	if !slices.Contains([]CounterMode{CountersOff, CountersAuto, CountersSoftware, CountersProcesses}, mode) {
		return "", fmt.Errorf("counters %q: want auto, processes, off or software", name)
	}
	return mode, nil
}

// counterEvents is the number of events in a CPU's group; see COUNTERS in counters.h.
const counterEvents = 4

// corePMU is what counts on some of the CPUs.
type corePMU struct {
	// name is the device's; kind is its number where it must be said in the event, else 0.
	name string
	kind uint64
	// cpus that it counts on; nil is all.
	cpus []int
}

var errNoPMU = errors.New("no hardware counters: the kernel has no device cpu, cpu_core or cpu_atom, as in most virtual machines")

// findPMUs finds the PMUs of the cores in sysfs. Those of a hybrid machine have a list of CPUs each.
func findPMUs(sysfs string, mode CounterMode) ([]corePMU, error) {
	if mode == CountersSoftware {
		return []corePMU{{name: "software"}}, nil
	}
	devices := filepath.Join(sysfs, "bus/event_source/devices")
	var pmus []corePMU
	for _, name := range []string{"cpu_core", "cpu_atom", "cpu_lowpower"} {
		text, err := os.ReadFile(filepath.Join(devices, name, "cpus"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the CPUs of %s: %w", name, err)
		}
		cpus, err := topology.ParseList(string(text))
		if err != nil {
			return nil, fmt.Errorf("reading the CPUs of %s: %w", name, err)
		}
		kind, err := readNumberFile(filepath.Join(devices, name, "type"))
		if err != nil {
			return nil, fmt.Errorf("reading the type of %s: %w", name, err)
		}
		pmus = append(pmus, corePMU{name, kind, cpus})
	}
	if len(pmus) > 0 {
		return pmus, nil
	}
	if _, err := os.Stat(filepath.Join(devices, "cpu")); err != nil {
		return nil, errNoPMU
	}
	return []corePMU{{name: "cpu"}}, nil
}

func readNumberFile(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("got %q, want a number", text)
	}
	return n, nil
}

// pmuOf is the index of the PMU that counts on a CPU, -1 if none does.
func pmuOf(pmus []corePMU, cpu int) int {
	return slices.IndexFunc(pmus, func(p corePMU) bool { return p.cpus == nil || slices.Contains(p.cpus, cpu) })
}

// attributes of event i of the group.
func (p *corePMU) attributes(i int) *unix.PerfEventAttr {
	a := &unix.PerfEventAttr{Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Type: unix.PERF_TYPE_HARDWARE}
	if p.name == "software" {
		a.Type = unix.PERF_TYPE_SOFTWARE
		a.Config = [counterEvents]uint64{unix.PERF_COUNT_SW_CPU_CLOCK, unix.PERF_COUNT_SW_TASK_CLOCK,
			unix.PERF_COUNT_SW_CONTEXT_SWITCHES, unix.PERF_COUNT_SW_PAGE_FAULTS}[i]
		return a
	}
	a.Config = [counterEvents]uint64{unix.PERF_COUNT_HW_CPU_CYCLES, unix.PERF_COUNT_HW_INSTRUCTIONS,
		unix.PERF_COUNT_HW_CACHE_REFERENCES, unix.PERF_COUNT_HW_CACHE_MISSES}[i] | p.kind<<32
	return a
}

// EventOpener opens events, and lets groups of them count.
type EventOpener struct {
	// open opens an event on a CPU in the group of another, -1 for a group of its own.
	open func(attributes *unix.PerfEventAttr, cpu, group int) (fd int, err error)
	// start gets the group's first event.
	start func(fd int) error
}

var kernelEvents = EventOpener{
	open: func(attributes *unix.PerfEventAttr, cpu, group int) (int, error) {
		return unix.PerfEventOpen(attributes, -1, cpu, group, unix.PERF_FLAG_FD_CLOEXEC)
	},
	start: func(fd int) error {
		return unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, unix.PERF_IOC_FLAG_GROUP)
	},
}

// counterGroup is the group of events of one CPU; fds are -1 where an event is not counted.
type counterGroup struct {
	fds [counterEvents]int
	// known has a bit for each event that is counted.
	known uint8
}

// openGroup opens the events of a CPU as one group: those in wanted, of which the first is needed. Others
// that the hardware lacks, or has no room for beside the first, are left out if some may be. The group
// begins to count when it is whole: events that join a group which counts already may not.
func openGroup(events *EventOpener, pmu *corePMU, cpu int, wanted uint8, someMayLack bool) (*counterGroup, error) {
	g := &counterGroup{fds: [counterEvents]int{-1, -1, -1, -1}}
	for i := range counterEvents {
		if wanted>>i&1 == 0 {
			continue
		}
		attributes := pmu.attributes(i)
		if i == 0 {
			attributes.Bits |= unix.PerfBitDisabled
		}
		fd, err := events.open(attributes, cpu, g.fds[0])
		if err == nil {
			g.fds[i] = fd
			g.known |= 1 << i
			continue
		}
		lacks := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)
		if i > 0 && someMayLack && lacks {
			continue
		}
		return nil, errors.Join(fmt.Errorf("opening event %d of CPU %d on %s: %w", i, cpu, pmu.name, err), g.Close())
	}
	if err := events.start(g.fds[0]); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the events of CPU %d on %s: %w", cpu, pmu.name, err), g.Close())
	}
	return g, nil
}

// Close gives the events up, the leader last.
func (g *counterGroup) Close() error {
	var errs []error
	for i := counterEvents - 1; i >= 0; i-- {
		if g.fds[i] >= 0 {
			errs = append(errs, unix.Close(g.fds[i]))
			g.fds[i] = -1
		}
	}
	return errors.Join(errs...)
}

// explain adds to a refusal what it would take.
func explain(err error, procfs string) error {
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return err
	}
	text, readErr := os.ReadFile(filepath.Join(procfs, "sys/kernel/perf_event_paranoid"))
	if readErr != nil {
		return err
	}
	return fmt.Errorf("%w (kernel.perf_event_paranoid is %s: CAP_PERFMON or root is needed)", err,
		strings.TrimSpace(string(text)))
}
