package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"outsight/internal/place"
)

// placeSizes are containers and hosts of the problems.
var placeSizes = [][2]int{{50, 5}, {100, 10}, {300, 30}, {1000, 100}, {10000, 1000}}

// placeBudget is what the search may take, in seconds, by containers.
var placeBudget = map[int]float64{1000: 2, 10000: 30}

// measurePlace measures how long a placement takes to find and what it costs, beside Kubernetes' default spreading and
// the genetic algorithm of paper 001 in the same time, and on small problems beside the best one.
func measurePlace(_ context.Context, o options) (rows []row, err error) {
	of := place.Options{Weights: place.Presets["fewest-hosts"], Headroom: 0, Seed: 1, Search: place.Anneal}
	lines := [][]string{{"containers on hosts", "placement", "time", "cost", "bytes between hosts", "hosts in use",
		"rules broken"}}
	for _, size := range placeSizes {
		p := place.Random(size[0], size[1], 7)
		name := fmt.Sprintf("%d on %d", size[0], size[1])
		cell := name
		add := func(what string, took time.Duration, at []int) {
			f, broken := place.Measure(p, slices.Clone(at), of)
			told := "none"
			if len(broken) > 0 {
				told = fmt.Sprint(len(broken))
				if len(broken) >= 20 {
					told = "20 or more"
				}
			}
			lines = append(lines, []string{cell, what, seconds(took), fmt.Sprintf("%.3f", f.Cost),
				fmt.Sprintf("%.1f %%", 100*f.CrossBytesShare), fmt.Sprint(f.HostsInUse), told})
			rows = append(rows, row{what: name + ", " + what + ": cost", value: f.Cost})
			cell = ""
		}
		begin, used := time.Now(), timeUsed()
		result, err := place.Solve(context.Background(), p, of)
		if err != nil {
			return nil, err
		}
		took := time.Since(begin)
		used = timeUsed() - used
		rows = append(rows, row{what: name + ": time", value: took.Seconds(), unit: "s", budget: placeBudget[size[0]],
			detail: "CPU time " + seconds(used)})
		add("default spreading", 0, p.Present())
		add("genetic algorithm, same time", took, genetic(p, took))
		add("outsight place (CPU time "+seconds(used)+")", took, result.Placement)
	}
	exact, more, err := placeExact(of)
	if err != nil {
		return nil, err
	}
	uplinks, ofUplinks, err := placeUplinks()
	if err != nil {
		return nil, err
	}
	return slices.Concat(rows, more, ofUplinks), o.document("place.md", "place", markdown(lines)+"\n"+exact+"\n"+uplinks)
}

// uplinkSizes are containers and hosts of problems with hubs, uplinkSeeds how many of each there are.
var uplinkSizes = [][2]int{{50, 5}, {100, 10}, {300, 30}, {1000, 100}}

const uplinkSeeds = 5

// placeUplinks measures what the weight of uplinks does where four containers talk to a third of all others: with and
// without it, the default weights otherwise.
func placeUplinks() (text string, rows []row, err error) {
	lines := [][]string{{"containers on hosts", "weight of uplinks", "bytes between hosts", "busiest uplink", "moved"}}
	for _, size := range uplinkSizes {
		name := fmt.Sprintf("%d on %d", size[0], size[1])
		cell := name
		var busiest [2]float64
		for k, weight := range []float64{0, place.Presets[""].Uplink} {
			of := place.Options{Weights: place.Presets[""], Seed: 1, Search: place.Anneal}
			of.Weights.Uplink = weight
			var crossing, moved float64
			for seed := range uint64(uplinkSeeds) {
				p := place.Random(size[0], size[1], 100+seed)
				addHubs(p, seed)
				whole := 0.0
				for _, t := range p.Traffic {
					whole += t.Bytes
				}
				r, err := place.Solve(context.Background(), p, of)
				if err != nil {
					return "", nil, err
				}
				crossing += r.After.CrossBytesShare / uplinkSeeds
				busiest[k] += r.After.BusiestUplink / whole / uplinkSeeds
				moved += float64(r.After.Moved) / uplinkSeeds
			}
			lines = append(lines, []string{cell, fmt.Sprint(weight), fmt.Sprintf("%.1f %%", 100*crossing),
				fmt.Sprintf("%.1f %%", 100*busiest[k]), fmt.Sprintf("%.0f", moved)})
			cell = ""
		}
		rows = append(rows, row{what: name + ": busiest uplink, of that without the weight", value: 100 * busiest[1] / busiest[0],
			unit: "%"})
	}
	return fmt.Sprintf("Where four containers talk to a third of all others, with the default weights, the mean of %d problems; shares "+
		"are of\nall bytes between containers:\n\n", uplinkSeeds) + markdown(lines), rows, nil
}

// addHubs lets four containers talk to a third of all.
func addHubs(p *place.Problem, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 5))
	for hub := range 4 {
		for i := range p.Containers {
			if random.IntN(3) == 0 && i != 9*hub {
				p.Traffic = append(p.Traffic, place.Traffic{A: 9 * hub, B: i, Bytes: 1e6 * random.ExpFloat64()})
			}
		}
	}
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// timeUsed is what this process has used.
func timeUsed() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// placeExact compares with the best placement of 200 small problems.
func placeExact(of place.Options) (text string, rows []row, err error) {
	worst, sum, solved, same := 0.0, 0.0, 0, 0
	for seed := uint64(1000); solved < 200; seed++ {
		p := place.Random(6+int(seed%5), 2+int(seed%3), seed)
		of.Headroom, of.Search = place.DefaultHeadroom, place.Exact
		of.Weights = place.Presets[[]string{"", "fewest-hosts", "least-traffic"}[seed/5%3]]
		best, err := place.Solve(context.Background(), p, of)
		var none *place.Infeasible
		if errors.As(err, &none) || err == nil && best.Full != "" {
			continue // there is too little room
		}
		if err != nil {
			return "", nil, err
		}
		of.Search = place.Anneal
		r, err := place.Solve(context.Background(), p, of)
		if err != nil {
			return "", nil, err
		}
		above := 0.0
		if best.After.Cost > 0 {
			above = max(0, r.After.Cost/best.After.Cost-1)
		}
		solved++
		if above < 1e-9 {
			same++
		}
		worst, sum = max(worst, above), sum+above
	}
	rows = []row{{what: "above the best of 200 small problems, mean", value: 100 * sum / 200, unit: "%"},
		{what: "above the best of 200 small problems, worst", value: 100 * worst, unit: "%", budget: 1}}
	return fmt.Sprintf("Of 200 random problems of 6 to 10 containers on 2 to 4 hosts, of which all placements were tried, "+
		"annealing found\nthe best in %d; its cost was %.4f %% above the best on average, and %.2f %% at worst.\n", same,
		100*sum/200, 100*worst), rows, nil
}
