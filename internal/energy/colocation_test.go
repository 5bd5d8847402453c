package energy

import (
	"math"
	"testing"
	"time"
)

// The co-location experiments of Brondolin and Santambrogio 2020 (table 3), simulated: two programs, EP and
// MG, on ten hardware threads of five cores each of one socket, alone and together. The run times are the
// paper's. The cores' power is a floor and what each program adds to it, such as gives the paper's power of
// each program alone (55.04 W and 63.12 W) and of both together (2 * 43.84 W).
const (
	epAlone, epTogether = 23.40, 25.06 // s
	mgAlone, mgTogether = 13.85, 16.79

	floorWatts = 55.04 + 63.12 - 2*43.84
	epWatts    = 55.04 - floorWatts
	mgWatts    = 63.12 - floorWatts
)

// program runs until it ends, with both threads of its five cores busy all the time.
type program struct {
	name    string
	seconds float64
	watts   float64
}

// runTogether simulates programs that start at the same time on cores of their own. It answers the joules
// that were put to each.
func runTogether(t *testing.T, programs ...program) map[string]float64 {
	t.Helper()
	const step = 10 * time.Millisecond
	// Five cores, two threads each that share them: 5 * 2 * 2.3 GHz * 1.1/2.
	const cyclesPerStep = 5 * 2 * 2_300_000_000 / 100 * 11 / 20
	h := newHost(t, 2)
	h.zone("intel-rapl:0", "package-0", 0)
	h.zone("intel-rapl:0:0", "core", 0)
	h.zone("intel-rapl:1", "package-1", 0)
	h.packages[0].Counted, h.packages[1].Counted = true, true
	for _, p := range programs {
		h.run(p.name, 0, 0, 0)
	}
	h.open()
	microJoules, now := 0.0, time.Duration(0)
	for running := true; running; {
		now += step
		h.now = h.now.Add(step)
		running = false
		watts := 0.0
		for _, p := range programs {
			if now.Seconds() <= p.seconds+1e-9 {
				watts += p.watts
				h.run(p.name, 0, cyclesPerStep, 10*uint64(step))
				running = true
			}
		}
		if !running {
			break
		}
		microJoules += (floorWatts + watts) * step.Seconds() * 1e6
		h.energy("intel-rapl:0:0", uint64(microJoules))
		h.account.Update(h.now, h.packages, h.consumers)
	}
	h.addsUp(Core, Powercap, uint64(microJoules))
	joules := map[string]float64{}
	for _, p := range programs {
		for _, c := range h.account.Of(p.name) {
			if c.Domain == string(Core) {
				joules[p.name] = float64(c.MicroJoules) / 1e6
			}
		}
	}
	return joules
}

func TestColocation(t *testing.T) {
	ep, mg := program{"EP", epAlone, epWatts}, program{"MG", mgAlone, mgWatts}
	alone := map[string]float64{"EP": runTogether(t, ep)["EP"], "MG": runTogether(t, mg)["MG"]}
	ep.seconds, mg.seconds = epTogether, mgTogether
	together := runTogether(t, ep, mg)
	for _, c := range []struct {
		name                      string
		alone, together           float64 // s
		paperAlone, paperTogether float64 // J
	}{
		{"EP", epAlone, epTogether, 1288.08, 1168.23},
		{"MG", mgAlone, mgTogether, 874.33, 736.33},
	} {
		// The power of one run with the time of the other, as the paper has it.
		scaledTogether, scaledAlone := together[c.name]/c.alone, alone[c.name]/c.together
		difference := scaledTogether/scaledAlone - 1
		if math.Abs(difference) > 0.03 {
			t.Errorf("%s: scaled power %.2f W together and %.2f W alone, %.2f %% apart, want 3 %% at most", c.name,
				scaledTogether, scaledAlone, 100*difference)
		}
		for what, pair := range map[string][2]float64{"alone": {alone[c.name], c.paperAlone},
			"together": {together[c.name], c.paperTogether}} {
			if off := pair[0]/pair[1] - 1; math.Abs(off) > 0.03 {
				t.Errorf("%s %s: %.1f J, the paper has %.1f J", c.name, what, pair[0], pair[1])
			}
		}
		t.Logf("%s: %.1f J alone, %.1f J together; scaled %.2f W and %.2f W, %+.2f %%", c.name, alone[c.name],
			together[c.name], scaledAlone, scaledTogether, 100*difference)
	}
}
