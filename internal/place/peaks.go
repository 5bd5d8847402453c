package place

import (
	"outsight/internal/frame"
)

// Peaks are the highest uses of containers over the minutes of a window.
type Peaks struct {
	of map[[2]string]peak // by host and ID
}

type peak struct{ cores, memory float64 }

// highestMemory is the column of the highest working set since the last full minute.
const highestMemory = "memory_working_set.highest"

var (
	cpuColumn    = frame.Column(frame.Containers, "cpu")
	memoryColumn = frame.Column(frame.Containers, highestMemory)
)

// PeakColumns are what Visit reads.
var PeakColumns = frame.NewProjection(map[frame.TableID][]string{frame.Containers: {"cpu", highestMemory}})

// Visit takes a minute of the window.
func (p *Peaks) Visit(w *frame.Window) {
	if p.of == nil {
		p.of = map[[2]string]peak{}
	}
	for i := range w.Hosts {
		for _, span := range w.Hosts[i].Spans {
			if span.Before != nil && span.After.Time.After(span.Before.Time) {
				p.add(w.Hosts[i].Host, span)
			}
		}
	}
}

func (p *Peaks) add(host string, span frame.Span) {
	info := frame.Schema[frame.Containers].Columns
	seconds := span.After.Time.Sub(span.Before.Time).Seconds()
	d := frame.Since(frame.Containers, span.Before, span.After)
	for row := range d.After.IDs {
		id := [2]string{host, span.After.Text(frame.Containers, frame.ContainerKey, row)}
		at := p.of[id]
		if n, ok := d.Gain(cpuColumn, row); ok {
			at.cores = max(at.cores, float64(n)/info[cpuColumn].Per/seconds)
		}
		if memoryColumn < len(d.After.Columns) {
			if n, ok := d.After.Columns[memoryColumn].At(row); ok {
				at.memory = max(at.memory, float64(n)/info[memoryColumn].Per)
			}
		}
		p.of[id] = at
	}
}
