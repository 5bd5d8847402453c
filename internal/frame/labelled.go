package frame

import (
	"math"

	"outsight/internal/model"
)

// LabelledMetrics are the metrics of Labelled, by their stored names.
var LabelledMetrics = func() map[string]model.Metric {
	all := map[string]model.Metric{}
	addLabelled(all, model.ContainerRows, model.OfContainer)
	addLabelled(all, model.ApplicationRows, model.OfContainer)
	addLabelled(all, model.HostRows, model.OfHost)
	return all
}()

func addLabelled[T any](all map[string]model.Metric, rows []model.Row[T], of model.Entity) {
	for i := range rows {
		if rows[i].Each == nil {
			continue
		}
		m := rows[i].Metric(of)
		if len(m.Labels) > MaxLabels {
			panic("BUG: more than MaxLabels labels of " + m.Name)
		}
		all[m.Name] = m
	}
}

// Columns of Labelled: whole numbers, and floats of model.Row.Real.
const (
	labelledValue = iota
	labelledReal
)

// LabelledLevel is the value of a gauge in a row of Labelled; per is how many of a whole number are one of its unit.
func LabelledLevel(t *Table, row int, per float64) (level float64, ok bool) {
	if n, ok := t.Columns[labelledReal].At(row); ok {
		return Float(n), true
	}
	n, ok := t.Columns[labelledValue].At(row)
	return float64(n) / per, ok
}

// maxValue is the greatest whole number that a float, which is what is read, can be without being past 64 bits.
const maxValue = 1<<64 - 1<<11

func isLevel(metric string) bool {
	m, ok := LabelledMetrics[metric]
	return !ok || m.Kind == model.Gauge
}

// liveLabelled is a series of the snapshot.
type liveLabelled struct {
	labelledKey
	kind  model.SeriesKind
	value uint64
	// real says that value is the bits of a float.
	real      bool
	histogram *model.Histogram
}

type plannedLabelled struct {
	*planned
	all []liveLabelled
}

func (b *Builder) planLabelled(s *model.Snapshot, containers *plannedContainers) *plannedLabelled {
	p := &plannedLabelled{planned: b.plan(Labelled), all: b.spareLabelled[:0]}
	for i, sample := range containers.samples {
		readLabelled(p, containerSeries, sample, Containers, b.containers.now[i].id)
	}
	readLabelled(p, hostSeries, s, Hosts, 1)
	b.spareLabelled = p.all
	return p
}

// seriesRow is a row of the registry with series that are known when they are read.
type seriesRow[T any] struct {
	*model.Row[T]
	metric model.Metric
	per    float64
}

var (
	containerSeries = append(seriesRows(model.ContainerRows, model.OfContainer),
		seriesRows(model.ApplicationRows, model.OfContainer)...)
	hostSeries = seriesRows(model.HostRows, model.OfHost)
)

func seriesRows[T any](rows []model.Row[T], of model.Entity) (all []seriesRow[T]) {
	for i := range rows {
		if rows[i].Each != nil {
			m := rows[i].Metric(of)
			all = append(all, seriesRow[T]{&rows[i], m, m.Per()})
		}
	}
	return all
}

func readLabelled[T any](p *plannedLabelled, rows []seriesRow[T], of *T, table TableID, owner uint32) {
	sink := &p.b.sink
	for i := range rows {
		r := &rows[i]
		sink.Series, sink.Kind = sink.Series[:0], r.Kind
		r.Each(of, sink)
		for j := range sink.Series {
			series := &sink.Series[j]
			one := liveLabelled{labelledKey: labelledKey{table: table, owner: owner, metric: r.Name}, kind: r.Kind,
				histogram: series.Histogram}
			switch {
			case series.Histogram != nil:
			case r.Real && isInfinite(math.Float64bits(series.Value)):
				continue
			case r.Real:
				one.real, one.value = true, math.Float64bits(series.Value)
			default:
				one.value = uint64(math.Round(min(max(series.Value, 0)*r.per, maxValue)))
			}
			for _, l := range series.Labels {
				for k, name := range r.metric.Labels {
					if l.Name == name {
						one.labels[k] = l.Value
					}
				}
			}
			p.add(&one)
		}
	}
}

// add adds a series. Two with the same labels are one: counters are added up, of others the first stays.
func (p *plannedLabelled) add(one *liveLabelled) {
	x := &p.b.labelled
	e := x.find(one.labelledKey)
	if e != nil && x.has(e) {
		if one.kind == model.Counter {
			p.all[e.place].value += one.value
		}
		return
	}
	planLive(p.planned, x, one.labelledKey, e)
	p.all = append(p.all, *one)
}

func (b *Builder) fillLabelled(d *draft, one *liveLabelled, at int, f *Frame) {
	set := func(a Attribute, v uint64) { d.Attributes[a][d.row] = v }
	owner := uint64(one.owner)
	if i, ok := f.Tables[one.table].Find(one.owner); ok && one.table != Hosts {
		owner = f.Tables[one.table].Attributes[Sum][i]
	}
	if one.kind == model.Gauge {
		set(Sum, OthersRow) // it is never summed
	} else {
		set(Sum, sumOf(b, Labelled, &b.labelled, b.labelled.now[at],
			labelledKind{one.table, owner, one.metric, one.labels}))
	}
	set(LabelledTable, uint64(one.table))
	set(LabelledOwner, uint64(one.owner))
	d.text(&b.texts, LabelledMetric, one.metric)
	for i, value := range one.labels {
		d.text(&b.texts, LabelledLabels+Attribute(i), value)
	}
	if one.kind == model.HistogramSeries {
		d.setHistogram(0, one.histogram)
		return
	}
	if one.real {
		d.set(labelledReal, one.value)
		return
	}
	d.set(labelledValue, one.value)
}
