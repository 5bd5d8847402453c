package energy

import (
	"math/rand/v2"
	"testing"
)

// Whatever the weights, shares add up to the whole, and nobody is off by a microjoule.
func TestApportion(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		weights := make([]uint64, 1+random.IntN(50))
		var sum uint64
		for i := range weights {
			if random.IntN(4) > 0 {
				weights[i] = random.Uint64N(1 << random.IntN(56))
			}
			sum += weights[i]
		}
		energy := random.Uint64N(1 << random.IntN(60))
		var given uint64
		for i, share := range apportion(energy, weights) {
			given += share
			exact := float64(energy) * float64(weights[i]) / float64(max(sum, 1))
			if d := float64(share) - exact; d > 1+exact*1e-9 || d < -1-exact*1e-9 {
				t.Fatalf("weight %d of %d: %d of %d", weights[i], sum, share, energy)
			}
		}
		if sum > 0 && given != energy || sum == 0 && given != 0 {
			t.Fatalf("shares of %v are %d, want %d", weights, given, energy)
		}
	}
}

// Everything that happens in a long life: parts always are the whole.
func TestPartsAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	h := newHost(t, 2)
	h.zone("intel-rapl:0", "package-0", 0)
	h.zone("intel-rapl:1", "package-1", 0)
	h.zone("intel-rapl:1:0", "dram", 0)
	h.run("host", 0, 0, 0)
	h.open()
	at, total := map[string]uint64{}, map[string]uint64{}
	for range 300 {
		for _, zone := range []string{"intel-rapl:0", "intel-rapl:1", "intel-rapl:1:0"} {
			n := random.Uint64N(300_000_000)
			at[zone] = (at[zone] + n) % (wraps + 1)
			total[zone] += n
			h.energy(zone, at[zone])
		}
		for i := range h.packages {
			h.packages[i].Counted = random.IntN(5) > 0
			h.packages[i].IdleNS += random.Uint64N(2e9)
		}
		for range random.IntN(6) {
			h.run([]string{"a", "b", "c", "d", "host"}[random.IntN(5)], random.IntN(2), random.Uint64N(4e9), random.Uint64N(1e9))
		}
		h.update()
	}
	h.addsUp(Package, Powercap, total["intel-rapl:0"]+total["intel-rapl:1"])
	h.addsUp(DRAM, Powercap, total["intel-rapl:1:0"])
}
