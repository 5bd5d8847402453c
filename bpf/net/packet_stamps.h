/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The delay of packets on the way: the sender's end notes when, the receiver's end on the same host
 * finds the note. What identifies a packet is in it, and address translation leaves it alone.
 */
#ifndef OUTSIGHT_PACKET_STAMPS_H
#define OUTSIGHT_PACKET_STAMPS_H

#include "include/kernel.h"
#include "include/mix.h"
#include "net/latency.h"
#include "net/packet_counts.h"
#include "net/packets.h"

/* A packet has one place here; another one that has the same takes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct packet_stamp);
} packet_stamps SEC(".maps");

static __always_inline struct packet_stamp *stamp_of(u64 packet, u64 check)
{
	u32 place = mixed(packet ^ check) >> 51; /* 64 - 13: one of 8192 */

	return bpf_map_lookup_elem(&packet_stamps, &place);
}

static __always_inline void stamp_packet(u64 packet, u64 check)
{
	struct packet_stamp *s = stamp_of(packet, check);
	u64 now = bpf_ktime_get_ns();

	if (!s)
		return;
	/*
	 * The same packet again, or two datagrams that are the same: it will not be known which of
	 * them arrived.
	 */
	if (s->packet == packet && s->check == check &&
	    elapsed(s->ns, now) < STAMP_FORGOTTEN_NS) {
		s->ns = 0;
		return;
	}
	s->packet = 0;
	s->check = check;
	s->ns = now;
	__sync_lock_test_and_set(&s->packet, packet);
}

static __always_inline void add_delay(struct edge_packets *p, u64 ns)
{
	u64 before = __sync_lock_test_and_set(&p->last_delay_ns, ns ? ns : 1);

	if (before)
		__sync_fetch_and_add(&p->delay_variation_ns,
				     ns > before ? ns - before : before - ns);
	add_sample(&p->delay_histogram, &p->delay_sum_ns, ns);
}

/* Of several that receive a packet, or of its copies, the first one counts. */
static __always_inline void match_packet(struct edge_packets *p, u64 packet, u64 check)
{
	struct packet_stamp *s = stamp_of(packet, check);

	if (!s || s->packet != packet || s->check != check)
		return;
	u64 sent_ns = s->ns;
	if (__sync_val_compare_and_swap(&s->packet, packet, 0) != packet || !sent_ns)
		return;
	add_delay(p, elapsed(sent_ns, bpf_ktime_get_ns()));
}

#endif
