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
	host.NewHook("limit_reclaim_ends", "tp_btf/mm_vmscan_memcg_reclaim_end", "", false, reclaimRemedy),
	host.NewHook("limit_reclaim_begins", "tp_btf/mm_vmscan_memcg_reclaim_begin", "", false, reclaimRemedy),
	host.NewHook("host_reclaim_ends", "tp_btf/mm_vmscan_direct_reclaim_end", "", false, reclaimRemedy),
	host.NewHook("host_reclaim_begins", "tp_btf/mm_vmscan_direct_reclaim_begin", "", false, reclaimRemedy),
}

// reclaimHook is what the four are to a user.
var reclaimHook = host.NewHook("", ReclaimFeature,
	"time for which a container's threads had to free memory before they got some", false, reclaimRemedy)

var victimHook = host.NewHook("mark_victim", VictimFeature, "which process was killed for lack of memory", false,
	"Linux 6.10 or later with BTF; how many were killed is known without it")

// reclaimReader reads what reclaim.bpf.c counts.
type reclaimReader struct {
	groups  *host.Table[reclaimReclaimGroup]
	dropped *ebpf.Map
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
	spec, err := loadReclaim()
	if err != nil {
		return fail(fmt.Errorf("BUG: reading the embedded object: %w", err))
	}
	shared := p.cgroups.share(spec, "cgroup_events")
	spec.Maps["reclaim_groups"].MaxEntries = uint32(len(p.cgroups.slots.Entries))
	if err := spec.Variables["cgroup_subsys_index"].Set(k.Subsys); err != nil {
		return fail(fmt.Errorf("BUG: setting the object's constants: %w", err))
	}
	maps, err := host.NewMaps(spec, shared)
	if err != nil {
		return fail(fmt.Errorf("making the maps of reclaim: %w", err))
	}
	p.OnClose(host.CloserFunc(maps.Close))
	r := &reclaimReader{dropped: maps.Maps["reclaim_drops"]}
	if r.groups, err = host.MapTable[reclaimReclaimGroup](maps.Maps["reclaim_groups"]); err != nil {
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
		p.victims = r.dropped
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

// forget empties the slot of a group that is gone, before another gets it.
func (r *reclaimReader) forget(slot uint32) { r.groups.Entries[slot] = reclaimReclaimGroup{} }

func (p *Sched) reclaimDrops() (drops []model.Drop) {
	if p.reclaim != nil {
		drops = append(drops, model.Drop{Name: "reclaim_stalls", Count: host.SumDrops(p.reclaim.dropped, 0)})
	}
	if p.victims != nil {
		drops = append(drops, model.Drop{Name: "oom_victims", Count: host.SumDrops(p.victims, 1)})
	}
	return drops
}
