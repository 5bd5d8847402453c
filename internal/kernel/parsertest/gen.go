// Package parsertest holds the parsers of requests in the kernel against a model of their rules.
// Nothing imports it.
package parsertest

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf"
//go:generate bpf2go headtest ../../../bpf/test/parsers.bpf.c
//go:generate bpf2go http2test ../../../bpf/test/http2.bpf.c
//go:generate bpf2go smttest ../../../bpf/test/smt.bpf.c
