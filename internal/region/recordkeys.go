package region

import (
	"net/netip"

	"outsight/internal/model"
)

// recordKeys are the fields that say what a record is of, by their names.
type recordKeys map[string]*Field

func (r *Region) keys() recordKeys {
	keys := recordKeys{}
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Role == RoleKey {
			keys[f.Name] = f
		}
	}
	return keys
}

// number is that of a field; 0 where there is none.
func (keys recordKeys) number(b []byte, name string) uint64 {
	if f := keys[name]; f != nil {
		return f.number(b, 0)
	}
	return 0
}

// text is that of a field with the zeros after it; nil where there is none.
func (keys recordKeys) text(b []byte, name string) []byte {
	if f := keys[name]; f != nil && f.Type == TypeText {
		return b[f.Offset : f.Offset+uint32(f.Count)]
	}
	return nil
}

// address is that of a field; the zero Addr where there is none.
func (keys recordKeys) address(b []byte, name string) netip.Addr {
	if f := keys[name]; f != nil && f.Type == TypeAddress {
		return netip.AddrFrom16([16]byte(b[f.Offset:])).Unmap()
	}
	return netip.Addr{}
}

// edge is the key of an edge's record.
func (keys recordKeys) edge(b []byte) (k model.KernelEdgeKey) {
	number := func(name string) uint64 { return keys.number(b, "key."+name) }
	address := func(name string) netip.Addr { return keys.address(b, "key."+name) }
	name := func(name string) string { return textOf(keys.text(b, "key."+name)) }
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
