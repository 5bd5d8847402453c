//go:build ignore

// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Requests to block devices, by the control group whose I/O they are and by device: operations,
 * bytes, the time from a request's issue to the device to its completion, and the time before in
 * the queue. Each layer that has requests (a loop device, what its file lies on) is a device by
 * itself.
 */
#include "include/kernel.h"
#include "block/disk.h"
#include "block/disk_maps.h"
#include "block/disk_index.h"
#include "include/cgroup_id.h"
#include "include/histogram.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"

char LICENSE[] SEC("license") = "GPL";

/*
 * Requests are some hundred bytes each, one behind the other. The lower half of a pointer is a
 * number to the verifier; of the whole it would allow no arithmetic.
 */
static __always_inline u32 near_index(u64 request)
{
	u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((u32)request));
	return ((low >> 6) * 0x9e3779b1U >> 16) & near_mask;
}

static __always_inline void keep_request(u64 key, struct disk_request *begun)
{
	u32 at = near_index(key);
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
		near->index = begun->index;
		return;
	}
	begun->address = key;
	if (bpf_map_update_elem(&disk_requests, &key, begun, BPF_ANY))
		count_drop(DROP_DISK_REQUEST);
}

/* Removes a request that is done from the tables, or reads one of which a part is done. */
static __always_inline bool find_request(u64 key, bool done, struct disk_request *found)
{
	u32 at = near_index(key);
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
	begun.index = index_of_io(disk_of(rq), rq->bio, &begun.group);
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

static __always_inline void count_bytes(struct disk *disk, struct disk_slot *slot, u32 operation,
					u64 bytes)
{
	__sync_fetch_and_add(&disk->counters[operation].bytes, bytes);
	if (slot && operation == DISK_READ)
		__sync_fetch_and_add(&slot->read_bytes, bytes);
	else if (slot && operation == DISK_WRITE)
		__sync_fetch_and_add(&slot->write_bytes, bytes);
}

static __always_inline void count_latency(struct disk *disk, u32 index, struct disk_slot *slot,
					  u32 operation, u64 took_ns, u64 queued_ns)
{
	__sync_fetch_and_add(&disk->counters[operation].time_ns, took_ns);
	__sync_fetch_and_add(&disk->counters[operation].queue_ns, queued_ns);
	if (operation < DISK_HISTOGRAMS) {
		u32 at = index * DISK_HISTOGRAMS + operation;
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

static __always_inline void count_operation(struct disk *disk, struct disk_slot *slot,
					    u32 operation)
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

static __always_inline void log_request(struct disk *disk, u32 operation, u64 bytes, u64 issued,
					u64 now)
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

static __always_inline void count_part(struct disk *disk, u32 index, struct part *p)
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
		count_latency(disk, index, slot, p->operation, p->now_ns - p->issued_ns,
			      p->queued_ns);
	count_operation(disk, slot, p->operation);
	if (log_requests && p->issued_ns)
		log_request(disk, p->operation, p->bytes, p->issued_ns, p->now_ns);
}

/*
 * Called when a part of a request is done, with its bytes. A write with a flush before or after it
 * (FUA) is issued to the device once, but told to be done twice: the second time without bytes and
 * without an issue, when all is. A flush without data is not issued at all: the device's own flush
 * is, for several of them.
 */
static __always_inline int on_complete(struct request *rq, u32 error, u32 bytes)
{
	u64 now = bpf_ktime_get_ns(), key = (u64)rq, group, issued = 0;
	u32 op = rq->cmd_flags & REQ_OP_MASK, index;
	struct bio *bio = rq->bio;
	struct disk_request request = {};

	if (op >= REQ_OP_DRV_IN)
		return 0;
	u32 operation = operation_of(op);
	bool last = bytes >= rq->__data_len;
	bool begun = find_request(key, last, &request);
	bool only_flush = !begun && bio && !bytes && !bio->bi_io_vec && !bio->bi_iter.bi_size &&
			  op != REQ_OP_DISCARD;
	if (only_flush)
		operation = DISK_FLUSH;
	else if (!begun && !bytes)
		return 0;
	if (begun) {
		index = request.index;
		group = request.group;
		issued = request.issued_ns;
	} else {
		index = index_of_io(disk_of(rq), bio, &group);
	}
	struct disk *disk = bpf_map_lookup_elem(&disks, &index);
	if (!disk)
		return 0;
	/* The entry was given to another group meanwhile. */
	if (begun && index >= DISK_INDEX_FIRST && disk->key.group != group) {
		index = index_of_io(disk_of(rq), bio, &group);
		disk = bpf_map_lookup_elem(&disks, &index);
		if (!disk)
			return 0;
	}
	u64 made = rq->start_time_ns;
	if (only_flush)
		issued = made;
	count_part(disk, index, &(struct part){
		.operation = operation, .bytes = bytes, .last = last, .failed = error != 0,
		.issued_ns = issued, .now_ns = now,
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
 * Devices without requests (device mapper, md, zram): what they are handed are bios, as the groups'
 * own files count them. A bio may be handed on to a device below and end there; its address stays.
 */
SEC("tp_btf/block_bio_queue")
int block_bio_queue(u64 *ctx)
{
	struct bio *bio = (void *)ctx[0];
	struct gendisk *device = bio->bi_bdev->bd_disk;

	if (device->queue->mq_ops)
		return 0;
	u32 op = bio->bi_opf & REQ_OP_MASK;
	struct disk_request begun = {.issued_ns = bpf_ktime_get_ns(), .bytes = bio->bi_iter.bi_size,
				     .operation = operation_of(op)};
	if (op == REQ_OP_WRITE && !begun.bytes)
		begun.operation = DISK_FLUSH;
	begun.index = index_of_io(device, bio, &begun.group);
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
	struct disk *disk = bpf_map_lookup_elem(&disks, &begun.index);
	if (!disk)
		return 0;
	/* The entry was given to another group meanwhile: the bio is unattributed. */
	if (begun.index >= DISK_INDEX_FIRST && disk->key.group != begun.group) {
		begun.index = DISK_INDEX_OTHER;
		if (!(disk = bpf_map_lookup_elem(&disks, &begun.index)))
			return 0;
	}
	count_part(disk, begun.index, &(struct part){
		.operation = begun.operation % DISK_OPERATIONS, .bytes = begun.bytes, .last = true,
		.failed = bio->bi_status != 0, .issued_ns = begun.issued_ns,
		.now_ns = bpf_ktime_get_ns()});
	return 0;
}

/* --- synchronisations of files: fsync, fdatasync, and what writes with O_SYNC do --- */

static __always_inline int sync_begins(bool data)
{
	/* The lowest bit tells them apart. */
	u64 now = (bpf_ktime_get_ns() & ~1ULL) | data;
	u64 *began = bpf_task_storage_get(&sync_began, bpf_get_current_task_btf(), 0,
					  BPF_LOCAL_STORAGE_GET_F_CREATE);

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
	u32 index = index_of(&key);
	struct disk *disk = bpf_map_lookup_elem(&disks, &index);
	if (!disk)
		return 0;
	if (index >= DISK_INDEX_FIRST)
		disk->owner = key.group;
	if (error)
		__sync_fetch_and_add(&disk->counters[operation].errors, 1);
	count_latency(disk, index, NULL, operation, took, 0);
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
 * These file systems have a tracepoint for the beginning alone. Both functions are (file, start,
 * end, datasync), and what they answer is behind that.
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
