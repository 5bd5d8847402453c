package sched

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf"
//go:generate bpf2go -type cpu_state -type cgroup_lane -type cgroup_event -type process_counts -type task_state -type histogram cgroups ../../../bpf/sched/cgroups.bpf.c
//go:generate bpf2go -type contention_cpu -type contention_lane -type contention_pair contention ../../../bpf/sched/contention.bpf.c
//go:generate bpf2go -type reclaim_group reclaim ../../../bpf/sched/reclaim.bpf.c
//go:generate bpf2go -type counter_lane -type counter_cpu -type counter_process -type counter_process_key counters ../../../bpf/sched/counters.bpf.c
//go:generate bpf2go appmetrics ../../../bpf/sched/appmetrics.bpf.c
