package net

import (
	"encoding/binary"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
)

// tunnels are what the kernel encapsulates packets with; four and six say which packets.
var tunnels = []struct {
	name string
	tunnel
	four, six bool
}{
	{"VXLAN", vxlan, true, true},
	{"VXLAN, Linux's older port", tunnel{[]string{"vxlan", "id", "8", "dstport", "8472"}, "10.214.0."}, true, true},
	{"VXLAN in IPv6", tunnel{[]string{"vxlan", "id", "9", "dstport", "4789"}, "fd14::"}, true, true},
	{"Geneve", tunnel{[]string{"geneve", "id", "7"}, "10.214.0."}, true, true},
	{"Geneve in IPv6", tunnel{[]string{"geneve", "id", "8"}, "fd14::"}, true, true},
	{"IPIP", tunnel{[]string{"ipip"}, "10.214.0."}, true, false},
	{"SIT", tunnel{[]string{"sit"}, "10.214.0."}, false, true},
	{"IP6IP6 and IPIP6", tunnel{[]string{"ip6tnl", "mode", "any"}, "fd14::"}, true, true},
}

// Packets of containers that an overlay encapsulates are found again at both hosts' uplinks, with all that this kernel has to
// encapsulate them, and what is slow between the uplinks is on the wire. Which kinds a kernel lacks, the log says: guests'
// kernels have all of them, and the others are in TestIdentityInTunnels.
func TestPacketsInTunnels(t *testing.T) {
	if err := host.HaveTCX(); err != nil && kerneltest.Emulated() {
		t.Skip(err)
	}
	p := openShared(t)
	if p.uplinks == nil {
		t.Fatalf("nothing is attached to uplinks: %+v", p.Features())
	}
	had := 0
	for _, c := range tunnels {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t)
			lacks := false
			w.within("client", func() {
				output, _ := exec.Command("ip", "link", "add", "tried", "type", c.device[0]).CombinedOutput()
				lacks = strings.Contains(string(output), "Unknown device type")
				exec.Command("ip", "link", "del", "tried").Run()
			})
			if lacks {
				t.Logf("this kernel has no devices %s", c.device[0])
				return
			}
			had++
			w.delay = time.Millisecond
			w.overlay(c.tunnel)
			for _, name := range []string{"client", "server"} {
				w.within(name, func() { useAsUplink(t, p, "wire") })
			}
			w.start()
			four, six := "10.230.0.2", "fd30::2"
			if !c.four {
				four = ""
			}
			if !c.six {
				six = ""
			}
			expectParts(t, p, w, "server", four, six, delays{onWire: w.delay})
		})
	}
	if had == 0 || kerneltest.Emulated() && had < len(tunnels) {
		t.Errorf("the kernel has %d of %d kinds of tunnels", had, len(tunnels))
	}
}

// Where a container's host encapsulates its packets, and the way to the container is slow, that is in the hosts' stacks, and
// not on the wire, also of large segments that are cut up behind the uplink alone.
func TestPacketsAtUplinksOfAnOverlay(t *testing.T) {
	p := openShared(t)
	w := uplinkedHosts(t, p)
	for i, name := range []string{"server", "peer"} {
		number := func(n int) string { return string(rune('1' + n)) }
		w.within(name, func() {
			command(t, "ip", "link", "add", "overlay", "type", "vxlan", "id", "7", "dstport", "8472", "local", "10.219.0."+number(i),
				"remote", "10.219.0."+number(1-i))
			command(t, "ip", "address", "add", "10.230.0."+number(i)+"/24", "dev", "overlay")
			command(t, "ip", "address", "add", "fd30::"+number(i)+"/64", "dev", "overlay", "nodad")
			command(t, "ip", "link", "set", "overlay", "mtu", "1400", "up")
		})
	}
	w.within("peer", func() {
		command(t, "ip", "route", "add", "10.214.0.0/24", "via", "10.230.0.1")
		command(t, "ip", "-6", "route", "replace", "fd14::/64", "via", "fd30::1")
	})
	expectParts(t, p, w, "peer", "10.230.0.2", "fd30::2", delays{before: w.delay})
}

