package predict

import (
	"errors"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"
)

// Used is how much of a resource was in use in a stretch of time.
type Used struct {
	At     time.Time
	Amount float64
}

// Course is how the use of a resource goes on: a line over time, and a pattern that comes again each day where there were
// days enough to see one. What grows in the line is used up some day; what grows in the pattern alone is not.
type Course struct {
	// Kind says which of them there is.
	Kind CourseKind `json:"kind"`
	// PerDay is by how much the line grows in a day.
	PerDay Interval `json:"per_day"`
	// Daily is how far the pattern goes up and down, from its lowest to its highest.
	Daily float64 `json:"daily,omitempty"`
	// Observations is of how many stretches it is, in Days.
	Observations int     `json:"observations"`
	Days         float64 `json:"days"`

	begin, end time.Time
	// terms are those of row(): 1, days, and the sines and cosines of the day; scale is their covariance but for variance.
	terms            []float64
	scale            *mat.Dense
	variance, factor float64
	harmonics        int
	last             float64 // what the last stretches were beside the course: it goes on from there
}

// CourseKind is how a resource's use goes on.
type CourseKind string

// The kinds of courses. One that grew and no longer does is steady.
const (
	Steady       CourseKind = "steady"
	Grows        CourseKind = "grows"
	Falls        CourseKind = "falls"
	DailyWave    CourseKind = "daily"
	GrowsInWaves CourseKind = "daily, grows"
)

// Bounds of courses.
const (
	minCourse = 12
	// minDays is from how many days on a daily pattern is looked for, and dayHarmonics how many sines and cosines it has.
	minDays, dayHarmonics = 2, 3
	// alikeMost is how alike stretches that follow each other may be: beyond it, there is one observation.
	alikeMost = 0.98
	day       = 24 * time.Hour
)

// ErrShort is the error of FitCourse for too few stretches.
var ErrShort = errors.New("it was seen for too short a time")

// FitCourse fits a course to what was used, in the order of time. Stretches far from it weigh less.
func FitCourse(all []Used) (*Course, error) {
	if len(all) < minCourse {
		return nil, ErrShort
	}
	span := all[len(all)-1].At.Sub(all[0].At).Hours() / 24
	plain, err := fitCourse(all, 0)
	if err != nil || span < minDays {
		return plain, err
	}
	waves, err := fitCourse(all, dayHarmonics)
	if err != nil {
		return plain, nil // a pattern cannot be told from the line
	}
	if plain.variance == 0 {
		return plain, nil
	}
	// The Bayesian information criterion says whether the pattern is worth its terms.
	n := float64(len(all))
	if n*math.Log(waves.variance/plain.variance)+2*dayHarmonics*math.Log(n) >= 0 {
		return plain, nil
	}
	return waves, nil
}

func fitCourse(all []Used, harmonics int) (*Course, error) {
	c := &Course{Observations: len(all), begin: all[0].At, end: all[len(all)-1].At, harmonics: harmonics}
	c.Days = c.end.Sub(c.begin).Hours() / 24
	columns := 2 + 2*harmonics
	x, y := mat.NewDense(len(all), columns, nil), mat.NewVecDense(len(all), nil)
	weights, residuals := make([]float64, len(all)), make([]float64, len(all))
	for i := range weights {
		weights[i] = 1
	}
	for range rounds {
		for i, u := range all {
			root := math.Sqrt(weights[i])
			for j, term := range c.row(u.At) {
				x.Set(i, j, root*term)
			}
			y.SetVec(i, root*u.Amount)
		}
		var found mat.VecDense
		if err := found.SolveVec(x, y); err != nil {
			return nil, ErrShort // all stretches are at one time
		}
		c.terms = found.RawVector().Data
		for i, u := range all {
			residuals[i] = u.Amount - c.line(u.At)
		}
		weigh(weights, residuals)
	}
	var normal mat.Dense
	normal.Mul(x.T(), x)
	c.scale = &mat.Dense{}
	if err := c.scale.Inverse(&normal); err != nil {
		return nil, ErrShort
	}
	c.judge(all, residuals)
	return c, nil
}

// row is the terms at a time: 1, days since the middle, and the sines and cosines of the day.
func (c *Course) row(at time.Time) []float64 {
	middle := c.begin.Add(c.end.Sub(c.begin) / 2)
	row := []float64{1, at.Sub(middle).Hours() / 24}
	angle := 2 * math.Pi * float64(at.UnixNano()%int64(day)) / float64(day)
	for k := range c.harmonics {
		sin, cos := math.Sincos(float64(k+1) * angle)
		row = append(row, sin, cos)
	}
	return row
}

func (c *Course) line(at time.Time) (sum float64) {
	for j, term := range c.row(at) {
		sum += c.terms[j] * term
	}
	return sum
}

