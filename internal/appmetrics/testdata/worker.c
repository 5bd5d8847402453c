/* SPDX-License-Identifier: Apache-2.0 */
/* A program with metrics of its own, for tests: does what its argument says, says "ready" and waits for its input's end. */
#include "outsight.h"
#include <stdlib.h>
#include <sys/wait.h>

struct cache_stats {
	uint64_t hits;
	int64_t bytes;
	double ratio;
};

OUTSIGHT_METRIC(jobs_done, "{job}", "Jobs that were done");
static OUTSIGHT_LEVEL(queue_length, "{job}", "Jobs that wait");
OUTSIGHT_STRUCT(struct cache_stats, cache);
OUTSIGHT_FIELD(cache, hits, "{hit}", "Lookups that found it");
OUTSIGHT_FIELD_LEVEL(cache, bytes, "By", "Memory of the cache");
OUTSIGHT_FIELD_LEVEL(cache, ratio, "1", "Share of hits");

static void set(double *to, double value) { __atomic_store(to, &value, __ATOMIC_RELAXED); }

static void count(void)
{
	uint64_t *gets = outsight_counter("requests", "{request}", "Requests", "method", "GET", "path", "/a \"b\"", NULL);

	outsight_add(&jobs_done, 1000);
	outsight_set(&queue_length, -7);
	cache->hits += 3;
	cache->bytes = 4096;
	cache->ratio = 0.75;
	__atomic_fetch_add(gets, 5, __ATOMIC_RELAXED);
	set(outsight_gauge("load", "1", "Load", NULL), -0.5);
}

static void forked(void)
{
	uint64_t *gets = outsight_counter("requests", "{request}", "Requests", NULL);
	pid_t child;

	outsight_add(&jobs_done, 10);
	*gets += 1;
	child = fork();
	if (child == 0) {
		outsight_add(&jobs_done, 5);
		*gets += 2;
		(void)!write(1, "child\n", 6);
		pause();
	}
	outsight_add(&jobs_done, 100);
}

static void many(long n)
{
	char name[32];

	for (long i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "metric_%ld", i);
		*outsight_counter(name, "", "", NULL) += 1;
	}
}

static void *spin(void *unused)
{
	(void)unused;
	for (;;)
		outsight_add(&jobs_done, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pthread_t thread;
	char end;

	if (!strcmp(what, "count"))
		count();
	else if (!strcmp(what, "fork"))
		forked();
	else if (!strcmp(what, "many"))
		many(atol(argv[2]));
	else if (!strcmp(what, "spin"))
		pthread_create(&thread, NULL, spin, NULL);
	else if (!strcmp(what, "brief")) {
		outsight_add(&jobs_done, 7);
		usleep((useconds_t)atol(argv[2]));
		return 0;
	}
	(void)!write(1, "ready\n", 6);
	while (read(0, &end, 1) > 0)
		;
	return 0;
}
