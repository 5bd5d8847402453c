package bpf

//go:generate go run ./tables
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type cpu_state -type cgroup_lane -type cgroup_event -type process_counts -type task_state -type histogram cgroups cgroups.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type edge_key -type edge -type listener_key -type listener -type pair_key -type datagram_edge -type transaction -type owner_use -type owner_drops -type flow_use edges edges.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" datagrams datagrams.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type recorder_control -type recorder_tick -type recorder_sample -type recorded_edge recorder recorder.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" tls tls.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type disk -type disk_key -type disk_slot -type disk_event disk disk.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type file_counts files files.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type contention_cpu -type contention_lane -type contention_pair contention contention.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type reclaim_group reclaim reclaim.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type counter_lane -type counter_cpu -type counter_process -type counter_process_key counters counters.bpf.c
