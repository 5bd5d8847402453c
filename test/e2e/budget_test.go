package e2e

import (
	"fmt"
	"slices"
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
	eventually(t, 20*time.Second, func() error {
		if found := o.query("outsight_budget_ratio == 0.02"); len(found) != 1 {
			return fmt.Errorf("no budget yet: %v", found)
		}
		return nil
	})
	storm := start(t, "storm", nil, "stress-ng", "-q", "--switch", "2", "--temp-path", "/tmp")
	eventually(t, 90*time.Second, func() error {
		if shed("switches") != 1 {
			return fmt.Errorf("switches are counted still, at %v", o.number("sum(outsight_cost_ratio)"))
		}
		return nil
	})
	eventually(t, 30*time.Second, func() error {
		if cost := o.number("sum(outsight_cost_ratio)"); cost > 0.02 {
			return fmt.Errorf("Outsight takes %v of the host", cost)
		}
		return nil
	})
	if !strings.Contains(o.log.String(), `msg="shed to keep the budget" part=switches`) {
		t.Error("nothing was said")
	}
	// While no switch is counted, CPU time is what the files say.
	files := sampleCPUFiles([]container{storm})
	began := time.Now()
	var points []point
	eventually(t, 25*time.Second, func() error {
		points = slices.DeleteFunc(o.points(fmt.Sprintf(`container_cpu_usage_seconds_total{id=%q}[30s]`, storm.id)),
			func(p point) bool { return p.time.Before(began.Add(time.Second)) })
		if n := len(points); n < 4 || points[n-1].time.Sub(points[0].time) < 3*time.Second {
			return fmt.Errorf("%d samples", n)
		}
		return nil
	})
	reading := time.Duration(o.number("max_over_time(outsight_agent_read_seconds[15s])") * float64(time.Second))
	time.Sleep(reading + time.Second) // so that the file was read after the last of them
	files.close(t)
	if shed("switches") != 1 {
		t.Fatal("switches were taken up again in the storm")
	}
	first, last := points[0], points[len(points)-1]
	firstBefore, firstAfter := files.around(t, storm.id, first.time, reading)
	lastBefore, lastAfter := files.around(t, storm.id, last.time, reading)
	checkCPU(t, storm, (last.value-first.value)*1e9, lastBefore-firstAfter, lastAfter-firstBefore)
	docker(t, "rm", "-f", storm.name)
	eventually(t, 3*time.Minute, func() error {
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
