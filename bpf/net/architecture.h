/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Whose registers the programs read. */
#ifndef OUTSIGHT_ARCHITECTURE_H
#define OUTSIGHT_ARCHITECTURE_H

#include "include/kernel.h"

enum cpu_architecture {
	ARCHITECTURE_OTHER = 0, /* its registers are not known: requests are not read */
	ARCHITECTURE_AMD64 = 1,
	ARCHITECTURE_ARM64 = 2,
};

/* Set by the loader. */
const volatile u32 architecture = ARCHITECTURE_OTHER;

#endif
