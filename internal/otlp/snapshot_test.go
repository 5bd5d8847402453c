package otlp

import (
	"net/netip"
	"time"

	"outsight/internal/model"
)

var testTime = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

// hostile is what a label's value could be made to be by whoever names a container.
const hostile = "a\"b\\c\nd\xffe{x=\"1\"} 5\n# TYPE evil counter\nevil 1"

func testHistogram() *model.Histogram {
	h := &model.Histogram{ZeroCount: 2, OverflowCount: 1, SumNS: 100_000_000_000,
		Offset: model.BucketOf(2 * time.Microsecond)}
	// One duration in the bucket that ends at each power of two, one in the bucket above it.
	add := func(bucket int32) {
		for int(bucket-h.Offset) >= len(h.Buckets) {
			h.Buckets = append(h.Buckets, 0)
		}
		h.Buckets[bucket-h.Offset]++
	}
	for e := int32(-18); e <= 5; e++ {
		add(e * 32)
		add(e*32 + 1)
	}
	for _, n := range h.Buckets {
		h.Count += n
	}
	h.Count += h.ZeroCount + h.OverflowCount
	return h
}

func testSnapshot() *model.Snapshot {
	web := &model.Container{
		ID: "4f1d", Name: hostile, Image: "registry/web:1", Runtime: model.Docker,
		Labels: map[string]string{"a": "b"}, Started: testTime.Add(-time.Minute),
	}
	db := &model.Container{
		ID: "77aa", Name: "db", Runtime: model.Containerd, PodName: "db-0", PodNamespace: "shop", Workload: "db",
		WorkloadKind: "StatefulSet",
		PodUID:       "u-1", Started: testTime.Add(-time.Hour), Ended: testTime,
	}
	rest := &model.Container{ID: model.HostContainerID, Name: "host", Runtime: model.HostRuntime}
	service := netip.MustParseAddrPort("172.17.0.3:5432")
	counters := model.EdgeCounters{
		SentBytes: 100, ReceivedBytes: 2000, Opens: 3, Closes: 2, Failures: 10, FailuresRefused: 1, FailuresTimedOut: 2,
		FailuresUnreachable: 3, Retransmits: 4,
		Aborts: 5, Continued: 6, Latency: testHistogram(), TimeToFirstByte: testHistogram(), RTT: testHistogram(),
		Duration: testHistogram(), Requests: 20, Replies: 12, Transfers: 7, Held: 8, Pushes: 9, Upgrades: 13, Lost: 14,
		LostWaiting: 2, Resets: 10, TimedOut: 11,
		Packets: model.PacketCounters{SentPackets: 15, SentBytes: 150, ReceivedPackets: 16, ReceivedBytes: 160, Reordered: 17,
			Duplicated: 18, Repeated: 19, Delay: testHistogram(), DelayVariationNS: 500_000_000,
			UnreadNS: 250_000_000, UnreadRequests: 20},
		UnseenBytes: 12, JitterSumNS: 250_000_000, WindowLimitedNS: 1_500_000_000, RTTMinNS: 125_000_000,
	}
	return &model.Snapshot{
		Time: testTime, Window: time.Second,
		Host: model.Host{Name: "node-1", Cores: 2, MemoryBytes: 1 << 30},
		Containers: []model.ContainerSample{
			{
				Container: web,
				CPU:       &model.CPUCounters{UsageNS: 1_500_000_000, Voluntary: 7, Involuntary: 8, RunQueue: testHistogram()},
				Contention: &model.Contention{ContentionRest: model.ContentionRest{OwnNS: 1_000_000_000,
					IdleNS: 2_000_000_000, QuotaNS: 3_000_000_000, MigratedNS: 4_000_000_000, OtherNS: 5_000_000_000,
					OwnPreemptions: 6, OtherPreemptions: 7, QuotaStops: 8},
					By: []model.Contender{{ID: db.ID, Name: db.Name, WaitNS: 9_000_000_000, Preemptions: 10}}},
				Processes: &model.ProcessCounters{TaskCounters: model.TaskCounters{Forks: 1, Execs: 2, Exits: 3},
					Threads: 4, BusyThreads: 1.5, ThreadsLimit: 64, OpenFiles: 9, OpenFilesLimit: 1024},
				Throttle: &model.ThrottleCounters{Periods: 10, ThrottledPeriods: 5, ThrottledNS: 250_000_000, QuotaCores: 0.5},
				Memory: &model.MemorySample{UsageBytes: 11, WorkingSetBytes: 12, RSSBytes: 13, CacheBytes: 14,
					LimitBytes: 15, PageFaults: 16, MajorPageFaults: 6, OOMKills: 1, AnonRefaults: 51, FileRefaults: 52,
					HasRefaults: true},
				Reclaim: &model.ReclaimCounters{LimitNS: 53_000_000_000, LimitStalls: 54, HostNS: 55_000_000_000, HostStalls: 56},
				Pressure: &model.PressureCounters{CPU: model.Pressure{WaitingNS: 57_000_000_000,
					StalledNS: 58_000_000_000, Known: true},
					Memory: model.Pressure{WaitingNS: 59_000_000_000, StalledNS: 60_000_000_000, Known: true},
					IO:     model.Pressure{WaitingNS: 61_000_000_000, StalledNS: 62_000_000_000, Known: true}},
				Victims: &model.OOMVictims{Process: "java", Kills: []model.OOMKills{{Process: "java", Count: 63}}},
				Disk:    &model.DiskCounters{ReadBytes: 21, WriteBytes: 22, Reads: 23, Writes: 24},
				Devices: []model.DeviceSample{
					{Device: model.BlockDevice{Major: 8, Name: "sda"}, Counters: model.DeviceCounters{
						Read: model.DiskOperations{Operations: 51, Bytes: 52, TimeNS: 500_000_000,
							QueueNS: 250_000_000, Errors: 53, Untimed: 54, Latency: testHistogram()},
						Flush: model.DiskOperations{Operations: 55, TimeNS: 750_000_000}}},
					{Device: model.BlockDevice{Major: 259, Minor: 3},
						Counters: model.DeviceCounters{Write: model.DiskOperations{Operations: 56, Bytes: 57}}},
				},
				Files: &model.FileCounters{ReadBytes: 71, WriteBytes: 72, Reads: 73, Writes: 74},
				Syncs: &model.SyncCounters{FSync: model.DiskOperations{Operations: 58, Latency: testHistogram()}},
				Perf: []model.PerfCounters{{PMU: "cpu_core", Known: 0b1011, Counts: [4]uint64{1000, 2000, 0, 40},
					Shared:    [4]uint64{900, 100},
					EnabledNS: 2_000_000_000, RunningNS: 1_000_000_000}},
				ProcessPerf: []model.ProcessPerf{{Process: "worker",
					Perf: []model.PerfCounters{{PMU: "cpu_core", Known: 0b1, Counts: [4]uint64{600}, RunningNS: 1}}},
					{Process: "other", Perf: []model.PerfCounters{{PMU: "cpu_core", Known: 0b1, Counts: [4]uint64{400}}}}},
				Energy: []model.EnergyCounter{{Domain: "package", Source: "powercap", MicroJoules: 1_500_000},
					{Domain: "psys", Source: "model", MicroJoules: 7}},
				Network: &model.NetworkCounters{ReceiveBytes: 31, TransmitBytes: 32, ReceivePackets: 33,
					TransmitPackets: 34, ReceiveErrors: 35, TransmitErrors: 36, ReceiveDropped: 37, TransmitDropped: 38},
				TCP: &model.TCPCounters{ZeroWindows: 39, ZeroWindowsEnded: 40, ZeroWindowDrops: 41, ListenOverflows: 42},
				Drops: &model.PacketDropCounters{Packets: 150, By: []model.PacketDrops{
					{Reason: "NETFILTER_DROP", Packets: 77}, {Reason: "SOCKET_RCVBUFF", Device: "eth0", Packets: 73}}},
				Forward: &model.ForwardCounters{Packets: 75, Took: testHistogram(), Unmatched: 76, TimedOneIn: 2},
				Proxy:   &model.ProxyCounters{Requests: 79, Matched: testHistogram().Count, Alone: 78, Took: testHistogram()},
				Listeners: []model.ListenerCounters{{Drops: 43}, {Address: netip.MustParseAddrPort("0.0.0.0:80"), Drops: 44,
					AcceptQueue: model.AcceptQueue{Queued: 45, QueueLimit: 128}}},
			},
			{Container: db, CPU: &model.CPUCounters{UsageNS: 9}},
			{Container: rest},
		},
		Edges: []model.Edge{
			{Side: model.RoleClient, Client: model.Peer{Container: web}, Server: model.Peer{Container: db},
				Service: service, Paired: true, Confidence: model.Exact, MostInFlight: 4, KnowsMost: true, Counters: counters,
				Endpoints: []model.Endpoint{
					{EndpointKey: model.EndpointKey{Protocol: model.PostgreSQL, Name: "query SELECT", Status: "ok"},
						Aside: 2, Latency: testHistogram()},
					{EndpointKey: model.EndpointKey{Protocol: model.PostgreSQL, Name: "query SELECT"}, Aside: 3},
				}},
			{Side: model.RoleServer, Client: model.Peer{Container: web}, Server: model.Peer{Container: db},
				Service: service, Paired: true, Confidence: model.Exact, MostInFlight: 4, KnowsMost: true, Counters: counters},
			{Side: model.RoleServer, Client: model.Peer{Address: netip.MustParseAddr("10.0.0.9")},
				Server: model.Peer{Container: db}, Service: service, MostInFlight: 4, KnowsMost: true, Counters: counters},
			{Side: model.RoleServer, Client: model.Peer{Container: web}, Server: model.Peer{Container: db},
				Service: service, Transport: model.UDP, Start: testTime.Add(-time.Second),
				Counters: model.EdgeCounters{SentBytes: 61, ReceivedBytes: 62, SentPackets: 63, ReceivedPackets: 64,
					OneWay: 65, Requests: 66, Replies: 67, Aborts: 68}},
		},
		Drops:      &model.PacketDropCounters{Packets: 78, By: []model.PacketDrops{{Reason: "IP_INHDR", Device: "docker0", Packets: 78}}},
		ClockError: 2 * time.Microsecond, ClockByDevice: true,
		ClockDevice: &model.ClockDevice{Device: "/dev/ptp0", Ahead: -500, Uncertainty: 250},
		Energy: &model.EnergySample{
			Meter: model.EnergyMeter{Source: "model", Detail: "Broadwell", Error: 0.45, Domains: []string{"psys"},
				Others: []string{"powercap: no RAPL"}},
			Parts: []model.EnergyPart{{Domain: "package", Source: "powercap", Containers: 1_500_000, Idle: 250_000,
				System: 750_000}, {Domain: "psys", Source: "model", Containers: 7}},
		},
		Probes: &model.ProbeSample{
			Sessions: []model.ProbeSession{{Peer: hostile, Reflector: netip.MustParseAddrPort("192.0.2.2:862"), DSCP: 46,
				Interval: 200 * time.Millisecond, Answered: true, Sent: 101, Received: 98, Lost: 3, LostThere: 2, LostBack: 1,
				Duplicates: 4, ReorderedThere: 5, ReorderedBack: 6, RoundTrip: testHistogram(), Variation: testHistogram(),
				There: testHistogram(), Back: testHistogram(), ClockError: 3 * time.Millisecond,
				AboveThere: testHistogram(), AboveBack: testHistogram(), RouteChanges: 7,
				Route: model.Route{netip.MustParseAddr("192.0.2.1"), {}}},
				{Peer: "b", Reflector: netip.MustParseAddrPort("[2001:db8::2]:862"), Interval: time.Second, Sent: 1, Lost: 1},
				{Peer: "c", Client: hostile, Server: "shop/db-0/db", Reflector: netip.MustParseAddrPort("10.1.2.2:8620"),
					Interval: time.Second, Sent: 11, Received: 8, Lost: 3, LostThere: 1, LostBack: 2, RoundTrip: testHistogram(),
					Variation: testHistogram(), There: testHistogram(), Back: testHistogram(), ClockError: time.Millisecond,
					AboveThere: testHistogram(), AboveBack: testHistogram(), Route: model.Route{}}},
			Senders:    model.SocketFailures{Ended: 7, Unknown: 8, Failed: 9},
			Reflectors: model.SocketFailures{Ended: 10, Unknown: 11, Failed: 12},
			Reflector:  model.ReflectorCounters{Answered: 1, Strangers: 2, Limited: 3, Malformed: 4, Forged: 5, Replayed: 6},
		},
		Capacities: []model.Capacity{{From: "host", To: "id", FromName: "host", ToName: hostile, BytesPerSecond: 1.25e8,
			Measured: testTime.Add(-1500 * time.Millisecond)}},
		Self: model.SelfSample{
			IdleNS: 5_000_000_000, OtherNS: 1, StealNS: 1_500_000_000, CPUNS: 2_000_000_000, RSSBytes: 42, ReadNS: 3_000_000,
			AvailableBytes: 1 << 29,
			FileSystems:    []model.FileSystem{{Mount: "/", UsedBytes: 1 << 30, SizeBytes: 3 << 30}},
			Sent:           []model.SentBytes{{To: "otlp", Bytes: 81}, {To: "http", Bytes: 82}},
			Programs: []model.ProgramCost{{Name: "on_switch", Runs: 10, RunTimeNS: 1000},
				{Name: "on_exit", Runs: 1, Missed: 7}, {Name: "on_fork"}},
			Drops: []model.Drop{{Name: "edges", Count: 3, Capacity: 100, Used: 9}, {Name: "queue", Count: 1}},
			Budget: &model.BudgetSample{Limit: 0.01, Own: 0.004, Kernel: 0.003, Parts: []model.PartSample{
				{Part: model.Part{Name: "names", Purpose: "what requests ask for"}, Spent: 0.002, Estimated: true},
				{Part: model.Part{Name: "recorder", Purpose: "samples"}, Shed: true, Changes: 3},
				{Part: model.Part{Name: "rest", Purpose: "everything else", Fixed: true}, Spent: 0.005},
			}},
			Features: []model.Feature{
				{Name: "tp_btf/sched_switch", Purpose: "CPU time", State: model.FeatureWorks},
				{Name: "iter/tcp", Purpose: "connections open before the start", State: model.FeatureAbsent, Reason: "too old"},
			},
		},
	}
}
