package predict

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Observation is what a resource took in a stretch of time in which requests came in at a rate.
type Observation struct {
	// Rate is of requests per second at the entries, Cores is CPU time per second.
	Rate, Cores float64
}

// Demand is the CPU time of a resource as a line over the rate of requests: a + D λ. At low rates a resource takes more
// than in proportion to them, since some of its work does not depend on requests; a and D part the two.
type Demand struct {
	// Base is a, in cores, and PerRequest D, in seconds of CPU time for one request at the entries.
	Base, PerRequest float64
	// Observations is of how many the line is, at rates from Least to Greatest.
	Observations    int
	Least, Greatest float64
	// mean is that of the rates; the variances are of the line there and of its slope, and factor is Student's for
	// nine chances of ten.
	mean, varianceThere, varianceSlope, factor float64
	// busy is the line while one request follows the other, where it is another one (findBusy).
	busy *Demand
	// shared is that it is of a host's CPUs, where what polls goes on at the limit, and decay by how much less of it there is
	// for a request with each more per second: of what there was, exp(-decay) is left (findDecay).
	shared bool
	decay  float64
}

// Bounds of what a line is fitted to.
const (
	minObservations = 6
	// minSpread is how far apart the rates have to be, as a share of their mean.
	minSpread = 0.2
	// chances that the truth is in an interval.
	chances = 0.9
	// huber is from how many deviations on an observation weighs less, rounds how often weights are found anew.
	huber, rounds = 1.345, 20
)

// Errors of FitDemand.
var (
	ErrFew    = errors.New("there are too few stretches of time with requests")
	ErrSteady = errors.New("the rate of requests hardly changed, so that it is not known what depends on it")
)

// FitDemand fits a line to observations. Those far from it weigh less (Huber's weights). Stretches of time that follow
// each other are alike, for which the interval is widened; they have to be in the order of time.
func FitDemand(all []Observation) (Demand, error) {
	if len(all) < minObservations {
		return Demand{}, ErrFew
	}
	d := Demand{Observations: len(all), Least: all[0].Rate, Greatest: all[0].Rate}
	sum := 0.0
	for _, o := range all {
		d.Least, d.Greatest = min(d.Least, o.Rate), max(d.Greatest, o.Rate)
		sum += o.Rate
	}
	if d.Greatest-d.Least < minSpread*sum/float64(len(all)) {
		return Demand{}, ErrSteady
	}
	weights, residuals := make([]float64, len(all)), make([]float64, len(all))
	for i := range weights {
		weights[i] = 1
	}
	for range rounds {
		if !d.fit(all, weights) {
			return Demand{}, ErrSteady // what is left of them
		}
		for i, o := range all {
			residuals[i] = o.Cores - d.Base - d.PerRequest*o.Rate
		}
		weigh(weights, residuals)
	}
	d.findVariances(all, weights, residuals)
	return d, nil
}

// findBusy finds the line of a resource that is never without a request, from what it took of its CPU time in each of the
// observations for polling (graph.Resource.PollingCores). What threads take to look for something now and then while there
// is a request, and not when there is none, begins anew with each request that finds none there: the Go runtime's monitor
// looks every 20 microseconds then, and more and more rarely until nothing is left to do. Where requests follow each other
// it is next to nothing. Polling that does not grow with requests stays.
func (d *Demand) findBusy(all []Observation, polling []float64) {
	polls, rest := slices.Clone(all), slices.Clone(all)
	for i := range all {
		polls[i].Cores = polling[i]
		rest[i].Cores -= polling[i]
	}
	p, err := FitDemand(polls)
	if err != nil || p.PerRequest <= p.factor*math.Sqrt(p.varianceSlope) {
		return
	}
	busy, err := FitDemand(rest)
	if err != nil || busy.PerRequest <= 0 || busy.PerRequest >= d.PerRequest {
		return
	}
	busy.Base += max(p.Base, 0)
	d.busy = &busy
}

