package predict

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"gonum.org/v1/gonum/stat/distuv"
)

// quotaPeriod, in seconds, is after what a container that has used up its CPU quota gets it anew: cpu.cfs_period_us as
// Docker, Compose and Kubernetes set it where nobody asks for another.
const quotaPeriod = 0.1

// Bounds of what is simulated.
const (
	// heldLoads is at how many loads, the greatest of which is a step below 1.
	heldLoads = 64
	// quotaPeriods is for how many periods of a quota, and quotaRequests for how many requests at least.
	quotaPeriods, quotaRequests = 1000, 40_000
	// slicesRequests is how many requests come to one whose slices are simulated, slicesLeast how many at least where each takes
	// many ticks: as many ticks, which take as long to simulate as requests.
	slicesRequests, slicesLeast = 100_000, 5000
	// heldSeldom is the share of periods from which on it counts that more comes than the quota: p99 has a hundredth of requests.
	heldSeldom = 1e-4
	// heldCasesMost bounds how many cases are kept, of some 200 bytes.
	heldCasesMost = 50_000
	// quotaFluid is from how many requests in a period on their work comes in quotaParts equal parts, whose sum alone
	// is by chance.
	quotaFluid, quotaParts = 64, 32
	// quotaSteps is how many numbers of requests there are between one and twice as many, coresSteps how many quotas. idleSteps is
	// how many costs there are of a request that finds none there between one time and two times that of others, idleMost the
	// greatest.
	quotaSteps, coresSteps, idleSteps, idleMost = 8, 4, 32, 3
	// quotaLeast is the least number of requests in a period whose work is handed out in slices: where one takes longer than a
	// period, slices are short beside it.
	quotaLeast = 1
	// cpusMost is the greatest number of CPUs.
	cpusMost = 16
	// poolRequests is how many requests come to a pool, and poolMost how many connections it has at most.
	poolRequests, poolMost = 50_000, 1024
	// spreadSteps is how many coefficients of variation there are between 0 and 1, and spreadMost the greatest.
	spreadSteps, spreadMost = 8, 4
	// arrivalSteps is how many squared variations of the times between requests there are between 0 and 1.
	arrivalSteps = 8
)

// held is for how long requests are held back: the mean of all requests, also of those that are not, and by how much
// each of the quantiles is longer than if none were.
type held [durations]float64

// holder is what holds requests back: a CPU quota that is used up for this period, or the connections of a pool that are
// all busy. It is the same for all containers, but for its unit of time.
type holder struct {
	// servers is how many connections a pool has, over each of which goes one request at a time; 0 is a quota.
	servers int
	// arrivals is the squared variation of the times between requests, in steps of 1/arrivalSteps; 0 is as arrivalSteps: they
	// come at random.
	arrivals int
	// size of a quota is how many requests' work it has room for in a period, as the logarithm to the base 2 in steps of
	// 1/quotaSteps. That of a pool is the coefficient of variation of how long requests take, in steps of 1/spreadSteps.
	size int
	// cpus is on how many CPUs the threads of a container with a quota run; 0 where its work is not handed out in slices. cores is
	// the quota, as its logarithm in steps of 1/coresSteps; idle is how much more a request that finds none there takes, in steps
	// of 1/idleSteps.
	cpus, cores, idle int
}

// heldCase is what held depends on: load is the share of what there is that comes, in steps of 1/heldLoads.
type heldCase struct {
	holder
	load int
}

// heldCases are simulated when they are first asked for, each once at a time.
var heldCases = struct {
	mu  sync.Mutex
	all map[heldCase]func() held
}{all: map[heldCase]func() held{}}

// quotaLoad is what comes to a quota.
type quotaLoad struct {
	// room is how many requests' work the quota has room for in a period, above 0, of those that follow each other; load is the
	// share of that which comes, and idle how many times as much one takes that finds none there. even is the share of the quota
	// that is used, where its work is not handed out in slices.
	room, load, idle, even float64
	// cores is the quota, cpus on how many CPUs threads run, arrivals the squared variation of the times between requests.
	cores, cpus, arrivals float64
}

