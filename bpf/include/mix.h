/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
#ifndef OUTSIGHT_MIX_H
#define OUTSIGHT_MIX_H

#include "include/kernel.h"

/* The finalizer of MurmurHash3 (public domain). */
static __always_inline u64 mixed(u64 n)
{
	n ^= n >> 33;
	n *= 0xff51afd7ed558ccdULL;
	n ^= n >> 33;
	n *= 0xc4ceb9fe1a85ec53ULL;
	return n ^ n >> 33;
}

#endif
