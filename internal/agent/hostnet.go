package agent

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"outsight/internal/model"
)

// addressesEvery is after how many snapshots the host's addresses are read again.
const addressesEvery = 10

// hostNetwork completes the host container where the registry cannot: some hosts do not allow to
// read the namespaces of process 1. The agent itself runs in the host's network.
type hostNetwork struct {
	procRoot  string
	reading   int
	netns     uint32
	addresses []netip.Addr
	// bare is the host's container as it was given last, and whole what was made of it then.
	bare, whole *model.Container
}

// complete is containers, the host's with its namespace and addresses.
func (h *hostNetwork) complete(containers []*model.Container) ([]*model.Container, error) {
	i := slices.IndexFunc(containers, func(c *model.Container) bool { return c.Runtime == model.HostRuntime })
	if i < 0 || containers[i].NetNS != 0 && len(containers[i].Addresses) > 0 {
		return containers, nil
	}
	changed, err := h.read()
	if changed || h.bare != containers[i] {
		h.bare = containers[i]
		host := *h.bare
		if host.NetNS == 0 {
			host.NetNS = h.netns
		}
		// Another namespace than the agent's: its addresses are not known here.
		if host.NetNS == h.netns {
			host.Addresses = h.addresses
		}
		h.whole = &host
	}
	containers = slices.Clone(containers)
	containers[i] = h.whole
	return containers, err
}

// read reads them when it is time to, and reports whether they are others.
func (h *hostNetwork) read() (changed bool, err error) {
	h.reading++
	if h.reading%addressesEvery != 1 {
		return false, nil
	}
	netns, before := h.netns, h.addresses
	err = h.readNow()
	return h.netns != netns || !slices.Equal(h.addresses, before), err
}

func (h *hostNetwork) readNow() error {
	info, err := os.Stat(h.procRoot + "/self/ns/net")
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		h.netns = uint32(stat.Ino)
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	h.addresses = nil
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && !prefix.Addr().IsLoopback() {
			h.addresses = append(h.addresses, prefix.Addr())
		}
	}
	slices.SortFunc(h.addresses, netip.Addr.Compare)
	return nil
}
