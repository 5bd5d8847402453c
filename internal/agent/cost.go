package agent

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"outsight/internal/model"
)

const (
	// costWindow is how long the kernel's statistics of programs are on for a measurement: they cost
	// about 40 ns for each run of any program on the host.
	costWindow = 50 * time.Millisecond
	// costEvery is how often that is while there is no budget to keep; with one it is once a second.
	costEvery, budgetEvery = 20 * time.Second, time.Second
)

// programMeter measures what the kernel programs cost, for a moment at a time, and takes what it
// finds for all of the time since.
type programMeter struct {
	programs Programs
	enable   func() (io.Closer, error)
	every    time.Duration

	mu sync.Mutex
	// shares are those of the last measurement, by program: CPU time over time.
	shares map[string]float64
	totals map[string]programTotal
	// runNS is how long a run took when it was last measured, and counted how often programs had run by then, of those
	// that count it themselves. Few of the moments of a measurement may be among those at which they are attached.
	runNS   map[string]float64
	counted map[string]uint64
	// number of measurements so far, what the kernel told of each program at the end of the last one, and when that was.
	number   uint64
	told     []model.ProgramCost
	measured time.Time
	err      error
}

type programTotal struct{ runs, ns float64 }

// run measures until ctx ends: at once, and then each time at another moment of the interval, so that what happens at
// every whole second is not always missed or always met.
func (m *programMeter) run(ctx context.Context) {
	m.measure()
	for {
		early := time.Duration(rand.Int64N(int64(m.every / 4)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.every - early):
		}
		m.measure()
		select {
		case <-ctx.Done():
			return
		case <-time.After(early):
		}
	}
}

func (m *programMeter) measure() {
	statistics, err := m.enable()
	if err != nil {
		m.mu.Lock()
		m.err = err
		m.mu.Unlock()
		return
	}
	before, began := costsByName(m.programs.ProgramCosts()), time.Now()
	time.Sleep(costWindow)
	told := m.programs.ProgramCosts()
	after, ended := costsByName(told), time.Now()
	err = statistics.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	since := ended.Sub(began) // what was before the first measurement is not known
	if !m.measured.IsZero() {
		since = ended.Sub(m.measured)
	}
	m.take(before, after, ended.Sub(began), since)
	m.told, m.measured = told, ended
	m.number++
}

// take adds what programs did in a window to the totals, for the time since the last one.
func (m *programMeter) take(before, after map[string]model.ProgramCost, window, since time.Duration) {
	m.shares = make(map[string]float64, len(after))
	if m.totals == nil {
		m.totals = make(map[string]programTotal)
		m.runNS, m.counted = make(map[string]float64), make(map[string]uint64)
	}
	for name, now := range after {
		was := before[name]
		if now.Runs < was.Runs || now.RunTimeNS < was.RunTimeNS {
			continue // it was loaded again
		}
		runs, ns := float64(now.Runs-was.Runs), float64(now.RunTimeNS-was.RunTimeNS)
		scale := float64(since) / float64(window)
		if now.Counted > 0 {
			if runs > 0 {
				m.runNS[name] = ns / runs
			}
			runs, scale = float64(now.Counted-m.counted[name]), 1
			ns = runs * m.runNS[name]
			m.counted[name] = now.Counted
		}
		m.shares[name] = scale * ns / float64(since)
		t := m.totals[name]
		t.runs += scale * runs
		t.ns += scale * ns
		m.totals[name] = t
	}
}

// costsByName sums programs of one name.
func costsByName(all []model.ProgramCost) map[string]model.ProgramCost {
	costs := make(map[string]model.ProgramCost)
	for _, c := range all {
		sum := costs[c.Name]
		sum.Runs += c.Runs
		sum.RunTimeNS += c.RunTimeNS
		sum.Counted += c.Counted
		costs[c.Name] = sum
	}
	return costs
}

// estimate replaces what the kernel counted while its statistics were on by what was measured.
func (m *programMeter) estimate(costs []model.ProgramCost) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range costs {
		t := m.totals[costs[i].Name]
		costs[i].Runs, costs[i].RunTimeNS = uint64(t.runs), uint64(t.ns)
	}
	return m.err
}

// newest is what the kernel told of each program at the end of the last measurement, and the number of that.
func (m *programMeter) newest() (told []model.ProgramCost, number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.told, m.number
}

// last is the last measurement, and its number.
func (m *programMeter) last() (shares map[string]float64, number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shares, m.number
}
