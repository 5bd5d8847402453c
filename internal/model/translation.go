package model

import "net/netip"

// Translation says that on this host the connections of a client to one address go to another
// one.
type Translation struct {
	Client           netip.Addr
	Dialled, Reached netip.AddrPort
}
