package block

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf"
//go:generate bpf2go -type disk -type begun -type disk_key -type disk_slot -type disk_event disk ../../../bpf/block/disk.bpf.c
//go:generate bpf2go -type file_counts files ../../../bpf/block/files.bpf.c
