package network

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outsight/internal/model"
)

var capture = flag.Bool("capture", false, "write what the kernel answered to testdata")

const conntrackFile = "testdata/conntrack"

// Tests never run on the process's first thread, whose namespace is the process's.
func init() { runtime.LockOSThread() }

// inNamespace makes a network namespace with iptables rules and runs f in it.
func inNamespace(t *testing.T, rules []string, f func() error) {
	t.Helper()
	name := fmt.Sprintf("osct%d", os.Getpid())
	run := func(words ...string) {
		t.Helper()
		if output, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, output)
		}
	}
	run("ip", "netns", "add", name)
	defer run("ip", "netns", "del", name)
	in := []string{"nsenter", "--net=/run/netns/" + name}
	for _, rule := range append([]string{"ip link set lo up", "ip route add 10.96.0.0/16 dev lo src 127.0.0.1",
		"ip -6 route add fd13:96::/64 dev lo"}, rules...) {
		run(append(in, strings.Fields(rule)...)...)
	}
	done := make(chan error)
	go func() {
		// The thread is not used again: it ends with the goroutine.
		runtime.LockOSThread()
		namespace, err := os.Open("/run/netns/" + name)
		if err == nil {
			defer namespace.Close()
			if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err == nil {
				err = f()
			}
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestReadTranslations(t *testing.T) {
	const connections = 3
	var plain, four, six net.Listener
	var found, few []model.Translation
	var tooMany error
	inNamespace(t, []string{
		"iptables -w -t nat -A OUTPUT -d 10.96.0.1 -p tcp --dport 80 -j DNAT --to 127.0.0.1:8080",
		"iptables -w -t nat -A OUTPUT -d 10.96.0.1 -p udp --dport 80 -j DNAT --to 127.0.0.1:8080",
		"ip6tables -w -t nat -A OUTPUT -d fd13:96::1 -p tcp --dport 80 -j DNAT --to [::1]:8080",
	}, func() (err error) {
		for address, listener := range map[string]*net.Listener{"127.0.0.1:8080": &four, "[::1]:8080": &six,
			"127.0.0.1:9090": &plain} {
			if *listener, err = net.Listen("tcp", address); err != nil {
				return err
			}
			defer (*listener).Close()
		}
		for range connections {
			for _, address := range []string{"10.96.0.1:80", "[fd13:96::1]:80", "127.0.0.1:9090"} {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					return err
				}
				defer conn.Close()
			}
		}
		datagram, err := net.Dial("udp", "10.96.0.1:80")
		if err != nil {
			return err
		}
		defer datagram.Close()
		datagram.Write([]byte("x"))
		if *capture {
			var all []byte
			if err := dumpConntrack(func(b []byte) (bool, error) {
				all = append(all, b...)
				return parseConntrack(b, func(model.Translation) bool { return true })
			}); err != nil {
				return err
			}
			if err := os.WriteFile(conntrackFile, all, 0o644); err != nil {
				return err
			}
		}
		if found, err = ReadTranslations(100); err != nil {
			return err
		}
		few, tooMany = ReadTranslations(2)
		return nil
	})
	checkTranslations(t, found, connections)
	if len(few) != 2 || !errors.Is(tooMany, ErrTooManyTranslations) {
		t.Errorf("of six, two: got %v, %v", few, tooMany)
	}
}

func checkTranslations(t *testing.T, found []model.Translation, connections int) {
	t.Helper()
	count := map[model.Translation]int{}
	for _, one := range found {
		count[one]++
	}
	of := func(client, dialled, reached string) model.Translation {
		return model.Translation{Client: netip.MustParseAddr(client), Dialled: netip.MustParseAddrPort(dialled),
			Reached: netip.MustParseAddrPort(reached)}
	}
	if len(count) != 2 || count[of("127.0.0.1", "10.96.0.1:80", "127.0.0.1:8080")] != connections ||
		count[of("::1", "[fd13:96::1]:80", "[::1]:8080")] != connections {
		t.Errorf("got %v", count)
	}
}

// What the kernel once answered.
func TestParseConntrack(t *testing.T) {
	b, err := os.ReadFile(conntrackFile)
	if err != nil {
		t.Fatal(err)
	}
	var found []model.Translation
	done, err := parseConntrack(b, func(one model.Translation) bool { found = append(found, one); return true })
	if !done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
	checkTranslations(t, found, 3)
	if _, err := parseConntrack(b[:len(b)/2], func(model.Translation) bool { return true }); err == nil {
		t.Error("half an answer is none")
	}
}

func TestConntrackRefusals(t *testing.T) {
	message := func(kind uint16, body ...byte) []byte {
		b := []byte{byte(16 + len(body)), 0, 0, 0, byte(kind), byte(kind >> 8), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		return append(b, body...)
	}
	add := func(model.Translation) bool { return true }
	if _, err := parseConntrack(message(unix.NLMSG_ERROR, 0xff, 0xff, 0xff, 0xff), add); !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v, want EPERM", err)
	}
	if done, err := parseConntrack(message(unix.NLMSG_DONE), add); !done || err != nil {
		t.Errorf("got %v, %v", done, err)
	}
	if done, err := parseConntrack(message(0x7777, 1, 2, 3, 4), add); done || err != nil {
		t.Errorf("got %v, %v", done, err)
	}
}

func FuzzParseConntrack(f *testing.F) {
	b, err := os.ReadFile(conntrackFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-20])
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		parseConntrack(b, func(one model.Translation) bool {
			if n++; n*40 > len(b) {
				t.Fatalf("%d entries in %d bytes", n, len(b))
			}
			if !one.Dialled.IsValid() || !one.Reached.IsValid() || !one.Client.IsValid() {
				t.Fatalf("entry %+v", one)
			}
			return true
		})
	})
}
