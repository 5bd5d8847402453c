/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Records of disk.bpf.c, shared with its reader. */
#ifndef OUTSIGHT_DISK_H
#define OUTSIGHT_DISK_H

#include "include/kernel.h"

#define DISK_NAME_BYTES 32

/* Instead of a device: what files' synchronisations (fsync) took, whatever the device. */
#define DISK_OF_SYNCS 0xffffffffffffffffULL

struct disk_key {
	u64 group;  /* in the hierarchy of block I/O; of DISK_OF_SYNCS in that of containers */
	u64 device; /* major number in the upper 32 bits, minor number in the lower */
};

enum disk_operation {
	DISK_READ = 0,
	DISK_WRITE = 1,
	DISK_DISCARD = 2,
	DISK_FLUSH = 3, /* requests without data that ask for it; of no group: the device's own */
	DISK_OPERATIONS = 4,
};

/* Of DISK_OF_SYNCS. */
#define SYNC_ALL DISK_READ   /* fsync */
#define SYNC_DATA DISK_WRITE /* fdatasync */

struct disk_counters {
	u64 operations;
	u64 bytes;
	u64 time_ns;  /* from issue to completion */
	u64 queue_ns; /* from the request's making to its issue */
	u64 errors;
	u64 untimed; /* operations whose issue was not seen: not in the latency */
	u64 unused[2]; /* to a cache line */
};

/* An entry has two histograms: of reads and of writes. */
#define DISK_HISTOGRAMS 2

/* What one control group did on one device. */
struct disk {
	u64 used;
	struct disk_key key;
	/* The group in the hierarchy of containers, 0 until it is known, and its slot there. */
	u64 owner;
	u32 slot;
	u32 lookups; /* how often it was looked up */
	char name[DISK_NAME_BYTES];
	u32 histograms[DISK_HISTOGRAMS]; /* indexes in disk_latency */
	u64 begun; /* its number in disks_begun, 0 before */
	u64 unused[3];
	struct disk_counters counters[DISK_OPERATIONS];
};

/* Entries that are not a group's. */
enum disk_index {
	DISK_INDEX_OTHER = 0, /* groups and devices for which there was no entry */
	DISK_INDEX_SYNCS = 1, /* the same of DISK_OF_SYNCS */
	DISK_INDEX_FIRST = 2,
};

/* A request that was issued, or a bio that was handed to a device without requests. */
struct disk_request {
	u64 address; /* 0 if there is none */
	u64 issued_ns;
	u64 group;
	u64 bytes; /* these two of a bio alone: when it is done they are not in it any more */
	u32 operation;
	u32 index;
};

/* Requests lie in an array at what their address leads to, or where that is taken, in a hash. */
#define DISK_REQUESTS_NEAR 4096 /* a power of two, 65536 at most */

/* The last indices that a CPU looked up: an entry has its key, by which it is checked. */
#define DISK_CACHE_ENTRIES 8

struct disk_cache {
	u32 index[DISK_CACHE_ENTRIES];
};

/* What a slot's group did on all devices: what a timer's tick can read at once. */
struct disk_slot {
	u64 read_bytes;
	u64 write_bytes;
	u64 reads;
	u64 writes;
	u64 read_ns;
	u64 write_ns;
	u64 queue_ns;
	u64 flushes;
};

enum disk_drop {
	DROP_DISK = 0,	       /* no free entry: counted under DISK_INDEX_OTHER */
	DROP_DISK_REQUEST = 1, /* no room for a request: its latency is not counted */
	DROP_DISK_SYNC = 2,    /* no memory for a synchronisation's begin */
	DISK_DROPS = 3,
};

/* One request, for tests and benchmarks. */
struct disk_event {
	u64 group;
	u64 device;
	u64 issued_ns;
	u64 done_ns;
	u64 bytes;
	u32 operation;
	u32 unused;
};

#endif
