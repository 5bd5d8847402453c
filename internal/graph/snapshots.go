package graph

import (
	"time"

	"outsight/internal/model"
)

// FromSnapshots is the graph of what happened between two snapshots of one agent. Without prev
// it holds levels and counts since the agent's start, but no rates.
func FromSnapshots(prev, cur *model.Snapshot) *Graph { return GroupSnapshots(prev, cur, ByContainer) }

// GroupSnapshots is FromSnapshots with nodes of another kind.
func GroupSnapshots(prev, cur *model.Snapshot, by Grouping) *Graph {
	if cur == nil {
		return build(time.Time{}, time.Time{}, 0, by, nil, nil)
	}
	from, seconds := cur.Time, 0.0
	before := map[string]*model.ContainerSample{}
	beforeEdge := map[snapshotEdgeKey]*model.Edge{}
	if prev != nil {
		from, seconds = prev.Time, cur.Time.Sub(prev.Time).Seconds()
		for i := range prev.Containers {
			before[prev.Containers[i].Container.ID] = &prev.Containers[i]
		}
		for i := range prev.Edges {
			beforeEdge[edgeKey(&prev.Edges[i])] = &prev.Edges[i]
		}
	}
	containers := make([]containerChange, 0, len(cur.Containers))
	for i := range cur.Containers {
		c := &cur.Containers[i]
		containers = append(containers, containerSince(cur.Host.Name, before[c.Container.ID], c, seconds))
	}
	edges := make([]edgeChange, len(cur.Edges))
	halves(len(edges), func(from, to int) {
		for i := from; i < to; i++ {
			e := &cur.Edges[i]
			edges[i] = edgeSince(cur.Host.Name, beforeEdge[edgeKey(e)], e, seconds)
		}
	})
	return build(from, cur.Time, seconds, by, containers, edges)
}

type snapshotEdgeKey struct {
	side           model.Role
	client, server string
	processes      [2]string
	service        string
	transport      model.Transport
}

func edgeKey(e *model.Edge) snapshotEdgeKey {
	return snapshotEdgeKey{e.Side, e.Client.ID(), e.Server.ID(), [2]string{e.Client.Process, e.Server.Process},
		e.Service.String(), e.Transport}
}

// since is what a counter gained; a counter that fell has restarted from 0.
func since(before, now uint64) float64 {
	if now < before {
		return float64(now)
	}
	return float64(now - before)
}

func containerSince(host string, before, now *model.ContainerSample, seconds float64) containerChange {
	c := now.Container
	out := containerChange{
		node: Node{ID: c.ID, Name: c.Name, Host: host, Image: c.Image, Runtime: string(c.Runtime),
			PodName: c.PodName, PodNamespace: c.PodNamespace, Workload: c.Workload, WorkloadKind: c.WorkloadKind, Gone: !c.Ended.IsZero()},
		change: change{values: map[Field]float64{}, seconds: seconds},
	}
	v := out.values
	if !c.Started.IsZero() {
		v[StartTime] = float64(c.Started.UnixMilli()) / 1e3
	}
	// A group that was absent before, of a container that was not, has no known start: its
	// increase is 0. A container that was not there before started from 0.
	if before == nil {
		before = &model.ContainerSample{CPU: &model.CPUCounters{}, Processes: &model.ProcessCounters{},
			Throttle: &model.ThrottleCounters{}, Memory: &model.MemorySample{}, Disk: &model.DiskCounters{},
			Network: &model.NetworkCounters{}, TCP: &model.TCPCounters{}}
	}
	if n := now.CPU; n != nil {
		b := or(before.CPU, n)
		v[CPUSeconds] = since(b.UsageNS, n.UsageNS) / 1e9
		v[VoluntarySwitches] = since(b.Voluntary, n.Voluntary)
		v[InvoluntarySwitches] = since(b.Involuntary, n.Involuntary)
		out.latency = floats(n.RunQueue.Since(b.RunQueue))
	}
	if n := now.Processes; n != nil {
		b := or(before.Processes, n)
		v[Forks], v[Execs], v[Exits] = since(b.Forks, n.Forks), since(b.Execs, n.Execs), since(b.Exits, n.Exits)
		v[Threads] = float64(n.Threads)
		if n.BusyThreads > 0 {
			v[BusyThreads] = n.BusyThreads
		}
	}
	if n := now.Throttle; n != nil {
		b := or(before.Throttle, n)
		v[ThrottlePeriods] = since(b.Periods, n.Periods)
		v[ThrottledPeriods] = since(b.ThrottledPeriods, n.ThrottledPeriods)
		v[ThrottledSeconds] = since(b.ThrottledNS, n.ThrottledNS) / 1e9
		v[CPUQuota] = n.QuotaCores
	}
	if n := now.Memory; n != nil {
		b := or(before.Memory, n)
		v[MemoryUsage], v[MemoryWorkingSet] = float64(n.UsageBytes), float64(n.WorkingSetBytes)
		v[MemoryRSS], v[MemoryCache] = float64(n.RSSBytes), float64(n.CacheBytes)
		v[MemoryLimit] = float64(n.LimitBytes)
		v[MinorFaults] = since(b.PageFaults-min(b.PageFaults, b.MajorPageFaults), n.PageFaults-min(n.PageFaults, n.MajorPageFaults))
		v[MajorFaults] = since(b.MajorPageFaults, n.MajorPageFaults)
		v[OOMKills] = since(b.OOMKills, n.OOMKills)
	}
	if n := now.Disk; n != nil {
		b := or(before.Disk, n)
		v[DiskReadBytes], v[DiskWriteBytes] = since(b.ReadBytes, n.ReadBytes), since(b.WriteBytes, n.WriteBytes)
		v[DiskReads], v[DiskWrites] = since(b.Reads, n.Reads), since(b.Writes, n.Writes)
	}
	if n := now.Network; n != nil {
		b := or(before.Network, n)
		v[ReceiveBytes], v[TransmitBytes] = since(b.ReceiveBytes, n.ReceiveBytes), since(b.TransmitBytes, n.TransmitBytes)
		v[ReceivePackets], v[TransmitPackets] = since(b.ReceivePackets, n.ReceivePackets), since(b.TransmitPackets, n.TransmitPackets)
		v[ReceiveErrors], v[TransmitErrors] = since(b.ReceiveErrors, n.ReceiveErrors), since(b.TransmitErrors, n.TransmitErrors)
		v[ReceiveDropped], v[TransmitDropped] = since(b.ReceiveDropped, n.ReceiveDropped), since(b.TransmitDropped, n.TransmitDropped)
	}
	if n := now.TCP; n != nil {
		b := or(before.TCP, n)
		v[ZeroWindows], v[ListenOverflows] = since(b.ZeroWindows, n.ZeroWindows), since(b.ListenOverflows, n.ListenOverflows)
	}
	return out
}

