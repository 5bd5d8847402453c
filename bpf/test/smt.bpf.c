//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/* Replays switches of a simulated machine through the accounting of shared cores (smt.h). */
#include "include/kernel.h"
#include "sched/smt.h"

char LICENSE[] SEC("license") = "GPL";

#define REPLAY_SWITCHES 2048
#define REPLAY_CPUS 512

/* A switch on a CPU: what its counter says then, and whether it runs somebody from then on. */
struct replay_switch {
	u64 now_ns;
	u64 count;
	u32 cpu;
	u32 busy;
	u64 parts[SMT_THREADS]; /* the answer */
};

struct replay_cpu {
	u64 count;
	struct smt_slice slice;
};

struct replay_switch switches[REPLAY_SWITCHES];
struct replay_cpu replay_cpus[REPLAY_CPUS];
struct smt_core replay_cores[REPLAY_CPUS];
u32 core_of[REPLAY_CPUS];
u32 replayed;

static long replay_one(u32 i, void *ctx)
{
	u64 with_ns[SMT_THREADS];

	if (i >= REPLAY_SWITCHES)
		return 1;
	struct replay_switch *s = &switches[i];
	u32 number = s->cpu;
	if (number >= REPLAY_CPUS)
		return 1;
	struct replay_cpu *cpu = &replay_cpus[number];
	u32 index = core_of[number];
	if (index >= REPLAY_CPUS)
		return 1;
	smt_switch(&replay_cores[index], &cpu->slice, s->now_ns, s->busy, with_ns);
	smt_divide(s->count - cpu->count, with_ns, s->parts);
	cpu->count = s->count;
	replayed = i + 1;
	return 0;
}

SEC("syscall")
int replay(void *ctx)
{
	replayed = 0;
	bpf_loop(REPLAY_SWITCHES, replay_one, NULL, 0);
	return 0;
}
