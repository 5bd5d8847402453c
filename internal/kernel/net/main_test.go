package net

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/kerneltest"
)

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]func(string) int{
		"listen":        func(string) int { return manyListeners() },
		"clients":       func(string) int { return untilInputEnds(askFromManyAddresses) },
		"streams":       func(string) int { return untilInputEnds(holdStreams) },
		"datagrams":     func(string) int { return untilInputEnds(sendToMany) },
		"stampingproxy": func(string) int { return stampingProxy() },
		"reverseproxy":  func(string) int { return reverseProxy() },
		"asksdatabase":  func(string) int { return databaseClient() },
	}, shared)
}

// shared is the module that tests without options of their own use: verifying its programs takes longer than most of
// them.
var shared = New(Options{Packets: PacketsAll})

// openShared is the shared module with its tables empty.
func openShared(t *testing.T) *Net {
	t.Helper()
	if shared.edges == nil {
		_ = shared.Open(kerneltest.Kernel(t)) // its features tell
	}
	kerneltest.Check(t, shared.Features())
	kerneltest.TellMissed(t, shared)
	forgetAll(t, shared)
	return shared
}

// forgetAll evicts what earlier tests have left, whose ports may be had again, and begins to count drops anew.
func forgetAll(t *testing.T, p *Net) {
	t.Helper()
	readTwice(t, p) // a sweep finds closes that were missed
	r := p.edges
	for range 2 {
		r.release(time.Now().Add(2*idleTime), r.capacity)
	}
	readTwice(t, p) // and this counts quotas anew
	for _, m := range []*ebpf.Map{r.objects.EdgeDrops, r.objects.EndpointDrops} {
		for which := range m.MaxEntries() {
			if err := m.Update(which, make([]uint64, ebpf.MustPossibleCPU()), ebpf.UpdateExist); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.missedCloses.Store(0)
	for key := range r.dropped.states { // namespaces get the numbers of earlier ones
		_ = r.dropped.drops.Delete(key)
	}
	r.pairs.at = time.Time{}
}

// open opens the module by itself: what is older than its programs is so for this test alone.
func open(t *testing.T, o Options) *Net {
	t.Helper()
	o.WithoutEndpoints = o.WithoutEndpoints || kerneltest.Emulated()
	return openReading(t, o)
}

// openReading reads requests also on an emulated machine, which takes long to verify the parsers.
func openReading(t *testing.T, o Options) *Net {
	t.Helper()
	p := New(o)
	kerneltest.Open(t, p)
	return p
}

// prepare is for Options.Prepare: it changes maps and constants by their names.
func prepare(t testing.TB, change func(*edgesSpecs)) func(*ebpf.CollectionSpec) {
	return func(whole *ebpf.CollectionSpec) {
		var spec edgesSpecs
		if err := whole.Assign(&spec); err != nil {
			t.Fatal(err)
		}
		change(&spec)
	}
}
