package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// TestBudgetIsKept lets containers switch as fast as they can: what they would cost to count is over
// the budget, so it is given up, which is said and stored. CPU time goes on by the kernel's files, and
// everything comes back when the storm is over.
func TestBudgetIsKept(t *testing.T) {
	// On one CPU it switches as often as on two, and leaves the other to whoever watches.
	storm := start(t, "storm", []string{"--cpuset-cpus", "0"}, "stress-ng", "-q", "--switch", "2", "--temp-path", "/tmp")
	// How much the storm costs to count, and how much all else does, depends on the host and on what else it runs. The
	// limit has room for all else, and for half of what the switches cost.
	free := up(t)
	free.knows(storm)
	limit := free.cost()
	for part, share := range map[string]float64{"recorder": 1, "contention": 1, "switches": 0.5} {
		limit -= share * free.number(fmt.Sprintf("outsight_feature_cost_ratio{name=%q}", part))
	}
	free.stop()
	o := up(t, "--budget", fmt.Sprintf("%.4f%%", 100*limit))
	shed := func(part string) float64 {
		return o.number(fmt.Sprintf("outsight_feature_shed{name=%q}", part))
	}
	eventually(t, func() error {
		if found := o.query("outsight_budget_ratio"); len(found) != 1 || math.Abs(found[0].value-limit) > 1e-6 {
			return fmt.Errorf("no budget of %v yet: %v", limit, found)
		}
		return nil
	})
	eventually(t, func() error {
		if shed("switches") != 1 {
			return fmt.Errorf("switches are counted still, at %v", o.number("sum(outsight_cost_ratio)"))
		}
		return nil
	})
	eventually(t, func() error {
		if cost := o.number("sum(outsight_cost_ratio)"); cost > limit {
			return fmt.Errorf("Outsight takes %v of the host", cost)
		}
		return nil
	})
	if !strings.Contains(o.log.String(), `msg="shed to keep the budget" part=switches`) {
		t.Error("nothing was said")
	}
	// While no switch is counted, CPU time is what the files say. On a busy host the storm may be calm for so long that
	// switches are counted for a while.
	for counted := true; counted; {
		eventually(t, func() error {
			if shed("switches") != 1 {
				return fmt.Errorf("switches are counted")
			}
			return nil
		})
		takenUp := func() int { return strings.Count(o.log.String(), "taken up again") }
		before := takenUp()
		files := sampleCPUFiles([]container{storm})
		stretch := o.cpuSince(storm, files, 3*time.Second)
		reading := o.longestReading()
		files.close(t, stretch.last.time.Add(reading))
		if counted = takenUp() != before; !counted {
			stretch.check(t, storm, files, reading)
		}
	}
	docker(t, "rm", "-f", storm.name)
	eventually(t, func() error {
		if shed("switches") != 0 {
			return fmt.Errorf("switches are not counted again")
		}
		return nil
	})
	// The whole of it can be read afterwards.
	if changes := o.number(`max_over_time(outsight_feature_shed{name="switches"}[5m]) - min_over_time(outsight_feature_shed{name="switches"}[5m])`); changes != 1 {
		t.Errorf("the store tells of a change by %v", changes)
	}
}

// cost is what it takes, as a share of the host's CPU time: its own process and its kernel programs, once both are known
// and no longer grow.
func (o *outsight) cost() (total float64) {
	o.t.Helper()
	eventually(o.t, func() error {
		time.Sleep(2 * time.Second)
		if kernel := o.query(`outsight_cost_ratio{plane="kernel"}`); len(kernel) != 1 || kernel[0].value == 0 {
			return fmt.Errorf("no cost of the kernel's programs yet: %v", kernel)
		}
		before := total
		if total = o.number("sum(outsight_cost_ratio)"); total > before*1.05 {
			return fmt.Errorf("the cost grows from %v to %v", before, total)
		}
		return nil
	})
	return total
}
