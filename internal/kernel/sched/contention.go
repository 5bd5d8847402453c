package sched

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

const (
	// pairsOfCPU is how many pairs of groups one CPU has room for, 32 bytes each.
	pairsOfCPU    = 1024
	contentionWay = 8 // CONTENTION_WAYS
)

// ContentionFeature is the name of the feature that ReadContention needs.
const ContentionFeature = "contention"

var contentionHook = host.NewHook(contentionProgContentionSwitch, ContentionFeature,
	"which container ran while another waited for a CPU, and who preempted whom", false,
	"Linux 5.12 or later with BTF and CONFIG_FAIR_GROUP_SCHED; throttled time is counted apart from 6.7 on")

// contentionReader reads what contention.bpf.c counts.
type contentionReader struct {
	lanes   *host.Table[contentionContentionLane]
	pairs   *host.Table[contentionContentionPair]
	running *ebpf.Map
	dropped host.Drops[contentionContentionDrop]
	cpus    int
	// keys are those of the table's entries at the last reading, of which inUse have one, and numbers the places of their
	// pairs in an answer, which has distinct ones.
	keys     []pairKey
	inUse    []int32
	numbers  []int32
	distinct int
	// live are the groups of that reading.
	live map[model.CgroupID]bool
	// gone are groups without a slot of which there are pairs, with the number of readings that found some.
	gone map[model.CgroupID]int
	used uint64
}

type pairKey struct{ victim, culprit model.CgroupID }

// openContention follows openCgroups: its program must run after that of the control groups at the same
// hook, and the kernel runs them in the order in which they were attached.
func (p *Sched) openContention(k *host.Kernel) error {
	err := p.tryContention(k)
	p.AddFeature(contentionHook, err)
	return err
}

func (p *Sched) tryContention(k *host.Kernel) error {
	if p.cgroups == nil || !p.Works("tp_btf/sched_switch") {
		return errors.New("no kernel program counts control groups")
	}
	types, err := k.Types.Kernel()
	if err != nil {
		return err
	}
	if !host.HasMember(types, "sched_entity", "cfs_rq") || !host.HasMember(types, "sched_info", "last_queued") {
		return errors.New("the kernel does not tell since when a thread waits, or for which CPU")
	}
	var object contentionSpecs
	spec, err := host.ReadSpec(loadContention, &object)
	if err != nil {
		return err
	}
	shared := p.cgroups.share(spec)
	cpus, slots := uint32(k.CPUs), uint32(len(p.cgroups.slots.Entries))
	object.ContentionCpus.MaxEntries = cpus
	object.ContentionLanes.MaxEntries = slots * cpus
	object.ContentionPairs.MaxEntries = pairsOfCPU * cpus
	err = errors.Join(
		object.Cpus.Set(cpus),
		object.CgroupSubsysIndex.Set(k.Subsys),
		object.PairMask.Set(uint32(1)<<(bits.Len(pairsOfCPU)-1)-contentionWay),
		object.SwitchHasState.Set(k.SwitchHasState),
		object.KnowsQuota.Set(host.HasMember(types, "cfs_rq", "throttled_clock_self_time")))
	if err != nil {
		return fmt.Errorf("BUG: setting the object's constants: %w", err)
	}
	var made contentionMaps
	maps, err := host.NewMaps(spec, shared, &made)
	if err != nil {
		return fmt.Errorf("making the maps of waits: %w", err)
	}
	p.OnClose(host.CloserFunc(maps.Close))
	r := &contentionReader{running: made.ContentionCpus, cpus: k.CPUs,
		dropped: host.Drops[contentionContentionDrop]{Counts: made.ContentionDrops, Names: contentionDropNames},
		gone:    make(map[model.CgroupID]int)}
	if r.lanes, err = host.MapTable[contentionContentionLane](made.ContentionLanes); err != nil {
		return err
	}
	p.OnClose(r.lanes)
	if r.pairs, err = host.MapTable[contentionContentionPair](made.ContentionPairs); err != nil {
		return err
	}
	p.OnClose(r.pairs)
	if err := p.TryAttach(k, spec, maps, contentionHook); err != nil {
		return err
	}
	// What ran before a pause is not what ran until its end.
	p.LastAttachment().Before = r.resetSlices
	p.contention = r
	return nil
}

// resetSlices clears what ran on the CPUs.
func (r *contentionReader) resetSlices() error {
	for cpu := range r.cpus {
		if err := r.running.Update(uint32(cpu), &contentionContentionCpu{}, ebpf.UpdateExist); err != nil {
			return fmt.Errorf("clearing what ran on CPU %d: %w", cpu, err)
		}
	}
	for i := range r.lanes.Entries {
		r.lanes.Entries[i].RunQueue = 0
		clear(r.lanes.Entries[i].Quotas[:])
	}
	return nil
}

