/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Which device and which group a request is of, and the index of their entry in the table. */
#ifndef OUTSIGHT_DISK_INDEX_H
#define OUTSIGHT_DISK_INDEX_H

#include "include/kernel.h"
#include "block/disk_maps.h"
#include "include/begun.h"
#include "include/cgroup_id.h"

static __always_inline void count_drop(u32 which)
{
	u64 *n = bpf_map_lookup_elem(&disk_drops, &which);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline u32 operation_of(u32 op)
{
	switch (op) {
	case REQ_OP_FLUSH:
		return DISK_FLUSH;
	case REQ_OP_DISCARD:
		return DISK_DISCARD;
	}
	return op & 1 ? DISK_WRITE : DISK_READ;
}

static __always_inline struct gendisk *disk_of(struct request *rq)
{
	if (bpf_core_field_exists(struct request___with_disk, rq_disk))
		return ((struct request___with_disk *)rq)->rq_disk;
	return rq->q->disk;
}

/*
 * The group whose I/O a request is: who wrote a page or asked to read it, also when a kernel thread
 * writes the page back (on v1 the kernel has not kept that: it is the root's). Requests are not
 * merged across groups since 5.18; before, all bytes of a request are those of its first part's
 * group.
 */
static __always_inline struct cgroup *group_of(struct bio *bio)
{
	if (!bio || !bpf_core_field_exists(bio->bi_blkg))
		return NULL;
	struct blkcg_gq *blkg = bio->bi_blkg;
	return blkg ? blkg->blkcg->css.cgroup : NULL;
}

static __noinline u32 new_index(struct disk_key *key)
{
	u32 index;

	if (!key)
		return DISK_INDEX_OTHER;
	u32 other = key->device == DISK_OF_SYNCS ? DISK_INDEX_SYNCS : DISK_INDEX_OTHER;
	if (bpf_map_pop_elem(&free_disks, &index)) {
		count_drop(DROP_DISK);
		return other;
	}
	struct disk *disk = bpf_map_lookup_elem(&disks, &index);
	if (!disk)
		return other;
	disk->key = *key;
	disk->owner = 0;
	disk->slot = 0;
	disk->lookups = 0;
	disk->histograms[DISK_READ] = index * DISK_HISTOGRAMS + DISK_READ;
	disk->histograms[DISK_WRITE] = index * DISK_HISTOGRAMS + DISK_WRITE;
	if (!bpf_map_update_elem(&index_of_disk, key, &index, BPF_NOEXIST)) {
		/* The reader reads entries that are used; the key is there before. */
		__sync_fetch_and_add(&disk->used, 1);
		entry_begins(&disks_begun, index, &disk->begun);
		return index;
	}
	/* Another CPU was first, or the table has no room. */
	bpf_map_push_elem(&free_disks, &index, BPF_ANY);
	u32 *theirs = bpf_map_lookup_elem(&index_of_disk, key);
	if (theirs)
		return *theirs;
	count_drop(DROP_DISK);
	return other;
}

static __always_inline u32 index_of(struct disk_key *key)
{
	u32 *index = bpf_map_lookup_elem(&index_of_disk, key);

	return index ? *index : new_index(key);
}

static __always_inline bool same_key(struct disk_key *a, struct disk_key *b)
{
	return a->group == b->group && a->device == b->device;
}

static __always_inline u32 cached_index_of(struct disk_key *key)
{
	u32 zero = 0, entry = (key->group ^ key->device) % DISK_CACHE_ENTRIES;
	struct disk_cache *cache = bpf_map_lookup_elem(&disk_caches, &zero);

	if (!cache)
		return index_of(key);
	u32 index = cache->index[entry];
	struct disk *disk = bpf_map_lookup_elem(&disks, &index);
	if (index >= DISK_INDEX_FIRST && disk && disk->used && same_key(&disk->key, key))
		return index;
	index = index_of(key);
	cache->index[entry] = index;
	return index;
}

static __always_inline struct cgroup *controlled_by(struct css_set *set, s32 subsys)
{
	switch (subsys) {
	case 0: return set->subsys[0]->cgroup;
	case 1: return set->subsys[1]->cgroup;
	case 2: return set->subsys[2]->cgroup;
	case 3: return set->subsys[3]->cgroup;
	case 4: return set->subsys[4]->cgroup;
	case 5: return set->subsys[5]->cgroup;
	case 6: return set->subsys[6]->cgroup;
	case 7: return set->subsys[7]->cgroup;
	}
	return set->dfl_cgrp;
}

#define MAX_OWNER_LOOKUPS 64

static __always_inline u32 name_hash(struct cgroup *group)
{
	return ((struct kernfs_node___hash *)group->kn)->hash;
}

/*
 * Finds which group of the hierarchy of containers a group of the hierarchy of block I/O is: on v2
 * they are one. Otherwise it is learnt from the task that issues a request of its own group, if
 * both of its groups have the same name (hash), as runtimes make them. Where there is no such task,
 * the reader finds it.
 */
static __always_inline void find_owner(struct disk *disk, struct cgroup *group)
{
	struct css_set *set = bpf_get_current_task_btf()->cgroups;

	if (group->root->hierarchy_id == cgroup_hierarchy) {
		disk->owner = group->kn->id;
		return;
	}
	disk->lookups++;
	if (controlled_by(set, io_index) != group)
		return;
	struct cgroup *owner = controlled_by(set, cgroup_subsys_index);
	if (name_hash(owner) == name_hash(group))
		disk->owner = owner->kn->id;
}

static __always_inline void name_disk(struct disk *disk, struct gendisk *device)
{
	if (!disk->name[0] && device)
		bpf_probe_read_kernel_str(disk->name, sizeof(disk->name), device->disk_name);
}

static __always_inline u32 index_of_io(struct gendisk *device, struct bio *bio, u64 *group_id)
{
	struct disk_key key = {};
	struct cgroup *group = group_of(bio);

	if (device)
		key.device = (u64)(u32)device->major << 32 | (u32)device->first_minor;
	if (group)
		key.group = group->kn->id;
	*group_id = key.group;
	u32 index = cached_index_of(&key);
	struct disk *disk = bpf_map_lookup_elem(&disks, &index);
	if (disk && index >= DISK_INDEX_FIRST) {
		name_disk(disk, device);
		if (!disk->owner && group && disk->lookups < MAX_OWNER_LOOKUPS)
			find_owner(disk, group);
	}
	return index;
}

#endif