// held is what the quota holds back, in periods. It is between those of the two sizes beside it.
func (q quotaLoad) held() (all held) {
	size := min(max(math.Log2(q.room), -6), 14) * quotaSteps
	step := math.Floor(size)
	of := func(step float64) held {
		h := holder{size: int(step)}.with(q.arrivals)
		if step >= math.Log2(quotaLeast)*quotaSteps && step <= math.Log2(quotaFluid)*quotaSteps {
			h.cpus = int(min(max(math.Round(q.cpus), 1), cpusMost))
			h.cores = int(math.Round(math.Log2(q.cores) * coresSteps))
			h.idle = int(math.Round((q.idle - 1) * idleSteps))
			return h.at(q.load)
		}
		return h.at(q.even)
	}
	low, high := of(step), of(step+1)
	for d := range all {
		all[d] = low[d] + (size-step)*(high[d]-low[d])
	}
	return all
}

// poolOf is a pool of connections over which a request takes a time of which the standard deviation is spread times the
// mean.
func poolOf(connections, spread float64) holder {
	return holder{servers: int(min(max(math.Round(connections), 1), poolMost)), size: int(math.Round(min(spread, spreadMost) * spreadSteps))}
}

// with is the holder if the times between requests have such a squared variation.
func (h holder) with(arrivals float64) holder {
	if h.arrivals = int(math.Round(min(max(arrivals*arrivalSteps, 1), arrivalSteps))); h.arrivals == arrivalSteps {
		h.arrivals = 0
	}
	return h
}

// gaps draws times between requests, of which the mean is 1: gamma distributed, which is exponentially where they come at
// random, and as a replica has them that gets one of k in turn where their squared variation is 1/k.
func (h holder) gaps(random *rand.Rand) func() float64 {
	if h.arrivals == 0 {
		return random.ExpFloat64
	}
	shape := arrivalSteps / float64(h.arrivals)
	return distuv.Gamma{Alpha: shape, Beta: shape, Src: random}.Rand
}

// at is what is held back at a load below 1: in periods by a quota, in mean times over a connection by a pool.
func (h holder) at(load float64) (all held) {
	if load <= 0 {
		return all
	}
	at := min(load*heldLoads, heldLoads-1)
	step := int(at)
	part := at - float64(step)
	low, high := heldCase{h, step}.get(), heldCase{h, min(step+1, heldLoads-1)}.get()
	for d := range all {
		all[d] = low[d] + part*(high[d]-low[d])
	}
	return all
}

func (c heldCase) get() held {
	if c.load == 0 {
		return held{}
	}
	heldCases.mu.Lock()
	simulate, ok := heldCases.all[c]
	if !ok {
		if len(heldCases.all) >= heldCasesMost {
			clear(heldCases.all)
		}
		simulate = sync.OnceValue(c.simulate)
		heldCases.all[c] = simulate
	}
	heldCases.mu.Unlock()
	return simulate()
}

// simulate lets requests come, the first of which is served first.
func (c heldCase) simulate() held {
	load := float64(c.load) / heldLoads
	if c.servers > 0 {
		return c.pool(load, rand.New(rand.NewPCG(uint64(c.servers), uint64(c.size)))) // the same requests at all loads
	}
	if c.cpus > 0 {
		return c.slices(load, rand.New(rand.NewPCG(uint64(c.arrivals), 0))) // the same, too
	}
	return c.quota(load, rand.New(rand.NewPCG(uint64(c.size), uint64(c.load))))
}