// What identifies a packet at an uplink is the same where it is encapsulated, once, and there is nothing where it is not
// known how. The frames are as the kernel's own devices, and Geneve's options, make them.
func TestIdentityInTunnels(t *testing.T) {
	p := openShared(t)
	if p.uplinks == nil {
		t.Fatalf("nothing is attached to uplinks: %+v", p.Features())
	}
	came := p.edges.objects.CameByCard
	identity := func(frame []byte) (packet uint64) {
		t.Helper()
		if _, _, err := p.uplinks.programs[1].Test(frame); err != nil {
			t.Fatal(err)
		}
		for place := range came.MaxEntries() {
			var entry edgesCardPacket
			if err := came.Lookup(place, &entry); err != nil {
				t.Fatal(err)
			}
			if entry.Packet == 0 {
				continue
			}
			if packet = entry.Packet; entry.Value == 0 {
				t.Errorf("the packet %x came at no time", packet)
			}
			if err := came.Put(place, edgesCardPacket{}); err != nil {
				t.Fatal(err)
			}
		}
		return packet
	}
	identity(make([]byte, 64)) // of none: what other tests have left is gone
	data := []byte("what the two ends say to one another")
	tcp, udp := tcpHeader(data), udpHeader(5353, data)
	for name, inner := range map[string][]byte{"TCP": inIPv4(unix.IPPROTO_TCP, tcp), "UDP": inIPv4(unix.IPPROTO_UDP, udp),
		"TCP in IPv6": inIPv6(unix.IPPROTO_TCP, tcp), "UDP in IPv6": inIPv6(unix.IPPROTO_UDP, udp)} {
		want := identity(ethernet(inner))
		if want == 0 {
			t.Errorf("%s is not known by itself", name)
		}
		same := func(what string, outer []byte) {
			t.Helper()
			if got := identity(ethernet(outer)); got != want {
				t.Errorf("%s in %s is %x, want %x", name, what, got, want)
			}
			if padded := identity(append(ethernet(outer), 0, 0, 0, 0)); padded != want {
				t.Errorf("%s in %s, padded, is %x, want %x", name, what, padded, want)
			}
		}
		differs := func(what string, outer []byte) {
			t.Helper()
			if identity(ethernet(outer)) == want {
				t.Errorf("%s in %s is known", name, what)
			}
		}
		protocol := uint8(unix.IPPROTO_IPIP)
		etherType := uint16(unix.ETH_P_IP)
		if inner[0]>>4 == 6 {
			protocol, etherType = unix.IPPROTO_IPV6, unix.ETH_P_IPV6
		}
		frame := ethernet(inner)
		vxlanHeader := []byte{8, 0, 0, 0, 0, 0, 7, 0}
		for _, c := range []struct {
			outer    string
			ip       func(uint8, []byte) []byte
			protocol uint8 // of this in another one
		}{{"IPv4", inIPv4, unix.IPPROTO_IPIP}, {"IPv6", inIPv6, unix.IPPROTO_IPV6}} {
			outer, ip := c.outer, c.ip
			datagram := func(port uint16, parts ...[]byte) []byte {
				return ip(unix.IPPROTO_UDP, udpHeader(port, slices.Concat(parts...)))
			}
			same("VXLAN and "+outer, datagram(4789, vxlanHeader, frame))
			same("VXLAN at the older port and "+outer, datagram(8472, vxlanHeader, frame))
			same("Geneve and "+outer, datagram(6081, geneve(unix.ETH_P_TEB, 0), frame))
			same("Geneve with options and "+outer, datagram(6081, geneve(unix.ETH_P_TEB, 16), frame))
			same("Geneve with the longest options and "+outer, datagram(6081, geneve(unix.ETH_P_TEB, 252), frame))
			same("Geneve without Ethernet and "+outer, datagram(6081, geneve(etherType, 8), inner))
			same("the tunnel of "+outer, ip(protocol, inner))
			differs("VXLAN without a number and "+outer, datagram(4789, make([]byte, 8), frame))
			differs("VXLAN at another port and "+outer, datagram(4790, vxlanHeader, frame))
			differs("Geneve of another protocol and "+outer, datagram(6081, geneve(unix.ETH_P_ARP, 0), frame))
			differs("two tunnels and "+outer, ip(c.protocol, ip(protocol, inner)))
			differs("VXLAN that is cut off and "+outer, datagram(4789, vxlanHeader, frame[:14+30]))
		}
		same("IPv6 with the limit of encapsulation", inIPv6(unix.IPPROTO_DSTOPTS, slices.Concat([]byte{protocol, 0, 4, 1, 4, 1, 0, 0}, inner)))
	}
}

// The frames that these make have what the programs read, and zeros elsewhere.

func ethernet(ip []byte) []byte {
	frame := make([]byte, 14, 14+len(ip))
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IPV6)
	}
	return append(frame, ip...)
}

func inIPv4(protocol uint8, data []byte) []byte {
	header := make([]byte, 20)
	header[0], header[9] = 0x45, protocol
	binary.BigEndian.PutUint16(header[2:], uint16(20+len(data)))
	return append(header, data...)
}

func inIPv6(next uint8, data []byte) []byte {
	header := make([]byte, 40)
	header[0], header[6] = 0x60, next
	binary.BigEndian.PutUint16(header[4:], uint16(len(data)))
	return append(header, data...)
}

func udpHeader(port uint16, data []byte) []byte {
	header := make([]byte, 8)
	binary.BigEndian.PutUint16(header, 1024)
	binary.BigEndian.PutUint16(header[2:], port)
	binary.BigEndian.PutUint16(header[4:], uint16(8+len(data)))
	return append(header, data...)
}

func tcpHeader(data []byte) []byte {
	header := make([]byte, 32)
	binary.BigEndian.PutUint32(header[4:], 0x12345678)
	header[12] = 8 << 4
	copy(header[20:], []byte{1, 1, 8, 10, 1, 2, 3, 4})
	return append(header, data...)
}

func geneve(protocol uint16, options int) []byte {
	header := make([]byte, 8+options)
	header[0] = uint8(options / 4)
	binary.BigEndian.PutUint16(header[2:], protocol)
	return header
}
