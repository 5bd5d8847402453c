package graph

import (
	"outsight/internal/frame"
	"outsight/internal/model"
)

// The metrics of what containers waited for a CPU behind. Their labels are by_id and by_name.
var waitMetric, preemptionMetric = byMetric("container_run_queue_wait_by_seconds_total"),
	byMetric("container_preemptions_by_total")

func byMetric(name string) string {
	if m, ok := frame.LabelledMetrics[name]; !ok || m.Labels[0] != "by_id" || m.Labels[1] != "by_name" {
		panic("BUG: no metric " + name + " with the labels of who ran")
	}
	return name
}

// WaitsFromFrames is what containers waited for a CPU behind in a window.
func WaitsFromFrames(w *frame.Window) *Waits {
	m := newFrameMap(w, Options{})
	defer m.release()
	m.findContainers()
	waits := newWaits(m.covered)
	for i := range m.parts {
		m.addWaits(waits, &m.parts[i])
	}
	return waits.finish()
}

func (m *frameMap) addWaits(waits *waitsBuilder, p *part) {
	d := frame.Since(frame.Labelled, p.Before, p.After)
	for row := range d.After.IDs {
		metric := p.After.Text(frame.Labelled, frame.LabelledMetric, row)
		if metric != waitMetric && metric != preemptionMetric ||
			d.After.Attribute(frame.LabelledTable, row) != uint64(frame.Containers) {
			continue
		}
		gained, _ := d.Gain(0, row)
		if gained == 0 {
			continue
		}
		c := m.ownerOf(p, d.After, row)
		if c == nil {
			continue
		}
		text := func(i frame.Attribute) string { return p.After.Text(frame.Labelled, frame.LabelledLabels+i, row) }
		by := waits.by(c.node.Host, c.node.ID, c.node.Name, text(0), text(1))
		if metric == waitMetric {
			by.Seconds += float64(gained) / model.Nanoseconds
		} else {
			by.Preemptions += float64(gained)
		}
	}
}

// ownerOf is the container that a row of Labelled is of; nil where it is not known.
func (m *frameMap) ownerOf(p *part, t *frame.Table, row int) *mapContainer {
	owner := uint32(t.Attribute(frame.LabelledOwner, row))
	if t.Attribute(frame.State, row) == frame.Summed {
		if owner == 0 {
			owner = frame.OthersRow
		}
		return &m.containers[m.sumOf(p, owner)]
	}
	if index := p.containerIn(uint64(owner)); index >= 0 {
		return &m.containers[index]
	}
	return nil
}