func or[T any](p, otherwise *T) *T {
	if p != nil {
		return p
	}
	return otherwise
}

func edgeSince(host string, before, e *model.Edge, seconds float64) edgeChange {
	if before == nil {
		before = &model.Edge{}
	}
	b, n := &before.Counters, &e.Counters
	sent, received := since(b.SentBytes, n.SentBytes), since(b.ReceivedBytes, n.ReceivedBytes)
	if e.Side == model.RoleServer {
		sent, received = received, sent
	}
	sentPackets, receivedPackets := since(b.SentPackets, n.SentPackets), since(b.ReceivedPackets, n.ReceivedPackets)
	if e.Side == model.RoleServer {
		sentPackets, receivedPackets = receivedPackets, sentPackets
	}
	out := edgeChange{side: e.Side, transport: e.Transport.String(),
		client: peerEnd(host, e.Client), server: peerEnd(host, e.Server),
		opened: float64(n.Opens), closed: float64(n.Closes),
		change: change{seconds: seconds, latency: floats(n.Latency.Since(b.Latency)),
			firstByte: floats(n.TimeToFirstByte.Since(b.TimeToFirstByte)), rtt: floats(n.RTT.Since(b.RTT)),
			duration: floats(n.Duration.Since(b.Duration)), values: map[Field]float64{
				RequestBytes: sent, ResponseBytes: received,
				ConnectionsOpened: since(b.Opens, n.Opens), ConnectionsClosed: since(b.Closes, n.Closes),
				FailuresRefused: since(b.FailuresRefused, n.FailuresRefused), FailuresTimedOut: since(b.FailuresTimedOut, n.FailuresTimedOut),
				FailuresUnreachable: since(b.FailuresUnreachable, n.FailuresUnreachable),
				FailuresOther:       since(b.Failures, n.Failures) - since(b.FailuresRefused+b.FailuresTimedOut+b.FailuresUnreachable, n.FailuresRefused+n.FailuresTimedOut+n.FailuresUnreachable),
				Retransmits:         since(b.Retransmits, n.Retransmits),
				Aborted:             since(b.Aborts, n.Aborts), Continued: since(b.Continued, n.Continued),
				RequestPackets: sentPackets, ResponsePackets: receivedPackets, OneWay: since(b.OneWay, n.OneWay),
				Transactions: since(b.Transactions(), n.Transactions()), InFlight: float64(n.InFlight()),
				Transfers: since(b.Transfers, n.Transfers), Held: since(b.Held, n.Held), Pushes: since(b.Pushes, n.Pushes),
				Resets: since(b.Resets, n.Resets), TimedOut: since(b.TimedOut, n.TimedOut),
				UnseenBytes: since(b.UnseenBytes, n.UnseenBytes), LostTransactions: since(b.Lost, n.Lost), RTTMin: float64(n.RTTMinNS) / 1e9,
				RTTDeviation: since(b.JitterSumNS, n.JitterSumNS) / 1e9, WindowLimited: since(b.WindowLimitedNS, n.WindowLimitedNS) / 1e9,
			}}}
	out.endpoints = endpointsSince(before.Endpoints, e.Endpoints)
	if e.Service.IsValid() {
		out.service = e.Service.String()
	}
	out.via, out.values[Confidence] = e.Via, float64(e.Confidence)
	if e.Paired {
		out.values[Paired] = 1
	}
	return out
}

func peerEnd(host string, p model.Peer) end {
	return end{host: host, id: p.ID(), name: p.Name(), process: p.Process}
}

// floats is h with counts as floating-point numbers, as a query would return it. What
// overflowed goes to a bucket past the last one, so that its quantile is +Inf.
func floats(h *model.Histogram) *model.FloatHistogram {
	if h == nil {
		return nil
	}
	f := &model.FloatHistogram{Count: float64(h.Count), Sum: float64(h.SumNS) / 1e9, ZeroCount: float64(h.ZeroCount),
		Offset: h.Offset, Buckets: make([]float64, len(h.Buckets))}
	for i, n := range h.Buckets {
		f.Buckets[i] = float64(n)
	}
	if h.OverflowCount > 0 {
		f.Merge(&model.FloatHistogram{Offset: model.MaxBucket + 1, Buckets: []float64{float64(h.OverflowCount)}})
	}
	return f
}
