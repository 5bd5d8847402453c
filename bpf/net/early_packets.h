/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Packets of UDP that come before the call which makes their flow. */
#ifndef OUTSIGHT_EARLY_PACKETS_H
#define OUTSIGHT_EARLY_PACKETS_H

#include "include/kernel.h"
#include "include/lru.h"
#include "net/datagrams.h"
#include "net/packet_counts.h"

/* Of flows that no call has made: it has not returned, or nobody has received anything so far. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct flow_key);
	__type(value, struct packet_path);
} early_packets SEC(".maps");

static __noinline struct packet_path *early_path(struct flow_key *key)
{
	struct packet_path *path;

	if (!key)
		return NULL;
	path = bpf_map_lookup_elem(&early_packets, key);
	if (path)
		return path;
	struct packet_path fresh = {};
	lru_make(&early_packets, LRU_EARLY, key, &fresh);
	return bpf_map_lookup_elem(&early_packets, key);
}

/* To be called when the edge of a flow has become known. */
static __noinline int claim_packets(struct datagram_socket *s, const struct datagram_peer *peer,
				    struct datagram_flow *f)
{
	struct flow_key key = {};

	if (!s || !peer || !f)
		return 0;
	__sync_lock_test_and_set(&f->known, 1); /* before what waits is read */
	key.socket = s->id;
	key.peer = *peer;
	if (f->packets.waiting.sent_packets | f->packets.waiting.received_packets)
		deliver_packets(&f->packets.waiting, f->edge);
	struct packet_path *early = bpf_map_lookup_elem(&early_packets, &key);
	if (!early)
		return 0;
	deliver_packets(&early->waiting, f->edge);
	if (!(f->packets.flags & PATH_IDS)) {
		f->packets.ids = early->ids;
		f->packets.newest_id = early->newest_id;
		f->packets.flags = early->flags;
	}
	lru_take(&early_packets, LRU_EARLY, &key);
	return 0;
}

#endif
