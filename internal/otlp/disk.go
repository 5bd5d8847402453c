package otlp

import (
	"fmt"

	"outsight/internal/model"
)

// directions are the kinds of model.DeviceCounters, as the label has them.
var directions = [...]string{"read", "write", "discard", "flush"}

// deviceName is what the label says of a device.
func deviceName(d model.BlockDevice) string {
	switch {
	case d.Name != "":
		return d.Name
	case d == model.BlockDevice{}:
		return "others"
	}
	return fmt.Sprintf("%d:%d", d.Major, d.Minor)
}

// What of a kind of operations tells something: a flush moves no bytes, and untimed requests are rare.
func always(*model.DiskOperations) bool    { return true }
func moving(o *model.DiskOperations) bool  { return o.Bytes != 0 }
func untimed(o *model.DiskOperations) bool { return o.Untimed != 0 }

// devices reads a number of each kind of operation that there was, on each device, where it tells something.
func devices(wanted func(*model.DiskOperations) bool, read func(*model.DiskOperations) float64) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		for i := range s.Devices {
			d := &s.Devices[i]
			for kind, o := range d.Counters.Kinds() {
				if (o.Operations != 0 || o.Bytes != 0) && wanted(o) {
					to.value(read(o), label(LabelDevice, deviceName(d.Device)), label(LabelDirection, directions[kind]))
				}
			}
		}
	}
}

func deviceLatency(s *model.ContainerSample, to *collector) {
	for i := range s.Devices {
		d := &s.Devices[i]
		for kind, o := range d.Counters.Kinds() {
			to.histogram(o.Latency, label(LabelDevice, deviceName(d.Device)), label(LabelDirection, directions[kind]))
		}
	}
}

func files(read func(*model.FileCounters) (read, write uint64)) func(*model.ContainerSample, *collector) {
	return func(s *model.ContainerSample, to *collector) {
		if s.Files != nil {
			in, out := read(s.Files)
			to.value(float64(in), label(LabelDirection, "read"))
			to.value(float64(out), label(LabelDirection, "write"))
		}
	}
}

func syncDuration(s *model.ContainerSample, to *collector) {
	if s.Syncs != nil {
		to.histogram(s.Syncs.FSync.Latency, label(LabelType, "fsync"))
		to.histogram(s.Syncs.FDataSync.Latency, label(LabelType, "fdatasync"))
	}
}
