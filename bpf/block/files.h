/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of files.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_FILES_H
#define OUTSIGHT_FILES_H

#include "include/kernel.h"

/* What threads have read and written by system calls, as the kernel counts it for each. */
struct file_counts {
	u64 read_bytes;
	u64 write_bytes;
	u64 reads;
	u64 writes;
};

enum files_drop {
	DROP_FILES_THREAD = 0, /* no memory for a thread: counted at the next scan */
	FILES_DROPS = 1,
};

#endif
