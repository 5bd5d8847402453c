package report

import (
	"math"
	"slices"
	"time"

	"outsight/internal/csvy"
)

// Distributed is a distribution of times in milliseconds. Percentiles are by nearest rank: the
// least value that at least the share of all values does not exceed.
type Distributed struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean_ms"`
	SD    float64 `json:"sd_ms"`
	Min   float64 `json:"min_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

// Intervals are the times between rows, as they were observed: a row that is missing makes a long
// one. Nominal is what was asked for, or the median; Worst the greatest distance from it.
type Intervals struct {
	Distributed
	Nominal float64 `json:"nominal_ms"`
	Worst   float64 `json:"worst_deviation_ms"`
}

// distributed makes a distribution of nanoseconds. The standard deviation is that of all values
// (divided by n), as they are all there are.
func distributed(ns []float64) Distributed {
	if len(ns) == 0 {
		return Distributed{}
	}
	const ms = float64(time.Millisecond)
	sorted := slices.Sorted(slices.Values(ns))
	mean, sd := meanAndSD(sorted)
	rank := func(q float64) float64 { return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1] / ms }
	return Distributed{
		Count: len(sorted), Mean: mean / ms, SD: sd / ms, Min: sorted[0] / ms, P50: rank(0.5), P90: rank(0.9),
		P99:  rank(0.99),
		P999: rank(0.999), Max: sorted[len(sorted)-1] / ms,
	}
}

func meanAndSD(values []float64) (mean, sd float64) {
	if len(values) == 0 {
		return 0, 0
	}
	for _, v := range values {
		mean += v
	}
	mean /= float64(len(values))
	for _, v := range values {
		sd += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sd / float64(len(values)))
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile lies on the line between the two values next to it (as R's type 7); 0 of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

// Utilisation of CPUs, in percent of one CPU, as in Azevedo and Garg 2020 (5.1). Windows of a
// second are sampled: C(t) is the mean of all steps in [t, t+1 s). Those below K = Q3/2, half of the
// third quartile of all C(t), are idle, the others load; so are those without any use.
type Utilisation struct {
	Windows int     `json:"windows"`
	Mean    float64 `json:"mean_percent"`
	SD      float64 `json:"sd_percent"`
	Max     float64 `json:"max_percent"`
	K       float64 `json:"k_percent"`
	Load    Phase   `json:"load"`
	Idle    Phase   `json:"idle"`
}

// Phase is the windows of load or of idleness.
type Phase struct {
	Windows int     `json:"windows"`
	Mean    float64 `json:"mean_percent"`
	SD      float64 `json:"sd_percent"`
}

// utilisation of steps between times, usage[i] CPUs from t[i] to t[i+1].
func utilisation(t []int64, usage []float64, window time.Duration) Utilisation {
	var samples []float64
	sum, n, end := 0.0, 0, int64(0)
	flush := func() {
		if n > 0 {
			samples = append(samples, 100*sum/float64(n))
		}
		sum, n = 0, 0
	}
	for i, u := range usage {
		if math.IsNaN(u) {
			continue // the counter began again
		}
		if end == 0 {
			end = t[i] + int64(window)
		}
		if t[i] >= end {
			flush()
			end += ((t[i]-end)/int64(window) + 1) * int64(window)
		}
		sum, n = sum+u, n+1
	}
	flush()
	u := Utilisation{Windows: len(samples), K: quantile(samples, 0.75) / 2}
	var load, idle []float64
	for _, c := range samples {
		if c >= u.K && c > 0 {
			load = append(load, c)
		} else {
			idle = append(idle, c)
		}
		u.Max = max(u.Max, c)
	}
	u.Mean, u.SD = meanAndSD(samples)
	u.Load.Windows, u.Idle.Windows = len(load), len(idle)
	u.Load.Mean, u.Load.SD = meanAndSD(load)
	u.Idle.Mean, u.Idle.SD = meanAndSD(idle)
	return u
}

// container reports how regular a recording is, and how busy its container was.
func (l *timeline) container(o Options) *Container {
	c := &Container{
		Name: l.name, ID: l.header.Container.Key(), Image: l.header.Container.Image, Files: l.files, Rows: len(l.t), Cut: l.cut,
		LostTicks: l.lost,
	}
	if n := len(l.t); n > 0 {
		c.From, c.To = time.Unix(0, l.t[0]), time.Unix(0, l.t[n-1])
	}
	between := differences(l.t)
	c.Intervals.Distributed = distributed(between)
	nominal := float64(l.header.Interval)
	if nominal == 0 {
		nominal = median(between)
	}
	for _, d := range between {
		c.Intervals.Worst = max(c.Intervals.Worst, math.Abs(d-nominal)/float64(time.Millisecond))
	}
	c.Intervals.Nominal = nominal / float64(time.Millisecond)
	of := func(name string) *Distributed {
		s := l.of(name)
		if len(s.v) == 0 {
			return nil
		}
		d := distributed(s.v)
		return &d
	}
	c.Lateness, c.Cost = of(csvy.LatenessNS), of(csvy.TickCostNS)
	ticks := l.of(csvy.Tick).v
	for i := 1; i < len(ticks); i++ {
		if d := ticks[i] - ticks[i-1]; d > 1 {
			c.MissingTicks += uint64(d) - 1
		}
	}
	cpu := l.of(csvy.CPUNS)
	c.CPU = utilisation(cpu.t, cpu.rates(), o.Sampling)
	return c
}
