package container

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"

	"outsight/internal/model"
)

// addressLimit bounds the bytes read of a namespace's tables; addresses behind them are not
// seen. A host with a full routing table of the internet comes here.
const addressLimit = 4 << 20

// addresses lists the addresses in the network namespace of a process, loopback excluded, in
// order and each once.
func (p processes) addresses(pid int) ([]netip.Addr, error) {
	dir := p.path(pid) + "/net/"
	trie, err := readLimited(dir+"fib_trie", addressLimit)
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of process %d: %w", pid, err)
	}
	list := parseTrie(trie)
	inet6, err := readLimited(dir+"if_inet6", addressLimit)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // absent where IPv6 is switched off
		return nil, fmt.Errorf("reading the addresses of process %d: %w", pid, err)
	}
	more, err := parseInet6(inet6)
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of process %d: %w", pid, err)
	}
	list = append(list, more...)
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list), nil
}

// parseTrie finds the own addresses in fib_trie: leaves of which the next line says "/32 host
// LOCAL". It knows no other lines, since the drawing of the tree has no grammar.
func parseTrie(text []byte) []netip.Addr {
	var list []netip.Addr
	var leaf netip.Addr
	for line := range bytes.Lines(text) {
		s := strings.TrimSpace(string(line))
		if rest, ok := strings.CutPrefix(s, "|-- "); ok {
			leaf, _ = netip.ParseAddr(rest)
			continue
		}
		if s == "/32 host LOCAL" && leaf.Is4() && !leaf.IsLoopback() {
			list = append(list, leaf)
		}
	}
	return list
}

// parseInet6 reads if_inet6: address, index, prefix length, scope, flags (in hex) and interface.
func parseInet6(text []byte) ([]netip.Addr, error) {
	var list []netip.Addr
	for line := range bytes.Lines(text) {
		words := bytes.Fields(line)
		if len(words) == 0 {
			continue
		}
		var raw [16]byte
		if len(words) < 6 || len(words[0]) != 32 {
			return nil, fmt.Errorf("line %q is not an address", line)
		}
		if _, err := hex.Decode(raw[:], words[0]); err != nil {
			return nil, fmt.Errorf("line %q is not an address: %w", line, err)
		}
		if a := netip.AddrFrom16(raw); !a.IsLoopback() && string(words[5]) != "lo" {
			list = append(list, a)
		}
	}
	return list, nil
}

// parseNetDev adds up the interfaces in /proc/<pid>/net/dev, without loopback. It does not
// allocate, unless it fails.
func parseNetDev(text []byte) (n model.NetworkCounters, err error) {
	l, err := newLines(text)
	if err != nil {
		return n, err
	}
	for line, ok := l.next(); ok; line, ok = l.next() {
		at := bytes.IndexByte(line, ':')
		if at < 0 {
			if bytes.IndexByte(line, '|') < 0 {
				return model.NetworkCounters{}, fmt.Errorf("line %q is not an interface", line)
			}
			continue // one of two header lines
		}
		name, _ := word(line[:at])
		if string(name) == "lo" {
			continue
		}
		if err := addInterface(&n, line[at+1:]); err != nil {
			return model.NetworkCounters{}, fmt.Errorf("line %q: %w", line, err)
		}
	}
	return n, nil
}

// addInterface adds the columns bytes, packets, errs and drop, first received, then (after four
// more columns) transmitted.
func addInterface(n *model.NetworkCounters, rest []byte) error {
	columns := [...]*uint64{
		&n.ReceiveBytes, &n.ReceivePackets, &n.ReceiveErrors, &n.ReceiveDropped, nil, nil, nil, nil,
		&n.TransmitBytes, &n.TransmitPackets, &n.TransmitErrors, &n.TransmitDropped,
	}
	for _, column := range columns {
		var text []byte
		text, rest = word(rest)
		value, err := parseUint(text)
		if err != nil {
			return err
		}
		if column != nil {
			*column += value
		}
	}
	return nil
}

// parseNamespace reads the target of a namespace link: "net:[4026531840]".
func parseNamespace(target []byte) (uint32, error) {
	text, ok := bytes.CutPrefix(target, namespacePrefix)
	if !ok || !bytes.HasSuffix(text, namespaceSuffix) {
		return 0, fmt.Errorf("%q is not a network namespace", target)
	}
	n, err := parseUint(text[:len(text)-1])
	if err != nil || n > math.MaxUint32 {
		return 0, fmt.Errorf("%q is not a network namespace", target)
	}
	return uint32(n), nil
}

var namespacePrefix, namespaceSuffix = []byte("net:["), []byte("]")
