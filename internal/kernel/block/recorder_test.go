package block

import (
	"testing"
	"time"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/kernel/net"
	"outsight/internal/kernel/sched"
	"outsight/internal/kernel/tick"
	"outsight/internal/model"
)

// TestRecorderKnowsDisks holds what a group does on a device against what fio says it did.
func TestRecorderKnowsDisks(t *testing.T) {
	p := openDisks(t, Options{})
	device := newLoopDevice(t, 64<<20)
	g := diskGroup(t, "recorded-disk", device)
	work := func() fioJob {
		return fio(g, t, "--filename="+device.path, direct, "--rw=randrw", "--bs=4k", "--size=8m", "--ioengine=libaio",
			"--iodepth=8")
	}
	work() // the group is known, and so is whose I/O it is
	ticks := tick.New(tick.Options{FirstSlot: sched.FirstSlot, Types: kerneltest.Types}, p.groups,
		net.New(net.Options{}), p.Block)
	kerneltest.Open(t, ticks)
	r, err := ticks.Record(tick.RecorderOptions{Interval: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	var now model.TickSample
	sample := func() model.TickSample {
		kerneltest.Eventually(t, "the last tick has all that was done", func() bool {
			err := r.Drain(func(made *model.Tick) {
				for _, s := range made.Samples {
					if s.Group == g.ID(t) {
						now = s
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			slot, found := p.SlotDisk(g.ID(t))
			return found && now.HasDisk && now.DiskReads == slot.Reads && now.DiskWrites == slot.Writes
		})
		return now
	}
	before := sample()
	job := work()
	settle(t)
	after := sample()
	slot, _ := p.SlotDisk(g.ID(t))
	if after.DiskReadBytes != slot.ReadBytes || after.DiskWriteBytes != slot.WriteBytes ||
		after.DiskNS != slot.ReadNS+slot.WriteNS {
		t.Errorf("the tick has %+v, the slot %+v", after, slot)
	}
	// fio reads its own files besides.
	if got := after.DiskWriteBytes - before.DiskWriteBytes; got < job.Write.Bytes || job.Write.Bytes == 0 {
		t.Errorf("%d bytes written, fio %d", got, job.Write.Bytes)
	}
	if got := after.DiskReadBytes - before.DiskReadBytes; got < job.Read.Bytes || job.Read.Bytes == 0 {
		t.Errorf("%d bytes read, fio %d", got, job.Read.Bytes)
	}
	if after.DiskNS <= before.DiskNS {
		t.Error("it took no time")
	}
}
