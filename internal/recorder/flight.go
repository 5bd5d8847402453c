package recorder

import (
	"cmp"
	"context"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"outsight/internal/model"
	"outsight/internal/monotonic"
)

// FlightOptions of a Flight. The zero value works.
type FlightOptions struct {
	// Keep is how long a tick is kept (default 10 min), MaxBytes what all of them may take
	// (default 8 MiB): whichever is reached first.
	Keep     time.Duration
	MaxBytes int
	// CgroupVersion goes into the heads of files that are made of it.
	CgroupVersion int
	// Anomalies are kept longer. Looking for them needs half a minute of Keep at least.
	Anomalies AnomalyOptions
}

// Flight keeps the last ticks of all containers in memory: as differences, so that a container that
// does nothing takes no room.
type Flight struct {
	ticks Ticks
	o     FlightOptions
	sums  *sums

	// spent is the CPU time in ns of taking ticks in and of looking for anomalies.
	spent atomic.Uint64

	mu sync.Mutex // guards what follows
	// paused is true while there are no ticks.
	paused bool
	// blocks are whole, oldest first; bytes is what they take.
	blocks []Block
	bytes  int
	// open is the block that is being filled; last are the sums that it has of its targets.
	open    Block
	last    []model.TickSample
	changed []*target
	losses  model.TickLosses
	err     error
	// lastNS is when the last tick began.
	lastNS uint64
	// kept beyond Keep.
	kept anomalies
}

// Block is a stretch of ticks that can be read by itself.
type Block struct {
	// FirstNumber and FirstDueNS are of the first tick; LastNS is when the last one began.
	FirstNumber, FirstDueNS, LastNS uint64
	Targets                         []BlockTarget
	// Data holds the ticks. All numbers are variable-length integers of encoding/binary: the tick's
	// number since FirstNumber, its lateness in ns, its cost in ns, how many targets have changed;
	// then of each of these: its index in Targets, a bit for each field that is another (fields),
	// and by how much each of them is (signed). A block's first sums are zero.
	Data []byte
}

// BlockTarget is a container in a block, from one tick to another.
type BlockTarget struct {
	Container *model.Container
	From, To  uint64
}

const (
	// flightDrain is how often the ring is emptied: seldom, as no reader waits for the ticks. The ring lasts twice as long
	// at least.
	flightDrain = time.Second
	// blockTime and blockBytes bound a block: when memory is short whole blocks are evicted.
	blockTime  = 10 * time.Second
	blockBytes = 64 << 10
	// targetBytes is about what a BlockTarget takes; its container is shared.
	targetBytes = 24
)

// NewFlight keeps what ticks sample from now on.
func NewFlight(ticks Ticks, containers Containers, o FlightOptions) *Flight {
	o.Keep = cmp.Or(o.Keep, 10*time.Minute)
	o.MaxBytes = cmp.Or(o.MaxBytes, 8<<20)
	f := &Flight{ticks: ticks, o: o, sums: newSums(containers, nil, ticks.Ignore, now())}
	f.kept = newAnomalies(o.Anomalies, f.sums.clock.monotonic)
	f.o.Keep = max(f.o.Keep, f.kept.o.least())
	return f
}

// Spent is the CPU time in ns that it has taken so far in this process.
func (f *Flight) Spent() uint64 { return f.spent.Load() }

// Pause calls stop, which ends the making of ticks, while none is being taken in.
func (f *Flight) Pause(stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stop()
	f.paused = true
}

// Resume calls start, which begins the making of ticks anew. There are none of the time between.
func (f *Flight) Resume(start func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused = false
	return start()
}

// Run keeps ticks until ctx ends. It empties the ring at whole seconds, when the agent that it is part of is awake.
func (f *Flight) Run(ctx context.Context) error {
	timer := time.NewTimer(flightDrain)
	defer timer.Stop()
	for {
		now := time.Now()
		timer.Reset(time.Until(following(now.Truncate(flightDrain), now, flightDrain)))
		select {
		case <-ctx.Done():
			f.save(true)
			return nil
		case <-timer.C:
			f.drain()
			if now := monotonic.Now(); f.kept.o.Detect != nil && now >= f.kept.scanned+uint64(settled+f.kept.o.Every) {
				f.scan(now)
			}
		}
	}
}

