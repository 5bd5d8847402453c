package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/container"
	"outsight/internal/control"
	"outsight/internal/model"
)

// site are two agents whose hosts talk, and containers of theirs that do.
type site struct {
	a, b *Sessions
	// mu guards pids, by the containers' IDs.
	mu   sync.Mutex
	pids map[string]int
}

// newSite runs both until the test ends.
func newSite(t *testing.T) *site {
	s := &site{pids: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, agent := range []struct {
		at string
		to **Sessions
	}{{"127.0.0.1:0", &s.a}, {"127.0.0.2:0", &s.b}} {
		opened, err := OpenSessions(SessionOptions{Listen: agent.at})
		if err != nil {
			t.Fatal(err)
		}
		*agent.to = opened
		running.Go(func() {
			if err := opened.Run(ctx, s.open); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// open is what an agent's registry does.
func (s *site) open(id string) (*os.File, error) {
	s.mu.Lock()
	pid := s.pids[id]
	s.mu.Unlock()
	if pid == 0 {
		return nil, container.ErrNoNamespace
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, syscall.ESRCH) {
		return nil, container.ErrEnded
	}
	return os.NewFile(uintptr(fd), "pidfd"), err
}

// runs makes a process a container.
func (s *site) runs(id string, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids[id] = pid
}

// apply has both agents do what a server decides, if the containers talk.
func (s *site) apply(talks ...control.ContainerTalk) {
	agents := map[string]*control.Agent{}
	for host, of := range map[string]*Sessions{"a": s.a, "b": s.b} {
		agents[host] = &control.Agent{Question: control.Question{Host: host, Addresses: []netip.Addr{of.at.Addr()},
			Port: of.Port(), Containers: true}}
	}
	d := control.Decide(make([]byte, 32), "", agents, control.Talks{Containers: talks,
		Hosts: []control.Talk{{Pair: control.Pair{A: "a", B: "b"}}}}, control.Held{},
		control.Limits{Rate: control.DefaultRate, Containers: control.DefaultContainers})
	s.b.Apply(d.States["b"])
	s.a.Apply(d.States["a"])
}

func talkOf(client, server *space) control.ContainerTalk {
	return control.ContainerTalk{ClientHost: "a", Client: control.Container{ID: "id-" + client.Name, Name: client.Name},
		ServerHost: "b", Server: control.Container{ID: "id-" + server.Name, Name: server.Name},
		ClientAddresses: client.Addresses[:1], At: server.Addresses[0]}
}

// session is that of containers, or of the hosts, as the agent of a tells it.
func (s *site) session(client string) (one model.ProbeSession, ok bool) {
	for _, one := range s.a.Sample().Sessions {
		if one.Client == client {
			return one, true
		}
	}
	return one, false
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	begun := time.Now()
	for !f() {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("%s: not within %v", what, time.Since(begun))
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("%s after %v", what, time.Since(begun).Round(100*time.Microsecond))
}

// sockets is how many of UDP there are in a namespace.
func (s *space) sockets(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n")) - 1
}

// TestContainerSessions: between two containers whose path is slower than their hosts' the sockets are inside them, what is
// measured is that path, and ends when it is not wanted any more, or with one of the containers.
func TestContainerSessions(t *testing.T) {
	t.Parallel()
	const delay = 5 * time.Millisecond
	web, db := newSpace(t, "web", "192.0.2.1"), newSpace(t, "db", "192.0.2.2")
	w := newWire(t, web, db)
	untouched := direction{delay: delay, lose: 1 << 30, loseAt: -1, double: -1, swap: -1}
	w.there, w.back = untouched, untouched
	w.run(t)
	s := newSite(t)
	s.runs("id-web", web.pid)
	s.runs("id-db", db.pid)
	s.apply()
	eventually(t, "a session of the hosts", func() bool {
		one, ok := s.session("")
		return ok && one.RoundTrip != nil && one.RoundTrip.Count >= 10
	})
	if _, ok := s.session("web"); ok || web.sockets(t)+db.sockets(t) > 0 {
		t.Error("there are sockets in containers that do not talk")
	}

	s.apply(talkOf(web, db))
	eventually(t, "a session of the containers", func() bool { _, ok := s.session("web"); return ok })
	eventually(t, "its first packet", func() bool { one, _ := s.session("web"); return one.Sent > 0 })
	eventually(t, "ten round trips", func() bool {
		one, _ := s.session("web")
		return one.RoundTrip != nil && one.RoundTrip.Count >= 10
	})
	one, _ := s.session("web")
	hosts, _ := s.session("")
	if one.Peer != "b" || one.Server != "db" || !one.Answered || one.Lost > 0 || one.Interval != control.MinInterval {
		t.Errorf("the session is %+v", one)
	}
	if least := one.RoundTrip.Quantile(0); least < 2*delay.Seconds()*(1-model.RelativeError) {
		t.Errorf("between the containers the least round trip is %v s, and the path takes %v each way", least, delay)
	}
	if trip := hosts.RoundTrip.Quantile(0.5); trip >= one.RoundTrip.Quantile(0.5) {
		t.Errorf("between the hosts the median is %v s, between the containers %v s", trip, one.RoundTrip.Quantile(0.5))
	}
	eventually(t, "its route", func() bool { one, _ := s.session("web"); return one.Route != nil })
	if one, _ := s.session("web"); one.Route.String() != "direct" {
		t.Errorf("the route is %s", one.Route)
	}
	answered := s.b.Sample().Reflector.Answered
	s.apply()
	if _, ok := s.session("web"); ok {
		t.Error("a session that is not wanted is still there")
	}
	if now := s.b.Sample().Reflector.Answered; now < answered {
		t.Errorf("%d answers are counted, and %d were before", now, answered)
	}
	eventually(t, "the end of all sockets", func() bool { return web.sockets(t)+db.sockets(t) == 0 })
	if f := s.a.Sample().Senders; f != (model.SocketFailures{}) {
		t.Errorf("what was told to end counts as failed: %+v", f)
	}

	// The port is taken for a while.
	taken, err := db.listenUDP(netip.AddrPortFrom(db.Addresses[0], s.b.Port()))
	if err != nil {
		t.Fatal(err)
	}
	s.apply(talkOf(web, db))
	eventually(t, "the failure of a reflector", func() bool { return s.b.Sample().Reflectors.Failed > 0 })
	eventually(t, "a lost packet", func() bool { one, _ := s.session("web"); return one.Lost > 0 })
	if one, _ := s.session("web"); one.Answered || one.RoundTrip != nil {
		t.Errorf("without a reflector the session is %+v", one)
	}
	taken.Close()
	eventually(t, "an answer", func() bool { one, _ := s.session("web"); return one.Answered })

	// One end after the other ends.
	db.kill()
	eventually(t, "the end of the server", func() bool { return s.b.Sample().Reflectors.Ended > 0 })
	eventually(t, "no answer any more", func() bool { one, ok := s.session("web"); return ok && !one.Answered })
	web.kill()
	eventually(t, "the end of the client", func() bool { return s.a.Sample().Senders.Ended > 0 })
	if one, ok := s.session("web"); ok {
		t.Errorf("of a container that has ended there is %+v", one)
	}
	s.runs("id-web", 0)
	eventually(t, "an unknown namespace", func() bool { return s.a.Sample().Senders.Unknown > 0 })
	if _, ok := s.session(""); !ok {
		t.Error("the session of the hosts has ended, too")
	}
}

// TestContainersThatVanish: namespaces are removed while sockets are made in them, again and again: each failure is counted
// as an end, nothing is told of what is no more, and no descriptor stays.
func TestContainersThatVanish(t *testing.T) {
	s := newSite(t)
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	const rounds, pairs = 40, 4
	s.apply()
	eventually(t, "a session of the hosts", func() bool { one, ok := s.session(""); return ok && one.Answered })
	before := files()
	for round := range rounds {
		var commands []*exec.Cmd
		var talks []control.ContainerTalk
		for i := range pairs {
			var ends [2]*space
			for j, name := range []string{"client", "server"} {
				c := exec.Command("sleep", "600")
				c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				commands = append(commands, c)
				address := netip.AddrFrom4([4]byte{10, byte(round), byte(i), byte(j + 1)})
				ends[j] = &space{&Place{Name: fmt.Sprintf("%s-%d-%d", name, round, i), Addresses: []netip.Addr{address}}, c.Process.Pid}
				if err := exec.Command("nsenter", "-t", fmt.Sprint(c.Process.Pid), "-n", "sh", "-c",
					"ip link set lo up && ip addr add "+address.String()+"/32 dev lo").Run(); err != nil {
					t.Fatal(err)
				}
				s.runs("id-"+ends[j].Name, c.Process.Pid)
			}
			talks = append(talks, talkOf(ends[0], ends[1]))
		}
		s.apply(talks...)
		time.Sleep(time.Duration(round) * 2 * time.Millisecond)
		for _, c := range commands {
			_ = c.Process.Kill()
		}
		for _, c := range commands {
			_ = c.Wait()
		}
		eventually(t, "the end of all", func() bool { return len(s.a.Sample().Sessions) == 1 })
		s.apply()
	}
	eventually(t, "the end of the last", func() bool { return s.stopped() })
	for what, f := range map[string]model.SocketFailures{"senders": s.a.Sample().Senders, "reflectors": s.b.Sample().Reflectors} {
		if f.Failed > 0 || f.Unknown > 0 || f.Ended == 0 {
			t.Errorf("%s: %+v, want some that ended and no other", what, f)
		}
	}
	eventually(t, "no descriptor left", func() bool { return files() <= before })
}

// stopped reports whether nothing is left in containers.
func (s *site) stopped() bool {
	s.b.mu.Lock()
	reflectors := len(s.b.reflectors)
	s.b.mu.Unlock()
	return reflectors == 0 && len(s.a.Sample().Sessions) == 1
}
