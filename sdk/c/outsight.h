/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outsight.h: metrics of a C or C++ program, read by Outsight from outside of it.
 *
 * Include this header, before others where the compiler is told a strict standard (-std=c11). It needs Linux 3.17, GCC or
 * Clang, and nothing beyond libc. There is nothing to start or to configure: without an agent on the host the program
 * counts all the same.
 *
 *     #include "outsight.h"
 *
 *     OUTSIGHT_METRIC(jobs_done, "{job}", "Jobs that were done");       counter, at file scope
 *     OUTSIGHT_LEVEL(queue_length, "{job}", "Jobs that wait");          gauge
 *
 *     outsight_add(&jobs_done, 1);                                      one atomic add
 *     outsight_set(&queue_length, 17);
 *
 * Write `static` in front to keep the name to one file; another file says `extern struct outsight_metric jobs_done;`.
 *
 * With labels, or at any time (takes a lock and is to be called once for each set of labels):
 *
 *     uint64_t *gets = outsight_counter("requests", "{request}", "Requests", "method", "GET", NULL);
 *     __atomic_fetch_add(gets, 1, __ATOMIC_RELAXED);
 *     double *load = outsight_gauge("load", "1", "Load of the pool", NULL);
 *     __atomic_store(load, &now, __ATOMIC_RELAXED);
 *
 * The fields of a struct that the program has anyway, of type uint64_t (unsigned long), int64_t (long) or double:
 *
 *     OUTSIGHT_STRUCT(struct cache_stats, cache);                       defines struct cache_stats *cache
 *     OUTSIGHT_FIELD(cache, hits, "{hit}", "Lookups that found it");    counter cache_hits
 *     OUTSIGHT_FIELD_LEVEL(cache, bytes, "By", "Memory of the cache");  gauge cache_bytes
 *
 *     cache->hits++;                                                    where one thread writes
 *
 * Names: letters, digits, '_', ':' and no digit first, at most 128 bytes. Units: UCUM ("s", "By", "{request}"). A counter
 * never goes down. A metric that finds no room, or has a name that is no name, counts into memory that nobody reads;
 * Outsight shows how many did.
 *
 * How it works: before main, the values move into a memory file (memfd) that is mapped shared and sealed against change
 * of its size. The file is announced to the host by renaming the calling thread for a microsecond. A process that forks
 * counts into one file, and its child into another one from 0 on. docs/format/appmetrics.md describes the bytes. No signal
 * is used, no thread is started. Do not close the file's descriptor: an agent that starts later finds the file by it.
 */
#ifndef OUTSIGHT_H
#define OUTSIGHT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OUTSIGHT_VERSION 1
#define OUTSIGHT_MAGIC "OSAPPMET"
/* Bytes of the file, of which only those that are used take memory, and metrics in it. */
#ifndef OUTSIGHT_BYTES
#define OUTSIGHT_BYTES (1u << 20)
#endif
#ifndef OUTSIGHT_METRICS
#define OUTSIGHT_METRICS 4096u
#endif
/* Values of metrics are a cache line apart, so that threads that count different things do not wait for each other. */
#define OUTSIGHT_LINE 64u

enum outsight_kind { OUTSIGHT_COUNTER = 1, OUTSIGHT_GAUGE = 2 };
enum outsight_type { OUTSIGHT_U64 = 1, OUTSIGHT_I64 = 2, OUTSIGHT_F64 = 3 };

/* The first bytes of the file. */
struct outsight_header {
	char magic[8];
	uint16_t version;
	uint16_t header_bytes;
	uint32_t bytes;       /* of the file */
	uint32_t descriptors; /* where they begin */
	uint32_t capacity;    /* how many there is room for */
	uint32_t count;       /* how many there are: written after them */
	uint32_t closed;      /* 1: nothing is written any more */
	uint64_t refused;     /* metrics that found no room */
	uint8_t unused[24];
};

/* A metric. Its text is name, unit, help, and label and value in turn, each ended by a 0. */
struct outsight_descriptor {
	uint32_t value; /* where its 8 bytes are */
	uint32_t text;
	uint16_t text_bytes;
	uint8_t kind;
	uint8_t type;
	uint32_t unused;
};

/* A metric by its definition at file scope. Its size is a cache line: the linker lays them side by side. */
struct outsight_metric {
	void *value; /* in the file, or &own before there is one */
	const char *name, *unit, *help;
	void *const *base; /* of a field: where the pointer to its struct is */
	uint32_t offset;   /* of a field */
	uint8_t kind, type;
	uint64_t own;
} __attribute__((aligned(64)));

