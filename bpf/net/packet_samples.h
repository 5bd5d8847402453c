/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Samples of the packets between hosts: what identifies a packet, and when it was sent or received.
 * The other host has the other half. Which packets are sampled is decided by the packet alone, so
 * that both choose the same ones: those that are round enough. The levels of roundness nest: a host
 * that samples fewer packets of an edge than the other one samples some of the same.
 */
#ifndef OUTSIGHT_PACKET_SAMPLES_H
#define OUTSIGHT_PACKET_SAMPLES_H

#include "include/kernel.h"
#include "net/edges.h"
#include "net/packet_cards.h"
#include "net/packets.h"

/* How many there were; the last ones are in the table. */
volatile u64 packets_sampled = 0;

/* 1: edges within this host are sampled as well; for tests. */
const volatile u32 samples_local_edges = 0;

static __always_inline bool is_between_hosts(const struct edge *edge)
{
	return !edge->key.peer || samples_local_edges;
}

static __noinline int sample_packet(u32 edge, u64 packet, u32 level, u32 direction)
{
	u64 ns = bpf_ktime_get_ns();
	u64 number = __sync_fetch_and_add(&packets_sampled, 1) + 1;
	u32 place = number % PACKET_SAMPLES;
	struct packet_sample *s = bpf_map_lookup_elem(&packet_samples, &place);

	if (!s)
		return 0;
	__sync_lock_test_and_set(&s->number, 0);
	s->packet = packet;
	s->ns = ns;
	s->card_ns = direction == PACKET_RECEIVED ? came_to_card(packet) : 0;
	s->edge = edge;
	s->direction = direction;
	s->level = level;
	__sync_lock_test_and_set(&s->number, number);
	if (direction == PACKET_SENT)
		await_at_card(packet, number);
	return 0;
}

#endif
