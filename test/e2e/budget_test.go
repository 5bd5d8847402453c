package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestBudgetIsKept lets containers switch as fast as they can: what they would cost to count is over
// the budget, so it is given up, which is said and stored. CPU time goes on by the kernel's files, and
// everything comes back when the storm is over.
func TestBudgetIsKept(t *testing.T) {
	// What an agent with a store and a page takes at rest is below 1.4 %, counting the storm above 2 %, even without
	// who disturbs whom.
	o := up(t, "--budget", "2%")
	shed := func(part string) float64 {
		return o.number(fmt.Sprintf("outsight_feature_shed{name=%q}", part))
	}
	eventually(t, func() error {
		if found := o.query("outsight_budget_ratio == 0.02"); len(found) != 1 {
			return fmt.Errorf("no budget yet: %v", found)
		}
		return nil
	})
	storm := start(t, "storm", nil, "stress-ng", "-q", "--switch", "2", "--temp-path", "/tmp")
	eventually(t, func() error {
		if shed("switches") != 1 {
			return fmt.Errorf("switches are counted still, at %v", o.number("sum(outsight_cost_ratio)"))
		}
		return nil
	})
	eventually(t, func() error {
		if cost := o.number("sum(outsight_cost_ratio)"); cost > 0.02 {
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
