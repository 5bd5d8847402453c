package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// TestWhoDisturbsWhom has a container that wakes up again and again on a CPU on which another one spins: the store, the
// API and the sums tell who is to blame. A third one takes memory past its limit, and what is killed for it is told.
func TestWhoDisturbsWhom(t *testing.T) {
	hog := shell(t, "hog", "while :; do :; done", "--cpuset-cpus", "0")
	victim := start(t, "victim", []string{"--cpuset-cpus", "0"}, "stress-ng", "-q", "--cpu", "1", "--cpu-load", "20",
		"--temp-path", "/tmp")
	eater := shell(t, "eater", "while :; do tail /dev/zero; busybox sleep 1; done", "--memory", "24m", "--memory-swap",
		"24m")
	o := up(t)
	by := func(of, who container) string {
		return fmt.Sprintf(`container_run_queue_wait_by_seconds_total{id=%q,by_id=%q,by_name=%q}`, of.id, who.id, who.name)
	}
	waited := func(seconds float64) {
		t.Helper()
		eventually(t, func() error {
			if waited := o.number("sum(" + by(victim, hog) + ") or vector(0)"); waited < seconds {
				return fmt.Errorf("it waited %v s behind the hog, want %v s", waited, seconds)
			}
			return nil
		})
	}
	waited(0.2)
	// A wait is in the parts when it ends, and in the whole when its thread leaves the CPU: of a container that is
	// paused, all are in both, but for what was waited after the first program was there and before the second.
	partsOf := fmt.Sprintf(`sum(container_run_queue_wait_by_seconds_total{id=%q})`, victim.id)
	wholeOf := fmt.Sprintf(`sum(histogram_sum(container_run_queue_latency_seconds{id=%q}))`, victim.id)
	paused := func() (parts, whole float64) {
		t.Helper()
		docker(t, "pause", victim.name)
		defer docker(t, "unpause", victim.name)
		o.settled(partsOf + " + " + wholeOf)
		return o.number(partsOf), o.number(wholeOf)
	}
	parts, whole := paused()
	waited(o.number("sum("+by(victim, hog)+")") + 0.6)
	partsAfter, wholeAfter := paused()
	parts, whole = partsAfter-parts, wholeAfter-whole
	t.Logf("the whole grew by %v s, the parts by %v s", whole, parts)
	if math.Abs(parts-whole) > 1e-6 {
		t.Errorf("the whole grew by %v s, the parts by %v s", whole, parts)
	}
	// The hog could always run, so it waits for as long as the victim runs, and no longer.
	ran, waitedFor := o.number(fmt.Sprintf(`container_cpu_usage_seconds_total{id=%q}`, victim.id)),
		o.number("sum("+by(hog, victim)+") or vector(0)")
	if waitedFor > 1.1*ran+0.05 {
		t.Errorf("the hog waited %v s behind the victim, which ran %v s", waitedFor, ran)
	}

	// All that was waited for so far may have been in the first reading, which is where a window begins.
	eventually(t, func() error {
		var answer struct {
			Containers []struct {
				ID, Name, Line string
				By             []struct{ ID, Name string }
			}
		}
		response, err := client.Get("http://" + o.address + "/api/outsight/contention?from=now-1m&node=" + victim.id)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return err
		}
		if len(answer.Containers) == 1 && answer.Containers[0].Name == victim.name &&
			strings.Contains(answer.Containers[0].Line, "behind "+hog.name) {
			for _, one := range answer.Containers[0].By {
				if one.ID == hog.id {
					return nil
				}
				if one.ID != "host" { // which may have as much to do
					break
				}
			}
		}
		return fmt.Errorf("got %+v, want it behind %s above all containers", answer, hog.name)
	})
	// The terminal tells the same of a second.
	eventually(t, func() error {
		var top struct {
			Containers []struct {
				ID         string
				Contention struct{ Line string }
			}
		}
		if err := json.Unmarshal([]byte(o.run("top", "--once", "--output", "json")), &top); err != nil {
			return err
		}
		for _, c := range top.Containers {
			if c.ID == victim.id && strings.Contains(c.Contention.Line, "behind "+hog.name) {
				return nil
			}
		}
		return fmt.Errorf("got %+v, want %s behind %s", top, victim.name, hog.name)
	})
	if text := o.run("top", "--once"); !strings.Contains(text, "waited behind") ||
		!strings.Contains(text, " ms/s for a CPU: ") {
		t.Errorf("top does not tell who waited:\n%s", text)
	}

	eventually(t, func() error {
		kills := o.number(fmt.Sprintf(`sum(container_oom_victims_total{id=%q,process="tail"}) or vector(0)`, eater.id))
		said := strings.Contains(o.log.String(), "a process was killed for lack of memory") &&
			strings.Contains(o.log.String(), "process=tail")
		if stalls := o.number(fmt.Sprintf(`sum(container_memory_reclaim_stalls_total{id=%q,type="limit"}) or vector(0)`,
			eater.id)); kills < 1 || !said || stalls < 1 {
			return fmt.Errorf("%v kills, %v stalls, said: %t", kills, stalls, said)
		}
		return nil
	})
	if _, err := os.Stat("/proc/pressure/cpu"); err == nil {
		if waited := o.number(fmt.Sprintf(`sum(container_pressure_cpu_waiting_seconds_total{id=%q}) or vector(0)`,
			victim.id)); waited == 0 {
			t.Error("the kernel's own account of its waits is missing")
		}
	}
}
