// Package cells proves in its test that the kernel computes the histogram's cells as model does.
// Nothing imports it.
package cells

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror" cells cells.bpf.c
