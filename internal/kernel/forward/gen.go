package forward

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf"
//go:generate bpf2go -type forwarder forward ../../../bpf/forward/forward.bpf.c
