package outsight

import (
	"math"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// runtimeMetrics are those of package runtime/metrics that are told, under names of their own.
var runtimeMetrics = []struct {
	of, name, unit, help string
	kind                 byte
}{
	{"/gc/cycles/total:gc-cycles", "go_gc_cycles", "{cycle}", "Garbage collections", kindCounter},
	{"/gc/heap/allocs:bytes", "go_allocated_bytes", "By", "Memory that was allocated on the heap", kindCounter},
	{"/gc/heap/allocs:objects", "go_allocated_objects", "{object}", "Objects that were allocated on the heap", kindCounter},
	{"/cpu/classes/gc/total:cpu-seconds", "go_gc_cpu_seconds", "s", "CPU time of garbage collections, an estimate", kindCounter},
	{"/sync/mutex/wait/total:seconds", "go_mutex_wait_seconds", "s", "Time that goroutines waited for mutexes", kindCounter},
	{"/memory/classes/heap/objects:bytes", "go_heap_bytes", "By", "Memory of objects on the heap", kindGauge},
	{"/memory/classes/total:bytes", "go_memory_bytes", "By", "Memory that Go has mapped", kindGauge},
	{"/sched/goroutines:goroutines", "go_goroutines", "{goroutine}", "Goroutines", kindGauge},
	{"/sched/gomaxprocs:threads", "go_threads_at_once", "{thread}", "Threads that may run Go code at a time", kindGauge},
}

var runtimeOnce sync.Once

// Runtime counts what Go's runtime itself does, from now on, by a goroutine that looks every second. What this version of Go
// does not tell is left out.
func Runtime() { runtimeOnce.Do(beginRuntime) }

func beginRuntime() {
	var samples []metrics.Sample
	var values []*uint64
	var gauges []bool
	for _, m := range runtimeMetrics {
		sample := []metrics.Sample{{Name: m.of}}
		metrics.Read(sample)
		valueType := byte(typeF64)
		switch kind := sample[0].Value.Kind(); {
		case kind == metrics.KindUint64 && m.kind == kindCounter:
			valueType = typeU64
		case kind == metrics.KindUint64, kind == metrics.KindFloat64:
		default:
			continue
		}
		samples, gauges = append(samples, sample[0]), append(gauges, m.kind == kindGauge)
		values = append(values, metric(m.kind, valueType, m.name, m.unit, m.help, nil))
	}
	look := func() {
		metrics.Read(samples)
		for i := range samples {
			v := &samples[i].Value
			switch {
			case v.Kind() == metrics.KindFloat64:
				atomic.StoreUint64(values[i], math.Float64bits(v.Float64()))
			case gauges[i]:
				atomic.StoreUint64(values[i], math.Float64bits(float64(v.Uint64())))
			default:
				atomic.StoreUint64(values[i], v.Uint64())
			}
		}
	}
	look()
	go func() {
		for range time.Tick(time.Second) {
			look()
		}
	}()
}
