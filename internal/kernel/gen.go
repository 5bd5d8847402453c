package kernel

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I../../bpf"
//go:generate go run ./tables
//go:generate bpf2go -type cpu_state -type cgroup_lane -type cgroup_event -type process_counts -type task_state -type histogram cgroups ../../bpf/sched/cgroups.bpf.c
//go:generate bpf2go -type edge_key -type edge -type listener_key -type listener -type pair_key -type datagram_edge -type transaction -type owner_use -type owner_drops -type flow_use edges ../../bpf/net/edges.bpf.c
//go:generate bpf2go datagrams ../../bpf/net/datagrams.bpf.c
//go:generate bpf2go -type recorder_control -type recorder_tick -type recorder_sample -type recorded_edge recorder ../../bpf/tick/recorder.bpf.c
//go:generate bpf2go tls ../../bpf/net/tls.bpf.c
//go:generate bpf2go -type disk -type disk_key -type disk_slot -type disk_event disk ../../bpf/block/disk.bpf.c
//go:generate bpf2go -type file_counts files ../../bpf/block/files.bpf.c
//go:generate bpf2go -type contention_cpu -type contention_lane -type contention_pair contention ../../bpf/sched/contention.bpf.c
//go:generate bpf2go -type reclaim_group reclaim ../../bpf/sched/reclaim.bpf.c
//go:generate bpf2go -type counter_lane -type counter_cpu -type counter_process -type counter_process_key counters ../../bpf/sched/counters.bpf.c
