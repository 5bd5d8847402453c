package graph

import (
	"encoding/json"

	"outsight/internal/model"
)

// change is what happened to one entity in the window: increases of its counters and the last
// values of its levels, by Field, and how long it was observed.
type change struct {
	values
	durations durations
	seconds   float64
	means     levelMeans
}

// durations are the histograms of a container, by their numbers among those that are shown; nil where there is none.
type durations []*model.FloatHistogram

// durationNumbers are the numbers of a container's histograms, by Field.
var durationNumbers = func() map[Field]int {
	numbers := map[Field]int{}
	for i, c := range containerTable.columns {
		if c != nil && c.Histogram != nil {
			numbers[containerTable.kind|Field(i)] = len(numbers)
		}
	}
	return numbers
}()

func (d durations) of(f Field) *model.FloatHistogram {
	if len(d) == 0 {
		return nil
	}
	return d[durationNumbers[f]]
}

// merge adds a histogram to that of a number.
func (d *durations) merge(number int, other *model.FloatHistogram) {
	if *d == nil {
		*d = make(durations, len(durationNumbers))
	}
	if (*d)[number] == nil {
		(*d)[number] = &model.FloatHistogram{}
	}
	(*d)[number].Merge(other)
}

func (d *durations) add(other durations) {
	for number, h := range other {
		if h != nil {
			d.merge(number, h)
		}
	}
}

func (c *change) value(fields ...Field) *float64 {
	sum, found := 0.0, false
	for _, f := range fields {
		if c.has(f) {
			sum, found = sum+c.of(f), true
		}
	}
	if !found {
		return nil
	}
	return &sum
}

// per is v per second, nil where no time has passed.
func per(v, seconds float64) *float64 {
	if seconds <= 0 {
		return nil
	}
	v /= seconds
	return &v
}

// Usage is what a container used. Rates are per second of the covered window; a nil number
// could not be had.
type Usage struct {
	// numbers are all of it, in the order of usageNumbers, with a bit in known for each that is there. The others point
	// to some of them.
	numbers []float64
	known   uint64

	CPUCores, CPUQuotaCores, ThrottledShare        *float64
	Threads, BusyThreads                           *float64 // see model.ProcessCounters
	ThreadsLimit, OpenFiles, OpenFilesLimit        *float64 // see model.ProcessCounters
	MemoryBytes, WorkingSetBytes, MemoryLimitBytes *float64
	DiskReadBytes, DiskWriteBytes                  *float64
	NetworkReceiveBytes, NetworkTransmitBytes      *float64
	RunQueueP50, RunQueueP99                       *Seconds

	// runQueue is how many threads wait for a CPU, on average; 0 where it is not known.
	runQueue float64
	// polling is the part of CPUCores after which threads slept for a time that they chose; 0 where it is not known.
	polling float64
}

// usageNumber is a number of Usage and the fields that it is made of.
type usageNumber struct {
	model.Shown
	fields []Field
}

var usageNumbers = func() (all []usageNumber) {
	for _, n := range model.Numbers(model.ContainerRows, model.UsageGroups) {
		all = append(all, usageNumber{n, containerTable.fields(n.Of)})
	}
	if len(all) > 64 {
		panic("BUG: more numbers of a container than bits for those that are known")
	}
	return all
}()

func usage(c *change) *Usage {
	u := &Usage{numbers: make([]float64, len(usageNumbers))}
	for i := range usageNumbers {
		if v, ok := usageNumbers[i].of(c); ok {
			u.numbers[i] = v
			u.known |= 1 << i
		}
	}
	if h := c.durations.of(RunQueue); h != nil && c.seconds > 0 {
		u.runQueue = h.Sum / c.seconds
	}
	if c.has(Polling) && c.seconds > 0 {
		u.polling = c.of(Polling) / c.seconds
	}
	u.point()
	return u
}

// of computes the number from what happened.
func (n *usageNumber) of(c *change) (v float64, ok bool) {
	for _, f := range n.fields {
		if c.has(f) {
			v, ok = v+c.of(f), true
		}
	}
	switch n.Formula {
	case model.Rate:
		return v / c.seconds, ok && c.seconds > 0
	case model.Limit:
		return v, ok && v > 0
	case model.MeanLevel:
		return c.means.mean(n.fields[0], c.seconds)
	case model.PeakLevel:
		return c.means.peak(n.fields[0])
	case model.Share:
		whole := c.of(n.fields[1])
		return c.of(n.fields[0]) / whole, whole > 0
	case model.QuantileOf:
		q := quantile(c.durations.of(n.fields[0]), n.Quantile)
		if q == nil {
			return 0, false
		}
		return float64(*q), true
	}
	return v, ok
}

