package net

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
)

// BenchmarkDataHooks tells what the data hooks cost per run, with the kernel's own statistics
// (about 40 ns of each figure are the statistics), and what the peers of unconnected UDP sockets
// cost on top.
func BenchmarkDataHooks(b *testing.B) {
	buffer := make([]byte, 1000)
	bench := func(name string, network string, connected bool, clients int) {
		packets := PacketsOff
		if strings.HasSuffix(name, ", packets") {
			packets = PacketsInSlices
		}
		b.Run(name, func(b *testing.B) {
			p := New(Options{Packets: packets})
			if err := p.Open(kerneltest.Kernel(b)); err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			for _, c := range kerneltest.CostsOf(b, p, func() {
				switch network {
				case "tcp":
					exchangeTCP(b, buffer)
				case "udp":
					exchangeUDP(b, buffer, connected, clients)
				case "dns":
					exchangeDNS(b)
				case "grpc":
					exchangeGRPC(b)
				}
			}) {
				if c.Runs > uint64(b.N)/2 {
					b.ReportMetric(float64(c.RunTimeNS)/float64(c.Runs), c.Name+"-ns")
				}
			}
		})
	}
	bench("TCP", "tcp", true, 1)
	bench("TCP, packets", "tcp", true, 1)
	bench("UDP connected", "udp", true, 1)
	bench("UDP connected, packets", "udp", true, 1)
	bench("UDP unconnected", "udp", false, 1)
	bench("UDP unconnected, packets", "udp", false, 1)
	bench("UDP unconnected, 100 peers", "udp", false, 100)
	bench("DNS", "dns", true, 1)
	bench("gRPC", "grpc", true, 1)
}

// BenchmarkPackets tells what the hooks of packets cost per run when each packet is observed, when each is sampled for
// another host as well, and when as many were observed as may be.
func BenchmarkPackets(b *testing.B) {
	buffer := make([]byte, 1000)
	for _, c := range []struct {
		name, network string
		limit         uint32
		level         uint8
	}{{"TCP, observed", "tcp", ^uint32(0), maxLevel}, {"TCP, sampled", "tcp", ^uint32(0), 0},
		{"TCP, over the limit", "tcp", 0, 0}, {"UDP, observed", "udp", ^uint32(0), maxLevel},
		{"UDP, sampled", "udp", ^uint32(0), 0}, {"UDP, over the limit", "udp", 0, 0}} {
		b.Run(c.name, func(b *testing.B) {
			p := New(Options{Packets: PacketsAll})
			if err := p.Open(kerneltest.Kernel(b)); err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			if err := p.edges.objects.PacketLimit.Set(c.limit); err != nil {
				b.Fatal(err)
			}
			for i := range p.edges.packets.edges.Entries {
				p.edges.packets.edges.Entries[i].SampleLevels = [2]uint8{c.level, c.level}
			}
			for _, cost := range kerneltest.CostsOf(b, p, func() {
				if c.network == "tcp" {
					exchangeTCP(b, buffer)
				} else {
					exchangeUDP(b, buffer, true, 1)
				}
			}) {
				if cost.Runs > 0 && strings.HasPrefix(cost.Name, "cgroup_skb/") {
					b.ReportMetric(float64(cost.RunTimeNS)/float64(cost.Runs), cost.Name+"-ns")
				}
			}
		})
	}
}

