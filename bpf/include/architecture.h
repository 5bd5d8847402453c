/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Whose registers the programs read. */
#ifndef OUTSIGHT_ARCHITECTURE_H
#define OUTSIGHT_ARCHITECTURE_H

#include "include/kernel.h"

enum cpu_architecture {
	ARCHITECTURE_OTHER = 0, /* its registers are not known, or not wanted */
	ARCHITECTURE_AMD64 = 1,
	ARCHITECTURE_ARM64 = 2,
};

/* Set by the loader. */
const volatile u32 architecture = ARCHITECTURE_OTHER;

/*
 * Registers as a system call was entered with; the names of the arguments follow the architecture.
 */
struct pt_regs___x86_64 {
	unsigned long si;
	unsigned long di;
	unsigned long dx;
	unsigned long orig_ax;
	unsigned long cs;
} __attribute__((preserve_access_index));

struct pt_regs___arm64 {
	u64 regs[31];
	s32 syscallno;
} __attribute__((preserve_access_index));

#define X86_64_USER_CS 0x33 /* a 32-bit program counts its system calls in another way */

#endif
