package parsertest

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

const (
	replayBatch = 2048
	replayCPUs  = 512
)

// smtSwitch is a switch on a CPU of a simulated machine: from then on it runs a thread, or none (0).
type smtSwitch struct {
	ns     uint64
	cpu    int
	thread int
	// count is what the CPU's counter says then.
	count uint64
}

// machine tells each CPU's core.
type machine []int

// threadsPerCore makes a machine as Linux numbers it: first a thread of each core, then the others.
func threadsPerCore(cores, threads int) machine {
	m := make(machine, cores*threads)
	for cpu := range m {
		m[cpu] = cpu % cores
	}
	return m
}

// replaySwitches runs the kernel's accounting: for each switch, how the slice that ended was shared.
func replaySwitches(t testing.TB, m machine, switches []smtSwitch) [][4]uint64 {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	var objects smttestObjects
	if err := loadSmttestObjects(&objects, nil); err != nil {
		t.Fatalf("loading: %v", err)
	}
	defer objects.Close()
	cores := make([]uint32, replayCPUs)
	for cpu, core := range m {
		cores[cpu] = uint32(core)
	}
	if err := objects.CoreOf.Set(cores); err != nil {
		t.Fatal(err)
	}
	var parts [][4]uint64
	for batch := range slices.Chunk(switches, replayBatch) {
		in := make([]smttestReplaySwitch, replayBatch)
		for i := range in {
			in[i].Cpu = replayCPUs // the end
		}
		for i, s := range batch {
			in[i] = smttestReplaySwitch{NowNs: s.ns, Count: s.count, Cpu: uint32(s.cpu)}
			if s.thread != 0 {
				in[i].Busy = 1
			}
		}
		if err := objects.Switches.Set(in); err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Replay.Run(&ebpf.RunOptions{}); err != nil {
			t.Fatalf("running the program: %v", err)
		}
		var done uint32
		if err := objects.Replayed.Get(&done); err != nil || int(done) != len(batch) {
			t.Fatalf("%d of %d switches were replayed (%v)", done, len(batch), err)
		}
		if err := objects.Switches.Get(in); err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			parts = append(parts, in[i].Parts)
		}
	}
	return parts
}

// slice is what a CPU did between two of its switches; ended is the switch that ended it.
type slice struct {
	from, to     uint64
	thread       int
	count        uint64
	ended, began int
}

// slicesOf cuts the switches of each CPU into slices. Before its first switch a CPU is idle.
func slicesOf(m machine, switches []smtSwitch) [][]slice {
	all := make([][]slice, len(m))
	last := make([]smtSwitch, len(m))
	began := make([]int, len(m))
	for i, s := range switches {
		all[s.cpu] = append(all[s.cpu], slice{last[s.cpu].ns, s.ns, last[s.cpu].thread, s.count - last[s.cpu].count, i,
			began[s.cpu]})
		last[s.cpu], began[s.cpu] = s, i
	}
	return all
}

