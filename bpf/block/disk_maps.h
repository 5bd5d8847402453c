/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The tables of disks, and what is read of the kernel's structures. */
#ifndef OUTSIGHT_DISK_MAPS_H
#define OUTSIGHT_DISK_MAPS_H

#include "include/kernel.h"
#include "block/disk.h"
#include "include/begun.h"
#include "include/cgroup_id.h"
#include "include/histogram.h"
#include "sched/cgroup_maps.h"
#include "sched/cgroups.h"

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
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct histogram);
} disk_latency SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct begun);
} disks_begun SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct disk_key);
	__type(value, u32);
} index_of_disk SEC(".maps");

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

/* Keeps the enumerations in the object for the reader. */
const volatile enum disk_drop disk_drop_type;
const volatile enum disk_index disk_index_type;
const volatile enum disk_operation disk_operation_type;

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

#endif
