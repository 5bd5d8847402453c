package predict

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// over is what was used in stretches of 15 minutes over so many days: amount of a day, and noise of 1.
func over(days float64, seed uint64, amount func(day float64) float64) (all []Used) {
	r := rand.New(rand.NewPCG(seed, 3))
	begin := time.Date(2026, 3, 2, 5, 0, 0, 0, time.UTC)
	for i := range int(days * 96) {
		at := begin.Add(time.Duration(i) * 15 * time.Minute)
		all = append(all, Used{at, amount(float64(i)/96) + r.NormFloat64()})
	}
	return all
}

func wave(day float64) float64 { return 20 * math.Sin(2*math.Pi*day) }

// TestCourses: a leak is told from a daily wave, from what filled up and stays, and from noise.
func TestCourses(t *testing.T) {
	for _, c := range []struct {
		name   string
		days   float64
		amount func(day float64) float64
		want   CourseKind
		perDay float64
	}{
		{"a leak", 1, func(d float64) float64 { return 100 + 30*d }, Grows, 30},
		{"a leak under a daily wave", 7, func(d float64) float64 { return 100 + 5*d + wave(d) }, GrowsInWaves, 5},
		{"a daily wave", 7, func(d float64) float64 { return 100 + wave(d) }, DailyWave, 0},
		{"noise", 3, func(float64) float64 { return 100 }, Steady, 0},
		{"a cache that filled up", 3, func(d float64) float64 { return 100 + 60*min(d, 1) }, Steady, math.NaN()},
		{"what falls", 1, func(d float64) float64 { return 100 - 30*d }, Falls, -30},
	} {
		of := 0
		for seed := range uint64(20) {
			course, err := FitCourse(over(c.days, seed, c.amount))
			if err != nil {
				t.Fatal(err)
			}
			if course.Kind == c.want {
				of++
			}
			if p := course.PerDay; !math.IsNaN(c.perDay) && math.Abs(p.Value-c.perDay) > 1.5 {
				t.Errorf("%s, seed %d: grows by %+v a day, want %v", c.name, seed, p, c.perDay)
			}
		}
		if of < 18 { // an interval of nine chances of ten
			t.Errorf("%s: %d of 20 are %q", c.name, of, c.want)
		}
	}
}

// TestRunOut: when a limit is reached is within its bounds in nine of ten cases, and what only goes up and down each day
// does not reach one.
func TestRunOut(t *testing.T) {
	within := 0
	for seed := range uint64(50) {
		c, err := FitCourse(over(3, seed, func(d float64) float64 { return 100 + 10*d + wave(d) }))
		if err != nil {
			t.Fatal(err)
		}
		// 100 + 10 d + 20 sin(2πd) gets to 170 first in the wave of the sixth day.
		truth := 5.0
		for 100+10*truth+wave(truth) < 170 {
			truth += 1e-4
		}
		at := c.begin.Add(time.Duration(truth * float64(day)))
		r := c.RunOut(170, 30*day)
		if r == nil || r.At == nil || r.Latest == nil {
			t.Fatalf("seed %d: %+v, %+v", seed, c, r)
		}
		if !r.Earliest.After(at.Add(15*time.Minute)) && !r.Latest.Before(at.Add(-15*time.Minute)) {
			within++
		}
	}
	if within < 45 {
		t.Errorf("%d of 50 within the bounds", within)
	}
	c, err := FitCourse(over(7, 1, func(d float64) float64 { return 100 + wave(d) }))
	if err != nil {
		t.Fatal(err)
	}
	if r := c.RunOut(130, 30*day); r != nil {
		t.Errorf("a wave gets to the limit: %+v", r)
	}
	if r := c.RunOut(1e6, 30*day); r != nil {
		t.Errorf("a limit far away is reached: %+v", r)
	}
}

func TestShortCourse(t *testing.T) {
	all := over(1, 1, func(float64) float64 { return 1 })
	if _, err := FitCourse(all[:minCourse-1]); !errors.Is(err, ErrShort) {
		t.Errorf("got %v", err)
	}
	same := make([]Used, 20)
	if _, err := FitCourse(same); !errors.Is(err, ErrShort) {
		t.Errorf("stretches at one time: %v", err)
	}
	flat := over(1, 1, func(float64) float64 { return 0 })
	for i := range flat {
		flat[i].Amount = 7 // no noise at all
	}
	if c, err := FitCourse(flat); err != nil || c.Kind != Steady || c.RunOut(8, day) != nil {
		t.Errorf("what never changes: %+v, %v", c, err)
	}
}
