// Package monotonic is the clock of the kernel's programs (bpf_ktime_get_ns, CLOCK_MONOTONIC) and how it relates to the
// wall clock.
package monotonic
