package sched

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// Names of the features that need the memory programs.
const (
	ReclaimFeature = "reclaim"
	VictimFeature  = "tp_btf/mark_victim"
)

const reclaimRemedy = "Linux 5.12 or later with BTF and CONFIG_MEMCG"

// reclaimHooks begin and end a stall each: they count together or not at all. An end that finds no beginning counts
// nothing, so the ends are attached first.
var reclaimHooks = host.Way{
	host.NewHook(reclaimProgLimitReclaimEnds, "tp_btf/mm_vmscan_memcg_reclaim_end", "", false, reclaimRemedy),
	host.NewHook(reclaimProgLimitReclaimBegins, "tp_btf/mm_vmscan_memcg_reclaim_begin", "", false, reclaimRemedy),
	host.NewHook(reclaimProgHostReclaimEnds, "tp_btf/mm_vmscan_direct_reclaim_end", "", false, reclaimRemedy),
	host.NewHook(reclaimProgHostReclaimBegins, "tp_btf/mm_vmscan_direct_reclaim_begin", "", false, reclaimRemedy),
}

// reclaimHook is what the four are to a user.
var reclaimHook = host.NewHook("", ReclaimFeature,
	"time for which a container's threads had to free memory before they got some", false, reclaimRemedy)

var victimHook = host.NewHook(reclaimProgMarkVictim, VictimFeature,
	"which process was killed for lack of memory", false,
	"Linux 6.10 or later with BTF; how many were killed is known without it")

// reclaimReader reads what reclaim.bpf.c counts.
type reclaimReader struct {
	groups *host.Table[reclaimReclaimGroup]
	// made is the map behind groups.
	made    *ebpf.Map
	dropped host.Drops[reclaimReclaimDrop]
}

// openReclaim follows openCgroups, whose slots and ring it uses.
func (p *Sched) openReclaim(k *host.Kernel) error {
	fail := func(err error) error {
		p.AddFeature(reclaimHook, err)
		p.AddFeature(victimHook, err)
		return err
	}
	if p.cgroups == nil {
		return fail(errors.New("no kernel program counts control groups"))
	}
	var object reclaimSpecs
	spec, err := host.ReadSpec(loadReclaim, &object)
	if err != nil {
		return fail(err)
	}
	shared := p.cgroups.share(spec)
	shared[reclaimMapCgroupEvents] = p.cgroups.maps.CgroupEvents
	object.CgroupEvents.MaxEntries = p.cgroups.maps.CgroupEvents.MaxEntries()
	object.ReclaimGroups.MaxEntries = uint32(len(p.cgroups.slots.Entries))
	if err := object.CgroupSubsysIndex.Set(k.Subsys); err != nil {
		return fail(fmt.Errorf("BUG: setting the object's constants: %w", err))
	}
	var made reclaimMaps
	maps, err := host.NewMaps(spec, shared, &made)
	if err != nil {
		return fail(fmt.Errorf("making the maps of reclaim: %w", err))
	}
	p.OnClose(host.CloserFunc(maps.Close))
	r := &reclaimReader{made: made.ReclaimGroups, dropped: host.Drops[reclaimReclaimDrop]{Counts: made.ReclaimDrops, Names: reclaimDropNames}}
	if r.groups, err = host.MapTable[reclaimReclaimGroup](made.ReclaimGroups); err != nil {
		return fail(err)
	}
	p.OnClose(r.groups)
	err = p.AttachAll(k, spec, maps, reclaimHooks)
	p.AddFeature(reclaimHook, err)
	if err == nil {
		p.reclaim = r
	}
	victimErr := errors.New("the kernel tells the number of the process alone")
	if types, e := k.Types.Kernel(); e != nil {
		victimErr = e
	} else if victimIsTask(types) {
		victimErr = p.TryAttach(k, spec, maps, victimHook)
	}
	p.AddFeature(victimHook, victimErr)
	if victimErr == nil {
		p.victims = &r.dropped
	}
	return errors.Join(err, victimErr)
}

// victimIsTask: mark_victim has the task as its argument (kernel commit 72ba14deb40a).
func victimIsTask(spec *btf.Spec) bool {
	var proto *btf.Typedef
	if err := spec.TypeByName("btf_trace_mark_victim", &proto); err != nil {
		return false
	}
	pointer, ok := proto.Type.(*btf.Pointer)
	if !ok {
		return false
	}
	function, ok := pointer.Target.(*btf.FuncProto)
	if !ok || len(function.Params) < 2 {
		return false
	}
	_, ok = function.Params[1].Type.(*btf.Pointer)
	return ok
}

// read is what a slot's group counts.
func (r *reclaimReader) read(slot int) model.ReclaimCounters {
	g := &r.groups.Entries[slot]
	return model.ReclaimCounters{LimitNS: host.Load(&g.StallNs[0]), LimitStalls: host.Load(&g.Stalls[0]),
		HostNS: host.Load(&g.StallNs[1]), HostStalls: host.Load(&g.Stalls[1])}
}

// release empties the slot of a group that is gone, before another gets it.
func (r *reclaimReader) release(slot uint32) { r.groups.Entries[slot] = reclaimReclaimGroup{} }

func (p *Sched) reclaimDrops() (drops []model.Drop) {
	if p.reclaim != nil {
		drops = append(drops, p.reclaim.dropped.Drop(reclaimReclaimDropDROP_RECLAIM))
	}
	if p.victims != nil {
		drops = append(drops, p.victims.Drop(reclaimReclaimDropDROP_VICTIM))
	}
	return drops
}
