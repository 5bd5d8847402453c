package groups

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf"
//go:generate bpf2go -type group_figures -type group_details -type flushed_stat -type watch_request -type read_request -type figures_control groups ../../../bpf/groups/groups.bpf.c
