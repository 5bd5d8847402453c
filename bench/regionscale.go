package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"outsight/internal/kernel/region"
	"outsight/internal/region/readwire"
)

const (
	scaleWork = "read-hosts"
	// scaleVariable is a scaleJob in JSON.
	scaleVariable = "OUTSIGHT_BENCH_SCALE"
	scaleRun      = 3 * time.Second
	scaleBytes    = 128 << 10 // of a host, as in paper 004
	scaleHosts    = 10000
	// Together they have scaleReaders*scaleWindow KB on the way, as the default of --credit.
	scaleReaders, scaleWindow = 32, 8
)

// scaleJob is what one thread reads: so many hosts, so many bytes of each, every Interval.
type scaleJob struct {
	Hosts, Bytes int
	Interval     time.Duration
	Secret       string
}

// scaleResult is what became of it.
type scaleResult struct {
	Rounds int
	// Late readings were not there when the next ones were due. Lost are readings that were given up.
	Late, Lost int
	// Round is how long the longest round took, CPU what the thread used in all of Elapsed, the kernel's work for its
	// packets included as far as it is done on its CPU.
	Round, CPU, Elapsed time.Duration
	Packets, Resent     uint64
}

func (r *scaleResult) perSecond() float64 { return float64(r.Packets) / r.Elapsed.Seconds() }
func (r *scaleResult) share() float64     { return 100 * r.CPU.Seconds() / r.Elapsed.Seconds() }

// scaleJobs go to where one thread is late.
var scaleJobs = []scaleJob{
	{Hosts: 1000, Bytes: 1 << 10, Interval: time.Second},
	{Hosts: 1000, Bytes: 16 << 10, Interval: time.Second},
	{Hosts: 1000, Bytes: 64 << 10, Interval: time.Second},
	{Hosts: 1000, Bytes: scaleBytes, Interval: time.Second},
	{Hosts: scaleHosts, Bytes: 1 << 10, Interval: time.Second},
	{Hosts: scaleHosts, Bytes: 4 << 10, Interval: time.Second},
	{Hosts: scaleHosts, Bytes: 16 << 10, Interval: time.Second},
	{Hosts: scaleHosts, Bytes: scaleBytes, Interval: time.Second},
	{Hosts: 1000, Bytes: 1 << 10, Interval: time.Second / 10},
	{Hosts: 1000, Bytes: 4 << 10, Interval: time.Second / 10},
	{Hosts: 1000, Bytes: 16 << 10, Interval: time.Second / 10},
	{Hosts: scaleHosts, Bytes: 1 << 10, Interval: time.Second / 10},
}

// measureRegionScale lets one thread read 1,000 and 10,000 hosts: addresses that the kernel of one network namespace
// answers for by itself. The thread has the last CPU, the hosts' kernel the first.
func measureRegionScale(ctx context.Context, o options) (rows []row, err error) {
	w, err := newRegionWire()
	if err != nil {
		return nil, err
	}
	defer w.remove()
	if out, err := exec.Command("ip", "-n", w.client, "route", "add", scaleNetwork.String(), "via", regionHost).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("adding a route: %w: %s", err, out)
	}
	key := readwire.NewKey(1)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "counted", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: scaleBytes / 8,
		Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	addresses := []netip.Addr{netip.MustParseAddr(regionHost)}
	for i := range scaleHosts {
		addresses = append(addresses, scaleAddress(i))
	}
	r, c, err := w.serve(region.HookGeneric, key, m, addresses...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer c.Close()
	var most scaleResult
	for _, job := range scaleJobs {
		job.Secret = hex.EncodeToString(key.Secret[:])
		result, err := w.readHosts(ctx, job)
		if err != nil {
			return nil, err
		}
		if result.Packets > most.Packets {
			most = result
		}
		one := row{what: fmt.Sprintf("%d hosts, %d KB of each every %v: CPU of the thread", job.Hosts, job.Bytes>>10, job.Interval),
			value: result.share(), unit: "%", detail: fmt.Sprintf("%.0f packets/s, %d sent again; %d rounds, the longest %.3g s; "+
				"%d of %d readings late, %d given up", result.perSecond(), result.Resent, result.Rounds, result.Round.Seconds(),
				result.Late, result.Rounds*job.Hosts, result.Lost)}
		progress("%s: %.3g %%, %s", one.what, one.value, one.detail)
		rows = append(rows, one)
	}
	const each = scaleBytes / readwire.MaxBytes
	busy := float64(most.Packets) / most.CPU.Seconds()
	of := fmt.Sprintf("computed: %d packets took %.3g s of the thread's CPU time; %d packets for each host", most.Packets,
		most.CPU.Seconds(), each)
	rows = append(rows, row{what: "packets of 1 KB that one thread can read", value: busy, unit: "1/s", detail: of})
	for _, interval := range []time.Duration{time.Second, time.Second / 10} {
		rows = append(rows, row{what: fmt.Sprintf("hosts of 128 KB that one thread can read every %v", interval),
			value: busy / each * interval.Seconds(), unit: "hosts", detail: of})
	}
	return rows, o.document("region.md", "scale", rowsTable(rows))
}