// slices is of requests whose work is handed out as the kernel does it. What they are held back for is what they end later than
// without a quota.
func (h holder) slices(load float64, random *rand.Rand) held {
	room, cores := math.Exp2(float64(h.size)/quotaSteps), math.Exp2(float64(h.cores)/coresSteps)
	idle := 1 + float64(h.idle)/idleSteps
	// All but one CPU may have a slice that they do not use.
	if most := math.Floor(room * (1 - float64(h.cpus-1)*bandwidthSlice/cores) / idle); most >= 0 &&
		(distuv.Poisson{Lambda: room * load}).Survival(most) < heldSeldom {
		return held{}
	}
	ticks := max(cores/room/bandwidthTick, 1) // of a request
	comes, gap, at := make([]float64, max(int(slicesRequests/ticks), slicesLeast)), h.gaps(random), 0.0
	for i := range comes {
		at += gap() / (room * load)
		comes[i] = at
	}
	limited := bandwidth{cores: cores, cpus: make([]bandwidthCPU, h.cpus)}
	ends := limited.ends(comes, cores/room, idle)
	free := make([]float64, h.cpus) // when each CPU is, without a quota
	var delays []float64
	for i, at := range comes {
		first := slices.Index(free, slices.Min(free))
		if free[first] <= at {
			free[first] = at + cores/room*idle
		} else {
			free[first] += cores / room
		}
		if later := ends[i] - free[first]; later > bandwidthSame {
			delays = append(delays, later)
		}
	}
	return heldOf(delays, len(comes))
}

// quota is of requests of the same work each, which is done as soon as there is quota for it. What is not used in a period
// is lost, as in the kernel (kernel/sched/fair.c, __refill_cfs_bandwidth_runtime, without burst). Work is in requests.
func (h holder) quota(load float64, random *rand.Rand) held {
	room := math.Exp2(float64(h.size) / quotaSteps)
	perPeriod, gap := room*load, h.gaps(random)
	variation := 1.0
	if h.arrivals > 0 {
		variation = float64(h.arrivals) / arrivalSteps
	}
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
			delays = append(delays, period-at)
		}
	}
	if perPeriod > quotaFluid {
		for p := range quotaPeriods {
			all := max(perPeriod+math.Sqrt(variation*perPeriod)*random.NormFloat64(), 0)
			for i := range quotaParts {
				comes(float64(p)+(float64(i)+0.5)/quotaParts, all/quotaParts)
			}
		}
	} else {
		for at := 0.0; at < quotaPeriods || total < quotaRequests; {
			at += gap() / perPeriod
			comes(at, 1)
		}
	}
	return heldOf(delays, total)
}

// pool is of requests that each wait for the connection that is free first. How long they take over it is gamma
// distributed.
func (h holder) pool(load float64, random *rand.Rand) held {
	takes := func() float64 { return 1 }
	if h.size > 0 {
		shape := math.Pow(spreadSteps/float64(h.size), 2)
		takes = distuv.Gamma{Alpha: shape, Beta: shape, Src: random}.Rand
	}
	free := make([]float64, h.servers) // when each of the connections is, in their order
	alone, all := make([]float64, poolRequests), make([]float64, poolRequests)
	at, gap := 0.0, h.gaps(random)
	for i := range all {
		at += gap() / (float64(h.servers) * load)
		alone[i] = takes()
		end := max(at, free[0]) + alone[i]
		all[i] = end - at
		place, _ := slices.BinarySearch(free[1:], end)
		copy(free, free[1:1+place])
		free[place] = end
	}
	longer, own := heldOf(all, len(all)), heldOf(alone, len(alone))
	for d := range longer {
		longer[d] = max(longer[d]-own[d], 0)
	}
	return longer
}

// heldOf is the mean and the quantiles of delays, in any order, of a total number of requests of which the others had none.
func heldOf(delays []float64, total int) (h held) {
	slices.Sort(delays)
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

// times is so many times as long.
func (h held) times(n float64) held {
	for d := range h {
		h[d] *= n
	}
	return h
}

// longest is the longer of each.
func (h held) longest(other held) held {
	for d := range h {
		h[d] = max(h[d], other[d])
	}
	return h
}
