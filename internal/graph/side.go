package graph

import (
	"encoding/json"

	"outsight/internal/model"
)

// Side is what one end of an edge counted in the window. Its JSON are the numbers that the registry of metrics has of
// edges.
type Side struct {
	// values are what its counters gained and its levels are.
	values
	// Open is the number of connections at the end of the window.
	Open float64
	// Rates are over the covered time, nil where that is 0.
	TransactionsPerSecond, RequestBytesPerSecond, ResponseBytesPerSecond *float64
	// Quantiles and mean of the duration of a transaction; nil without transactions.
	P50, P75, P90, P99, Mean *Seconds
	// FirstByte is the time from a request's first byte to its reply's.
	FirstByteP50, FirstByteP99 *Seconds
	// RTT is the kernel's smoothed round-trip time, once per transaction. RTTMin is the least
	// since the agent's start; Jitter is the mean of the kernel's deviation of it.
	RTTP50, RTTP99, RTTMin, Jitter *Seconds
	// Duration is of connections that ended in the window.
	DurationP50, DurationP99 *Seconds
	// NetworkDelay is of packets on their way to this end, NetworkDelaySamples how many were timed; NetworkJitter is the
	// mean difference from one to the next.
	NetworkDelayP50, NetworkDelayP99, NetworkJitter *Seconds
	NetworkDelaySamples                             *float64
	// NetworkUnread is for how long a request lies in the server's socket until it is read, on average.
	NetworkUnread *Seconds
	// Completeness is model.Completeness of the side, nil where nothing was received.
	Completeness *float64

	latency model.FloatHistogram
	most    mostSeen
	// firstByteMean and delayMean are in seconds, 0 where there is none.
	firstByteMean, delayMean float64
	received                 float64
	endpoints                endpoints
	// durations and rates are what the others point to.
	durations [17]Seconds
	rates     [5]float64
}

// Of is what a counter gained in the window, or what a level is at its end.
func (s *Side) Of(f Field) float64 { return s.of(f) }

// Failures are all attempts to connect that failed.
func (s *Side) Failures() (n float64) {
	for _, f := range failures {
		n += s.of(f)
	}
	return n
}

// sideTimes are the histograms of a side of which only what follows from them is kept.
type sideTimes struct{ firstByte, rtt, duration, delay model.FloatHistogram }

// finish computes the rates and quantiles from the counts.
func (s *Side) finish(seconds float64, times *sideTimes) *Side {
	if s == nil {
		return nil
	}
	numbers, durations := s.rates[:], s.durations[:]
	number := func(into **float64, v float64) {
		numbers[0] = v
		*into, numbers = &numbers[0], numbers[1:]
	}
	duration := func(into **Seconds, v float64) {
		durations[0] = Seconds(v)
		*into, durations = &durations[0], durations[1:]
	}
	if seconds > 0 {
		number(&s.TransactionsPerSecond, s.Of(Transactions)/seconds)
		number(&s.RequestBytesPerSecond, s.Of(RequestBytes)/seconds)
		number(&s.ResponseBytesPerSecond, s.Of(ResponseBytes)/seconds)
	}
	durations = quantiles(&s.latency, durations, []**Seconds{&s.P50, &s.P75, &s.P90, &s.P99}, 0.5, 0.75, 0.9, 0.99)
	if s.latency.Count > 0 {
		duration(&s.Mean, s.latency.Sum/s.latency.Count)
	}
	durations = quantiles(&times.firstByte, durations, []**Seconds{&s.FirstByteP50, &s.FirstByteP99}, 0.5, 0.99)
	durations = quantiles(&times.rtt, durations, []**Seconds{&s.RTTP50, &s.RTTP99}, 0.5, 0.99)
	durations = quantiles(&times.duration, durations, []**Seconds{&s.DurationP50, &s.DurationP99}, 0.5, 0.99)
	durations = quantiles(&times.delay, durations, []**Seconds{&s.NetworkDelayP50, &s.NetworkDelayP99}, 0.5, 0.99)
	if times.firstByte.Count > 0 {
		s.firstByteMean = times.firstByte.Sum / times.firstByte.Count
	}
	if times.delay.Count > 0 {
		s.delayMean = times.delay.Sum / times.delay.Count
		number(&s.NetworkDelaySamples, times.delay.Count)
		duration(&s.NetworkJitter, s.Of(DelayVariation)/times.delay.Count)
	}
	if n := s.Of(unreadRequests); n > 0 {
		duration(&s.NetworkUnread, s.Of(unreadSeconds)/n)
	}
	if least := s.Of(RTTMin); least > 0 {
		duration(&s.RTTMin, least)
	}
	if times.rtt.Count > 0 {
		duration(&s.Jitter, s.Of(RTTDeviation)/times.rtt.Count)
	}
	if s.received+s.Of(UnseenBytes) > 0 {
		number(&s.Completeness, model.Completeness(s.received, s.Of(UnseenBytes), s.Of(Transactions), s.Of(LostTransactions)))
	}
	return s
}

func quantile(h *model.FloatHistogram, q float64) (one *Seconds) {
	quantiles(h, make([]Seconds, 1), []**Seconds{&one}, q)
	return one
}

// quantiles are those of h at the shares, which are in ascending order, in a part of room, of which what is left is
// returned; they stay nil where h is empty.
func quantiles(h *model.FloatHistogram, room []Seconds, into []**Seconds, shares ...float64) (rest []Seconds) {
	if h == nil || h.Count <= 0 {
		return room
	}
	var values [4]float64
	h.Quantiles(values[:], shares...)
	for i, v := range values[:len(shares)] {
		room[i] = Seconds(v)
		*into[i] = &room[i]
	}
	return room[len(shares):]
}

