//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/* Runs the parsers of requests and replies in the kernel, on bytes that a test chooses. */
#include "include/kernel.h"
#include "net/proto/parse.h"

char LICENSE[] SEC("license") = "GPL";

#define HEADS 64

struct head heads[HEADS];
int states[HEADS];
int statuses[HEADS];

SEC("syscall")
int parse(void *ctx)
{
	for (u32 i = 0; i < HEADS; i++) {
		states[i] = parse_head(&heads[i]);
		statuses[i] = parse_reply(&heads[i]);
	}
	return 0;
}
