//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/* Runs histogram_cell in the kernel, on values that a test chooses. */
#include "include/kernel.h"
#include "include/histogram.h"

char LICENSE[] SEC("license") = "GPL";

#define VALUES 4096

u64 values[VALUES];
u32 cells[VALUES];

static long compute_one(u32 i, void *ctx)
{
	if (i < VALUES)
		cells[i] = histogram_cell(values[i]);
	return 0;
}

SEC("syscall")
int compute(void *ctx)
{
	bpf_loop(VALUES, compute_one, NULL, 0);
	return 0;
}
