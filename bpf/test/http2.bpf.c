//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/* Runs what follows HTTP/2 in the kernel, on the bytes of a "call" out of the test's own memory. */
#include "include/kernel.h"
#include "net/http2/http2.h"

char LICENSE[] SEC("license") = "GPL";

#define FINDINGS 1024

struct finding {
	u32 event;
	u32 stream;
	u8 ends;
	u8 status;
	u8 grpc_status;
	u8 grpc;
	u8 broken;
	u8 pad[3];
	u8 name[128];
};

struct http2_direction half;
struct http2_source source; /* the first part, or the vector */
struct finding findings[FINDINGS];
u32 found;
u32 chain;

__noinline int find(int event)
{
	u32 n = found;

	if (event == HTTP2_GOES_ON || n >= FINDINGS)
		return n;
	if (event == HTTP2_BLOCK)
		http2_name(&half);
	findings[n].event = event;
	findings[n].stream = half.stream;
	findings[n].ends = half.ends;
	findings[n].status = half.status;
	findings[n].grpc_status = half.grpc_status;
	findings[n].grpc = half.grpc;
	findings[n].broken = half.broken;
	__builtin_memcpy(findings[n].name, half.name, sizeof(half.name));
	found = n + 1;
	return n;
}

SEC("syscall")
int follow(void *ctx)
{
	half.source = source;
	for (u32 i = 0; i < HTTP2_FINDINGS; i++) {
		int event = http2_run(&half);

		if (event == HTTP2_DONE)
			break;
		find(event);
	}
	return 0;
}

SEC("syscall")
int join(void *ctx)
{
	chain = http2_chain(source.at, source.left);
	return 0;
}
