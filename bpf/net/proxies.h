/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of proxies, shared with their reader. See proxies_path.h. */
#ifndef OUTSIGHT_PROXIES_H
#define OUTSIGHT_PROXIES_H

#include "include/kernel.h"
#include "include/histogram.h"

#define PROXY_QUEUES_BITS 7
#define PROXY_QUEUES (1 << PROXY_QUEUES_BITS)
#define PROXY_QUEUED 32
#define PROXY_PROCESSES 64

/* Requests of one name that one process has received, in their order. */
struct proxy_queue {
	u64 key;	/* of process and name; 0: free */
	u64 newest_ns;	/* when the last one was received */
	u32 first;	/* number of the oldest that may be there */
	u32 next;	/* number of the next one */
	u32 unanswered; /* requests without a reply, also those that were sent on */
	u32 returned;	/* of those, that were sent on and have a reply, or will have none */
	u64 received_ns[PROXY_QUEUED]; /* 0: sent on, or answered */
};

/* A process, and the newest request that it has received. */
struct proxy_process {
	u32 id;
	u32 unanswered; /* requests without a reply */
	u64 key;	/* of the newest one's queue; 0: it is in none */
	u64 ns;		/* when it was received */
	u32 queue;	/* index of its queue */
	u32 number;	/* in its queue */
	u32 protocol;	/* of its connection */
	u32 unused;
};

/*
 * The processes of one name of a control group, which receive requests and send some. They have a
 * map of their own, of this one entry: where there are no proxies there is none.
 */
struct proxy {
	u64 requests; /* received */
	u64 matched;  /* of those, that were found again where they were sent on: in the histogram */
	u64 alone;    /* of these, by no name: no other request was in the process */
	u64 sum_ns;
	struct proxy_process processes[PROXY_PROCESSES];
	struct histogram took;
	struct proxy_queue queues[PROXY_QUEUES];
};

/* What a connection remembers of its request at a proxy. */
struct proxy_request {
	u64 key; /* of its queue; 0: it is in none */
	u64 ns;	 /* when it was received; 0: it was sent */
	u32 proxy; /* its index; 0: there is no such request */
	u32 process;
	u32 queue;  /* index of its queue */
	u32 number; /* in its queue */
};

/* What is still unanswered then is taken for lost, where its place is needed. */
#define PROXY_FORGET_NS 10000000000ULL

#endif