// understandShared says how each slice was shared, in the plainest way: it cuts the time of a core at
// every switch of its CPUs, asks of each piece who was busy in it, and adds the pieces up.
func understandShared(m machine, switches []smtSwitch) [][4]uint64 {
	parts := make([][4]uint64, len(switches))
	all := slicesOf(m, switches)
	siblings := map[int][]int{}
	for cpu, core := range m {
		siblings[core] = append(siblings[core], cpu)
	}
	for _, cpus := range siblings {
		var cuts []uint64
		for _, cpu := range cpus {
			for _, s := range all[cpu] {
				cuts = append(cuts, s.from, s.to)
			}
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		// busy[i] is how many CPUs of the core ran a thread from cut i to the next.
		busy := make([]int, len(cuts))
		for _, cpu := range cpus {
			for _, s := range all[cpu] {
				for i := firstCut(cuts, s.from); s.thread != 0 && i < len(cuts) && cuts[i] < s.to; i++ {
					busy[i]++
				}
			}
		}
		for _, cpu := range cpus {
			for _, s := range all[cpu] {
				var with [4]uint64
				for i := firstCut(cuts, s.from); s.thread != 0 && i < len(cuts) && cuts[i] < s.to; i++ {
					with[min(busy[i], 4)-1] += cuts[i+1] - cuts[i]
				}
				parts[s.ended] = divide(s.count, with)
			}
		}
	}
	return parts
}

func firstCut(cuts []uint64, ns uint64) int {
	i, _ := slices.BinarySearch(cuts, ns)
	return i
}

// divide divides a count in the proportion of times, by rounding the sums of the first parts down.
// Of times from 2^32 ns on, the last bits are not looked at.
func divide(count uint64, with [4]uint64) (parts [4]uint64) {
	whole := with[0] + with[1] + with[2] + with[3]
	drop := max(0, new(big.Int).SetUint64(whole).BitLen()-32)
	var ns, given uint64
	for i := range parts {
		ns += with[i]
		upto := count
		if ns < whole {
			product := new(big.Int).Mul(new(big.Int).SetUint64(count), new(big.Int).SetUint64(ns>>drop))
			upto = product.Div(product, new(big.Int).SetUint64(whole>>drop)).Uint64()
		}
		parts[i] = upto - given
		given = upto
	}
	return parts
}

// checkShared holds the kernel against the model, and both against what must always be true.
func checkShared(t *testing.T, m machine, switches []smtSwitch) (weighted map[int]float64) {
	t.Helper()
	got, want := replaySwitches(t, m, switches), understandShared(m, switches)
	for i := range switches {
		if got[i] != want[i] {
			t.Fatalf("switch %d, %+v: the slice before was shared %v, want %v", i, switches[i], got[i], want[i])
		}
	}
	// Nothing is counted twice or lost: a CPU's parts are what its counter counted.
	weighted = map[int]float64{}
	for cpu, all := range slicesOf(m, switches) {
		var parts, counted uint64
		for _, s := range all {
			for n, part := range got[s.ended] {
				parts += part
				if s.thread != 0 {
					weighted[s.thread] += float64(part) * weight(n+1)
				}
			}
			counted += s.count
		}
		if parts != counted {
			t.Fatalf("CPU %d: parts are %d, want %d", cpu, parts, counted)
		}
	}
	return weighted
}

// weight is equation 1 of Brondolin and Santambrogio 2020 with a ratio of 1.1, and for more than two
// threads its continuation.
func weight(busy int) float64 { return (1 + 0.1*float64(busy-1)) / float64(busy) }

// generate makes a random sequence. Every CPU is idle at its end.
func generate(random *rand.Rand, m machine, n int, greatestGap uint64) []smtSwitch {
	now := uint64(1 << 40)
	counts := make([]uint64, len(m))
	last := make([]uint64, len(m))
	busy := make([]bool, len(m))
	var all []smtSwitch
	to := func(cpu, thread int) {
		if busy[cpu] { // an idle CPU counts little, at any pace
			counts[cpu] += (now - last[cpu]) * (500 + random.Uint64N(3500)) / 1000
		} else {
			counts[cpu] += random.Uint64N(1000)
		}
		last[cpu], busy[cpu] = now, thread != 0
		all = append(all, smtSwitch{now, cpu, thread, counts[cpu]})
	}
	for range n {
		now += random.Uint64N(greatestGap)
		cpu, thread := random.IntN(len(m)), 0
		if random.IntN(3) > 0 {
			thread = 1 + random.IntN(40)
		}
		to(cpu, thread)
		if random.IntN(10) == 0 { // several CPUs at one time
			to(random.IntN(len(m)), 1+random.IntN(40))
		}
	}
	now += greatestGap
	for cpu := range m {
		to(cpu, 0)
	}
	return all
}

func TestSharedCores(t *testing.T) {
	for _, c := range []struct {
		name     string
		machine  machine
		switches int
		gap      uint64
	}{
		{"one thread per core", threadsPerCore(4, 1), 2000, 1e6},
		{"two threads", threadsPerCore(1, 2), 5000, 1e5},
		{"two sockets of four cores of two threads", threadsPerCore(8, 2), 5000, 1e6},
		{"four threads", threadsPerCore(4, 4), 5000, 1e6},
		{"eight threads", threadsPerCore(2, 8), 3000, 1e6},
		{"512 CPUs", threadsPerCore(256, 2), 20000, 1e5},
		{"slices of minutes", threadsPerCore(2, 2), 500, 100e9},
		{"slices of no time", threadsPerCore(2, 2), 500, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(3) {
				random := rand.New(rand.NewPCG(seed, 7))
				checkShared(t, c.machine, generate(random, c.machine, c.switches, c.gap))
			}
		})
	}
}

