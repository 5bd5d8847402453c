package graph

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
)

// place is an address, and where it has one a port. The keys are 0 for a text that is none.
type place struct {
	addressKey, spotKey uint64
	// network is that of the address and its neighbours: 24 bits of IPv4, 64 of IPv6.
	network uint64
	// address and spot are numbers that are given to the keys; spot is -1 for an address alone.
	address, spot                   int32
	port                            uint16
	read, loopback, unspecified, v4 bool
}

// Keys of IPv4 are exact, those of IPv6 are hashes under a seed of the process.
const (
	isIPv4 = 1 << 62
	isIPv6 = 1 << 63
)

var placeSeed = maphash.MakeSeed()

func parsePlace(text string) place {
	if n, port, ok := parseIPv4(text); ok {
		return placeOfIPv4(n, port)
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return place{read: true, spot: -1}
		}
		at = netip.AddrPortFrom(addr, 0)
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		bytes := addr.As4()
		return placeOfIPv4(binary.BigEndian.Uint32(bytes[:]), int(at.Port()))
	}
	bytes := addr.As16()
	p := place{read: true, spot: -1, port: at.Port(), loopback: addr.IsLoopback(), unspecified: addr.IsUnspecified(),
		addressKey: isIPv6 | maphash.Comparable(placeSeed, bytes)>>2,
		network:    isIPv6 | maphash.Comparable(placeSeed, [8]byte(bytes[:8]))>>2}
	if p.port != 0 {
		p.spotKey = isIPv6 | maphash.Comparable(placeSeed, netip.AddrPortFrom(addr, p.port))>>2
	}
	return p
}

func placeOfIPv4(address uint32, port int) place {
	n := uint64(address)
	p := place{read: true, v4: true, spot: -1, port: uint16(max(port, 0)), addressKey: isIPv4 | n, network: isIPv4 | n>>8,
		loopback: n>>24 == 127, unspecified: n == 0}
	if port > 0 {
		p.spotKey = isIPv4 | n<<16 | uint64(port)
	}
	return p
}

// parseIPv4 reads an address of IPv4 with or without a port, which is then -1. It takes a third of the time that
// net/netip takes: there are hundreds of thousands of them in a window.
func parseIPv4(text string) (address uint32, port int, ok bool) {
	part, digits, dots := 0, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9' && digits < 3:
			part = part*10 + int(c-'0')
			digits++
		case (c == '.' && dots < 3 || c == ':' && dots == 3) && digits > 0 && part < 256:
			address = address<<8 | uint32(part)
			part, digits = 0, 0
			if dots++; c == ':' {
				port, ok = parsePort(text[i+1:])
				return address, port, ok
			}
		default:
			return 0, 0, false
		}
	}
	return address<<8 | uint32(part), -1, dots == 3 && digits > 0 && part < 256
}

func parsePort(text string) (port int, ok bool) {
	for i := 0; i < len(text) && i < 6; i++ {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		port = port*10 + int(text[i]-'0')
	}
	return port, len(text) > 0 && len(text) < 6 && port < 1<<16
}

// numbers gives keys the numbers from 0 on. A table with open addressing takes half the time of a map's.
type numbers struct {
	keys  []uint64 // 0 is free
	value []int32
	shift uint
	count int32
}

// keySpread spreads keys (Knuth's multiplicative hashing).
const keySpread = 0x9e3779b97f4a7c15

func newNumbers(most int) *numbers {
	n := &numbers{shift: 60}
	for 1<<(64-n.shift) < 2*most {
		n.shift--
	}
	n.keys, n.value = make([]uint64, 1<<(64-n.shift)), make([]int32, 1<<(64-n.shift))
	return n
}

// of is the number of a key that is not 0. It is the next one, and added is true, where the key had none.
func (n *numbers) of(key uint64) (number int32, added bool) {
	mask := uint64(len(n.keys) - 1)
	at := key * keySpread >> n.shift
	for n.keys[at] != key {
		if n.keys[at] == 0 {
			n.keys[at], n.value[at] = key, n.count
			n.count++
			return n.value[at], true
		}
		at = (at + 1) & mask
	}
	return n.value[at], false
}

// find is the number of a key that is not 0, if it has one.
func (n *numbers) find(key uint64) (number int32, ok bool) {
	for at := key * keySpread >> n.shift; n.keys[at] != 0; at = (at + 1) & uint64(len(n.keys)-1) {
		if n.keys[at] == key {
			return n.value[at], true
		}
	}
	return 0, false
}

// lists are lists of values by a number, each in the order in which the values were given.
type lists[V any] struct {
	end    []int32
	values []V
}

// newLists makes lists of what each calls add with. It calls each twice: each is to add the same both times.
func newLists[V any](count int, each func(add func(number int32, value V))) lists[V] {
	l := lists[V]{end: make([]int32, count+1)}
	total := int32(0)
	each(func(number int32, _ V) {
		l.end[number+1]++
		total++
	})
	for i := range count {
		l.end[i+1] += l.end[i]
	}
	l.values = make([]V, total)
	next := make([]int32, count)
	copy(next, l.end)
	each(func(number int32, value V) {
		l.values[next[number]] = value
		next[number]++
	})
	return l
}

func (l *lists[V]) of(number int32) []V {
	if int(number)+1 >= len(l.end) {
		return nil
	}
	return l.values[l.end[number]:l.end[number+1]]
}
