package region

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"outsight/internal/kernel/host"
	"outsight/internal/region/readwire"
)

var allHooks = []Hook{HookNative, HookGeneric, HookTCX}

// What is read is what lies in the map: of maps as the agent has them, whose values are of any size, at each hook, over
// IPv4 and IPv6.
func TestReadsAreTheMapsMemory(t *testing.T) {
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			p := newPair(t)
			key := readwire.NewKey(3)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}})
			if r.Hook() != hook {
				t.Errorf("it is attached as %s, want %s", r.Hook(), hook)
			}
			shapes := []struct{ valueBytes, entries uint32 }{{896, 200}, {776, 1}, {8, 3}, {12, 100}, {65536, 4}}
			memories := make([][]byte, len(shapes))
			for i, s := range shapes {
				m := newRegion(t, s.valueBytes, s.entries)
				entry := int(s.valueBytes+7) / 8 * 8
				memories[i] = make([]byte, regionBytes(m))
				for e := range s.entries {
					value := make([]byte, s.valueBytes)
					for j := range value {
						value[j] = byte(rand.Uint32())
					}
					copy(memories[i][int(e)*entry:], value)
					if err := m.Put(e, value); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.Add(uint32(i), m); err != nil {
					t.Fatal(err)
				}
			}
			var reads, read uint64
			for _, address := range hostAddresses {
				c := p.dial(address, key, readwire.Options{})
				for i, want := range memories {
					got := make([]byte, len(want))
					if err := c.Read(t.Context(), uint32(i), 0, got); err != nil {
						t.Fatalf("%s: %v", address, err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%s: region %d of %d bytes is not the map's memory", address, i, len(want))
					}
					reads += uint64(len(want)+readwire.MaxBytes-1) / readwire.MaxBytes
					read += uint64(len(want))
				}
				if n := c.Counters(); n.Resent != 0 || n.Strays != 0 || n.Lost != 0 {
					t.Errorf("%s: the client had %+v", address, n)
				}
			}
			if n, err := r.Counters(); err != nil || n != (Counters{Reads: reads, Bytes: read}) {
				t.Errorf("it counted %+v, %v, want %d reads of %d bytes", n, err, reads, read)
			}
		})
	}
}

// The kernel's statistics tell what answering costs, the region's program included.
func TestCost(t *testing.T) {
	statistics, err := host.EnableStatistics()
	if err != nil {
		t.Fatal(err)
	}
	defer statistics.Close()
	for _, hook := range allHooks {
		t.Run(string(hook), func(t *testing.T) {
			const reads = 100
			p := newPair(t)
			key := readwire.NewKey(1)
			r := p.open(Options{Hook: hook, Keys: []readwire.Key{key}})
			if err := r.Add(0, newRegion(t, 8, 128)); err != nil {
				t.Fatal(err)
			}
			c := p.dial(hostAddresses[0], key, readwire.Options{})
			for range reads {
				if err := c.Read(t.Context(), 0, 0, make([]byte, 1024)); err != nil {
					t.Fatal(err)
				}
			}
			if cost, err := r.Cost(); err != nil || cost.Runs < reads || cost.RunTimeNS == 0 ||
				cost.Name != "region/"+string(hook) {
				t.Errorf("got %+v, %v, want at least %d runs", cost, err, reads)
			}
		})
	}
}

// A counter that is added to in memory is read at once.
func TestReadsAreOfNow(t *testing.T) {
	p := newPair(t)
	key := readwire.NewKey(1)
	r := p.open(Options{Keys: []readwire.Key{key}})
	m := newRegion(t, 8, 16)
	table, err := host.MapTable[uint64](m)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if err := r.Add(0, m); err != nil {
		t.Fatal(err)
	}
	c := p.dial(hostAddresses[0], key, readwire.Options{})
	var got [8]byte
	for n := range uint64(1000) {
		host.Store(&table.Entries[5], n)
		if err := c.Read(t.Context(), 0, 5*8, got[:]); err != nil || binary.LittleEndian.Uint64(got[:]) != n {
			t.Fatalf("got %d, %v, want %d", binary.LittleEndian.Uint64(got[:]), err, n)
		}
	}
}