// findDecay finds how polling goes on beyond the greatest rate that there was, at the CPUs of a host: they are used up while
// each of its containers still has nothing to do at times, after which it begins to poll anew. What it takes for a request
// falls exponentially with the rate, as the share of requests does that find nobody at work. How fast is a line through the
// logarithms of the past. That may tell little: it weighs as much as it is sure beside the half of it being left at the limit,
// give or take the other half.
func (d *Demand) findDecay(all []Observation, polling []float64, parallel float64) {
	if d.busy == nil {
		return
	}
	full, ok := d.busy.Rate(parallel)
	if !ok || full.Value <= d.Greatest {
		return
	}
	d.shared = true
	half := math.Ln2 / (full.Value - d.Greatest)
	d.decay = half
	var logarithms []Observation
	for i, o := range all {
		if polling[i] > 0 {
			logarithms = append(logarithms, Observation{o.Rate, math.Log(polling[i] / o.Rate)})
		}
	}
	line, err := FitDemand(logarithms)
	if err != nil || line.varianceSlope <= 0 {
		return
	}
	prior, seen := 1/(half*half), 1/line.varianceSlope
	d.decay = max((half*prior-line.PerRequest*seen)/(prior+seen), 0)
}

// full is the rate at which a resource is used up by the estimate; ok is false where it is not.
func (d *Demand) full(parallel float64) (rate float64, ok bool) {
	busy, ok := d.whenBusy().Rate(parallel)
	if !ok || d.busy == nil || !d.shared {
		return busy.Value, ok
	}
	low, high := d.Greatest, busy.Value
	if high <= low {
		line, ok := d.Rate(parallel)
		return line.Value, ok
	}
	for range 60 {
		if middle := (low + high) / 2; d.Utilisation(middle, parallel).Value < 1 {
			low = middle
		} else {
			high = middle
		}
	}
	return low, true
}

// whenBusy is the line while one request follows the other.
func (d *Demand) whenBusy() *Demand {
	if d.busy != nil {
		return d.busy
	}
	return d
}

// fit is by weighted least squares.
func (d *Demand) fit(all []Observation, weights []float64) bool {
	var sum, rate, cores, square, product float64
	for i, o := range all {
		sum += weights[i]
		rate += weights[i] * o.Rate
		cores += weights[i] * o.Cores
	}
	rate, cores = rate/sum, cores/sum
	for i, o := range all {
		square += weights[i] * (o.Rate - rate) * (o.Rate - rate)
		product += weights[i] * (o.Rate - rate) * (o.Cores - cores)
	}
	if square <= 0 {
		return false
	}
	d.mean, d.PerRequest = rate, product/square
	d.Base = cores - d.PerRequest*rate
	return true
}

// weigh finds weights anew. The deviation is robust, too: the median of the absolute ones.
func weigh(weights, residuals []float64) {
	sizes := make([]float64, len(residuals))
	for i, r := range residuals {
		sizes[i] = math.Abs(r)
	}
	slices.Sort(sizes)
	limit := huber * sizes[len(sizes)/2] / 0.6745
	for i, r := range residuals {
		weights[i] = 1
		if math.Abs(r) > limit && limit > 0 {
			weights[i] = limit / math.Abs(r)
		}
	}
}

// findVariances is by Huber's estimate, of residuals that are cut off where they weigh less. Where those that follow each
// other are alike, fewer observations are as good as all.
func (d *Demand) findVariances(all []Observation, weights, residuals []float64) {
	var squares, spread, follow, whole float64
	for i, o := range all {
		cut := weights[i] * residuals[i]
		squares += cut * cut
		spread += (o.Rate - d.mean) * (o.Rate - d.mean)
		if weights[i] == 1 {
			whole++
		}
		if i > 0 {
			follow += cut * weights[i-1] * residuals[i-1]
		}
	}
	n := float64(len(all))
	alike := 0.0
	if squares > 0 {
		alike = follow / squares
		alike = min(max(alike+(1+3*alike)/n, 0), 0.9) // the estimate of few is too low
	}
	freedom := max((n-2)*(1-alike)/(1+alike), 1)
	variance := squares / freedom * (n / whole) * (n / whole)
	d.varianceThere, d.varianceSlope = variance/n, variance/spread
	d.factor = student(freedom)
}

// student is how many deviations nine chances of ten are, with so many degrees of freedom.
func student(freedom float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile((1 + chances) / 2)
}

