package graph

import (
	"sync"
	"time"

	"outsight/internal/model"
)

// FromSnapshots is the graph of what happened between two snapshots of one agent. Without prev
// it holds levels and counts since the agent's start, but no rates.
func FromSnapshots(prev, cur *model.Snapshot) *Graph { return GroupSnapshots(prev, cur, ByContainer) }

// GroupSnapshots is FromSnapshots with nodes of another kind.
func GroupSnapshots(prev, cur *model.Snapshot, by Grouping) *Graph {
	if cur == nil {
		return build(time.Time{}, time.Time{}, 0, by, nil, newEdgeRoom(0), 0)
	}
	from, seconds := cur.Time, 0.0
	before := map[string]*model.ContainerSample{}
	var edgesBefore []model.Edge
	if prev != nil {
		from, seconds = prev.Time, cur.Time.Sub(prev.Time).Seconds()
		for i := range prev.Containers {
			before[prev.Containers[i].Container.ID] = &prev.Containers[i]
		}
		edgesBefore = prev.Edges
	}
	byKey := sync.OnceValue(func() map[snapshotEdgeKey]*model.Edge {
		all := make(map[snapshotEdgeKey]*model.Edge, len(edgesBefore))
		for i := range edgesBefore {
			all[edgeKey(&edgesBefore[i])] = &edgesBefore[i]
		}
		return all
	})
	// Most edges are where they were a second ago.
	edgeBefore := func(i int) *model.Edge {
		key := edgeKey(&cur.Edges[i])
		if i < len(edgesBefore) && edgeKey(&edgesBefore[i]) == key {
			return &edgesBefore[i]
		}
		return byKey()[key]
	}
	containers := make([]containerChange, 0, len(cur.Containers))
	for i := range cur.Containers {
		c := &cur.Containers[i]
		containers = append(containers, containerSince(cur.Host.Name, before[c.Container.ID], c, seconds))
	}
	room := newEdgeRoom(len(cur.Edges))
	defer room.release()
	halves(len(cur.Edges), func(from, to int) {
		var scratch model.Histogram
		for i := from; i < to; i++ {
			room.changes[i].since(cur.Host.Name, edgeBefore(i), &cur.Edges[i], seconds, &scratch)
		}
	})
	return build(from, cur.Time, seconds, by, containers, room, 0)
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
		change: change{seconds: seconds},
	}
	v := &out.values
	if !c.Started.IsZero() {
		v.set(StartTime, float64(c.Started.UnixMilli())/1e3)
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
		v.set(CPUSeconds, since(b.UsageNS, n.UsageNS)/1e9)
		v.set(VoluntarySwitches, since(b.Voluntary, n.Voluntary))
		v.set(InvoluntarySwitches, since(b.Involuntary, n.Involuntary))
		out.latency = floats(n.RunQueue.Since(b.RunQueue))
	}
	if n := now.Processes; n != nil {
		b := or(before.Processes, n)
		v.set(Forks, since(b.Forks, n.Forks))
		v.set(Execs, since(b.Execs, n.Execs))
		v.set(Exits, since(b.Exits, n.Exits))
		v.set(Threads, float64(n.Threads))
		if n.BusyThreads > 0 {
			v.set(BusyThreads, n.BusyThreads)
		}
	}
	if n := now.Throttle; n != nil {
		b := or(before.Throttle, n)
		v.set(ThrottlePeriods, since(b.Periods, n.Periods))
		v.set(ThrottledPeriods, since(b.ThrottledPeriods, n.ThrottledPeriods))
		v.set(ThrottledSeconds, since(b.ThrottledNS, n.ThrottledNS)/1e9)
		v.set(CPUQuota, n.QuotaCores)
	}
	if n := now.Memory; n != nil {
		b := or(before.Memory, n)
		v.set(MemoryUsage, float64(n.UsageBytes))
		v.set(MemoryWorkingSet, float64(n.WorkingSetBytes))
		v.set(MemoryRSS, float64(n.RSSBytes))
		v.set(MemoryCache, float64(n.CacheBytes))
		v.set(MemoryLimit, float64(n.LimitBytes))
		v.set(MinorFaults, since(b.PageFaults-min(b.PageFaults, b.MajorPageFaults), n.PageFaults-min(n.PageFaults, n.MajorPageFaults)))
		v.set(MajorFaults, since(b.MajorPageFaults, n.MajorPageFaults))
		v.set(OOMKills, since(b.OOMKills, n.OOMKills))
	}
	if n := now.Disk; n != nil {
		b := or(before.Disk, n)
		v.set(DiskReadBytes, since(b.ReadBytes, n.ReadBytes))
		v.set(DiskWriteBytes, since(b.WriteBytes, n.WriteBytes))
		v.set(DiskReads, since(b.Reads, n.Reads))
		v.set(DiskWrites, since(b.Writes, n.Writes))
	}
	if n := now.Network; n != nil {
		b := or(before.Network, n)
		v.set(ReceiveBytes, since(b.ReceiveBytes, n.ReceiveBytes))
		v.set(TransmitBytes, since(b.TransmitBytes, n.TransmitBytes))
		v.set(ReceivePackets, since(b.ReceivePackets, n.ReceivePackets))
		v.set(TransmitPackets, since(b.TransmitPackets, n.TransmitPackets))
		v.set(ReceiveErrors, since(b.ReceiveErrors, n.ReceiveErrors))
		v.set(TransmitErrors, since(b.TransmitErrors, n.TransmitErrors))
		v.set(ReceiveDropped, since(b.ReceiveDropped, n.ReceiveDropped))
		v.set(TransmitDropped, since(b.TransmitDropped, n.TransmitDropped))
	}
	if n := now.TCP; n != nil {
		b := or(before.TCP, n)
		v.set(ZeroWindows, since(b.ZeroWindows, n.ZeroWindows))
		v.set(ListenOverflows, since(b.ListenOverflows, n.ListenOverflows))
	}
	return out
}

