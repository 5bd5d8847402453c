/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * When packets that are sampled leave this host by one of its uplinks, or come in by one. Between a
 * socket and an uplink a packet may pass other network namespaces, bridges and translations: it is
 * found again by what identifies it between hosts. Which packets are sampled is known at sockets
 * alone. So of those that are sent the socket's end says which one is awaited; of those that are
 * received each is noted, as many as may be observed, until the socket's end asks for it.
 */
#ifndef OUTSIGHT_PACKET_CARDS_H
#define OUTSIGHT_PACKET_CARDS_H

#include "include/kernel.h"
#include "include/mix.h"
#include "net/packets.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PACKET_SAMPLES);
	__type(key, u32);
	__type(value, struct packet_sample);
} packet_samples SEC(".maps");

#define CARD_PACKETS_BITS 12

/* A packet has one place in these; another one that has the same takes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << CARD_PACKETS_BITS);
	__type(key, u32);
	__type(value, struct card_packet);
} awaited_at_card SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << CARD_PACKETS_BITS);
	__type(key, u32);
	__type(value, struct card_packet);
} came_by_card SEC(".maps");

static __always_inline u32 card_place(u64 packet)
{
	return packet >> (64 - CARD_PACKETS_BITS);
}

static __always_inline void put_card_packet(struct card_packet *p, u64 packet, u64 value)
{
	if (!p)
		return;
	__sync_lock_test_and_set(&p->packet, 0);
	p->value = value;
	__sync_lock_test_and_set(&p->packet, packet);
}

/* What a packet has there, which is taken out; 0: it is not there. */
static __always_inline u64 take_card_packet(struct card_packet *p, u64 packet)
{
	if (!p || p->packet != packet)
		return 0;
	u64 value = p->value;
	return __sync_val_compare_and_swap(&p->packet, packet, 0) == packet ? value : 0;
}

static __always_inline void await_at_card(u64 packet, u64 number)
{
	u32 place = card_place(packet);

	put_card_packet(bpf_map_lookup_elem(&awaited_at_card, &place), packet, number);
}

/* By the first uplink: one that is below another one has the packet later. */
static __always_inline void leaves_by_card(u64 packet)
{
	u32 place = card_place(packet);
	u64 number = take_card_packet(bpf_map_lookup_elem(&awaited_at_card, &place), packet);
	u32 sample = number % PACKET_SAMPLES;
	struct packet_sample *s = bpf_map_lookup_elem(&packet_samples, &sample);

	if (number && s && s->number == number)
		s->card_ns = bpf_ktime_get_ns();
}

static __always_inline void comes_by_card(u64 packet)
{
	u32 place = card_place(packet);

	put_card_packet(bpf_map_lookup_elem(&came_by_card, &place), packet, bpf_ktime_get_ns());
}

/* When a packet came in by an uplink; 0: that was not seen. */
static __always_inline u64 came_to_card(u64 packet)
{
	u32 place = card_place(packet);

	return take_card_packet(bpf_map_lookup_elem(&came_by_card, &place), packet);
}

#endif
