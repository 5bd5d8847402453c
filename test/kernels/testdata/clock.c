/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how fast the time-stamp counter ticks, in kHz. */
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

/* Reads both clocks at one moment: the best of many tries, of which others are interrupted. */
static void read_both(unsigned long long *ticks, unsigned long long *ns)
{
	unsigned long long best = ~0ULL;

	for (int i = 0; i < 1000; i++) {
		struct timespec now;
		unsigned long long before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC_RAW, &now);
		unsigned long long after = __rdtsc();

		if (after - before < best) {
			best = after - before;
			*ticks = before + best / 2;
			*ns = now.tv_sec * 1000000000ULL + now.tv_nsec;
		}
	}
}

int main(void)
{
	unsigned long long ticks, ns, later_ticks, later_ns;
	struct timespec pause = {.tv_nsec = 200000000};

	read_both(&ticks, &ns);
	nanosleep(&pause, NULL);
	read_both(&later_ticks, &later_ns);
	printf("%llu\n", (later_ticks - ticks) * 1000000 / (later_ns - ns));
	return 0;
}