func or[T any](p, otherwise *T) *T {
	if p != nil {
		return p
	}
	return otherwise
}

// since makes out what happened to e after before. What is in room is lost.
func (out *edgeChange) since(host string, before, e *model.Edge, seconds float64, room *model.Histogram) {
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
	*out = edgeChange{side: e.Side, transport: e.Transport.String(),
		client: peerEnd(host, e.Client), server: peerEnd(host, e.Server),
		opened: float64(n.Opens), closed: float64(n.Closes),
		change: change{seconds: seconds, latency: floatsSince(n.Latency, b.Latency, room),
			firstByte: floatsSince(n.TimeToFirstByte, b.TimeToFirstByte, room), rtt: floatsSince(n.RTT, b.RTT, room),
			duration: floatsSince(n.Duration, b.Duration, room)}}
	v := &out.values
	v.set(RequestBytes, sent)
	v.set(ResponseBytes, received)
	v.set(ConnectionsOpened, since(b.Opens, n.Opens))
	v.set(ConnectionsClosed, since(b.Closes, n.Closes))
	v.set(FailuresRefused, since(b.FailuresRefused, n.FailuresRefused))
	v.set(FailuresTimedOut, since(b.FailuresTimedOut, n.FailuresTimedOut))
	v.set(FailuresUnreachable, since(b.FailuresUnreachable, n.FailuresUnreachable))
	v.set(FailuresOther, since(b.Failures, n.Failures)-since(b.FailuresRefused+b.FailuresTimedOut+b.FailuresUnreachable, n.FailuresRefused+n.FailuresTimedOut+n.FailuresUnreachable))
	v.set(Retransmits, since(b.Retransmits, n.Retransmits))
	v.set(Aborted, since(b.Aborts, n.Aborts))
	v.set(Continued, since(b.Continued, n.Continued))
	v.set(RequestPackets, sentPackets)
	v.set(ResponsePackets, receivedPackets)
	v.set(OneWay, since(b.OneWay, n.OneWay))
	v.set(Transactions, since(b.Transactions(), n.Transactions()))
	v.set(InFlight, float64(n.InFlight()))
	v.set(Transfers, since(b.Transfers, n.Transfers))
	v.set(Held, since(b.Held, n.Held))
	v.set(Pushes, since(b.Pushes, n.Pushes))
	v.set(Resets, since(b.Resets, n.Resets))
	v.set(TimedOut, since(b.TimedOut, n.TimedOut))
	v.set(UnseenBytes, since(b.UnseenBytes, n.UnseenBytes))
	v.set(LostTransactions, since(b.Lost, n.Lost))
	v.set(RTTMin, float64(n.RTTMinNS)/1e9)
	v.set(RTTDeviation, since(b.JitterSumNS, n.JitterSumNS)/1e9)
	v.set(WindowLimited, since(b.WindowLimitedNS, n.WindowLimitedNS)/1e9)
	out.endpoints = endpointsSince(before.Endpoints, e.Endpoints)
	if e.Service.IsValid() {
		out.service = e.Service.String()
	}
	out.via = e.Via
	v.set(Confidence, float64(e.Confidence))
	if e.Paired {
		v.set(Paired, 1)
	}
}

// floatsSince is what a histogram gained. What is in room is lost.
func floatsSince(now, before, room *model.Histogram) *model.FloatHistogram {
	if now == nil {
		return nil
	}
	room.SetSince(now, before)
	return floats(room)
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
