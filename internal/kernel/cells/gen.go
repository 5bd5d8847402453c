// Package cells proves in its test that the kernel computes the histogram's cells as model does.
// Nothing imports it.
package cells

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf"
//go:generate bpf2go cells ../../../bpf/test/cells.bpf.c