// sideNumber is a number of Side: the sum of fields, or else where its value is.
type sideNumber struct {
	model.Shown
	fields []Field
	mask   uint64 // a bit for each of fields
	text   string // its key in JSON, behind a comma
	time   func(*Side) **Seconds
	number func(*Side) **float64
	open   bool
}

var sideNumbers = func() (all []sideNumber) {
	times := map[string]func(*Side) **Seconds{
		"p50": func(s *Side) **Seconds { return &s.P50 }, "p75": func(s *Side) **Seconds { return &s.P75 },
		"p90": func(s *Side) **Seconds { return &s.P90 }, "p99": func(s *Side) **Seconds { return &s.P99 },
		"mean":           func(s *Side) **Seconds { return &s.Mean },
		"first_byte_p50": func(s *Side) **Seconds { return &s.FirstByteP50 },
		"first_byte_p99": func(s *Side) **Seconds { return &s.FirstByteP99 },
		"rtt_p50":        func(s *Side) **Seconds { return &s.RTTP50 },
		"rtt_p99":        func(s *Side) **Seconds { return &s.RTTP99 },
		"rtt_min":        func(s *Side) **Seconds { return &s.RTTMin }, "jitter": func(s *Side) **Seconds { return &s.Jitter },
		"duration_p50": func(s *Side) **Seconds { return &s.DurationP50 },
		"duration_p99": func(s *Side) **Seconds { return &s.DurationP99 },

		"network_delay_p50": func(s *Side) **Seconds { return &s.NetworkDelayP50 },
		"network_delay_p99": func(s *Side) **Seconds { return &s.NetworkDelayP99 },
		"network_jitter":    func(s *Side) **Seconds { return &s.NetworkJitter },

		"network_unread_mean": func(s *Side) **Seconds { return &s.NetworkUnread },
	}
	numbers := map[string]func(*Side) **float64{
		"transactions_per_second":   func(s *Side) **float64 { return &s.TransactionsPerSecond },
		"request_bytes_per_second":  func(s *Side) **float64 { return &s.RequestBytesPerSecond },
		"response_bytes_per_second": func(s *Side) **float64 { return &s.ResponseBytesPerSecond },
		"completeness":              func(s *Side) **float64 { return &s.Completeness },
		"network_delay_samples":     func(s *Side) **float64 { return &s.NetworkDelaySamples },
	}
	for _, n := range model.Numbers(model.EdgeRows, model.SideGroups) {
		number := sideNumber{Shown: n, text: `,"` + n.Key + `":`, time: times[n.Key], number: numbers[n.Key],
			open: n.Key == "connections_open"}
		if number.time == nil && number.number == nil && !number.open {
			switch n.Formula {
			case model.Gain, model.Level:
				number.fields = edgeTable.fields(n.Of)
			case model.PeakLevel:
				number.fields = []Field{edgeTable.field(n.Of[0] + ".highest")}
			default:
				panic("BUG: nothing computes " + n.Key + " of an edge")
			}
			for _, f := range number.fields {
				number.mask |= 1 << f.index()
			}
		}
		all = append(all, number)
	}
	return all
}()

// of is the number of a side; ok is false where the JSON does not have it.
func (n *sideNumber) of(s *Side) (v float64, ok bool) {
	switch {
	case n.time != nil:
		if at := *n.time(s); at != nil {
			return float64(*at), true
		}
		return 0, false
	case n.number != nil:
		if at := *n.number(s); at != nil {
			return *at, true
		}
		return 0, false
	case n.open:
		return s.Open, true
	}
	for _, f := range n.fields {
		v += s.of(f)
	}
	return v, v != 0 || n.Always
}

// Each calls f for each number that there is, as JSON, in the order of the registry.
func (s *Side) Each(f func(n *model.Shown, value json.RawMessage)) error {
	for i := range sideNumbers {
		if v, ok := sideNumbers[i].of(s); ok {
			if err := eachNumber(&sideNumbers[i].Shown, v, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// MarshalJSON writes the numbers that there are, by their keys.
func (s *Side) MarshalJSON() ([]byte, error) { return s.appendJSON(make([]byte, 0, 1024)) }

func (s *Side) appendJSON(b []byte) (_ []byte, err error) {
	b = append(b, '{')
	some := uint64(0) // a bit for each field that is not 0, as most are
	for i, v := range s.numbers {
		if v != 0 {
			some |= 1 << i
		}
	}
	for i := range sideNumbers {
		n := &sideNumbers[i]
		if n.mask&some == 0 && n.mask != 0 && !n.Always {
			continue
		}
		if v, ok := n.of(s); ok && err == nil {
			key := n.text
			if b[len(b)-1] == '{' {
				key = key[1:]
			}
			b, err = appendValue(append(b, key...), n.Key, n.Unit, v)
		}
	}
	return append(b, '}'), err
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Side) UnmarshalJSON(b []byte) error {
	var values map[string]Seconds
	if err := json.Unmarshal(b, &values); err != nil {
		return err
	}
	*s = Side{}
	for i := len(sideNumbers) - 1; i >= 0; i-- { // a sum after those that are parts of it
		n := &sideNumbers[i]
		v, ok := values[n.Key]
		switch {
		case !ok:
		case n.time != nil:
			*n.time(s) = &v
		case n.number != nil:
			*n.number(s) = (*float64)(&v)
		case n.open:
			s.Open = float64(v)
		default:
			rest := float64(v)
			for _, f := range n.fields {
				rest -= s.of(f)
			}
			s.set(n.fields[len(n.fields)-1], rest)
		}
	}
	return nil
}
