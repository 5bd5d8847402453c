/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * A log of single transactions, for tests and benchmarks: what the histograms say is compared
 * with it. Off, as in every agent, it is dead code that the kernel takes out at loading.
 */
#ifndef OUTSIGHT_TRANSACTIONS_H
#define OUTSIGHT_TRANSACTIONS_H

#include "include/kernel.h"

/* One entry of an edge's latency histogram; its value is last_ns - first_ns. */
struct transaction {
	u64 first_ns;
	u64 reply_ns;
	u64 last_ns;
	u32 edge; /* its index */
	u32 role;
};

/* Keeps the type in the object for its reader. */
const struct transaction *transaction_record __attribute__((unused));

/* Set by the loader. */
const volatile bool log_transactions = false;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} transaction_log SEC(".maps");

/* Transactions that found no room in the log. */
volatile u64 unlogged_transactions = 0;

/* The reader polls: waking it up would change the latencies that are under test. */
#define BPF_RB_NO_WAKEUP 1

static __always_inline void log_transaction(u32 edge, u32 role, u64 first_ns, u64 reply_ns,
					    u64 last_ns)
{
	struct transaction *t = bpf_ringbuf_reserve(&transaction_log, sizeof(*t), 0);

	if (!t) {
		__sync_fetch_and_add(&unlogged_transactions, 1);
		return;
	}
	t->first_ns = first_ns;
	t->reply_ns = reply_ns;
	t->last_ns = last_ns;
	t->edge = edge;
	t->role = role;
	bpf_ringbuf_submit(t, BPF_RB_NO_WAKEUP);
}

#endif
