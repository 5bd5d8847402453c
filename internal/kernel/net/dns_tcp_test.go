package net

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/model"
)

// newNameServerTCP answers over TCP, one query after the other.
func newNameServerTCP(t *testing.T, address string) *nameServer {
	t.Helper()
	s := &nameServer{address: netip.MustParseAddrPort(address), sent: make(map[string]uint64)}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.answerAll(conn)
		}
	}()
	return s
}

func (s *nameServer) answerAll(conn net.Conn) {
	defer conn.Close()
	for {
		query, err := readMessage(conn)
		if err != nil {
			return
		}
		if reply := s.answer(query); reply != nil {
			conn.Write(withLength(reply))
		}
	}
}

func withLength(m []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
}

func readMessage(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(r, m)
	return m, err
}

// Go's resolver and the C library, which asks for both address families by one call: at the client
// that is a pipeline, and a connection that begins with one is not taken for DNS. The server
// reads and answers one after the other.
func TestDNSOverTCP(t *testing.T) {
	p := openShared(t)
	s := newNameServerTCP(t, "127.0.53.11:53")
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.address.String())
	}}
	for range 20 {
		if _, err := r.LookupNetIP(t.Context(), "ip4", "Redis.shop.Example."); err != nil {
			t.Error(err)
		}
		r.LookupNetIP(t.Context(), "ip4", "no.such.example.")
	}
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+s.address.Addr().String()+"\noptions use-vc\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	script := `mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && for i in 1 2 3; do getent ahostsv4 db.shop.example.; getent ahosts both.example.; done`
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", script, resolv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[string]uint64{"A redis.shop.example ok": 20, "A no.such.example nxdomain": 20, "A db.shop.example ok": 3}
	counts, _ := s.counts()
	if len(counts) != 5 || counts["AAAA both.example ok"] != 3 {
		t.Fatalf("the server counted %v", counts)
	}
	for name, n := range want {
		if counts[name] != n {
			t.Fatalf("the server counted %v, want %d × %s", counts, n, name)
		}
	}
	for _, end := range []struct {
		role model.Role
		want map[string]uint64
	}{{model.RoleClient, want}, {model.RoleServer, counts}} {
		expectAt(t, p, 53, end.role, end.want)
	}
}

// Queries that do not wait for the reply before: which reply is whose is not guessed.
func TestDNSOverTCPAtOnce(t *testing.T) {
	p := openShared(t)
	l, err := net.Listen("tcp", "127.0.53.12:53")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			accepted <- conn
		}
	}()
	client := kerneltest.Dial(t, l.Addr().String())
	server := <-accepted
	defer server.Close()
	// turn sends queries in writes, and answers in the order of the numbers.
	turn := func(writes [][]uint16, answers ...uint16) {
		t.Helper()
		asked := make(map[uint16][]byte)
		for _, ids := range writes {
			var text []byte
			for _, id := range ids {
				text = append(text, withLength(query(t, id, fmt.Sprintf("host-%d.example.", id), dnsmessage.TypeA))...)
			}
			client.Write(text)
			for range ids {
				m, err := readMessage(server)
				if err != nil {
					t.Fatal(err)
				}
				m[2] |= 0x80
				asked[binary.BigEndian.Uint16(m)] = m
			}
		}
		for _, id := range answers {
			server.Write(withLength(asked[id]))
			if _, err := readMessage(client); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	turn([][]uint16{{1}}, 1)
	turn([][]uint16{{2, 3}}, 3, 2)
	turn([][]uint16{{4}, {5}}, 4, 5)
	turn([][]uint16{{6}}, 6)
	turn([][]uint16{{7}, {8}}, 8) // one has its reply after the next query
	turn([][]uint16{{9}}, 9)
	client.Close()
	expect(t, p, 53, map[string]uint64{"A host-1.example ok": 1, "pipelined": 3, "A host-6.example ok": 1,
		"A host-9.example ok": 1})
}
