package graph

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"outsight/internal/model"
)

// containerChange is what a container used, or the containers of a group.
type containerChange struct {
	change
	node Node
}

// nodeID distinguishes the host nodes of several hosts.
func nodeID(host, id string) string {
	if id == model.HostContainerID && host != "" {
		return id + "/" + host
	}
	return id
}

func kindOf(id, runtime string) Kind {
	switch {
	case id == model.HostContainerID || runtime == string(model.HostRuntime):
		return KindHost
	case runtime == string(model.Systemd) || strings.HasPrefix(id, "/"):
		return KindService
	}
	return KindContainer
}

// ends are the edge as its server serves it, and as its client calls it; each as the other sees it where one of them
// does not say.
func (e *Edge) ends() (served, called *Side) {
	return cmp.Or(e.ServerSide, e.ClientSide), cmp.Or(e.ClientSide, e.ServerSide)
}

// measureNetwork is how much longer its client waits than its server takes, where the time goes, and what packets tell.
// Windows of two hosts are not of exactly the same time, so that what one sent less what the other received is no loss.
func (e *Edge) measureNetwork() {
	var lost loss
	if e.Paired && !e.across {
		e.Split = splitOf(e.ClientSide, e.ServerSide)
		lost = lossOf(e.ClientSide, e.ServerSide, e.Transport == model.TCP.String())
	}
	e.Network = networkOf(e.ClientSide, e.ServerSide, lost)
	e.NetworkSeconds = e.networkSeconds()
}

// networkSeconds is how much longer the client waits than the server takes, at the median; nil where that is not known.
func (e *Edge) networkSeconds() *float64 {
	if !e.Paired || e.ClientSide.P50 == nil || e.ServerSide.P50 == nil {
		return nil
	}
	d := float64(*e.ClientSide.P50 - *e.ServerSide.P50)
	if math.IsNaN(d) || math.IsInf(d, 0) {
		return nil
	}
	return &d
}

// OutsideID is the node of all addresses outside of the host that are only clients;
// OutsideServersID that of the servers outside past the MaxOutsideServers busiest.
const (
	OutsideID         = "outside"
	OutsideServersID  = "outside-servers"
	MaxOutsideServers = 20
	// MaxAddresses is how many addresses a node of a group lists.
	MaxAddresses = 50
)

func finishAddresses(n *Node) {
	slices.Sort(n.Addresses)
	n.AddressCount = len(n.Addresses)
	n.Addresses = n.Addresses[:min(len(n.Addresses), MaxAddresses)]
	switch {
	case n.Kind != KindOutside:
	case n.AddressCount == 1:
		n.Name = cmp.Or(n.Addresses[0], "outside")
	case n.ID == OutsideID:
		n.Name = "outside"
	case n.ID == OutsideServersID:
		n.Name = "other servers outside"
	}
}
