// Package outsight keeps metrics of a Go program where Outsight reads them from outside of it.
//
//	var jobs = outsight.NewCounter("jobs_done", "{job}", "Jobs that were done")
//	var queue = outsight.NewGauge("queue_length", "{job}", "Jobs that wait")
//
//	outsight.Runtime() // Go's own: garbage collections, memory, goroutines
//	jobs.Add(1)        // one atomic add
//	queue.Set(17)
//
// It needs Linux and the standard library. There is nothing to configure; without an agent on the host the program counts
// all the same, as it does on other systems. The values lie in a sealed memory file, which docs/format/appmetrics.md
// describes.
//
// Names are letters, digits, '_' and ':', units UCUM ("s", "By", "{request}"). A metric is made once for each set of labels.
// One that finds no room, or whose name is none, counts into memory that nobody reads; Outsight shows how many did.
package outsight

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	magic           = "OSAPPMET"
	version         = 1
	headerBytes     = 64
	descriptorBytes = 16
	fileBytes       = 1 << 20
	maxMetrics      = 4096
	// lineBytes is between values, so that threads that count different things do not wait for each other.
	lineBytes = 64

	kindCounter, kindGauge = 1, 2
	typeU64, typeF64       = 1, 3

	offsetCount, offsetRefused = 24, 32
	maxTextBytes, maxLabels    = 4096, 8
)

// Label is a label of a metric and its value.
type Label struct{ Name, Value string }

// Counter counts what happens.
type Counter struct{ n *uint64 }

// Add counts n more.
func (c Counter) Add(n uint64) { atomic.AddUint64(c.n, n) }

// FloatCounter counts fractions, as of seconds.
type FloatCounter struct{ n *uint64 }

// Add counts more, which is not negative.
func (c FloatCounter) Add(more float64) { add(c.n, max(more, 0)) }

// Gauge says how things are now.
type Gauge struct{ n *uint64 }

// Set says how they are.
func (g Gauge) Set(v float64) { atomic.StoreUint64(g.n, math.Float64bits(v)) }

// Add says by how much they changed.
func (g Gauge) Add(by float64) { add(g.n, by) }

func add(to *uint64, by float64) {
	for {
		bits := atomic.LoadUint64(to)
		if atomic.CompareAndSwapUint64(to, bits, math.Float64bits(math.Float64frombits(bits)+by)) {
			return
		}
	}
}

// NewCounter makes a counter of whole numbers.
func NewCounter(name, unit, help string, labels ...Label) Counter {
	return Counter{metric(kindCounter, typeU64, name, unit, help, labels)}
}

// NewFloatCounter makes a counter of fractions.
func NewFloatCounter(name, unit, help string, labels ...Label) FloatCounter {
	return FloatCounter{metric(kindCounter, typeF64, name, unit, help, labels)}
}

// NewGauge makes a gauge.
func NewGauge(name, unit, help string, labels ...Label) Gauge {
	return Gauge{metric(kindGauge, typeF64, name, unit, help, labels)}
}

// file is the memory file of this process, or memory that nobody reads where there is none.
var file struct {
	sync.Mutex // guards all
	data       []byte
	// used is up to where there are values, texts from where on texts.
	used, texts int
	count       uint32
	nowhere     uint64
}

// metric is where the value of a metric lies.
func metric(kind, valueType byte, name, unit, help string, labels []Label) *uint64 {
	file.Lock()
	defer file.Unlock()
	if file.data == nil {
		begin()
	}
	var text []byte
	parts := []string{name, unit, help}
	for _, l := range labels {
		parts = append(parts, l.Name, l.Value)
	}
	for _, p := range parts {
		for i := range len(p) {
			if p[i] != 0 {
				text = append(text, p[i])
			}
		}
		text = append(text, 0)
	}
	if !isName(name) || len(labels) > maxLabels || len(text) > maxTextBytes || file.count >= maxMetrics ||
		file.used+lineBytes+len(text) > file.texts {
		atomic.AddUint64(word(offsetRefused), 1)
		return &file.nowhere
	}
	value := file.used
	file.used += lineBytes
	file.texts -= len(text)
	copy(file.data[file.texts:], text)
	d := file.data[headerBytes+int(file.count)*descriptorBytes:]
	binary.LittleEndian.PutUint32(d[0:], uint32(value))
	binary.LittleEndian.PutUint32(d[4:], uint32(file.texts))
	binary.LittleEndian.PutUint16(d[8:], uint16(len(text)))
	d[10], d[11] = kind, valueType
	file.count++
	// After what it counts.
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&file.data[offsetCount])), file.count)
	return word(value)
}

func word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&file.data[at])) }

// begin makes the file and tells the host that it is there. The lock is held.
func begin() {
	data, fd := mapFile(fileBytes)
	if data == nil {
		words := make([]uint64, fileBytes/8)
		data = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), fileBytes)
	}
	file.data, file.used, file.texts = data, headerBytes+maxMetrics*descriptorBytes, len(data)
	binary.LittleEndian.PutUint16(data[8:], version)
	binary.LittleEndian.PutUint16(data[10:], headerBytes)
	binary.LittleEndian.PutUint32(data[12:], fileBytes)
	binary.LittleEndian.PutUint32(data[16:], headerBytes)
	binary.LittleEndian.PutUint32(data[20:], maxMetrics)
	copy(data, magic)
	announce(fd)
}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}
