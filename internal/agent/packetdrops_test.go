package agent

import (
	"fmt"
	"testing"

	"outsight/internal/model"
)

// droppingKernel has dropped what a test says.
type droppingKernel struct {
	drops []model.KernelPacketDrops
	err   error
}

func (k *droppingKernel) ReadPacketDrops() ([]model.KernelPacketDrops, error) { return k.drops, k.err }

// What was dropped is the container's whose socket has it, else its network namespace's, else the host's.
func TestDroppedPacketsHaveAnOwner(t *testing.T) {
	s := newScript()
	s.containers[0].NetNS = 1
	s.add("web", 10).NetNS = 7
	s.add("agent", 11).NetNS = 1
	kernel := &droppingKernel{}
	sources := s.sources()
	sources.PacketDrops = kernel
	a := New(sources, Options{})
	check := func(host, agent, web string, drops ...model.KernelPacketDrops) {
		t.Helper()
		kernel.drops = drops
		read := a.read()
		for i, want := range []string{host, agent, web} {
			c := &read.Containers[[]int{0, 2, 1}[i]]
			if got := fmt.Sprint(*c.Drops); got != want {
				t.Errorf("%s: got %s, want %s", c.Container.Name, got, want)
			}
		}
	}
	drop := func(owner model.CgroupID, netns uint32, reason, device string, packets uint64) model.KernelPacketDrops {
		return model.KernelPacketDrops{Owner: owner, NetNS: netns, Interface: 2, Device: device, Reason: reason,
			Packets: packets}
	}
	check("{0 []}", "{0 []}", "{0 []}")
	ofSocket, ofNamespace, ofHost := drop(11, 1, "SOCKET_RCVBUFF", "eth0", 3), drop(0, 7, "NO_SOCKET", "eth0", 4),
		drop(0, 1, "IP_INHDR", "docker0", 5)
	check("{5 [{IP_INHDR docker0 5}]}", "{3 [{SOCKET_RCVBUFF eth0 3}]}", "{4 [{NO_SOCKET eth0 4}]}",
		ofSocket, ofNamespace, ofHost)
	ofNamespace.Packets++
	ofHost.Packets = 2 // the kernel had forgotten it
	check("{7 [{IP_INHDR docker0 7}]}", "{3 [{SOCKET_RCVBUFF eth0 3}]}", "{5 [{NO_SOCKET eth0 5}]}", ofNamespace, ofHost)
	want := "{15 [{IP_INHDR docker0 7} {NO_SOCKET eth0 5} {SOCKET_RCVBUFF eth0 3}]}"
	if got := fmt.Sprint(*a.read().Drops); got != want {
		t.Errorf("the host: got %s, want %s", got, want)
	}
	kernel.err = fmt.Errorf("not now")
	check("{7 [{IP_INHDR docker0 7}]}", "{3 [{SOCKET_RCVBUFF eth0 3}]}", "{5 [{NO_SOCKET eth0 5}]}", ofNamespace)
}

// A container at whose many devices packets are dropped has a bounded number of series, and loses none of them.
func TestKindsOfDropsAreBounded(t *testing.T) {
	s := newScript()
	s.add("web", 10).NetNS = 7
	kernel := &droppingKernel{}
	for i := range uint32(1000) {
		kernel.drops = append(kernel.drops, model.KernelPacketDrops{NetNS: 7, Owner: 10, Interface: i,
			Device: fmt.Sprint("veth", i), Reason: "NO_SOCKET", Packets: 1})
	}
	sources := s.sources()
	sources.PacketDrops = kernel
	read := New(sources, Options{}).read()
	for _, c := range []*model.PacketDropCounters{read.Containers[1].Drops, read.Drops} {
		if c.Packets != 1000 || len(c.By) != maxDropKinds+1 {
			t.Errorf("%d packets in %d kinds, want 1000 in %d", c.Packets, len(c.By), maxDropKinds+1)
		}
		if last := c.By[maxDropKinds]; last != (model.PacketDrops{Reason: model.OtherReasons, Packets: 1000 - maxDropKinds}) {
			t.Errorf("the others are %+v", last)
		}
	}
}

// Where they are not counted they are absent, and not 0.
func TestDropsThatAreNotCounted(t *testing.T) {
	read := New(newScript().sources(), Options{}).read()
	if read.Drops != nil || read.Containers[0].Drops != nil {
		t.Errorf("%+v and %+v", read.Drops, read.Containers[0].Drops)
	}
}
