package incast

import "time"

// Cluster is one of paper 004's (table 1 and section 6.3).
type Cluster struct {
	Name  string
	Setup Setup
	// Total of Credit-FC, and the product of bandwidth and delay of BDP-FC, in bytes.
	Total, BDP int
	// Hosts that figures 10 and 11 have.
	Hosts []int
}

// Policies that the figures compare, and Paced.
func (c *Cluster) Policies() []Policy {
	return []Policy{{Unlimited, 0}, {BDP, c.BDP}, {Credit, c.Total}, {Paced, c.Total}}
}

// With is the cluster's setup with hosts and a policy.
func (c *Cluster) With(hosts int, p Policy) Setup {
	s := c.Setup
	s.Load.Hosts, s.Policy = hosts, p
	return s
}

// roce is what a packet of RoCEv2 has besides its data: preamble, gap, Ethernet, IPv4, UDP, BTH, ICRC and FCS.
const roce = 8 + 12 + 14 + 20 + 8 + 12 + 4 + 4

// Cluster1 has 25 Gbit/s, 64 machines of 16 virtual machines, PFC and no ECN. The paper gives links, round trip (5 to
// 6 µs), 16 outstanding requests, T = 8 MB, BDP = 16 KB, and that PFC begins at 256 hosts without flow control. It does
// not give the switch's buffer and thresholds, nor what the thread takes: these are assumed. 16 MB and an alpha of 1/16
// put the beginning of PFC, with 64 ports that fill alike, at 12.8 MB.
func Cluster1() Cluster {
	return Cluster{"Cluster1", Setup{
		Network: Network{Link: 25 * Gbit, HostLink: 25 * Gbit, Machines: 64, Delay: 2500 * time.Nanosecond, Jitter: time.Microsecond, MTU: 1024, Header: roce},
		Switch:  Switch{Buffer: 16 << 20, Alpha: 1. / 16, PFC: true, Resume: 4 << 10},
		Controller: Controller{Begin: time.Microsecond, Call: 2 * time.Microsecond, Each: 50 * time.Nanosecond,
			Outstanding: 16, Connections: 256, Miss: 250 * time.Nanosecond},
		Load: Load{Bytes: 128 << 10, Fragment: 4 << 10},
	}, 8 << 20, 16 << 10, []int{64, 128, 256, 512, 1024}}
}

// Cluster2 has 200 Gbit/s, 8 machines of 128 containers, PFC and ECN. The paper gives links, round trip (4 µs), BDP =
// 96 KB, the lower threshold of ECN (about 1000 KB) and a credit of 4 to 16 KB per flow with 64 to 1024 flows, which is
// T = 1 MB. Assumed are the switch's buffer and the other thresholds (those of DCQCN, paper 004's reference 95, for more
// than 100 Gbit/s), and what the thread takes.
func Cluster2() Cluster {
	return Cluster{"Cluster2", Setup{
		Network: Network{Link: 200 * Gbit, HostLink: 200 * Gbit, Machines: 8, Delay: 1900 * time.Nanosecond, Jitter: 500 * time.Nanosecond, MTU: 1024, Header: roce},
		Switch: Switch{Buffer: 32 << 20, Alpha: 1, PFC: true, Resume: 4 << 10, ECNMin: 1000 << 10, ECNMax: 4000 << 10,
			ECNShare: 0.2},
		Controller: Controller{Begin: 500 * time.Nanosecond, Call: 250 * time.Nanosecond, Each: 20 * time.Nanosecond,
			Outstanding: 16, Connections: 256, Miss: 100 * time.Nanosecond},
		Load: Load{Bytes: 128 << 10, Fragment: 4 << 10},
	}, 1 << 20, 96 << 10, []int{64, 128, 256, 512, 1024}}
}

// Plan is a controller with 100 Gbit/s and hosts with 25 Gbit/s and a card each, groups of 64 (paper 004, section 7), and
// packets of others on three tenths of the controller's link. Thresholds are those of Cluster2, half as large.
func Plan(hosts int, p Policy) Setup {
	c := Cluster2()
	s := c.With(hosts, p)
	s.Network.Link, s.Network.HostLink, s.Network.Machines, s.Network.MTU = 100*Gbit, 25*Gbit, 0, 4096
	s.Switch.ECNMin, s.Switch.ECNMax, s.Switch.Buffer = s.Switch.ECNMin/2, s.Switch.ECNMax/2, s.Switch.Buffer/2
	s.Load.Group, s.Load.Others = 64, 0.3
	return s
}

// PlanPolicies with the credit of 256 KB that paper 004 has beside other traffic (section 7).
func PlanPolicies() []Policy {
	return []Policy{{Unlimited, 0}, {BDP, 48 << 10}, {Credit, 256 << 10}, {Paced, 256 << 10}}
}
