package sched

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

// counterProcesses are the counters of single processes. All but used is for the goroutine that reads.
type counterProcesses struct {
	table *ebpf.Map
	sums  map[countersCounterProcessKey]*processSum
	used  atomic.Uint64
	keys  []countersCounterProcessKey
}

// processSum is what a process has counted so far, by kind of core.
type processSum struct {
	kinds  []laneSum
	slices uint64
	// silent is for how many readings it has done nothing.
	silent int
}

// patientReadings is for how many readings a process that sleeps keeps its entry when few are free.
const patientReadings = 60

// ReadProcesses tells what processes have counted since the reading before, those that have counted anything; nil
// where that is not wanted. It is for the goroutine that reads, after ReadWork.
func (p *Sched) ReadProcesses() ([]model.ProcessGain, error) {
	r := p.counters
	if !r.counts() || r.processes == nil {
		return nil, nil
	}
	if err := r.processes.list(); err != nil {
		return nil, err
	}
	full := len(r.processes.keys) > int(r.processes.table.MaxEntries())*3/4
	var gains []model.ProcessGain
	var errs []error
	used := uint64(len(r.processes.keys))
	for _, key := range r.processes.keys {
		gain, given, err := r.readProcess(key, full, p.options.ProcFS)
		if err != nil {
			errs = append(errs, err)
		}
		if gain != nil {
			gains = append(gains, *gain)
		}
		if given {
			used--
		}
	}
	r.processes.used.Store(used)
	return gains, errors.Join(errs...)
}

// list finds the processes that have an entry.
func (c *counterProcesses) list() error {
	c.keys = c.keys[:0]
	var key countersCounterProcessKey
	var perCPU []countersCounterProcess
	all := c.table.Iterate()
	for all.Next(&key, &perCPU) {
		c.keys = append(c.keys, key)
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("listing the processes that are counted: %w", err)
	}
	return nil
}

// readProcess reads a process, and removes its entry if it is gone, or sleeps while few are free.
func (r *counterReader) readProcess(key countersCounterProcessKey, full bool, procfs string) (gain *model.ProcessGain,
	given bool, err error) {
	sum := r.processes.sums[key]
	// Before its counters are read: nothing is added to those of a process that is gone.
	leave := (sum == nil || sum.silent > 0) && isGone(procfs, key.Tgid) || sum != nil && full &&
		sum.silent >= patientReadings
	var perCPU []countersCounterProcess
	if err := r.processes.table.Lookup(key, &perCPU); err != nil {
		return nil, false, fmt.Errorf("reading the counters of process %d: %w", key.Tgid, err)
	}
	if sum == nil {
		sum = &processSum{kinds: make([]laneSum, len(r.pmus))}
		r.processes.sums[key] = sum
	}
	gain = r.gained(key, sum, perCPU)
	if leave {
		delete(r.processes.sums, key)
		if err := r.processes.table.Delete(key); err != nil {
			return gain, false, fmt.Errorf("removing process %d: %w", key.Tgid, err)
		}
	}
	return gain, leave, nil
}

// gained is what a process counted since the last reading; nil for nothing.
func (r *counterReader) gained(key countersCounterProcessKey, sum *processSum,
	perCPU []countersCounterProcess) *model.ProcessGain {
	now := make([]countersCounterLane, len(r.pmus))
	var last *countersCounterProcess
	slices := uint64(0)
	for cpu := range perCPU {
		c, kind := &perCPU[cpu], pmuOf(r.pmus, cpu)
		if c.Slices == 0 || kind < 0 {
			continue
		}
		if last == nil || c.BeganNs > last.BeganNs {
			last = c
		}
		slices += c.Slices
		to := &now[kind]
		for i, n := range c.Values {
			to.Values[i] += n
		}
		to.EnabledNs += c.EnabledNs
		to.RunningNs += c.RunningNs
	}
	if slices == sum.slices || last == nil {
		sum.silent++
		return nil
	}
	sum.slices, sum.silent = slices, 0
	gain := &model.ProcessGain{Group: model.CgroupID(key.Group), PID: int(key.Tgid),
		Process: unix.ByteSliceToString(last.Name[:])}
	for kind := range now {
		before, lost := sum.kinds[kind].counts, sum.kinds[kind].lost
		enabled, running := sum.kinds[kind].last.EnabledNs, sum.kinds[kind].last.RunningNs
		sum.kinds[kind].update(&now[kind], &r.weights)
		r.lost.Add(sum.kinds[kind].lost - lost)
		perf := model.PerfCounters{PMU: r.pmus[kind].name, Known: r.known,
			EnabledNS: sum.kinds[kind].last.EnabledNs - enabled, RunningNS: sum.kinds[kind].last.RunningNs - running}
		for i, n := range sum.kinds[kind].counts {
			perf.Counts[i] = n - before[i]
		}
		gain.Perf = append(gain.Perf, perf)
	}
	return gain
}

// isGone tells whether there is no process of that number any more.
func isGone(procfs string, pid uint32) bool {
	_, err := os.Stat(filepath.Join(procfs, strconv.Itoa(int(pid))))
	return errors.Is(err, fs.ErrNotExist)
}