// spend counts the CPU time until what it answers is called.
func (f *Flight) spend() (end func()) {
	runtime.LockOSThread() // its time is that of the thread
	begun := threadTime()
	return func() {
		f.spent.Add(threadTime() - begun)
		runtime.UnlockOSThread()
	}
}

func (f *Flight) drain() {
	defer f.spend()()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paused {
		return
	}
	ended := f.sums.refresh()
	f.err = f.ticks.Drain(f.add)
	f.sums.drop(ended)
	f.losses = f.ticks.Losses()
	f.evict(monotonic.Now())
}

// add appends a tick to the open block. mu must be held.
func (f *Flight) add(tick *model.Tick) {
	b := &f.open
	if len(b.Data) > 0 && (len(b.Data) >= blockBytes || tick.DueNS-b.FirstDueNS >= uint64(blockTime)) {
		f.finish()
	}
	number := tick.Number
	if len(b.Data) == 0 {
		b.FirstNumber, b.FirstDueNS, b.LastNS = tick.Number, tick.DueNS, 0
		b.Targets, f.last = b.Targets[:0], f.last[:0]
		for _, t := range f.sums.list {
			t.index = -1
		}
	}
	f.sums.add(tick)
	at := f.sums.clock.at(tick.BeganNS)
	f.changed = f.changed[:0]
	used, length, strained := uint64(0), float64(tick.BeganNS-f.lastNS), false
	for _, t := range f.sums.list {
		strained = strained || strains(&t.before, &t.sum, length)
		if t.changed {
			used += t.sum.CPUNS - t.before.CPUNS
			t.before = t.sum
		}
		if !t.has(at) {
			continue
		}
		if t.index < 0 || t.index >= len(b.Targets) || !same(b.Targets[t.index].Container, t.container) ||
			b.Targets[t.index].Container.ID != t.container.ID {
			t.index = len(b.Targets)
			b.Targets = append(b.Targets, BlockTarget{Container: t.container, From: number})
			f.last = append(f.last, model.TickSample{})
		}
		b.Targets[t.index].To, b.Targets[t.index].Container = number, t.container // it may have a name now
		if t.sum != f.last[t.index] {
			f.changed = append(f.changed, t)
		}
	}
	d := binary.AppendUvarint(b.Data, number-b.FirstNumber)
	d = binary.AppendUvarint(d, tick.BeganNS-tick.DueNS)
	d = binary.AppendUvarint(d, tick.CostNS)
	d = binary.AppendUvarint(d, uint64(len(f.changed)))
	for _, t := range f.changed {
		d = appendChange(binary.AppendUvarint(d, uint64(t.index)), &f.last[t.index], &t.sum)
		f.last[t.index] = t.sum
	}
	b.Data, b.LastNS = d, tick.BeganNS
	f.lastNS = tick.BeganNS
	if strained || float64(used) >= strainHost*length*float64(f.kept.host.OnlineCores) {
		f.kept.strain(tick.BeganNS)
	}
}

