package probe

import (
	"cmp"
	"net/netip"
	"time"

	"outsight/internal/model"
)

// Result of a measurement. What was not measured is nil, and Missing says why.
type Result struct {
	From    End       `json:"from"`
	To      End       `json:"to"`
	Begun   time.Time `json:"begun"`
	Seconds float64   `json:"seconds"`
	// STAMP is where a reflector answers, Echo and Connect where none does.
	STAMP   *Session `json:"stamp,omitempty"`
	Echo    *Echo    `json:"echo,omitempty"`
	Connect *Connect `json:"connect,omitempty"`
	Paths   []Path   `json:"paths,omitempty"`
	// There and Back are capacities, measured where it is asked for.
	There   *Capacity `json:"capacity_there,omitempty"`
	Back    *Capacity `json:"capacity_back,omitempty"`
	Missing []Missing `json:"not_measured,omitempty"`
}

// Measured reports whether anything came back from the other place.
func (r *Result) Measured() bool {
	return r.STAMP != nil && r.STAMP.RoundTrip != nil || r.Echo != nil && r.Echo.RoundTrip != nil ||
		r.Connect != nil && r.Connect.RoundTrip != nil
}

// Capacities are those that were measured, for whoever keeps them.
func (r *Result) Capacities() (all []model.Capacity) {
	add := func(c *Capacity, from, to End) {
		if c == nil || !(c.BitsPerSecond > 0) {
			return
		}
		all = append(all, model.Capacity{From: cmp.Or(from.ID, model.HostContainerID), To: cmp.Or(to.ID, model.HostContainerID),
			FromName: from.Name, ToName: to.Name, BytesPerSecond: c.BitsPerSecond / 8, Measured: c.Measured})
	}
	add(r.There, r.From, r.To)
	add(r.Back, r.To, r.From)
	return all
}

// Missing is something that could not be measured.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

func (r *Result) missing(what string, err error) {
	r.Missing = append(r.Missing, Missing{what, err.Error()})
}

// End of a measurement.
type End struct {
	Name    string     `json:"name"`
	ID      string     `json:"id,omitempty"`
	Address netip.Addr `json:"address"`
}

// Clocks say how the times of the two ends compare.
type Clocks string

// The ways.
const (
	// OneClock: both ends are on this host; one-way delays are exact.
	OneClock Clocks = "one"
	// KeptClocks: both are kept by a time daemon or a PTP device; one-way delays are off by the bound at most.
	KeptClocks Clocks = "kept"
	// FreeClocks: nothing is known; one-way delays are told above the least of their direction.
	FreeClocks Clocks = "free"
)

// Session is what STAMP measured.
type Session struct {
	Reflector netip.AddrPort `json:"reflector"`
	// There is from the first place to the second.
	There Way `json:"there"`
	Back  Way `json:"back"`
	// LostSomewhere packets are among the last that were sent, of which nobody knows in which direction they were lost.
	LostSomewhere uint64 `json:"lost_somewhere"`
	// RoundTrip is without the time in the reflector; nil where nothing came back.
	RoundTrip *Delays `json:"round_trip,omitempty"`
	Clocks    Clocks  `json:"clocks"`
	// ClockError bounds the error of a one-way delay with KeptClocks; with FreeClocks it is half the fastest round trip, by
	// which ClockOffset, what the reflector's clock is ahead, may be off. Both in seconds.
	ClockError  float64 `json:"clock_error_seconds"`
	ClockOffset float64 `json:"clock_offset_seconds"`
	// ClockHere and ClockThere are the worst that was known of each clock meanwhile; nil with OneClock.
	ClockHere  *ClockBound `json:"clock_here,omitempty"`
	ClockThere *ClockBound `json:"clock_there,omitempty"`
	// Service is nil where no class of service was asked for.
	Service *Service `json:"class_of_service,omitempty"`
	// KernelTimes is the share of the packets that count in the delays: those of which all times are the kernel's, or all
	// where it took none.
	KernelTimes float64 `json:"kernel_times_share"`
	// Malformed, Forged and Unexpected packets came, and were no answers.
	Malformed  uint64 `json:"malformed"`
	Forged     uint64 `json:"forged"`
	Unexpected uint64 `json:"unexpected"`
}

// Lost packets in both directions.
func (s *Session) Lost() uint64 { return s.There.Lost + s.Back.Lost + s.LostSomewhere }

// Way is one direction. Packets of the way back are replies.
type Way struct {
	Sent       uint64 `json:"sent"`
	Received   uint64 `json:"received"`
	Lost       uint64 `json:"lost"`
	Duplicates uint64 `json:"duplicates"`
	// Reordered packets came after one that was sent later (RFC 4737).
	Reordered uint64 `json:"reordered"`
	// Delay is nil where only the part above the least is known.
	Delay *Delays `json:"delay,omitempty"`
	Above *Delays `json:"delay_above_minimum,omitempty"`
}

// Echo is what ICMP echo measured.
type Echo struct {
	Sent       uint64  `json:"sent"`
	Received   uint64  `json:"received"`
	Lost       uint64  `json:"lost"`
	Duplicates uint64  `json:"duplicates"`
	RoundTrip  *Delays `json:"round_trip,omitempty"`
}

// Connect is how long TCP connections to a port took.
type Connect struct {
	Port uint16 `json:"port"`
	// Accepted, Refused (which takes a round trip as well) and Failed tries; Error is of the last that failed.
	Accepted  uint64  `json:"accepted"`
	Refused   uint64  `json:"refused"`
	Failed    uint64  `json:"failed"`
	Error     string  `json:"error,omitempty"`
	RoundTrip *Delays `json:"round_trip,omitempty"`
}

// Path is what traceroute found.
type Path struct {
	// By is udp or icmp.
	By   string `json:"by"`
	Hops []Hop  `json:"hops"`
	// Reached is whether the last hop is the other place.
	Reached bool `json:"reached"`
}

// Hop is a station of the way.
type Hop struct {
	TTL int `json:"ttl"`
	// Addresses that answered, mostly one; none where nobody did.
	Addresses []netip.Addr `json:"addresses"`
	Sent      int          `json:"sent"`
	// RoundTrips are in seconds.
	RoundTrips []float64 `json:"round_trip_seconds"`
}

// Capacity is what a bounded TCP burst reached.
type Capacity struct {
	// Bytes that arrived, of those that were to be sent, in so many seconds.
	Bytes   int64   `json:"bytes"`
	Wanted  int64   `json:"wanted_bytes"`
	Seconds float64 `json:"seconds"`
	// BitsPerSecond is of the second half.
	BitsPerSecond float64 `json:"bits_per_second"`
	// Measured is when that was.
	Measured time.Time `json:"measured"`
}

// Progress of a measurement.
type Progress struct {
	// Step is what is being done.
	Step    string
	Elapsed time.Duration
	// Sent, Received and Lost packets, and the last delays; There and Back are 0 where they are not known.
	Sent, Received, Lost   uint64
	RoundTrip, There, Back time.Duration
}