// point makes the named numbers those of u.
func (u *Usage) point() {
	u.CPUCores, u.CPUQuotaCores, u.ThrottledShare = u.at(cpuCores), u.at(cpuQuotaCores), u.at(throttledShare)
	u.Threads, u.BusyThreads, u.ThreadsLimit = u.at(threads), u.at(busyThreads), u.at(threadsLimit)
	u.OpenFiles, u.OpenFilesLimit = u.at(filesOpen), u.at(filesLimit)
	u.MemoryBytes, u.WorkingSetBytes, u.MemoryLimitBytes = u.at(memoryBytes), u.at(workingSetBytes), u.at(memoryLimitBytes)
	u.DiskReadBytes, u.DiskWriteBytes = u.at(diskReadBytes), u.at(diskWriteBytes)
	u.NetworkReceiveBytes, u.NetworkTransmitBytes = u.at(networkReceiveBytes), u.at(networkTransmitBytes)
	u.RunQueueP50, u.RunQueueP99 = (*Seconds)(u.at(runQueueP50)), (*Seconds)(u.at(runQueueP99))
}

// at is nil for a number that could not be had.
func (u *Usage) at(i int) *float64 {
	if u.known>>i&1 == 0 {
		return nil
	}
	return &u.numbers[i]
}

// Where the named numbers are among usageNumbers.
var (
	cpuCores, cpuQuotaCores, throttledShare = usageAt("cpu_cores"), usageAt("cpu_quota_cores"),
		usageAt("throttled_share")
	threads, busyThreads, threadsLimit             = usageAt("threads"), usageAt("busy_threads"), usageAt("threads_limit")
	filesOpen, filesLimit                          = usageAt("open_files"), usageAt("open_files_limit")
	memoryBytes, workingSetBytes, memoryLimitBytes = usageAt("memory_bytes"), usageAt("working_set_bytes"),
		usageAt("memory_limit_bytes")
	diskReadBytes, diskWriteBytes             = usageAt("disk_read_bytes"), usageAt("disk_write_bytes")
	networkReceiveBytes, networkTransmitBytes = usageAt("network_receive_bytes"), usageAt("network_transmit_bytes")
	runQueueP50, runQueueP99                  = usageAt("run_queue_p50"), usageAt("run_queue_p99")
)

func usageAt(key string) int {
	for i := range usageNumbers {
		if usageNumbers[i].Key == key {
			return i
		}
	}
	panic("BUG: no number of a container is called " + key)
}

// Each calls f for each number that could be had, as JSON, in the order of the registry.
func (u *Usage) Each(f func(n *model.Shown, value json.RawMessage)) error {
	for i := range usageNumbers {
		if u.known>>i&1 != 0 {
			if err := eachNumber(&usageNumbers[i].Shown, u.numbers[i], f); err != nil {
				return err
			}
		}
	}
	return nil
}

// MarshalJSON writes the numbers that could be had, by their keys.
func (u *Usage) MarshalJSON() ([]byte, error) { return u.appendJSON(make([]byte, 0, 1024)) }

func (u *Usage) appendJSON(b []byte) (_ []byte, err error) {
	b = append(b, '{')
	for i := range usageNumbers {
		if u.known>>i&1 != 0 && err == nil {
			b, err = appendNumber(b, &usageNumbers[i].Shown, u.numbers[i])
		}
	}
	return append(b, '}'), err
}

// UnmarshalJSON reads what MarshalJSON writes.
func (u *Usage) UnmarshalJSON(b []byte) error {
	var values map[string]Seconds
	if err := json.Unmarshal(b, &values); err != nil {
		return err
	}
	*u = Usage{numbers: make([]float64, len(usageNumbers))}
	for i := range usageNumbers {
		if v, ok := values[usageNumbers[i].Key]; ok {
			u.numbers[i] = float64(v)
			u.known |= 1 << i
		}
	}
	u.point()
	return nil
}
