//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Requests to block devices, by the control group whose I/O they are and by device: operations,
 * bytes, the time from a request's issue to the device to its completion, and the time before in the
 * queue. Each layer that has requests (a loop device, what its file lies on) is a device by itself.
 */
#include "include/kernel.h"
#include "block/disk.h"
#include "include/cgroup_id.h"
#include "include/histogram.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"

char LICENSE[] SEC("license") = "GPL";

/* Set by the loader. */
const volatile u32 cgroup_hierarchy = 0;
/* Index in css_set.subsys of the controller of block I/O; -1 where the kernel has none. */
const volatile s32 io_index = -1;
/* The request is the second argument (before 5.11, 54d4e6ab91eb). */
const volatile bool request_is_second = false;
const volatile bool log_requests = false;
const volatile u32 near_mask = DISK_REQUESTS_NEAR - 1;

u64 unlogged_requests;

/* Keeps the record's type in the object for its reader. */
const struct disk_event *disk_event_record __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct disk);
} disks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} disk_latency SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct disk_key);
	__type(value, u32);
} place_of_disk SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_disks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct disk_request);
} disk_requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DISK_REQUESTS_NEAR);
	__type(key, u32);
	__type(value, struct disk_request);
} near_requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct disk_cache);
} disk_caches SEC(".maps");

/* Indexed as cgroup_slots is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct disk_slot);
} disk_of_slot SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} sync_began SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DISK_DROPS);
	__type(key, u32);
	__type(value, u64);
} disk_drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} disk_log SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node___hash {
	unsigned int hash;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bvec_iter {
	unsigned int bi_size;
};

struct gendisk;

struct block_device {
	struct gendisk *bd_disk;
};

struct bio {
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	struct blkcg_gq *bi_blkg;
	struct bvec_iter bi_iter;
	void *bi_io_vec;
	u8 bi_status;
};

struct request_queue {
	struct gendisk *disk;
	void *mq_ops;
};

struct gendisk {
	int major;
	int first_minor;
	char disk_name[DISK_NAME_BYTES];
	struct request_queue *queue;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct bio *bio;
	u64 start_time_ns;
};

/* Until 5.16 (f3fa33acca9f). */
struct request___with_disk {
	struct gendisk *rq_disk;
};

#pragma clang attribute pop

