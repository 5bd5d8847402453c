package region

import (
	"net/netip"
	"strings"

	"outsight/internal/model"
)

// edgeKeys are the fields of the keys of edges, by their names.
type edgeKeys map[string]*Field

func (r *Region) keys() edgeKeys {
	keys := edgeKeys{}
	for i := range r.Fields {
		if name, of := strings.CutPrefix(r.Fields[i].Name, "key."); of && r.Fields[i].Role == RoleKey {
			keys[name] = &r.Fields[i]
		}
	}
	return keys
}

func (keys edgeKeys) read(b []byte) (k model.KernelEdgeKey) {
	number := func(name string) uint64 {
		if f := keys[name]; f != nil {
			return f.number(b, 0)
		}
		return 0
	}
	address := func(name string) netip.Addr {
		if f := keys[name]; f != nil && f.Type == TypeAddress {
			return netip.AddrFrom16([16]byte(b[f.Offset:])).Unmap()
		}
		return netip.Addr{}
	}
	name := func(name string) string {
		if f := keys[name]; f != nil && f.Type == TypeText {
			return textOf(b[f.Offset : f.Offset+uint32(f.Count)])
		}
		return ""
	}
	k = model.KernelEdgeKey{Owner: model.CgroupID(number("owner")), Peer: model.CgroupID(number("peer")),
		NetNS: uint32(number("netns")), Role: model.Role(number("role")), Transport: model.Transport(number("transport")),
		Others: number("others") != 0, Client: address("client"), Process: name("process"),
		PeerProcess: name("peer_process"), Forwarder: number("forwarder") == 1, Forwarded: number("forwarder") == 2}
	if !k.Others {
		k.Service = netip.AddrPortFrom(address("service"), uint16(number("port")))
	}
	if port := uint16(number("far_port")); port != 0 {
		k.Far = netip.AddrPortFrom(address("far"), port)
	}
	if k.Client == netip.IPv6Unspecified() {
		k.Client = netip.Addr{}
	}
	return k
}
