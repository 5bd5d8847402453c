package agent

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"outsight/internal/model"
)

// readSelf adds what Outsight itself costs and misses.
func (a *Agent) readSelf(s *model.SelfSample) {
	var err error
	s.CPUNS, err = ownCPU()
	a.failures.note("own CPU time", err)
	s.RSSBytes, err = a.proc.ownMemory(a.options.ProcRoot)
	a.failures.note("own memory", err)
	s.StealNS, err = a.proc.readSteal(a.options.ProcRoot)
	a.failures.note("CPU time taken by the hypervisor", err)
	s.AvailableBytes, err = a.proc.readAvailable(a.options.ProcRoot)
	a.failures.note("memory available", err)
	s.FileSystems, err = a.fileSystems.read()
	a.failures.note("space of filesystems", err)
	s.Drops = append(s.Drops, a.fileSystems.drop())
	if a.sources.Programs != nil {
		s.Programs = a.programCosts()
		s.Drops = append(s.Drops, missedEvents(s.Programs))
	}
	for _, r := range a.sources.Reporters {
		s.Features = append(s.Features, r.Features()...)
		s.Drops = append(s.Drops, r.Drops()...)
	}
	s.Drops = append(s.Drops, a.resolver.Drops()...)
	s.Drops = append(s.Drops, a.overQuota()...)
	if a.sources.Contention != nil {
		s.Drops = append(s.Drops, a.contention.drop())
	}
	if a.sources.ProcessWork != nil {
		s.Drops = append(s.Drops, a.processes.drop())
	}
	if a.sources.Processes != nil {
		s.Drops = append(s.Drops, a.sources.Processes.Drops()...)
	}
	if a.sources.Answers != nil {
		s.Sent = append(s.Sent, a.sources.Answers.Sent()...)
	}
	for _, sender := range a.sources.Senders {
		s.Sent = append(s.Sent, sender.Sent()...)
	}
	for _, q := range a.sinks {
		s.Drops = append(s.Drops, q.drop())
	}
	s.Drops = append(s.Drops, a.builder.Drops()...)
}

// programCosts are what the kernel programs cost. Where that is measured, it is another one, and events that were missed
// are looked for, only when there is a newer measurement: a look takes a system call for each program.
func (a *Agent) programCosts() []model.ProgramCost {
	if a.keeping == nil {
		return a.sources.Programs.ProgramCosts()
	}
	switch told, number := a.keeping.meter.newest(); {
	case number != a.programsOf:
		a.programs, a.programsOf = told, number
	case a.programs == nil:
		a.programs = a.sources.Programs.ProgramCosts()
	}
	return slices.Clone(a.programs)
}

// maxOverQuota bounds the sums that are kept of containers without groups.
const maxOverQuota = 1024

// overQuotas are what containers would have had more of the kernel's tables, by the names of drops. The sums do not
// go down when a group is removed.
type overQuotas struct {
	last map[groupQuota]uint64
	sums map[string]uint64
}

type groupQuota struct {
	group model.CgroupID
	of    string
}

// overQuota names the containers that would have had more of the kernel's tables than their quotas.
func (a *Agent) overQuota() []model.Drop {
	if a.sources.Quotas == nil {
		return nil
	}
	last, current := make(map[groupQuota]uint64), make(map[string]bool)
	for _, o := range a.sources.Quotas.ReadOverQuota() {
		name := model.HostContainerID
		if c := a.sources.Registry.Lookup(o.Owner); c != nil {
			name = c.Name
		}
		key := groupQuota{o.Owner, o.Of}
		last[key] = o.Count
		gained := o.Count
		if before := a.over.last[key]; before <= gained { // else it is a new group
			gained -= before
		}
		name = "container-" + o.Of + "/" + name
		current[name] = true
		a.over.sums[name] += gained
	}
	a.over.last = last
	if len(a.over.sums) > maxOverQuota {
		maps.DeleteFunc(a.over.sums, func(name string, _ uint64) bool { return !current[name] })
	}
	drops := make([]model.Drop, 0, len(a.over.sums))
	for _, name := range slices.Sorted(maps.Keys(a.over.sums)) {
		if n := a.over.sums[name]; n > 0 {
			drops = append(drops, model.Drop{Name: name, Count: n})
		}
	}
	return drops
}

// missedEvents sums the events at which the kernel did not run a program that counts. Those of
// changes of a connection's state are counted by two programs, and are lost only if both are missed.
func missedEvents(programs []model.ProgramCost) model.Drop {
	d := model.Drop{Name: "missed_events"}
	for _, p := range programs {
		if !strings.Contains(p.Name, "inet_sock_set_state") {
			d.Count += p.Missed
		}
	}
	return d
}

// ownCPU is the user and system time of this process in nanoseconds.
func ownCPU() (uint64, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("reading the own CPU time: %w", err)
	}
	return uint64(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// ownMemory is the resident memory of this process in bytes.
func (p *procFiles) ownMemory(procRoot string) (uint64, error) {
	b, err := p.memory.read(procRoot + "/self/statm")
	if err != nil {
		return 0, fmt.Errorf("reading the own memory: %w", err)
	}
	fields := bytes.Fields(b)
	if len(fields) < 2 {
		return 0, fmt.Errorf("reading the own memory: got %q, want at least two numbers", b)
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the own memory: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}