#define REQ_OP_MASK 0xff
#define REQ_OP_WRITE 1
#define REQ_OP_FLUSH 2
#define REQ_OP_DISCARD 3
#define REQ_OP_DRV_IN 34 /* from here on: commands of drivers, which are no I/O of a group */

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
 * writes the page back (on v1 the kernel has not kept that: it is the root's). Requests are not merged
 * across groups since 5.18; before, all bytes of a request are those of its first part's group.
 */
static __always_inline struct cgroup *group_of(struct bio *bio)
{
	if (!bio || !bpf_core_field_exists(bio->bi_blkg))
		return NULL;
	struct blkcg_gq *blkg = bio->bi_blkg;
	return blkg ? blkg->blkcg->css.cgroup : NULL;
}

static __noinline u32 new_place(struct disk_key *key)
{
	u32 place;

	if (!key)
		return DISK_PLACE_OTHER;
	u32 other = key->device == DISK_OF_SYNCS ? DISK_PLACE_SYNCS : DISK_PLACE_OTHER;
	if (bpf_map_pop_elem(&free_disks, &place)) {
		count_drop(DROP_DISK);
		return other;
	}
	struct disk *disk = bpf_map_lookup_elem(&disks, &place);
	if (!disk)
		return other;
	disk->key = *key;
	disk->owner = 0;
	disk->slot = 0;
	disk->looks = 0;
	if (!bpf_map_update_elem(&place_of_disk, key, &place, BPF_NOEXIST)) {
		/* The reader looks at what is used; the key is there before. */
		__sync_fetch_and_add(&disk->used, 1);
		return place;
	}
	/* Another CPU was first, or the table has no room. */
	bpf_map_push_elem(&free_disks, &place, BPF_ANY);
	u32 *theirs = bpf_map_lookup_elem(&place_of_disk, key);
	if (theirs)
		return *theirs;
	count_drop(DROP_DISK);
	return other;
}

static __always_inline u32 place_of(struct disk_key *key)
{
	u32 *place = bpf_map_lookup_elem(&place_of_disk, key);

	return place ? *place : new_place(key);
}

static __always_inline bool same_key(struct disk_key *a, struct disk_key *b)
{
	return a->group == b->group && a->device == b->device;
}

static __always_inline u32 cached_place_of(struct disk_key *key)
{
	u32 zero = 0, entry = (key->group ^ key->device) % DISK_CACHE_ENTRIES;
	struct disk_cache *cache = bpf_map_lookup_elem(&disk_caches, &zero);

	if (!cache)
		return place_of(key);
	u32 place = cache->place[entry];
	struct disk *disk = bpf_map_lookup_elem(&disks, &place);
	if (place >= DISK_PLACE_FIRST && disk && disk->used && same_key(&disk->key, key))
		return place;
	place = place_of(key);
	cache->place[entry] = place;
	return place;
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

#define LOOKS 64

/*
 * Finds which group of the hierarchy of containers a group of the hierarchy of block I/O is: on v2
 * they are one. Otherwise it is learnt from the task that issues a request of its own group, if both
 * of its groups have the same name (hash), as runtimes make them. Where no such task comes, the reader finds it.
 */
static __always_inline void find_owner(struct disk *disk, struct cgroup *group)
{
	struct css_set *set = bpf_get_current_task_btf()->cgroups;

	if (group->root->hierarchy_id == cgroup_hierarchy) {
		disk->owner = group->kn->id;
		return;
	}
	disk->looks++;
	if (controlled_by(set, io_index) != group)
		return;
	struct cgroup *owner = controlled_by(set, cgroup_subsys_index);
	if (((struct kernfs_node___hash *)owner->kn)->hash == ((struct kernfs_node___hash *)group->kn)->hash)
		disk->owner = owner->kn->id;
}

static __always_inline void name_disk(struct disk *disk, struct gendisk *device)
{
	if (!disk->name[0] && device)
		bpf_probe_read_kernel_str(disk->name, sizeof(disk->name), device->disk_name);
}

static __always_inline u32 place_of_io(struct gendisk *device, struct bio *bio, u64 *group_id)
{
	struct disk_key key = {};
	struct cgroup *group = group_of(bio);

	if (device)
		key.device = (u64)(u32)device->major << 32 | (u32)device->first_minor;
	if (group)
		key.group = group->kn->id;
	*group_id = key.group;
	u32 place = cached_place_of(&key);
	struct disk *disk = bpf_map_lookup_elem(&disks, &place);
	if (disk && place >= DISK_PLACE_FIRST) {
		name_disk(disk, device);
		if (!disk->owner && group && disk->looks < LOOKS)
			find_owner(disk, group);
	}
	return place;
}

/*
 * Requests are some hundred bytes each, one behind the other. The lower half of a pointer is a number to the
 * verifier; of the whole it would allow no arithmetic.
 */
static __always_inline u32 near_place(u64 request)
{
	u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((u32)request));
	return ((low >> 6) * 0x9e3779b1U >> 16) & near_mask;
}

static __always_inline void keep_request(u64 key, struct disk_request *begun)
{
	u32 at = near_place(key);
	struct disk_request *near = bpf_map_lookup_elem(&near_requests, &at);

	if (!near)
		return;
	/* A request that was put back into the queue is issued anew, and may be there already. */
	u64 holder = __sync_val_compare_and_swap(&near->address, 0, key);
	if (!holder || holder == key) {
		near->issued_ns = begun->issued_ns;
		near->group = begun->group;
		near->bytes = begun->bytes;
		near->operation = begun->operation;
		near->place = begun->place;
		return;
	}
	begun->address = key;
	if (bpf_map_update_elem(&disk_requests, &key, begun, BPF_ANY))
		count_drop(DROP_DISK_REQUEST);
}

/* Takes a request that is done out of the tables, or looks at one of which a part is. */
static __always_inline bool find_request(u64 key, bool done, struct disk_request *found)
{
	u32 at = near_place(key);
	struct disk_request *near = bpf_map_lookup_elem(&near_requests, &at);

	if (near && near->address == key) {
		*found = *near;
		if (done) {
			barrier();
			near->address = 0;
		}
		return true;
	}
	struct disk_request *far = bpf_map_lookup_elem(&disk_requests, &key);
	if (!far)
		return false;
	*found = *far;
	if (done)
		bpf_map_delete_elem(&disk_requests, &key);
	return true;
}

static __always_inline int on_issue(struct request *rq)
{
	struct disk_request begun = {.issued_ns = bpf_ktime_get_ns()};

	if ((rq->cmd_flags & REQ_OP_MASK) >= REQ_OP_DRV_IN)
		return 0;
	begun.place = place_of_io(disk_of(rq), rq->bio, &begun.group);
	keep_request((u64)rq, &begun);
	return 0;
}

static __always_inline struct disk_slot *slot_of(struct disk *disk)
{
	u64 id = disk->owner;
	u32 slot = disk->slot;

	if (!id)
		return NULL;
	u64 *holder = bpf_map_lookup_elem(&cgroup_slots, &slot);
	if (slot < CGROUP_SLOT_FIRST || !holder || *holder != id) {
		u32 *found = bpf_map_lookup_elem(&slot_of_cgroup, &id);

		if (!found)
			return NULL;
		slot = *found;
		disk->slot = slot;
	}
	return bpf_map_lookup_elem(&disk_of_slot, &slot);
}

static __always_inline void count_bytes(struct disk *disk, struct disk_slot *slot, u32 operation, u64 bytes)
{
	__sync_fetch_and_add(&disk->counters[operation].bytes, bytes);
	if (slot && operation == DISK_READ)
		__sync_fetch_and_add(&slot->read_bytes, bytes);
	else if (slot && operation == DISK_WRITE)
		__sync_fetch_and_add(&slot->write_bytes, bytes);
}

static __always_inline void count_latency(struct disk *disk, u32 place, struct disk_slot *slot, u32 operation,
					  u64 took_ns, u64 queued_ns)
{
	__sync_fetch_and_add(&disk->counters[operation].time_ns, took_ns);
	__sync_fetch_and_add(&disk->counters[operation].queue_ns, queued_ns);
	if (operation < DISK_HISTOGRAMS) {
		u32 at = place * DISK_HISTOGRAMS + operation;
		struct histogram *h = bpf_map_lookup_elem(&disk_latency, &at);

		if (h)
			histogram_add(h, took_ns);
	}
	if (!slot)
		return;
	__sync_fetch_and_add(&slot->queue_ns, queued_ns);
	if (operation == DISK_READ)
		__sync_fetch_and_add(&slot->read_ns, took_ns);
	else if (operation == DISK_WRITE)
		__sync_fetch_and_add(&slot->write_ns, took_ns);
}

static __always_inline void count_operation(struct disk *disk, struct disk_slot *slot, u32 operation)
{
	/* After the histogram: the reader takes a change of this for a change of that. */
	__sync_fetch_and_add(&disk->counters[operation].operations, 1);
	if (!slot)
		return;
	if (operation == DISK_READ)
		__sync_fetch_and_add(&slot->reads, 1);
	else if (operation == DISK_WRITE)
		__sync_fetch_and_add(&slot->writes, 1);
	else if (operation == DISK_FLUSH)
		__sync_fetch_and_add(&slot->flushes, 1);
}

static __always_inline void log_request(struct disk *disk, u32 operation, u64 bytes, u64 issued, u64 now)
{
	struct disk_event *e = bpf_ringbuf_reserve(&disk_log, sizeof(*e), 0);

	if (!e) {
		__sync_fetch_and_add(&unlogged_requests, 1);
		return;
	}
	e->group = disk->key.group;
	e->device = disk->key.device;
	e->issued_ns = issued;
	e->done_ns = now;
	e->bytes = bytes;
	e->operation = operation;
	e->unused = 0;
	bpf_ringbuf_submit(e, 0);
}

/* What is done, of a request or a bio. */
struct part {
	u32 operation;
	bool last;
	bool failed;
	u64 bytes;
	u64 issued_ns;
	u64 now_ns;
	u64 queued_ns;
};

static __always_inline void count_part(struct disk *disk, u32 place, struct part *p)
{
	struct disk_slot *slot = slot_of(disk);

	if (p->bytes)
		count_bytes(disk, slot, p->operation, p->bytes);
	if (!p->last)
		return;
	if (p->failed)
		__sync_fetch_and_add(&disk->counters[p->operation].errors, 1);
	if (!p->issued_ns || p->now_ns < p->issued_ns)
		__sync_fetch_and_add(&disk->counters[p->operation].untimed, 1);
	else
		count_latency(disk, place, slot, p->operation, p->now_ns - p->issued_ns, p->queued_ns);
	count_operation(disk, slot, p->operation);
	if (log_requests && p->issued_ns)
		log_request(disk, p->operation, p->bytes, p->issued_ns, p->now_ns);
}

/*
 * Called when a part of a request is done, with its bytes. A write with a flush before or after it
 * (FUA) is issued to the device once, but told to be done twice: the second time without bytes and
 * without an issue, when all is. A flush without data is not issued at all: the device's own flush is, for
 * several of them.
 */
static __always_inline int on_complete(struct request *rq, u32 error, u32 bytes)
{
	u64 now = bpf_ktime_get_ns(), key = (u64)rq, group, issued = 0;
	u32 op = rq->cmd_flags & REQ_OP_MASK, place;
	struct bio *bio = rq->bio;
	struct disk_request request = {};

	if (op >= REQ_OP_DRV_IN)
		return 0;
	u32 operation = operation_of(op);
	bool last = bytes >= rq->__data_len;
	bool begun = find_request(key, last, &request);
	bool only_flush = !begun && bio && !bytes && !bio->bi_io_vec && !bio->bi_iter.bi_size && op != REQ_OP_DISCARD;
	if (only_flush)
		operation = DISK_FLUSH;
	else if (!begun && !bytes)
		return 0;
	if (begun) {
		place = request.place;
		group = request.group;
		issued = request.issued_ns;
	} else {
		place = place_of_io(disk_of(rq), bio, &group);
	}
	struct disk *disk = bpf_map_lookup_elem(&disks, &place);
	if (!disk)
		return 0;
	/* The place was given to another group meanwhile. */
	if (begun && place >= DISK_PLACE_FIRST && disk->key.group != group) {
		place = place_of_io(disk_of(rq), bio, &group);
		disk = bpf_map_lookup_elem(&disks, &place);
		if (!disk)
			return 0;
	}
	u64 made = rq->start_time_ns;
	if (only_flush)
		issued = made;
	count_part(disk, place, &(struct part){
		.operation = operation, .bytes = bytes, .last = last, .failed = error != 0, .issued_ns = issued, .now_ns = now,
		.queued_ns = made && made < issued ? issued - made : 0});
	return 0;
}

SEC("tp_btf/block_rq_issue")
int block_rq_issue(u64 *ctx)
{
	return on_issue(request_is_second ? (struct request *)ctx[1] : (struct request *)ctx[0]);
}

SEC("tp_btf/block_rq_complete")
int block_rq_complete(u64 *ctx)
{
	return on_complete((struct request *)ctx[0], ctx[1], ctx[2]);
}

/*
 * Devices without requests (device mapper, md, zram): what they are handed are bios, as the groups' own files
 * count them. A bio may be handed on to a device below and end there; its address stays.
 */
SEC("tp_btf/block_bio_queue")
int block_bio_queue(u64 *ctx)
{
	struct bio *bio = (void *)ctx[0];
	struct gendisk *device = bio->bi_bdev->bd_disk;

	if (device->queue->mq_ops)
		return 0;
	u32 op = bio->bi_opf & REQ_OP_MASK;
	struct disk_request begun = {.issued_ns = bpf_ktime_get_ns(), .bytes = bio->bi_iter.bi_size, .operation = operation_of(op)};
	if (op == REQ_OP_WRITE && !begun.bytes)
		begun.operation = DISK_FLUSH;
	begun.place = place_of_io(device, bio, &begun.group);
	keep_request((u64)bio, &begun);
	return 0;
}

SEC("tp_btf/block_bio_complete")
int block_bio_complete(u64 *ctx)
{
	struct bio *bio = (void *)ctx[1];
	struct disk_request begun = {};

	if (!find_request((u64)bio, true, &begun))
		return 0;
	struct disk *disk = bpf_map_lookup_elem(&disks, &begun.place);
	if (!disk)
		return 0;
	/* Where the place is another's by now, the bio is nobody's. */
	if (begun.place >= DISK_PLACE_FIRST && disk->key.group != begun.group) {
		begun.place = DISK_PLACE_OTHER;
		if (!(disk = bpf_map_lookup_elem(&disks, &begun.place)))
			return 0;
	}
	count_part(disk, begun.place, &(struct part){
		.operation = begun.operation % DISK_OPERATIONS, .bytes = begun.bytes, .last = true, .failed = bio->bi_status != 0,
		.issued_ns = begun.issued_ns, .now_ns = bpf_ktime_get_ns()});
	return 0;
}

/* --- synchronisations of files: fsync, fdatasync, and what writes with O_SYNC do --- */

static __always_inline int sync_begins(bool data)
{
	/* The lowest bit tells them apart. */
	u64 now = (bpf_ktime_get_ns() & ~1ULL) | data;
	u64 *began = bpf_task_storage_get(&sync_began, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (began)
		*began = now;
	else
		count_drop(DROP_DISK_SYNC);
	return 0;
}

static __always_inline int sync_ends(int error)
{
	u64 now = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	u64 *began = bpf_task_storage_get(&sync_began, task, 0, 0);
	struct disk_key key = {.device = DISK_OF_SYNCS};

	if (!began || !*began)
		return 0;
	u32 operation = *began & 1 ? SYNC_DATA : SYNC_ALL;
	u64 took = now - (*began & ~1ULL);
	*began = 0;
	key.group = task_cgroup_id(task);
	u32 place = place_of(&key);
	struct disk *disk = bpf_map_lookup_elem(&disks, &place);
	if (!disk)
		return 0;
	if (place >= DISK_PLACE_FIRST)
		disk->owner = key.group;
	if (error)
		__sync_fetch_and_add(&disk->counters[operation].errors, 1);
	count_latency(disk, place, NULL, operation, took, 0);
	count_operation(disk, NULL, operation);
	return 0;
}

SEC("tp_btf/ext4_sync_file_enter")
int sync_enter(u64 *ctx)
{
	return sync_begins((int)ctx[1] != 0);
}

SEC("tp_btf/ext4_sync_file_exit")
int sync_exit(u64 *ctx)
{
	return sync_ends(ctx[1]);
}

/*
 * These file systems have a tracepoint for the beginning alone. Both functions are (file, start, end,
 * datasync), and what they answer is behind that.
 */
SEC("fentry/xfs_file_fsync")
int xfs_sync_enter(u64 *ctx)
{
	return sync_begins((int)ctx[3] != 0);
}

SEC("fexit/xfs_file_fsync")
int xfs_sync_exit(u64 *ctx)
{
	return sync_ends(ctx[4]);
}

SEC("fentry/btrfs_sync_file")
int btrfs_sync_enter(u64 *ctx)
{
	return sync_begins((int)ctx[3] != 0);
}

SEC("fexit/btrfs_sync_file")
int btrfs_sync_exit(u64 *ctx)
{
	return sync_ends(ctx[4]);
}
