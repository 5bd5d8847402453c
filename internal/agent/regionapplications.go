package agent

import (
	"os"
	"sync"
	"sync/atomic"

	"outsight/internal/appmetrics"
	"outsight/internal/region"
	"outsight/internal/region/rdma"
)

// regionApplications lists applications' own metrics for readers of regions, who read them where processes have them.
type regionApplications struct {
	collector *appmetrics.Collector
	leftOut   atomic.Uint64

	// device is nil where there is no RDMA.
	device *rdma.Server

	mu sync.Mutex // guards what follows
	// share is what there was last, listed are those of its files that found room.
	share  appmetrics.Share
	listed map[uint32]bool
	writer *region.ApplicationsWriter
}

// addApplications makes the region that lists applications' own metrics, the last of all.
func (r *regions) addApplications(described []region.Region) ([]region.Region, error) {
	id := uint32(len(r.all))
	if err := r.addPages("region_apps", region.ApplicationsBytes); err != nil {
		return nil, err
	}
	r.applications = &regionApplications{collector: r.host.applications,
		writer: region.NewApplicationsWriter(r.memory[id].Bytes)}
	return append(described, region.Region{Name: "applications", ID: id, Index: region.IndexApplications,
		RecordBytes: 8, Records: region.ApplicationsBytes / 8, Lanes: 1, Generation: 1}), nil
}

// update lists what there is, where that has changed.
func (a *regionApplications) update() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if share, changed := a.collector.Shared(); changed {
		a.share = share
		a.publish()
	} else if a.device != nil {
		a.device.Keep(a.listed)
	}
}

// restarted lists what there is once more: readers by RDMA find it elsewhere.
func (a *regionApplications) restarted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.publish()
}

// publish lists files when they can be read, and has them be read no more when they are not listed. mu is held.
func (a *regionApplications) publish() {
	list := &region.Applications{Metrics: make([]region.ApplicationSum, len(a.share.Metrics))}
	for i, m := range a.share.Metrics {
		list.Metrics[i] = region.ApplicationSum{Container: m.Container, ApplicationMetric: m.ApplicationMetric}
	}
	for _, f := range a.share.Files {
		one := region.ApplicationFile{ID: region.FirstFileID + f.Number, Bytes: f.Bytes, Process: f.PID, Group: f.Group}
		for _, v := range f.Values {
			one.Values = append(one.Values, region.ApplicationValue{Offset: v.Offset, Type: v.Type, Metric: v.Metric})
		}
		list.Files = append(list.Files, one)
	}
	list = a.writer.Fit(list)
	a.leftOut.Store(uint64(list.LeftOut))
	a.listed = make(map[uint32]bool, len(list.Files))
	for i := range list.Files {
		one := &list.Files[i]
		one.Address, one.Key = a.register(one.ID)
		a.listed[one.ID] = true
	}
	a.writer.Update(list)
	if a.device != nil {
		a.device.Keep(a.listed)
	}
	a.collector.Forget(a.share.Files)
}

// register lets the RDMA device answer for a file.
func (a *regionApplications) register(id uint32) (address uint64, key uint32) {
	if a.device == nil {
		return 0, 0
	}
	place, known := a.device.Place(id)
	if !known {
		if f, offset, bytes, ok := a.file(id); ok {
			a.device.Add(rdma.Source{ID: id, File: f, Offset: offset, Bytes: bytes})
			place, _ = a.device.Place(id)
		}
	}
	return place.Address, place.Key
}

// file implements shm.Parts.
func (a *regionApplications) file(id uint32) (file *os.File, offset, bytes uint64, ok bool) {
	if id < region.FirstFileID {
		return nil, 0, 0, false
	}
	return a.collector.Duplicate(id - region.FirstFileID)
}

// use lets use copy from a file, as tcp.Options.Files has it.
func (a *regionApplications) use(id uint32, use func(memory []byte)) bool {
	return id >= region.FirstFileID && a.collector.Use(id-region.FirstFileID, use)
}
