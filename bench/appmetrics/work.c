/* SPDX-License-Identifier: Apache-2.0 */
/* What an update of a metric takes beside a plain atomic addition: prints nanoseconds of both, in turns. */
#include "../../sdk/c/outsight.h"
#include <stdlib.h>
#include <time.h>

OUTSIGHT_METRIC(jobs_done, "{job}", "Jobs that were done");
static uint64_t plain __attribute__((aligned(64)));

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* usage: work updates turns: a line for each turn; without arguments it waits for its input's end. */
int main(int argc, char **argv)
{
	long updates = argc > 2 ? atol(argv[1]) : 0, turns = argc > 2 ? atol(argv[2]) : 0;
	char end;

	for (long turn = 0; turn < turns; turn++) {
		double begun = now(), between, ended;

		for (long i = 0; i < updates; i++)
			__atomic_fetch_add(&plain, 1, __ATOMIC_RELAXED);
		between = now();
		for (long i = 0; i < updates; i++)
			outsight_add(&jobs_done, 1);
		ended = now();
		printf("%.4f %.4f\n", (between - begun) / (double)updates, (ended - between) / (double)updates);
	}
	if (turns > 0)
		return 0;
	printf("%d\n", outsight_state.fd);
	fflush(stdout);
	while (read(0, &end, 1) > 0)
		;
	return 0;
}