// Interval is an estimate, with the bounds between which the truth is in nine of ten cases.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	// High is nil where there is no bound.
	High *float64 `json:"high,omitempty"`
}

// plus is the line with a part of what another takes, for each request and without them; both are of the same stretches
// of time.
func (d Demand) plus(base, perRequest float64, other *Demand) Demand {
	if d.busy != nil || other.busy != nil {
		busy, rest := *d.whenBusy(), *other.whenBusy()
		busy.busy, rest.busy = nil, nil
		busy = busy.plus(base, perRequest, &rest)
		d.busy = &busy
	}
	d.Base += base * other.Base
	d.PerRequest += perRequest * other.PerRequest
	d.varianceThere += base * base * other.varianceThere
	d.varianceSlope += perRequest * perRequest * other.varianceSlope
	d.factor = max(d.factor, other.factor)
	return d
}

// Cores is the CPU time per second at a rate.
func (d *Demand) Cores(rate float64) Interval {
	value, half := d.Base+d.PerRequest*rate, d.half(rate)
	high := value + half
	return Interval{max(value, 0), max(value-half, 0), &high}
}

// Utilisation is the CPU time at a rate over what there is of it, in cores. From the greatest rate that there was on to the
// one at which all is used up, what is taken falls from the line to that of a resource that is always busy, or, of the CPUs
// of a host, as polling decays.
func (d *Demand) Utilisation(rate, parallel float64) Interval {
	u := d.Cores(rate)
	if d.busy == nil || rate <= d.Greatest {
		return u.Over(parallel)
	}
	busy := d.busy.Cores(rate)
	if d.shared {
		polls := max(d.Cores(d.Greatest).Value-d.busy.Cores(d.Greatest).Value, 0)
		polls *= rate / d.Greatest * math.Exp(-d.decay*(rate-d.Greatest))
		u.Value = min(busy.Value+polls, *u.High)
		u.Low = min(u.Low, busy.Low)
		return u.Over(parallel)
	}
	full, ok := d.busy.Rate(parallel)
	share := 1.0 // of the way
	if ok && full.Value > rate {
		share = (rate - d.Greatest) / (full.Value - d.Greatest)
	}
	u.Value -= share * (u.Value - busy.Value)
	u.Low = min(u.Low, busy.Low)
	return u.Over(parallel)
}

// half is half of the interval of the line at a rate.
func (d *Demand) half(rate float64) float64 {
	return d.factor * math.Sqrt(d.varianceThere+d.varianceSlope*(rate-d.mean)*(rate-d.mean))
}

// Rate is at which rate so many cores are taken: where the line, and the bounds beside it, get there (Fieller's
// interval). ok is false where the line does not rise, or what does not depend on requests takes all.
func (d *Demand) Rate(cores float64) (rate Interval, ok bool) {
	if d.PerRequest <= 0 || cores <= d.Base {
		return Interval{}, false
	}
	rate.Value = (cores - d.Base) / d.PerRequest
	// (cores - c - D x)² = t² (v₀ + v₁ x²), where x is the rate less the mean, and c what is taken there.
	left := cores - d.Base - d.PerRequest*d.mean
	t := d.factor * d.factor
	a := d.PerRequest*d.PerRequest - t*d.varianceSlope
	b := -2 * left * d.PerRequest
	if a <= 0 {
		// The slope may be as good as none: there is no upper bound. The lower one is where the upper line gets there.
		rate.Low = d.lower(cores)
		return rate, true
	}
	root := math.Sqrt(4 * t * (d.varianceThere*a + d.varianceSlope*left*left)) // b² - 4ac, without a difference of like numbers
	low, high := (-b-root)/(2*a)+d.mean, (-b+root)/(2*a)+d.mean
	rate.Low, rate.High = max(low, 0), &high
	return rate, true
}

// lower is the least rate at which the upper bound of the line reaches so many cores, by halving.
func (d *Demand) lower(cores float64) float64 {
	low, high := 0.0, (cores-d.Base)/d.PerRequest
	for range 60 {
		if middle := (low + high) / 2; d.Base+d.PerRequest*middle+d.half(middle) < cores {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}