// fields of a sample in the order of the bits of a change.
func fields(s *model.TickSample) [flightFields]uint64 {
	return [...]uint64{s.CPUNS, s.RunQueueNS, s.Waits, s.Voluntary, s.Involuntary, s.SentBytes, s.ReceivedBytes,
		uint64(s.Running), uint64(s.Asking), uint64(s.Serving),
		s.MemoryBytes, s.ThrottledNS, s.ThrottledPeriods, flag(s.HasMemory) | flag(s.HasThrottled)<<1 | flag(s.HasDisk)<<2,
		s.MinorFaults, s.MajorFaults, s.DiskReadBytes, s.DiskWriteBytes, s.DiskReads, s.DiskWrites, s.DiskNS}
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// sampleOf is the sample with these fields.
func sampleOf(f *[flightFields]uint64) model.TickSample {
	return model.TickSample{CPUNS: f[0], RunQueueNS: f[1], Waits: f[2], Voluntary: f[3], Involuntary: f[4],
		SentBytes: f[5], ReceivedBytes: f[6],
		Running: uint32(f[7]), Asking: uint32(f[8]), Serving: uint32(f[9]),
		MemoryBytes: f[10], ThrottledNS: f[11], ThrottledPeriods: f[12], HasMemory: f[13]&1 != 0, HasThrottled: f[13]&2 != 0,
		MinorFaults: f[14], MajorFaults: f[15], HasDisk: f[13]&4 != 0,
		DiskReadBytes: f[16], DiskWriteBytes: f[17], DiskReads: f[18], DiskWrites: f[19], DiskNS: f[20]}
}

const flightFields = 21

// appendChange appends which fields are others, and by how much each.
func appendChange(d []byte, from, to *model.TickSample) []byte {
	before, after := fields(from), fields(to)
	mask := uint64(0)
	for i := range after {
		if after[i] != before[i] {
			mask |= 1 << i
		}
	}
	d = binary.AppendUvarint(d, mask)
	for i := range after {
		if after[i] != before[i] {
			d = binary.AppendVarint(d, int64(after[i]-before[i]))
		}
	}
	return d
}

// finish closes the open block. mu must be held.
func (f *Flight) finish() {
	b := f.copyOpen()
	f.blocks = append(f.blocks, b)
	f.bytes += b.size()
	f.open.Data = f.open.Data[:0]
}

// copyOpen is the open block as it is. mu must be held.
func (f *Flight) copyOpen() Block {
	b := f.open
	b.Data, b.Targets = slices.Clone(b.Data), slices.Clone(b.Targets)
	return b
}

func (b *Block) size() int { return len(b.Data) + targetBytes*len(b.Targets) }

// evict removes what is too old or too much. mu must be held.
func (f *Flight) evict(now uint64) {
	old := 0
	for ; old < len(f.blocks); old++ {
		b := &f.blocks[old]
		if int64(now-b.LastNS) <= int64(f.o.Keep) && f.bytes+f.open.size() <= f.o.MaxBytes {
			break
		}
		f.bytes -= b.size()
	}
	f.blocks = slices.Delete(f.blocks, 0, old)
}

// FlightData is what a Flight has kept, to make files of.
type FlightData struct {
	Interval      time.Duration
	CgroupVersion int
	// Wall is when the monotonic clock showed MonotonicNS.
	Wall        time.Time
	MonotonicNS uint64
	// From and Until are the part that files are made of; zero for all.
	From, Until time.Time `json:",omitzero"`
	Blocks      []Block
}

// Data is what is there of the last while.
func (f *Flight) Data(last time.Duration) *FlightData {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := monotonic.Now()
	return f.data(now - min(now, uint64(last)))
}

// data is what is there since then, on the monotonic clock. mu must be held.
func (f *Flight) data(since uint64) *FlightData {
	d := &FlightData{Interval: f.ticks.Interval(), CgroupVersion: f.o.CgroupVersion, Wall: f.sums.clock.wall,
		MonotonicNS: f.sums.clock.monotonic}
	for _, b := range f.blocks {
		if b.LastNS >= since {
			d.Blocks = append(d.Blocks, b)
		}
	}
	if len(f.open.Data) > 0 {
		d.Blocks = append(d.Blocks, f.copyOpen())
	}
	return d
}

// Features are none: the timers are the kernel's.
func (f *Flight) Features() []model.Feature { return nil }

// Drops reports which ticks are missing, and how full the memory is.
func (f *Flight) Drops() []model.Drop {
	f.mu.Lock()
	defer f.mu.Unlock()
	drops := []model.Drop{
		{Name: "recorder/ticks", Count: f.losses.Full + f.losses.Late},
		{Name: "recorder/flight-bytes", Capacity: uint64(f.o.MaxBytes), Used: uint64(f.bytes + f.open.size())},
	}
	if a := &f.kept; a.o.Detect != nil {
		drops = append(drops, model.Drop{Name: "recorder/anomaly-bytes", Count: a.dropped, Capacity: uint64(a.o.MaxBytes),
			Used: uint64(a.bytes)})
	}
	return drops
}

// Err is why the last ticks could not be taken over; nil if they could.
func (f *Flight) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
