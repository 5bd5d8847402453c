package region

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/kerneltest"
	"outsight/internal/region/readwire"
)

const (
	responderWork = "responder"
	// hookVariable and secretVariable are what a process that answers is told.
	hookVariable, secretVariable = "OUTSIGHT_TEST_HOOK", "OUTSIGHT_TEST_SECRET"
	asleepKeyID                  = 5
)

// respond is a process with a responder for a counter of context switches, which a kernel program adds to.
func respond(string) int {
	err := func() error {
		secret, err := hex.DecodeString(os.Getenv(secretVariable))
		if err != nil {
			return err
		}
		r, err := Open(Options{Interface: "e0", Port: port, Hook: Hook(os.Getenv(hookVariable)), Allow: everybody,
			Keys: []readwire.Key{{ID: asleepKeyID, Secret: [16]byte(secret)}}})
		if err != nil {
			return err
		}
		defer r.Close()
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "switches", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1,
			Flags: unix.BPF_F_MMAPABLE})
		if err != nil {
			return err
		}
		defer m.Close()
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL",
			Instructions: asm.Instructions{
				asm.StoreImm(asm.R10, -4, 0, asm.Word),
				asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4),
				asm.LoadMapPtr(asm.R1, m.FD()),
				asm.FnMapLookupElem.Call(),
				asm.JEq.Imm(asm.R0, 0, "end"),
				asm.Mov.Imm(asm.R1, 1),
				asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
				asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
				asm.Return(),
			}})
		if err != nil {
			return err
		}
		defer program.Close()
		attached, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_switch", Program: program})
		if err != nil {
			return err
		}
		defer attached.Close()
		if err := r.Add(0, m); err != nil {
			return err
		}
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadByte()
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startResponder starts such a process in the namespace of the host. It is ended with the test at the latest.
func (p *pair) startResponder(hook Hook, key readwire.Key) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), kerneltest.WorkloadVariable+"="+responderWork, hookVariable+"="+string(hook),
		secretVariable+"="+hex.EncodeToString(key.Secret[:]))
	p.within("host", func() error {
		in, out := kerneltest.StartTalking(p.t, cmd)
		p.t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
			in.Close()
		})
		if line, err := out.ReadString('\n'); err != nil {
			return fmt.Errorf("the process says %q: %w", line, err)
		}
		return nil
	})
	return cmd
}

// switchesOf are the context switches of all threads of a process, and the states of the threads.
func switchesOf(t *testing.T, pid int) (switches uint64, states []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			switch value = strings.TrimSpace(value); name {
			case "State":
				states = append(states, value[:1])
			case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
				var n uint64
				if _, err := fmt.Sscan(value, &n); err != nil {
					t.Fatal(err)
				}
				switches += n
			}
		}
	}
	return switches, states
}

// A process that holds the maps and is stopped answers on: its counters grow, and no thread of it is run.
func TestStoppedProcessAnswers(t *testing.T) {
	const reads = 2000
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			if hook == HookNative {
				p.passAtClient()
			}
			if hook == HookTCX {
				skipWithoutTCX(t)
			}
			key := readwire.NewKey(asleepKeyID)
			process := p.startResponder(hook, key).Process
			if err := process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			// A thread says that it has stopped before it is switched away for the last time.
			var before, earlier uint64
			kerneltest.Eventually(t, "stopping all threads", func() bool {
				var states []string
				earlier = before
				before, states = switchesOf(t, process.Pid)
				return before == earlier && !slices.ContainsFunc(states, func(s string) bool { return s != "T" })
			})
			c := p.dial(hostAddresses[0], key, readwire.Options{})
			var first, last uint64
			var data [8]byte
			for i := range reads {
				if err := c.Read(t.Context(), 0, 0, data[:]); err != nil {
					t.Fatal(err)
				}
				n := binary.LittleEndian.Uint64(data[:])
				if i == 0 {
					first = n
				}
				if n < last {
					t.Fatalf("the counter went from %d to %d", last, n)
				}
				last = n
			}
			after, states := switchesOf(t, process.Pid)
			if after != before || slices.ContainsFunc(states, func(s string) bool { return s != "T" }) {
				t.Errorf("threads of the stopped process were switched %d times, states %v", after-before, states)
			}
			if last <= first {
				t.Errorf("the counter was %d, and %d after %d reads: it did not grow", first, last, reads)
			}
			t.Logf("%d reads, while the host switched %d times", reads, last-first)
		})
	}
}

