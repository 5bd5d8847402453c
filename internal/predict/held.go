package predict

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// quotaPeriod, in seconds, is after what a container that has used up its CPU quota gets it anew: cpu.cfs_period_us as
// Docker, Compose and Kubernetes set it where nobody asks for another.
const quotaPeriod = 0.1

// Bounds of what is simulated of a quota.
const (
	// quotaLoads is at how many shares of the quota, the greatest of which is a step below 1.
	quotaLoads = 64
	// quotaPeriods is for how many periods, and quotaRequests for how many requests at least.
	quotaPeriods, quotaRequests = 1000, 10_000
	// quotaFluid is from how many requests in a period on their work comes in quotaParts equal parts, whose sum alone
	// is by chance.
	quotaFluid, quotaParts = 64, 32
	// quotaSteps is how many numbers of requests there are between one and twice as many.
	quotaSteps = 8
)

// held is for how long requests are held back, in seconds, because their container has used up its CPU quota for this
// period: the mean and the quantiles of all requests, also of those that are not.
type held [durations]float64

// heldCase is what held depends on: the requests' work that the quota has room for in a period, as the logarithm to the
// base 2 in steps of 1/quotaSteps, and the share of it that comes, in steps of 1/quotaLoads.
type heldCase struct{ room, load int }

// heldCases are simulated when they are first asked for. They are the same for all containers.
var heldCases sync.Map // of heldCase to held

// heldBack is what a quota holds requests back for. room is how many requests' work a period has quota for, load the share
// of the quota that requests take, below 1.
func heldBack(room, load float64) (h held) {
	if !(room > 0) || load <= 0 {
		return h
	}
	of := heldCase{room: int(math.Round(min(max(math.Log2(room), -6), 14) * quotaSteps))}
	at := min(load*quotaLoads, quotaLoads-1)
	of.load = int(at)
	part := at - float64(of.load)
	low, high := of.get(), heldCase{of.room, min(of.load+1, quotaLoads-1)}.get()
	for d := range h {
		h[d] = low[d] + part*(high[d]-low[d])
	}
	return h
}

func (c heldCase) get() held {
	if c.load == 0 {
		return held{}
	}
	if h, ok := heldCases.Load(c); ok {
		return h.(held)
	}
	h := c.simulate()
	heldCases.Store(c, h)
	return h
}

// simulate lets requests come at random (a Poisson process), each of the same work, which is done as soon as there is
// quota for it, the first first. What is not used in a period is lost, as in the kernel (kernel/sched/fair.c,
// __refill_cfs_bandwidth_runtime, without burst). Times are in periods, work in requests.
func (c heldCase) simulate() held {
	room := math.Exp2(float64(c.room) / quotaSteps)
	load := float64(c.load) / quotaLoads
	random := rand.New(rand.NewPCG(uint64(c.room), uint64(c.load)))
	perPeriod := room * load
	var delays []float64
	total := 0
	period, left := 0.0, room // the period whose quota is taken, and what is left of it
	comes := func(at, work float64) {
		if now := math.Floor(at); now > period {
			period, left = now, room
		}
		for work > left {
			work -= left
			period, left = period+1, room
		}
		left -= work
		total++
		if period > at {
			delays = append(delays, (period-at)*quotaPeriod)
		}
	}
	if perPeriod > quotaFluid {
		for p := range quotaPeriods {
			all := max(perPeriod+math.Sqrt(perPeriod)*random.NormFloat64(), 0)
			for i := range quotaParts {
				comes(float64(p)+(float64(i)+0.5)/quotaParts, all/quotaParts)
			}
		}
	} else {
		for at := 0.0; at < quotaPeriods || total < quotaRequests; {
			at += random.ExpFloat64() / perPeriod
			comes(at, 1)
		}
	}
	slices.Sort(delays)
	var h held
	for _, delay := range delays {
		h[0] += delay / float64(total)
	}
	for i, q := range [...]float64{0.5, 0.95, 0.99} {
		if behind := int((1 - q) * float64(total)); behind < len(delays) {
			h[i+1] = delays[len(delays)-1-behind]
		}
	}
	return h
}
