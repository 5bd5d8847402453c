/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The kernel's timers that call a program's function. */
#ifndef OUTSIGHT_TIMER_H
#define OUTSIGHT_TIMER_H

#include "include/kernel.h"

#define CLOCK_MONOTONIC 1
#define BPF_F_TIMER_ABS 1
#define BPF_F_TIMER_CPU_PIN 2
#define EBUSY 16
#define EINVAL 22

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

/*
 * Stays on its CPU since 6.7 (d6247ecb6c1e), where the kernel may else move it to one that is
 * awake. Absolute expiry since 6.4 (f71f8530494b); before that a little of each interval's time is
 * lost.
 */
static __always_inline void arm(struct bpf_timer *timer, u64 due, u64 now)
{
	if (bpf_timer_start(timer, due, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN) != -EINVAL)
		return;
	if (bpf_timer_start(timer, due, BPF_F_TIMER_ABS) == -EINVAL)
		bpf_timer_start(timer, due > now ? due - now : 0, 0);
}

#endif
