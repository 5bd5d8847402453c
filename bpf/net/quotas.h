/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Quotas of control groups in the tables that all share. */
#ifndef OUTSIGHT_QUOTAS_H
#define OUTSIGHT_QUOTAS_H

#include "include/kernel.h"
#include "net/edges.h"

/* Set by the loader. */
const volatile u32 max_owner_edges = 256;
const volatile u32 max_owner_listeners = 2048;
const volatile u32 max_owner_endpoints = 128;
const volatile u32 max_owner_pairs = 16384;
const volatile u32 max_owner_streams = 16384;
const volatile u32 max_owner_flows = 4096;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64); /* control group */
	__type(value, struct owner_use);
} owner_uses SEC(".maps");

/* Of pairs and of streams, which no reader counts: programs add and take away. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64); /* control group */
	__type(value, u32);
} owner_pairs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64); /* control group */
	__type(value, u32);
} owner_streams SEC(".maps");

/* Of tables that evict entries: programs add, and the reader sets what its sweeps found. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64); /* control group */
	__type(value, struct flow_use);
} owner_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64); /* control group */
	__type(value, struct owner_drops);
} quota_drops SEC(".maps");

/* What a new entry begins with. They are no locals, because there is little stack. */
static const struct owner_use no_use;
static const struct owner_drops no_drops;

static __always_inline u32 owner_has(u64 owner, enum quota which)
{
	struct owner_use *use = bpf_map_lookup_elem(&owner_uses, &owner);

	return use ? use->used[which] : 0;
}

/* Where the table of groups is full, a group is counted from the next reading on. */
static __always_inline void owner_gains(u64 owner, enum quota which)
{
	struct owner_use *use = bpf_map_lookup_elem(&owner_uses, &owner);

	if (!use) {
		bpf_map_update_elem(&owner_uses, &owner, &no_use, BPF_NOEXIST);
		use = bpf_map_lookup_elem(&owner_uses, &owner);
	}
	if (use)
		__sync_fetch_and_add(&use->used[which], 1);
}

/* Counts may have been set anew meanwhile, and are never less than 0. */
static __always_inline void owner_loses(u64 owner, enum quota which)
{
	struct owner_use *use = bpf_map_lookup_elem(&owner_uses, &owner);

	if (use && (s32)__sync_fetch_and_add(&use->used[which], -1) <= 0)
		use->used[which] = 0;
}

static __always_inline void owner_is_over(u64 owner, enum quota which)
{
	struct owner_drops *drops = bpf_map_lookup_elem(&quota_drops, &owner);

	if (!drops) {
		bpf_map_update_elem(&quota_drops, &owner, &no_drops, BPF_NOEXIST);
		drops = bpf_map_lookup_elem(&quota_drops, &owner);
	}
	if (drops)
		__sync_fetch_and_add(&drops->over[which], 1);
}

/*
 * Takes one of a table that programs count themselves; false if that would be over the quota.
 * Owner 0 is no group of this host.
 */
static __always_inline bool take_of(void *table, u64 owner, u32 limit, enum quota which)
{
	u32 *has = bpf_map_lookup_elem(table, &owner);

	if (!has) {
		u32 none = 0;

		bpf_map_update_elem(table, &owner, &none, BPF_NOEXIST);
		has = bpf_map_lookup_elem(table, &owner);
	}
	if (!has || !owner)
		return true;
	if (*has >= limit) {
		owner_is_over(owner, which);
		return false;
	}
	__sync_fetch_and_add(has, 1);
	return true;
}

static __always_inline void give_back(void *table, u64 owner)
{
	u32 *has = bpf_map_lookup_elem(table, &owner);

	if (has && (s32)__sync_fetch_and_add(has, -1) <= 0)
		*has = 0;
}

static __always_inline bool take_pair(u64 owner)
{
	return take_of(&owner_pairs, owner, max_owner_pairs, QUOTA_PAIRS);
}

static __always_inline void give_pair(u64 owner)
{
	give_back(&owner_pairs, owner);
}

/* --- tables in which entries are evicted --- */

static const struct flow_use no_flows;

static __always_inline struct flow_use *flows_of(u64 owner)
{
	struct flow_use *flows = bpf_map_lookup_elem(&owner_flows, &owner);

	if (flows)
		return flows;
	bpf_map_update_elem(&owner_flows, &owner, &no_flows, BPF_NOEXIST);
	return bpf_map_lookup_elem(&owner_flows, &owner);
}

static __always_inline void give_flow(u64 owner, const u32 which)
{
	struct flow_use *flows = bpf_map_lookup_elem(&owner_flows, &owner);

	if (flows && (s32)__sync_fetch_and_add(&flows->used[which], -1) <= 0)
		flows->used[which] = 0;
}

static __always_inline void found_flow(u64 owner, const u32 which)
{
	struct flow_use *flows = flows_of(owner);

	if (flows)
		__sync_fetch_and_add(&flows->found[which], 1);
}

#endif
