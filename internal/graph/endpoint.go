package graph

import (
	"cmp"
	"slices"

	"outsight/internal/model"
)

// MaxEndpoints is how many endpoints an edge lists, the most asked for first.
const MaxEndpoints = 20

// Endpoint is one thing that was asked for on an edge, whatever the reply was.
type Endpoint struct {
	// Protocol as in model.Protocol; Name is method and route, command or statement.
	Protocol string `json:"protocol"`
	Name     string `json:"name"`
	// Requests is an exact count; the rate is over the covered time.
	Requests          float64  `json:"requests"`
	RequestsPerSecond *float64 `json:"requests_per_second,omitempty"`
	// Statuses are the counts by status of the reply, "" where it did not say.
	Statuses map[string]float64 `json:"statuses"`
	// ErrorShare is the share of requests that the server failed to do.
	ErrorShare      float64  `json:"error_share"`
	ErrorsPerSecond *float64 `json:"errors_per_second,omitempty"`
	// Quantiles and mean of the duration, nil where every reply was a transfer or was held.
	P50  *Seconds `json:"p50,omitempty"`
	P99  *Seconds `json:"p99,omitempty"`
	Mean *Seconds `json:"mean,omitempty"`

	latency model.FloatHistogram
	failed  float64
	// durations and rates are what the others point to.
	durations [3]Seconds
	rates     [2]float64
}

// endpointChange is what happened to an endpoint in the window.
type endpointChange struct {
	key      model.EndpointKey
	requests float64
	latency  *model.FloatHistogram
}

type endpointName struct{ protocol, name string }

// endpoints adds up what was asked for on several edges.
type endpoints map[endpointName]*Endpoint

// add adds changes, whose histograms it may keep.
func (all endpoints) add(changes []endpointChange) endpoints {
	for i := range changes {
		c := &changes[i]
		if c.requests == 0 {
			continue
		}
		if all == nil {
			all = endpoints{}
		}
		name := endpointName{string(c.key.Protocol), c.key.Name}
		e := all[name]
		if e == nil {
			e = &Endpoint{Protocol: name.protocol, Name: name.name, Statuses: map[string]float64{}}
			all[name] = e
		}
		e.Requests += c.requests
		e.Statuses[c.key.Status] += c.requests
		if c.key.Failed() {
			e.failed += c.requests
		}
		if e.latency.Count == 0 && c.latency != nil {
			e.latency = *c.latency
		} else {
			e.latency.Merge(c.latency)
		}
	}
	return all
}

// top is the most asked for, how many more there are, and their sum (nil for none).
func (all endpoints) top(n int, seconds float64) ([]*Endpoint, int, *Endpoint) {
	list := all.sorted()
	omitted := max(0, len(list)-n)
	var others *Endpoint
	for _, e := range list[len(list)-omitted:] {
		if others == nil {
			others = &Endpoint{Name: model.OtherEndpoint, Statuses: map[string]float64{}}
		}
		others.merge(e)
	}
	list = list[:len(list)-omitted]
	for _, e := range list {
		e.finish(seconds)
	}
	return list, omitted, others.finish(seconds)
}

// sorted has those with the most requests first: a sum in this order is the same each time.
func (all endpoints) sorted() []*Endpoint {
	list := make([]*Endpoint, 0, len(all))
	for _, e := range all {
		list = append(list, e)
	}
	slices.SortFunc(list, func(x, y *Endpoint) int {
		return cmp.Or(cmp.Compare(y.Requests, x.Requests), cmp.Compare(x.Protocol, y.Protocol), cmp.Compare(x.Name, y.Name))
	})
	return list
}

func (e *Endpoint) merge(o *Endpoint) {
	e.Requests += o.Requests
	e.failed += o.failed
	for status, n := range o.Statuses {
		e.Statuses[status] += n
	}
	e.latency.Merge(&o.latency)
}

// finish computes the rates and quantiles from the counts.
func (e *Endpoint) finish(seconds float64) *Endpoint {
	if e == nil {
		return nil
	}
	if seconds > 0 {
		e.rates = [...]float64{e.Requests / seconds, e.failed / seconds}
		e.RequestsPerSecond, e.ErrorsPerSecond = &e.rates[0], &e.rates[1]
	}
	e.ErrorShare = e.failed / e.Requests
	durations := quantiles(&e.latency, e.durations[:], []**Seconds{&e.P50, &e.P99}, 0.5, 0.99)
	if e.latency.Count > 0 {
		durations[0] = Seconds(e.latency.Sum / e.latency.Count)
		e.Mean = &durations[0]
	}
	return e
}