// judge finds the variance, the growth with its bounds, and the kind. Stretches that follow each other are alike, for
// which they count as fewer.
func (c *Course) judge(all []Used, residuals []float64) {
	var squares, follow float64
	for i, r := range residuals {
		squares += r * r
		if i > 0 {
			follow += r * residuals[i-1]
		}
	}
	n, terms := float64(len(all)), float64(len(c.terms))
	alike := 0.0
	if squares > 0 {
		alike = max(follow/squares, 0)
		alike = min(alike+(1+3*alike)/n, alikeMost)
	}
	fewer := (1 - alike) / (1 + alike)
	freedom := max((n-terms)*fewer, 1)
	c.variance = squares / max(n-terms, 1)
	c.factor = student(freedom)
	c.scale.Scale(1/fewer, c.scale)
	for _, r := range residuals[len(residuals)-3:] {
		c.last += r / 3
	}
	slope := c.terms[1]
	half := c.factor * math.Sqrt(c.variance*c.scale.At(1, 1))
	high := slope + half
	c.PerDay = Interval{slope, slope - half, &high}
	lowest, highest := math.Inf(1), math.Inf(-1)
	for i := range 96 {
		at := c.begin.Add(time.Duration(i) * day / 96)
		v := c.line(at) - slope*c.row(at)[1]
		lowest, highest = min(lowest, v), max(highest, v)
	}
	if c.harmonics > 0 {
		c.Daily = highest - lowest
	}
	grows, falls := c.PerDay.Low > 0 && c.growsStill(all), high < 0
	switch {
	case grows && c.harmonics > 0:
		c.Kind = GrowsInWaves
	case grows:
		c.Kind = Grows
	case c.harmonics > 0:
		c.Kind = DailyWave
	case falls:
		c.Kind = Falls
	default:
		c.Kind = Steady
	}
}

// growsStill is that the last third of the time grew by at least half as much as the line: what filled up and now stays
// (a cache) does not.
func (c *Course) growsStill(all []Used) bool {
	last := all[len(all)*2/3:]
	pattern := func(u Used) float64 { return u.Amount - c.line(u.At) + c.terms[1]*c.row(u.At)[1] }
	// The median of the later half less that of the earlier one: single stretches do not matter.
	half := len(last) / 2
	middle := func(part []Used) (amount, at float64) {
		amounts := make([]float64, len(part))
		for i, u := range part {
			amounts[i] = pattern(u)
			at += c.row(u.At)[1] / float64(len(part))
		}
		slices.Sort(amounts)
		return amounts[len(amounts)/2], at
	}
	earlier, from := middle(last[:half])
	later, to := middle(last[half:])
	return later-earlier >= c.terms[1]*(to-from)/2
}

// RunOut is when a resource is used up.
type RunOut struct {
	// At is when the course gets there, Earliest and Latest when its bounds do. Latest is nil where the upper bound of
	// time is beyond the horizon, and Earliest alone is there where the course itself does not get there.
	At       *time.Time `json:"at,omitempty"`
	Earliest *time.Time `json:"earliest,omitempty"`
	Latest   *time.Time `json:"latest,omitempty"`
}

// RunOut is when the capacity is reached within the horizon after the last stretch; nil where it is not.
func (c *Course) RunOut(capacity float64, horizon time.Duration) *RunOut {
	if c.Kind != Grows && c.Kind != GrowsInWaves {
		return nil
	}
	const steps = 2000
	var r RunOut
	for i := range steps + 1 {
		at := c.end.Add(time.Duration(float64(horizon) * float64(i) / steps))
		value := c.line(at) + c.last
		half := c.half(at)
		for _, bound := range []struct {
			value float64
			into  **time.Time
		}{{value + half, &r.Earliest}, {value, &r.At}, {value - half, &r.Latest}} {
			if *bound.into == nil && bound.value >= capacity {
				*bound.into = &at
			}
		}
	}
	if r.Earliest == nil {
		return nil
	}
	return &r
}

// half is half of the interval of a stretch of time.
func (c *Course) half(at time.Time) float64 {
	row := mat.NewVecDense(len(c.terms), c.row(at))
	return c.factor * math.Sqrt(c.variance*(1+mat.Inner(row, c.scale, row)))
}

// Bounded is something of which there is so much, and how its use goes on.
type Bounded struct {
	Kind BoundedKind `json:"kind"`
	// Node is the container's; empty for a host's.
	Node string `json:"node,omitempty"`
	Name string `json:"name"`
	Host string `json:"host"`
	// By is what requests are limited by; of all others it is empty.
	By string `json:"by,omitempty"`
	// Used is of the last stretch, Capacity the limit.
	Used     float64 `json:"used"`
	Capacity float64 `json:"capacity"`
	// Course is nil where it is not known, because of Unknown.
	Course  *Course `json:"course,omitempty"`
	Unknown string  `json:"unknown,omitempty"`
	// RunsOut is nil where it does not within the horizon, for all that is known.
	RunsOut *RunOut `json:"runs_out,omitempty"`
}

// BoundedKind is what a Bounded is of.
type BoundedKind string

// The kinds: bytes, of a container its working set; cores; threads; files that the process has open that is nearest to its
// limit; bytes of a filesystem of a host, whose Name is where it is mounted; connections that wait at an address, which is in
// Name, to be accepted, of as many as its queue takes; connections of a pool, or requests that a client lets through at a time,
// that are under way; requests per second at all entries.
const (
	Memory      BoundedKind = "memory"
	CPU         BoundedKind = "cpu"
	Threads     BoundedKind = "threads"
	OpenFiles   BoundedKind = "open files"
	FileSystem  BoundedKind = "filesystem"
	AcceptQueue BoundedKind = "accept queue"
	Connections BoundedKind = "connections"
	Requests    BoundedKind = "requests"
	// RequestsAtATime are those that a client lets through.
	RequestsAtATime BoundedKind = "requests at a time"
)

// Fit finds the course of what was used, in the order of time, and when it gets to the capacity within the horizon.
func (b *Bounded) Fit(all []Used, horizon time.Duration) {
	course, err := FitCourse(all)
	if err != nil {
		b.Unknown = err.Error()
		return
	}
	b.Course, b.RunsOut = course, course.RunOut(b.Capacity, horizon)
}

// never is after all times that are told.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// First is when it is used up, or may be.
func (b *Bounded) First() time.Time {
	switch r := b.RunsOut; {
	case r == nil:
		return never
	case r.At != nil:
		return *r.At
	default:
		return *r.Earliest
	}
}
