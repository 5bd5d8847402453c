// Package headtest holds the parsers of requests in the kernel against a model of their rules.
// Nothing imports it.
package headtest

//go:generate -command bpf2go go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -cflags "-O2 -g -mcpu=v3 -Wall -Werror -I.."
//go:generate bpf2go headtest ../test/headtest.bpf.c
//go:generate bpf2go http2test ../test/http2test.bpf.c
//go:generate bpf2go smttest ../test/smttest.bpf.c
