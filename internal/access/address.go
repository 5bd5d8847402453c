package access

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// checkAddress refuses an invalid address to listen on, before other checks draw conclusions from it.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return usage("the address is %q, want HOST:PORT, as in 127.0.0.1:8470", address)
	}
	if strings.ContainsFunc(port, func(r rune) bool { return r < '0' || r > '9' }) {
		if _, err := net.LookupPort("tcp", port); err != nil {
			return usage("the address is %q, whose port %q is no number and no service", address, port)
		}
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return usage("the address is %q, whose port is %q, want 0 to 65535", address, port)
	}
	isName := func(r rune) bool { return r != '.' && (r < '0' || r > '9') }
	if host == "" || !strings.Contains(host, ":") && strings.ContainsFunc(host, isName) {
		return nil // any, or a name
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return usage("the address is %q, whose host %q is no IP address", address, host)
	}
	return nil
}
