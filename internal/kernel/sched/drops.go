package sched

// The drops that the kernel programs count, with the names that users see.

var cgroupDropNames = map[cgroupsCgroupDrop]string{
	cgroupsCgroupDropDROP_CGROUP_SLOT:  "cgroups",
	cgroupsCgroupDropDROP_CGROUP_EVENT: "cgroup_events",
	cgroupsCgroupDropDROP_TASK_STATE:   "thread_states",
}

var contentionDropNames = map[contentionContentionDrop]string{
	contentionContentionDropDROP_CONTENTION_PAIR: "contention_pairs",
}

var reclaimDropNames = map[reclaimReclaimDrop]string{
	reclaimReclaimDropDROP_RECLAIM: "reclaim_stalls",
	reclaimReclaimDropDROP_VICTIM:  "oom_victims",
}

var counterDropNames = map[countersCounterDrop]string{
	countersCounterDropDROP_COUNTER_READ:    "counter_reads",
	countersCounterDropDROP_COUNTER_RESET:   "counter_resets",
	countersCounterDropDROP_COUNTER_CORE:    "counter_cores",
	countersCounterDropDROP_COUNTER_PROCESS: "counter_processes",
}

var appmetricsDropNames = map[appmetricsAppmetricsDrop]string{
	appmetricsAppmetricsDropDROP_METRICS_FILE: "metrics_file_events",
}
