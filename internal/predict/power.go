package predict

import (
	"errors"
	"maps"
	"slices"
)

// HostPower is the power of a host in a scenario, where a meter tells it: a line over the CPU time that it gives.
type HostPower struct {
	Host string `json:"host"`
	// IdleWatts is what it takes without CPU time, by the line, and WattsPerCore what a used core takes besides.
	IdleWatts    *float64 `json:"idle_watts,omitempty"`
	WattsPerCore *float64 `json:"watts_per_core,omitempty"`
	// Before is at the mean rate as it is, Watts in the scenario; it is 0 of a host that is down.
	Before *Interval `json:"before_watts,omitempty"`
	Watts  *Interval `json:"watts,omitempty"`
	// Unknown is why the others are not known.
	Unknown string `json:"unknown,omitempty"`
}

// Reasons for which the power of a host is not known.
var (
	errNoMeter     = errors.New("no meter tells its power")
	errFewPowers   = errors.New("there are too few stretches of time in which a meter told its power")
	errSteadyPower = errors.New("its CPU time hardly changed, so that it is not known what of its power depends on it")
	errOtherPower  = errors.New("its power was no more where its CPUs gave more, so that it depends on something else")
	errNoCores     = errors.New("it is not known how much CPU time it gives then")
)

// addPower adds what hosts took in a stretch of time in which their CPUs gave so much; watts is by host.
func (h *History) addPower(cores, watts map[string]float64) {
	if h.power == nil {
		h.power = map[string][]Observation{}
	}
	for host, w := range watts {
		if used, ok := cores[host]; ok {
			h.power[host] = append(h.power[host], Observation{Rate: used, Cores: w})
		}
	}
}

// predictPower tells the power of all hosts, and what a request at the entries takes of it, where all are known.
func (h *History) predictPower(p *Prediction, s *Scenario) {
	of := map[string]*Resource{}
	for i := range p.Resources {
		if r := &p.Resources[i]; r.isHost() {
			of[r.Host] = r
		}
	}
	var before, then Interval
	var highBefore, highThen float64
	before.High, then.High = &highBefore, &highThen
	all := len(h.cores) > 0
	p.Power = []HostPower{}
	for _, host := range slices.Sorted(maps.Keys(h.cores)) {
		power := h.powerOf(host, of[host], p, slices.Contains(s.Down, host))
		p.Power = append(p.Power, power)
		if power.Before == nil || power.Watts == nil {
			all = false
			continue
		}
		before.add(power.Before)
		then.add(power.Watts)
	}
	if !all {
		return
	}
	p.BeforeWatts, p.Watts = &before, &then
	if p.Rate > 0 && p.MeanRate > 0 {
		j, was := then.Over(p.Rate), before.Over(p.MeanRate)
		p.JoulesPerRequest, p.BeforeJoulesPerRequest = &j, &was
	}
}

// add adds another interval. That all are at their bounds at once is rarer than that one is: the sum is the wider for it.
func (i *Interval) add(other *Interval) {
	i.Value += other.Value
	i.Low += other.Low
	*i.High += *other.High
}

// powerOf is that of one host, whose CPUs are a resource, if requests reach it.
func (h *History) powerOf(host string, cpus *Resource, p *Prediction, down bool) HostPower {
	power := HostPower{Host: host}
	observed := h.power[host]
	line, err := FitDemand(observed)
	switch {
	case len(observed) == 0:
		err = errNoMeter
	case errors.Is(err, ErrFew):
		err = errFewPowers
	case errors.Is(err, ErrSteady):
		err = errSteadyPower
	case err == nil && line.PerRequest <= 0:
		err = errOtherPower
	case err == nil && !down && (cpus == nil || cpus.demand == nil || cpus.then == nil):
		err = errNoCores
	}
	if err != nil {
		power.Unknown = err.Error()
		return power
	}
	power.IdleWatts, power.WattsPerCore = &line.Base, &line.PerRequest
	at := func(cores Interval) *Interval {
		most := h.cores[host]
		low, value, high := line.Cores(min(cores.Low, most)), line.Cores(min(cores.Value, most)), line.Cores(min(*cores.High, most))
		return &Interval{value.Value, min(low.Low, value.Low), new(max(*high.High, *value.High))}
	}
	if down {
		power.Before, power.Watts = at(h.meanUse(host)), &Interval{High: new(float64)}
		return power
	}
	power.Before, power.Watts = at(cpus.demand.Cores(p.MeanRate)), at(cpus.then.Cores(p.Rate))
	return power
}

// meanUse is the mean CPU time that a host gave.
func (h *History) meanUse(host string) (i Interval) {
	for _, o := range h.power[host] {
		i.Value += o.Rate / float64(len(h.power[host]))
	}
	return Interval{i.Value, i.Value, &i.Value}
}