// recorded are the switches of a real machine, with counters that go at another pace in each thread.
func recorded(t *testing.T) []smtSwitch {
	t.Helper()
	text, err := os.ReadFile("testdata/switches.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []smtSwitch
	last := map[int]smtSwitch{}
	for line := range strings.Lines(string(text)) {
		var us uint64
		s := smtSwitch{}
		if _, err := fmt.Sscan(line, &us, &s.cpu, &s.thread); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		s.ns = us * 1000
		before := last[s.cpu]
		s.count = before.count + (s.ns-before.ns)*uint64(1000+37*before.thread)/1000
		last[s.cpu] = s
		all = append(all, s)
	}
	// The model knows slices that have ended.
	end := all[len(all)-1].ns
	for cpu := range 2 {
		count := last[cpu].count + (end-last[cpu].ns)*uint64(1000+37*last[cpu].thread)/1000
		all = append(all, smtSwitch{end, cpu, 0, count})
	}
	return all
}

// The two CPUs of a real recording as the threads of one core, and as two cores.
func TestRecordedSwitches(t *testing.T) {
	switches := recorded(t)
	shared := checkShared(t, machine{0, 0}, switches)
	apart := checkShared(t, machine{0, 1}, switches)
	var plain uint64
	for _, all := range slicesOf(machine{0, 1}, switches) {
		for _, s := range all {
			if s.thread != 0 {
				plain += s.count
			}
		}
	}
	var sumShared, sumApart float64
	for thread := range apart {
		sumShared, sumApart = sumShared+shared[thread], sumApart+apart[thread]
		if shared[thread] > apart[thread]*1.000001 {
			t.Errorf("thread %d weighs %.0f on a shared core, %.0f alone", thread, shared[thread], apart[thread])
		}
	}
	if diff := sumApart - float64(plain); diff > 1 || diff < -1 {
		t.Errorf("threads that share no core weigh %.0f, want their %d", sumApart, plain)
	}
	if sumShared < 0.55*sumApart || sumShared > 0.99*sumApart {
		t.Errorf("on a shared core they weigh %.0f of %.0f, want a part", sumShared, sumApart)
	}
}

// What paper 000 says of two threads: alone a cycle is one, together 1.1 of them are.
func TestEquationOne(t *testing.T) {
	const second = uint64(1e9)
	switches := []smtSwitch{
		{1 * second, 0, 1, 0},
		{2 * second, 1, 2, 0},
		{4 * second, 0, 0, 3 * second}, // one second alone, two shared
		{5 * second, 1, 0, 3 * second}, // two shared, one alone
	}
	weighted := checkShared(t, machine{0, 0}, switches)
	for thread, got := range weighted {
		if want := 1e9 + 2e9*0.55; got < want-2 || got > want+2 {
			t.Errorf("thread %d weighs %.0f, want %.0f", thread, got, want)
		}
	}
}

// Siblings' clocks may disagree: whatever comes, parts are what was counted.
func TestClocksThatDisagree(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 11))
		m := threadsPerCore(2, 2)
		switches := generate(random, m, 1000, 1e5)
		for i := range switches {
			switches[i].ns -= random.Uint64N(2e5)
		}
		parts := replaySwitches(t, m, switches)
		last := make([]uint64, len(m))
		for i, s := range switches {
			sum := parts[i][0] + parts[i][1] + parts[i][2] + parts[i][3]
			if sum != s.count-last[s.cpu] {
				t.Fatalf("switch %d: parts %v, want %d together", i, parts[i], s.count-last[s.cpu])
			}
			last[s.cpu] = s.count
		}
	}
}
