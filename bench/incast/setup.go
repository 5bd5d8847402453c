package incast

import (
	"fmt"
	"time"
)

// Rate of a link in bits per second.
type Rate float64

// Gbit is 10⁹ bits per second.
const Gbit Rate = 1e9

// take is how long so many bytes take.
func (r Rate) take(bytes int) instant { return instant(float64(bytes) * 8e12 / float64(r)) }

// Setup is what is simulated.
type Setup struct {
	Network    Network
	Switch     Switch
	Controller Controller
	Load       Load
	Policy     Policy
	// Seed of what is random: ECN marks, jitter and the others' packets.
	Seed uint64
	// Bound is the longest simulated time, in case that it does not end; 100 s if 0.
	Bound time.Duration
}

// Network has a link to the controller, which is the bottleneck, and one to each machine.
type Network struct {
	// Link is the controller's, HostLink that of each machine.
	Link, HostLink Rate
	// Machines that the hosts (virtual machines, containers) share evenly; 0: each host is a machine.
	Machines int
	// Delay one way between a machine and the controller without any queue; the switch is half way.
	Delay time.Duration
	// Jitter is the most that a host takes to begin its reply; it is uniform from 0 on.
	Jitter time.Duration
	// MTU is the most bytes of data in a packet, Header what each packet has besides on the wire.
	MTU, Header int
}

// Switch has one buffer for all ports.
type Switch struct {
	// Buffer in bytes.
	Buffer int
	// Alpha of the dynamic threshold (Choudhury and Hahne, 1998): a queue may have Alpha times what is free of the
	// buffer; 0: all of it. With PFC it is about what came in by a port, without about the queue of the port to the
	// controller.
	Alpha float64
	// PFC: a port whose packets are over the threshold pauses its machine, and nothing is dropped. Without it what is
	// over the threshold is dropped.
	PFC bool
	// Resume is how far below the threshold a paused machine may go on, in bytes.
	Resume int
	// ECNMin and ECNMax, in bytes of the queue: below the first no packet is marked, above the second each one, and
	// between them with a probability that grows from 0 to ECNShare (RED; paper 004's reference 95). No marks if ECNMax
	// is 0.
	ECNMin, ECNMax int
	ECNShare       float64
}

// Controller is one thread and its card.
type Controller struct {
	// Begin is what the thread takes to set up the requests of a host, Call to poll a connection and post to it, Each
	// for each request or completion in a call.
	Begin, Call, Each time.Duration
	// Outstanding is how many requests of a connection the card has on the way at a time; 0: no bound. It holds the
	// others back by itself.
	Outstanding int
	// Connections that the card knows by heart; a request of another one takes Miss longer, and the card does nothing
	// else meanwhile. 0: all.
	Connections int
	Miss        time.Duration
	// Timeout after which a fragment is asked for again; 0: never, which is for networks that drop nothing.
	Timeout time.Duration
}

// Load is what is read.
type Load struct {
	// Hosts are read once, each Bytes in requests of Fragment.
	Hosts, Bytes, Fragment int
	// Group is how many hosts are read at a time; 0: all. The connections of the next ones are warmed up. Paced goes on
	// with the next host when one is done, the other policies with the next group when the group is.
	Group int
	// Others is the share of the controller's link that packets of others take, which arrive at random (Poisson).
	Others float64
}

// Flow is how the bytes on the way are limited.
type Flow uint8

const (
	// Unlimited posts everything at once.
	Unlimited Flow = iota
	// BDP limits each flow to the product of bandwidth and delay of the network.
	BDP
	// Credit limits each of n concurrent flows to a share T/n of a total credit T, one fragment at least (paper 004,
	// section 4.3).
	Credit
	// Paced posts at the rate of the controller's link, several fragments of one host in a call, and limits what is on
	// the way to all hosts together by a window that follows the delay: see pacer.
	Paced
)

var flowNames = [...]string{"none", "BDP-FC", "Credit-FC", "Paced"}

func (f Flow) String() string { return flowNames[f] }

// Policy is a Flow with its number: of BDP the bytes of each flow, of Credit the total, of Paced the most that the window
// may be. Unlimited has none.
type Policy struct {
	Flow  Flow
	Bytes int
}

// check finds what cannot be simulated.
func (s *Setup) check() error {
	n, l := s.Network, s.Load
	switch {
	case n.Link <= 0 || n.HostLink <= 0:
		return fmt.Errorf("links are %v and %v bit/s, want more than 0", float64(n.Link), float64(n.HostLink))
	case n.MTU <= 0 || n.Header < 0 || n.Delay < 0 || n.Jitter < 0 || n.Machines < 0:
		return fmt.Errorf("a size, delay or number of the network is negative or missing: %+v", n)
	case l.Hosts <= 0 || l.Bytes <= 0 || l.Fragment <= 0 || l.Group < 0:
		return fmt.Errorf("load is %+v, want hosts, bytes and fragments", l)
	case l.Others < 0 || l.Others >= 1:
		return fmt.Errorf("the others' share is %v, want 0 or more and less than 1", l.Others)
	case s.Switch.Buffer < n.MTU+n.Header:
		return fmt.Errorf("the switch's buffer has %d bytes, want a packet of %d at least", s.Switch.Buffer, n.MTU+n.Header)
	case !s.Switch.PFC && s.Controller.Timeout <= 0:
		return fmt.Errorf("a switch without PFC drops packets: want a timeout")
	case int(s.Policy.Flow) >= len(flowNames):
		return fmt.Errorf("there is no policy %d", s.Policy.Flow)
	case s.Policy.Flow != Unlimited && s.Policy.Bytes < l.Fragment:
		return fmt.Errorf("the policy %v has %d bytes, want a fragment of %d at least", s.Policy.Flow, s.Policy.Bytes, l.Fragment)
	}
	return nil
}

// group is how many hosts are read at a time.
func (l Load) group() int {
	if l.Group == 0 {
		return l.Hosts
	}
	return min(l.Group, l.Hosts)
}

// WireBytes is what all replies are on the wire, without repetitions.
func (s *Setup) WireBytes() int64 {
	whole, part := s.Load.Bytes/s.Load.Fragment, s.Load.Bytes%s.Load.Fragment
	return int64(s.Load.Hosts) * int64(whole*s.wire(s.Load.Fragment)+s.wire(part))
}

// wire is what so many bytes of data are on the wire.
func (s *Setup) wire(bytes int) int {
	return bytes + (bytes+s.Network.MTU-1)/s.Network.MTU*s.Network.Header
}

// MostHosts is n = B·U/S (paper 004, section 4.3) with the packets' headers: how many hosts can be read in an interval if
// the controller's link is never idle and nobody else's.
func (s *Setup) MostHosts(interval time.Duration) int {
	one := *s
	one.Load.Hosts = 1
	return int(float64(s.Network.Link) / 8 * interval.Seconds() / float64(one.WireBytes()))
}