// scaleNetwork has the addresses of the hosts, of which there are scaleHosts at most.
var scaleNetwork = netip.MustParsePrefix("10.218.0.0/16")

func scaleAddress(i int) netip.Addr {
	first := scaleNetwork.Addr().As4()
	return netip.AddrFrom4([4]byte{first[0], first[1], byte(i>>8) + 1, byte(i)})
}

// readHosts has another process do the job, with one CPU.
func (w *regionWire) readHosts(ctx context.Context, job scaleJob) (result scaleResult, err error) {
	self, err := os.Executable()
	if err != nil {
		return result, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return result, err
	}
	cmd := exec.CommandContext(ctx, "taskset", "-c", strconv.Itoa(runtime.NumCPU()-1), self)
	cmd.Env = append(os.Environ(), workVariable+"="+scaleWork, scaleVariable+"="+string(text), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result, err
	}
	if err := w.inside(w.client, cmd.Start); err != nil {
		return result, err
	}
	decoded := json.NewDecoder(out).Decode(&result)
	return result, errors.Join(cmd.Wait(), decoded)
}

// doScale is what that process does.
func doScale(text string) error {
	var job scaleJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	key := readwire.Key{ID: 1}
	if _, err := hex.Decode(key.Secret[:], []byte(job.Secret)); err != nil {
		return err
	}
	clients := make([]*readwire.Client, job.Hosts)
	for i := range clients {
		c, err := readwire.Dial(netip.AddrPortFrom(scaleAddress(i), regionPort).String(), key, readwire.Options{Window: scaleWindow})
		if err != nil {
			return err
		}
		defer c.Close()
		clients[i] = c
	}
	var result scaleResult
	round := func(due time.Time) {
		begun := time.Now()
		var next, late, lost atomic.Int64
		var readers sync.WaitGroup
		for range scaleReaders {
			readers.Go(func() {
				data := make([]byte, job.Bytes)
				for i := next.Add(1) - 1; int(i) < len(clients); i = next.Add(1) - 1 {
					if clients[i].Read(context.Background(), 0, 0, data) != nil {
						lost.Add(1)
					} else if time.Now().After(due) {
						late.Add(1)
					}
				}
			})
		}
		readers.Wait()
		result.Rounds++
		result.Late, result.Lost = result.Late+int(late.Load()), result.Lost+int(lost.Load())
		result.Round = max(result.Round, time.Since(begun))
	}
	if err := clients[0].Read(context.Background(), 0, 0, make([]byte, 8)); err != nil {
		return err
	}
	whole := job.Bytes
	job.Bytes = 8
	round(time.Now().Add(time.Hour)) // sockets and addresses are found
	job.Bytes = whole
	result = scaleResult{}
	sent := packetsOf(clients)
	cpu, err := ownCPU()
	if err != nil {
		return err
	}
	begun := time.Now()
	for begins := begun; ; {
		round(begins.Add(job.Interval))
		// What is missed is not made up for: the next round begins when the next one is due.
		begins = begins.Add(max((time.Since(begins)+job.Interval-1)/job.Interval, 1) * job.Interval)
		time.Sleep(time.Until(begins))
		if time.Since(begun) >= scaleRun {
			break
		}
	}
	result.Elapsed = time.Since(begun)
	after, err := ownCPU()
	result.CPU = after - cpu
	now := packetsOf(clients)
	result.Packets, result.Resent = now.Answered-sent.Answered, now.Resent-sent.Resent
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(result))
}

func packetsOf(clients []*readwire.Client) (sum readwire.Counters) {
	for _, c := range clients {
		n := c.Counters()
		sum.Answered, sum.Resent = sum.Answered+n.Answered, sum.Resent+n.Resent
	}
	return sum
}
