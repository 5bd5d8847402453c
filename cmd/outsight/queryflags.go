package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"outsight/internal/store"
)

// queryFlags bound what queries may take.
type queryFlags struct {
	memory int64
	share  float64
}

func (f *queryFlags) add(c *cobra.Command) {
	c.Flags().Int64Var(&f.memory, "query-memory", 0,
		"bytes that all queries and answers hold together; one may hold half of them (default: a quarter of what this "+
			"process may have)")
}

func (f *queryFlags) addTenants(c *cobra.Command) {
	c.Flags().Float64Var(&f.share, "tenant-query-share", 0.5,
		"share of --query-memory that one tenant has, and of the slots and the time of queries while other tenants want some")
}

const (
	// A quarter of the process' memory is for queries, and without --query-memory at least leastQueryMemory.
	queryMemoryShare = 4
	leastQueryMemory = 64 << 20
	// mostUpQueryMemory bounds it where agent and server are one process on a host that has other work.
	mostUpQueryMemory = 1 << 30
)

// bounds are those of a process that may have so many bytes.
func (f *queryFlags) bounds(process int64) (store.QueryBounds, error) {
	switch {
	case f.memory < 0:
		return store.QueryBounds{}, usagef("--query-memory is %d, want more than nothing", f.memory)
	case !(f.share >= 0 && f.share <= 1):
		return store.QueryBounds{}, usagef("--tenant-query-share is %v, want more than 0 and at most 1", f.share)
	}
	b := store.QueryBounds{Memory: f.memory, TenantShare: f.share}
	if b.Memory == 0 {
		b.Memory = max(process/queryMemoryShare, leastQueryMemory)
	}
	// The collector of unused memory keeps to three quarters of the machine as long as it can.
	b.ProcessMemory = machineMemory("/proc/meminfo", "/sys/fs/cgroup") / 16 * 13
	return b, nil
}

// withTenantQueries adds to metrics what the queries of each tenant use.
func withTenantQueries(metrics http.Handler, kept anyStore) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metrics.ServeHTTP(w, r)
		s := kept.Stats()
		fmt.Fprintf(w, "# HELP outsight_query_memory_bytes Bytes that queries and answers hold\n# TYPE "+
			"outsight_query_memory_bytes gauge\noutsight_query_memory_bytes %d\n"+
			"# HELP outsight_query_memory_limit_bytes Bytes that queries and answers may hold\n# TYPE "+
			"outsight_query_memory_limit_bytes gauge\noutsight_query_memory_limit_bytes %d\n"+
			"# HELP outsight_query_without_memory_total Queries and answers for which there was no memory\n# TYPE "+
			"outsight_query_without_memory_total counter\noutsight_query_without_memory_total %d\n"+
			"# HELP outsight_query_stopped_total Queries that were ended because the process was about to run out of "+
			"memory\n# TYPE outsight_query_stopped_total counter\noutsight_query_stopped_total %d\n",
			s.QueryMemory, s.MaxQueryMemory, s.QueriesWithoutMemory, s.QueriesStopped)
		store.WriteTenantQueries(w, kept.TenantQueries())
	})
}
