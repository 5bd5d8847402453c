package sched

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
	"outsight/internal/model"
)

// MetricsFileFeature is the name of the feature that tells of processes with metrics of their own at once.
const MetricsFileFeature = "tp_btf/task_rename"

var metricsFileHook = host.NewHook(appmetricsProgTaskRename, MetricsFileFeature,
	"applications' own metrics are read from a process's first moment, however short it lives", false,
	"Linux 5.12 or later with BTF; until then processes with metrics are looked for every 10 s")

// openMetricsFiles follows openCgroups, whose ring it uses.
func (p *Sched) openMetricsFiles(k *host.Kernel) error {
	fail := func(err error) error {
		p.AddFeature(metricsFileHook, err)
		return err
	}
	if p.cgroups == nil {
		return fail(errors.New("no kernel program counts control groups"))
	}
	var object appmetricsSpecs
	spec, err := host.ReadSpec(loadAppmetrics, &object)
	if err != nil {
		return fail(err)
	}
	shared := map[string]*ebpf.Map{appmetricsMapCgroupEvents: p.cgroups.maps.CgroupEvents}
	object.CgroupEvents.MaxEntries = p.cgroups.maps.CgroupEvents.MaxEntries()
	if err := object.CgroupSubsysIndex.Set(k.Subsys); err != nil {
		return fail(fmt.Errorf("BUG: setting the object's constants: %w", err))
	}
	var made appmetricsMaps
	maps, err := host.NewMaps(spec, shared, &made)
	if err != nil {
		return fail(fmt.Errorf("making the maps of files with metrics: %w", err))
	}
	p.OnClose(host.CloserFunc(maps.Close))
	err = p.TryAttach(k, spec, maps, metricsFileHook)
	if err == nil {
		p.metricsFiles = &host.Drops[appmetricsAppmetricsDrop]{Counts: made.AppmetricsDrops, Names: appmetricsDropNames}
	}
	return fail(err)
}

// metricsFileDrops counts announcements that found no room in the ring.
func (p *Sched) metricsFileDrops() []model.Drop {
	if p.metricsFiles == nil {
		return nil
	}
	return []model.Drop{p.metricsFiles.Drop(appmetricsAppmetricsDropDROP_METRICS_FILE)}
}