// BenchmarkExchange tells how much CPU time a request and its reply take, of both ends and of the kernel between them,
// which others on the machine disturb less than the speed.
func BenchmarkExchange(b *testing.B) {
	for _, c := range []struct {
		name string
		mode PacketMode
	}{{"packets off", PacketsOff}, {"packets in slices", PacketsInSlices}, {"all packets observed", PacketsAll}} {
		b.Run(c.name, func(b *testing.B) {
			p := New(Options{Packets: c.mode})
			if err := p.Open(kerneltest.Kernel(b)); err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer listener.Close()
			var ends [2]int
			for i := range ends {
				var conn net.Conn
				if i == 0 {
					conn, err = net.Dial("tcp", listener.Addr().String())
				} else {
					conn, err = listener.Accept()
				}
				if err != nil {
					b.Fatal(err)
				}
				file, err := conn.(*net.TCPConn).File()
				if err != nil {
					b.Fatal(err)
				}
				defer file.Close()
				defer conn.Close()
				ends[i] = int(file.Fd()) // it blocks from now on
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			buffer := make([]byte, 100)
			before := threadCPU(b)
			for b.Loop() {
				for from := range ends {
					unix.Write(ends[from], buffer)
					unix.Read(ends[1-from], buffer)
				}
			}
			b.ReportMetric(float64(threadCPU(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func threadCPU(b *testing.B) int64 {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		b.Fatal(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

// BenchmarkPacketDrops tells what a dropped packet costs: where a socket has no room, and where it is no loss.
func BenchmarkPacketDrops(b *testing.B) {
	for _, refused := range []bool{false, true} {
		name := "SOCKET_RCVBUFF"
		if refused {
			name = "SOCKET_FILTER, no loss"
		}
		b.Run(name, func(b *testing.B) {
			p := New(Options{})
			if err := p.Open(kerneltest.Kernel(b)); err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				b.Fatal(err)
			}
			defer server.Close()
			server.SetReadBuffer(4096)
			if refused {
				refuseAll(b, server)
			}
			client, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			for _, c := range kerneltest.CostsOf(b, p, func() {
				for b.Loop() {
					client.Write([]byte("no room"))
				}
			}) {
				if c.Runs > 0 && c.Name == DropFeature {
					b.ReportMetric(float64(c.RunTimeNS)/float64(c.Runs), "ns/drop")
					b.ReportMetric(float64(c.Runs)/float64(b.N), "drops/op")
				}
			}
		})
	}
}

// BenchmarkSamples tells what a sample of the connections costs, per run of the program that sees connections begin and
// end: with and without.
func BenchmarkSamples(b *testing.B) {
	for _, sampled := range []bool{false, true, false, true} {
		name := "without"
		if sampled {
			name = "with"
		}
		b.Run(name, func(b *testing.B) {
			p := New(Options{})
			if err := p.Open(kerneltest.Kernel(b)); err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			if sampled {
				if err := p.edges.beginSamples(time.Now()); err != nil {
					b.Fatal(err)
				}
			} else if err := p.edges.objects.SampleRound.Set(uint32(0)); err != nil {
				b.Fatal(err)
			}
			for _, c := range kerneltest.CostsOf(b, p, func() { connectTCP(b) }) {
				if c.Runs > uint64(b.N)/2 && strings.Contains(c.Name, "state") {
					b.ReportMetric(float64(c.RunTimeNS)/float64(b.N), strings.ReplaceAll(c.Name, " ", "-")+"-ns/connection")
				}
			}
		})
	}
}

// connectTCP opens and closes connections.
func connectTCP(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	for b.Loop() {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

func exchangeTCP(b *testing.B, buffer []byte) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := make([]byte, 1000)
		for {
			n, err := conn.Read(in)
			if err != nil {
				return
			}
			conn.Write(in[:n])
		}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		conn.Write(buffer[:100])
		conn.Read(buffer)
	}
	conn.Close()
	<-done
}

// exchangeUDP lets clients ask one server, which is never connected, in turn.
func exchangeUDP(b *testing.B, buffer []byte, connected bool, clients int) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	if connected {
		exchangeConnected(b, buffer)
		return
	}
	go func() {
		in := make([]byte, 1000)
		for {
			n, from, err := server.ReadFromUDPAddrPort(in)
			if err != nil {
				return
			}
			server.WriteToUDPAddrPort(in[:n], from)
		}
	}()
	to := server.LocalAddr().(*net.UDPAddr).AddrPort()
	conns := make([]*net.UDPConn, clients)
	for i := range conns {
		if conns[i], err = net.ListenUDP("udp", nil); err != nil {
			b.Fatal(err)
		}
		defer conns[i].Close()
	}
	for i := 0; b.Loop(); i++ {
		conn := conns[i%clients]
		conn.WriteToUDPAddrPort(buffer[:100], to)
		conn.ReadFromUDPAddrPort(buffer)
	}
}

// exchangeConnected has both ends connected to each other.
func exchangeConnected(b *testing.B, buffer []byte) {
	here, there := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 23457}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1),
		Port: 23458}
	client, err := net.DialUDP("udp", here, there)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	server, err := net.DialUDP("udp", there, here)
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	go func() {
		in := make([]byte, 1000)
		for {
			n, err := server.Read(in)
			if err != nil {
				return
			}
			server.Write(in[:n])
		}
	}()
	for b.Loop() {
		client.Write(buffer[:100])
		client.Read(buffer)
	}
}

// exchangeGRPC makes one call after another.
func exchangeGRPC(b *testing.B) {
	conn := callEchoes(b, serveEchoes(b))
	for b.Loop() {
		if err := call(b.Context(), conn, "Sleep", 0); err != nil {
			b.Fatal(err)
		}
	}
}

// exchangeDNS sends queries over one socket; the reply is the query with its response bit set.
func exchangeDNS(b *testing.B) {
	at := &net.UDPAddr{IP: net.IPv4(127, 0, 53, 9), Port: 53}
	server, err := net.ListenUDP("udp", at)
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	client, err := net.DialUDP("udp", nil, at)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	packet := query(b, 1, "redis.shop.svc.cluster.local.", dnsmessage.TypeA)
	reply := make([]byte, 512)
	for i := 0; b.Loop(); i++ {
		packet[0], packet[1] = byte(i>>8), byte(i)
		client.Write(packet)
		n, from, err := server.ReadFromUDPAddrPort(reply)
		if err != nil {
			b.Fatal(err)
		}
		reply[2] |= 0x80
		server.WriteToUDPAddrPort(reply[:n], from)
		client.Read(reply)
	}
}