/* A struct by its definition at file scope. */
struct outsight_struct {
	void **pointer;
	size_t bytes;
	uint8_t unused[48];
} __attribute__((aligned(64)));

#define OUTSIGHT_SECTION(name) __attribute__((section(name), used, aligned(64)))

#define OUTSIGHT_METRIC(NAME, UNIT, HELP)                                                                          \
	struct outsight_metric NAME OUTSIGHT_SECTION("outsight_metrics") = {                                       \
		&NAME.own, #NAME, UNIT, HELP, 0, 0, OUTSIGHT_COUNTER, OUTSIGHT_U64, 0}
#define OUTSIGHT_LEVEL(NAME, UNIT, HELP)                                                                           \
	struct outsight_metric NAME OUTSIGHT_SECTION("outsight_metrics") = {                                       \
		&NAME.own, #NAME, UNIT, HELP, 0, 0, OUTSIGHT_GAUGE, OUTSIGHT_I64, 0}

#define OUTSIGHT_STRUCT(TYPE, NAME)                                                                                \
	static TYPE outsight_own_##NAME;                                                                           \
	TYPE *NAME = &outsight_own_##NAME;                                                                         \
	static struct outsight_struct outsight_of_##NAME OUTSIGHT_SECTION("outsight_structs") = {                  \
		(void **)&NAME, sizeof(TYPE), {0}}
#define OUTSIGHT_FIELD(NAME, MEMBER, UNIT, HELP) OUTSIGHT_MEMBER(NAME, MEMBER, UNIT, HELP, OUTSIGHT_COUNTER)
#define OUTSIGHT_FIELD_LEVEL(NAME, MEMBER, UNIT, HELP) OUTSIGHT_MEMBER(NAME, MEMBER, UNIT, HELP, OUTSIGHT_GAUGE)
#define OUTSIGHT_MEMBER(NAME, MEMBER, UNIT, HELP, KIND)                                                            \
	static struct outsight_metric outsight_of_##NAME##_##MEMBER OUTSIGHT_SECTION("outsight_metrics") = {       \
		0, #NAME "_" #MEMBER, UNIT, HELP, (void *const *)&NAME,                                            \
		offsetof(__typeof__(outsight_own_##NAME), MEMBER), KIND,                                           \
		OUTSIGHT_TYPE_OF(outsight_own_##NAME.MEMBER), 0}
#ifdef __cplusplus
#define OUTSIGHT_TYPE_OF(x)                                                                                        \
	(__typeof__(x))0.5 != 0 ? OUTSIGHT_F64 : (__typeof__(x)) - 1 < 0 ? OUTSIGHT_I64 : OUTSIGHT_U64
#else
/* Another type than these does not compile. */
#define OUTSIGHT_TYPE_OF(x)                                                                                        \
	_Generic((x), unsigned long: OUTSIGHT_U64, unsigned long long: OUTSIGHT_U64, long: OUTSIGHT_I64,           \
		 long long: OUTSIGHT_I64, double: OUTSIGHT_F64)
#endif

/* Adds to a counter, or to a gauge (a negative number takes away). From any thread and any signal handler. */
static inline void outsight_add(struct outsight_metric *m, int64_t n)
{
	__atomic_fetch_add((uint64_t *)m->value, (uint64_t)n, __ATOMIC_RELAXED);
}

/* Sets a gauge. */
static inline void outsight_set(struct outsight_metric *m, int64_t n)
{
	__atomic_store_n((int64_t *)m->value, n, __ATOMIC_RELAXED);
}

/* What follows is once in a program or shared library, however many of its files include this header. */
#define OUTSIGHT_ONCE __attribute__((weak, visibility("hidden")))

struct outsight_state {
	struct outsight_header *file; /* NULL: there is none */
	int fd;
	int lock;
	uint32_t used;    /* bytes of values, from the front */
	uint32_t texts;   /* where texts begin, from the back */
	uint64_t nowhere; /* for what finds no room */
};
OUTSIGHT_ONCE struct outsight_state outsight_state;

extern struct outsight_metric __start_outsight_metrics[] __attribute__((weak, visibility("hidden")));
extern struct outsight_metric __stop_outsight_metrics[] __attribute__((weak, visibility("hidden")));
extern struct outsight_struct __start_outsight_structs[] __attribute__((weak, visibility("hidden")));
extern struct outsight_struct __stop_outsight_structs[] __attribute__((weak, visibility("hidden")));

/* Makes a sealed file and maps it, at an address if there is one; NULL where that is not possible. */
static inline void *outsight_file(int *fd, void *at)
{
	/* MFD_CLOEXEC | MFD_ALLOW_SEALING, by number for old headers. */
	int made = (int)syscall(SYS_memfd_create, "outsight-metrics", 3u);
	void *map = MAP_FAILED;

	if (made < 0)
		return NULL;
	/* F_ADD_SEALS: F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW. */
	if (!ftruncate(made, OUTSIGHT_BYTES) && !fcntl(made, 1033, 7))
		map = mmap(at, OUTSIGHT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), made, 0);
	if (map == MAP_FAILED) {
		close(made);
		return NULL;
	}
	*fd = made;
	return map;
}

/*
 * Tells the host that the file is there. Outsight looks at the names that threads give themselves, which is rare on a
 * host and reaches it from every namespace. The thread has its own name again at once.
 */
static inline void outsight_announce(int fd)
{
	char name[16] = {0}, file[24];

	snprintf(file, sizeof(file), "outsight:%d", fd);
	if (prctl(PR_GET_NAME, name, 0, 0, 0))
		return;
	prctl(PR_SET_NAME, file, 0, 0, 0);
	prctl(PR_SET_NAME, name, 0, 0, 0);
}

static inline void outsight_begin_file(struct outsight_header *h)
{
	h->version = OUTSIGHT_VERSION;
	h->header_bytes = sizeof(*h);
	h->bytes = OUTSIGHT_BYTES;
	h->descriptors = sizeof(*h);
	h->capacity = OUTSIGHT_METRICS;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(h->magic, OUTSIGHT_MAGIC, sizeof(h->magic));
}

static inline struct outsight_descriptor *outsight_descriptors(struct outsight_header *h)
{
	return (struct outsight_descriptor *)((char *)h + h->descriptors);
}

/* The child of a fork gets a file of its own at the same address, so that all pointers hold. Its counters begin at 0. */
OUTSIGHT_ONCE void outsight_forked(void)
{
	struct outsight_state *s = &outsight_state;
	struct outsight_header *old = s->file;
	int before = s->fd, fd;
	struct outsight_header *file;
	uint32_t i;

	s->lock = 0;
	if (!old || !(file = (struct outsight_header *)outsight_file(&fd, NULL)))
		return; /* it counts for its parent */
	memcpy((char *)file + sizeof(*file), (char *)old + sizeof(*old), s->used - sizeof(*old));
	memcpy((char *)file + s->texts, (char *)old + s->texts, OUTSIGHT_BYTES - s->texts);
	for (i = 0; i < old->count; i++)
		if (outsight_descriptors(old)[i].kind == OUTSIGHT_COUNTER)
			memset((char *)file + outsight_descriptors(old)[i].value, 0, 8);
	outsight_begin_file(file);
	file->count = old->count;
	if (mmap(old, OUTSIGHT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		munmap(file, OUTSIGHT_BYTES);
		close(fd);
		return;
	}
	munmap(file, OUTSIGHT_BYTES);
	close(before);
	s->fd = fd;
	outsight_announce(fd);
}

/* Room for values, zeroed, in the file; NULL where there is none. The lock is held. */
static inline void *outsight_room(size_t bytes)
{
	struct outsight_state *s = &outsight_state;
	uint32_t at = (s->used + OUTSIGHT_LINE - 1) / OUTSIGHT_LINE * OUTSIGHT_LINE;

	if (!s->file || bytes > s->texts || at + bytes > s->texts)
		return NULL;
	s->used = at + (uint32_t)bytes;
	return (char *)s->file + at;
}

static inline int outsight_is_name(const char *name)
{
	size_t i, n = strlen(name);

	if (n == 0 || n > 128 || (name[0] >= '0' && name[0] <= '9'))
		return 0;
	for (i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:", name[i]))
			return 0;
	return 1;
}

/* Describes a value that lies in the file. The lock is held. -1 where there is no room for it. */
static inline int outsight_describe(void *value, int kind, int type, const char *const *text, int texts)
{
	struct outsight_state *s = &outsight_state;
	struct outsight_header *h = s->file;
	struct outsight_descriptor *d;
	size_t bytes = 0;
	char *to;
	int i;

	for (i = 0; i < texts; i++)
		bytes += strlen(text[i]) + 1;
	if (!h)
		return -1;
	if (!outsight_is_name(text[0]) || h->count >= h->capacity || bytes > 4096 || s->used + bytes > s->texts) {
		__atomic_fetch_add(&h->refused, 1, __ATOMIC_RELAXED);
		return -1;
	}
	s->texts -= (uint32_t)bytes;
	to = (char *)h + s->texts;
	for (i = 0; i < texts; i++) {
		memcpy(to, text[i], strlen(text[i]) + 1);
		to += strlen(text[i]) + 1;
	}
	d = outsight_descriptors(h) + h->count;
	d->value = (uint32_t)((char *)value - (char *)h);
	d->text = s->texts;
	d->text_bytes = (uint16_t)bytes;
	d->kind = (uint8_t)kind;
	d->type = (uint8_t)type;
	__atomic_store_n(&h->count, h->count + 1, __ATOMIC_RELEASE);
	return 0;
}

static inline void outsight_lock(void)
{
	while (__atomic_exchange_n(&outsight_state.lock, 1, __ATOMIC_ACQUIRE))
		sched_yield();
}

static inline void outsight_unlock(void) { __atomic_store_n(&outsight_state.lock, 0, __ATOMIC_RELEASE); }

/* Moves all that is defined at file scope into the file, before main and before other constructors. */
__attribute__((weak, visibility("hidden"), constructor(101))) void outsight_start(void)
{
	struct outsight_state *s = &outsight_state;
	struct outsight_metric *m;
	struct outsight_struct *t;

	if (s->file)
		return;
	s->file = (struct outsight_header *)outsight_file(&s->fd, NULL);
	if (!s->file)
		return;
	s->used = sizeof(struct outsight_header) + OUTSIGHT_METRICS * sizeof(struct outsight_descriptor);
	s->texts = OUTSIGHT_BYTES;
	outsight_begin_file(s->file);
	for (t = __start_outsight_structs; t && t < __stop_outsight_structs; t++) {
		void *to = outsight_room(t->bytes);

		if (to)
			*t->pointer = memcpy(to, *t->pointer, t->bytes);
	}
	for (m = __start_outsight_metrics; m && m < __stop_outsight_metrics; m++) {
		const char *text[3] = {m->name, m->unit, m->help};
		void *to;

		if (m->base) {
			m->value = (char *)*m->base + m->offset;
			if ((char *)m->value < (char *)s->file || (char *)m->value >= (char *)s->file + OUTSIGHT_BYTES)
				s->file->refused++; /* its struct found no room */
			else
				outsight_describe(m->value, m->kind, m->type, text, 3);
			continue;
		}
		to = outsight_room(8);
		if (!to) {
			s->file->refused++;
			continue;
		}
		memcpy(to, m->value, 8);
		if (!outsight_describe(to, m->kind, m->type, text, 3))
			m->value = to;
	}
	pthread_atfork(NULL, NULL, outsight_forked);
	outsight_announce(s->fd);
}

/* A metric with labels: up to 8 pairs and a NULL. */
static inline void *outsight_new(int kind, int type, const char *name, const char *unit, const char *help,
				 va_list labels)
{
	const char *text[3 + 16] = {name, unit, help};
	int texts = 3;
	void *value;

	while (texts < 3 + 16 && (text[texts] = va_arg(labels, const char *)))
		texts++;
	outsight_start(); /* where a constructor of the program comes first */
	outsight_lock();
	value = outsight_room(8);
	if (!value && outsight_state.file)
		__atomic_fetch_add(&outsight_state.file->refused, 1, __ATOMIC_RELAXED);
	if (!value || outsight_describe(value, kind, type, text, texts))
		value = &outsight_state.nowhere;
	outsight_unlock();
	return value;
}

/* A counter of its own, with labels and their values in turn and a NULL; never NULL itself. */
__attribute__((sentinel)) static inline uint64_t *outsight_counter(const char *name, const char *unit,
								   const char *help, ...)
{
	va_list labels;
	void *value;

	va_start(labels, help);
	value = outsight_new(OUTSIGHT_COUNTER, OUTSIGHT_U64, name, unit, help, labels);
	va_end(labels);
	return (uint64_t *)value;
}

/* The same, of a gauge. */
__attribute__((sentinel)) static inline double *outsight_gauge(const char *name, const char *unit,
							       const char *help, ...)
{
	va_list labels;
	void *value;

	va_start(labels, help);
	value = outsight_new(OUTSIGHT_GAUGE, OUTSIGHT_F64, name, unit, help, labels);
	va_end(labels);
	return (double *)value;
}

#ifdef __cplusplus
}
#endif
#endif