// ReadContention reads who ran while whom waited. A wait is counted when it ends; what a thread waited on
// a CPU that it was moved away from, when it is next switched out. The pairs of groups that
// ForgetCgroup was called for are in one more answer, or two, and are then evicted.
func (p *Sched) ReadContention() (*model.KernelContention, error) {
	r := p.contention
	if r == nil {
		return nil, errors.New("reading who disturbs whom: no kernel program counts it")
	}
	all := &model.KernelContention{}
	live := make(map[model.CgroupID]bool)
	for slot := range p.cgroups.slots.Entries {
		id := host.Load(&p.cgroups.slots.Entries[slot])
		if slot == slotIdle || slot >= slotFirst && id == 0 {
			continue
		}
		live[model.CgroupID(id)] = true
		g := model.CgroupContention{ID: model.CgroupID(id)}
		if slot == slotOther {
			g.Slot = model.OtherCgroups
		}
		for cpu := range r.cpus {
			lane := &r.lanes.Entries[slot*r.cpus+cpu]
			g.Add(&model.ContentionRest{OwnNS: host.Load(&lane.OwnNs), IdleNS: host.Load(&lane.IdleNs),
				QuotaNS:    host.Load(&lane.QuotaNs),
				MigratedNS: host.Load(&lane.MovedNs), OtherNS: host.Load(&lane.OtherNs),
				OwnPreemptions:   host.Load(&lane.OwnPreemptions),
				OtherPreemptions: host.Load(&lane.OtherPreemptions), QuotaStops: host.Load(&lane.QuotaStops)})
		}
		all.Groups = append(all.Groups, g)
	}
	all.Pairs = r.sumPairs(live)
	return all, nil
}

// goneReadings is in how many readings a group without a slot is found before its pairs are evicted: by then most
// threads that began to wait while it ran have been counted.
const goneReadings = 2

// sumPairs sums the pairs over all CPUs, and evicts those of groups that are gone. A thread that has waited behind one
// for long may make its pair again, so the pairs count, and not which groups were removed. The answer has the pairs in
// the same order as the one before, unless there are others.
func (r *contentionReader) sumPairs(live map[model.CgroupID]bool) []model.CgroupPair {
	same := r.readKeys()
	pairs := make([]model.CgroupPair, r.distinct)
	for _, i := range r.inUse {
		e, sum, key := &r.pairs.Entries[i], &pairs[r.numbers[i]], &r.keys[i]
		sum.Victim, sum.Culprit = key.victim, key.culprit
		sum.WaitNS += host.Load(&e.WaitNs)
		sum.Preemptions += host.Load(&e.Preemptions)
	}
	if !same || len(r.gone) > 0 || !maps.Equal(live, r.live) {
		r.evict(live)
	}
	r.live = live
	return pairs
}

// readKeys reads which pairs there are, and reports whether they are those of the last reading. Only this reader frees an
// entry: what has a key keeps it.
func (r *contentionReader) readKeys() (same bool) {
	if r.keys == nil {
		r.keys, r.numbers = make([]pairKey, len(r.pairs.Entries)), make([]int32, len(r.pairs.Entries))
	}
	same, r.used = true, 0
	for i := range r.pairs.Entries {
		e, key := &r.pairs.Entries[i], pairKey{}
		if victim := host.Load(&e.Victim); victim != 0 {
			key = pairKey{model.CgroupID(victim), model.CgroupID(host.Load(&e.Culprit))}
			r.used++
		}
		if key != r.keys[i] {
			r.keys[i], same = key, false
		}
	}
	if same {
		return true
	}
	numbers := make(map[pairKey]int32, r.distinct)
	r.inUse = r.inUse[:0]
	for i, key := range r.keys {
		if key.victim == 0 {
			continue
		}
		r.inUse = append(r.inUse, int32(i))
		number, found := numbers[key]
		if !found {
			number = int32(len(numbers))
			numbers[key] = number
		}
		r.numbers[i] = number
	}
	r.distinct = len(numbers)
	return false
}

// evict frees the entries of groups that were gone at several readings.
func (r *contentionReader) evict(live map[model.CgroupID]bool) {
	gone := make(map[model.CgroupID]int)
	for i, key := range r.keys {
		if key.victim == 0 {
			continue
		}
		for _, id := range []model.CgroupID{key.victim, key.culprit} {
			if live[id] {
				continue
			}
			gone[id] = r.gone[id] + 1
			if gone[id] > goneReadings {
				host.Store(&r.pairs.Entries[i].Victim, 0)
			}
		}
	}
	r.gone = gone
}

// release empties the slot of a group that is gone, before another gets it.
func (r *contentionReader) release(slot uint32) {
	for cpu := range r.cpus {
		r.lanes.Entries[int(slot)*r.cpus+cpu] = contentionContentionLane{}
	}
}

func (r *contentionReader) drops() []model.Drop {
	return []model.Drop{
		r.dropped.Of(contentionContentionDropDROP_CONTENTION_PAIR, uint64(len(r.pairs.Entries)), r.used),
	}
}
