package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// countForeseen judges all runs that were saved, and counts over all of them how many durations were told as they came.
func countForeseen(_ context.Context, o options) (rows []row, err error) {
	if o.replay == "" {
		return nil, errors.New("it judges what was saved: say where with -replay")
	}
	lines := [][]string{{"", "windows", "told to have no end", "within their bounds", "with an upper bound",
		"of those, within both", "told within " + strconv.Itoa(latencyBudget) + " %", "known to that, for chance", "of those, told within it"}}
	line := func(name string, c latencyCounts) []string {
		cells := []string{name}
		for _, n := range []int{c.all + c.endless, c.endless, c.within, c.closed, c.closedWithin, c.near, c.known, c.knownNear} {
			cells = append(cells, strconv.Itoa(n))
		}
		return cells
	}
	var all latencyCounts
	for _, a := range append([]limitedApp{{name: "demo shop", part: "saturation"}}, limitedApps...) {
		var j judge
		switch err := j.replay(o.replay, a.part); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		c := countLatencies(j.latencies, j.greatest)
		all.add(c)
		lines = append(lines, line(a.name, c))
	}
	if all.all == 0 {
		return nil, fmt.Errorf("nothing was saved to %s", o.replay)
	}
	lines = append(lines, line("all", all))
	rows = append(rows, row{what: "p99 ahead: within its bounds, at up to 80 % of the limit", value: 100 * float64(all.within) / float64(all.all+all.endless),
		unit: "%", detail: fmt.Sprintf("%d of %d", all.within, all.all+all.endless)})
	return rows, o.documentOf("analysis.md", "foreseen", "All windows of the tables of this page together.", markdown(lines))
}

func (c *latencyCounts) add(other latencyCounts) {
	c.all, c.within, c.near = c.all+other.all, c.within+other.within, c.near+other.near
	c.known, c.knownNear, c.chance = c.known+other.known, c.knownNear+other.knownNear, c.chance+other.chance
	c.closed, c.closedWithin = c.closed+other.closed, c.closedWithin+other.closedWithin
	c.endless += other.endless
}
