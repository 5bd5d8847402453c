/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of appmetrics.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_APPMETRICS_H
#define OUTSIGHT_APPMETRICS_H

#include "include/kernel.h"

#define COMM_BYTES 16
/* How many files the processes of a control group may announce in a second. */
#define MAX_ANNOUNCED 256
#define NS_PER_SECOND 1000000000ULL

struct appmetrics_second {
	u64 since_ns;
	u64 announced;
};

enum appmetrics_drop {
	DROP_METRICS_FILE = 0, /* no room for the event of a file, or one too many in a second: the file is found later, or never */
	APPMETRICS_DROPS = 1,
};

#endif