// A process that is killed leaves nothing at the interface.
func TestKilledProcessLeavesNothing(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			if hook == HookNative {
				p.passAtClient()
			}
			if hook == HookTCX {
				skipWithoutTCX(t)
			}
			key := readwire.NewKey(asleepKeyID)
			cmd := p.startResponder(hook, key)
			c := p.dial(hostAddresses[0], key, readwire.Options{})
			if err := c.Read(t.Context(), 0, 0, make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			// What is sent to the port now reaches a socket.
			server := p.listen(net.JoinHostPort(hostAddresses[0], fmt.Sprint(port)))
			conn := p.socket(clientAddresses[0], hostAddresses[0])
			request := readwire.AppendRequest(nil, readwire.Request{Length: 128}, addressOf(conn), key)
			kerneltest.Eventually(t, "programs go with the process", func() bool {
				conn.Write(request)
				return server.receives(t, request)
			})
		})
	}
}

// Keys are changed while a client reads: with the new one it may, with the old one no more, and with the one that stays
// all the time.
func TestKeysAreChanged(t *testing.T) {
	p := newPair(t)
	first, second, stays := readwire.NewKey(1), readwire.NewKey(2), readwire.NewKey(3)
	r := p.open(Options{Keys: []readwire.Key{first, stays}})
	if err := r.Add(0, newRegion(t, 8, 16)); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 128)
	of := func(k readwire.Key, o readwire.Options) *readwire.Client { return p.dial(hostAddresses[0], k, o) }
	f := func(what string, c *readwire.Client, want error) {
		t.Helper()
		if err := c.Read(t.Context(), 0, 0, data); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	brief := readwire.Options{Timeout: 1, Attempts: 1}
	f("the first", of(first, readwire.Options{}), nil)
	f("the second, before it is one", of(second, brief), readwire.ErrNoAnswer)
	staying := of(stays, readwire.Options{})
	done := make(chan struct{})
	reading := make(chan error, 1)
	go func() {
		for {
			select {
			case <-done:
				reading <- nil
				return
			default:
			}
			if err := staying.Read(t.Context(), 0, 0, make([]byte, 128)); err != nil {
				reading <- err
				return
			}
		}
	}()
	for range 500 {
		for _, k := range []readwire.Key{second, first, second} {
			if err := r.SetKeys([]readwire.Key{k, stays}); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(done)
	if err := <-reading; err != nil {
		t.Error(err)
	}
	if n := staying.Counters(); n.Resent != 0 {
		t.Errorf("with the key that stays, the client had %+v", n)
	}
	f("the second", of(second, readwire.Options{}), nil)
	f("the first, after it was one", of(first, brief), readwire.ErrNoAnswer)
	same := second
	same.Secret[0] ^= 1
	if err := r.SetKeys([]readwire.Key{same}); err != nil {
		t.Fatal(err)
	}
	f("the second with another secret", of(same, readwire.Options{}), nil)
	f("the second's old secret", of(second, brief), readwire.ErrNoAnswer)
	f("the one that stayed", of(stays, brief), readwire.ErrNoAnswer)
	n, err := r.Counters()
	if err != nil || n.UnknownKey != 3 || n.WrongMAC != 1 {
		t.Errorf("counted %+v, %v, want 3 unknown keys and a wrong MAC", n, err)
	}
}
