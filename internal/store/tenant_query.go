package store

import (
	"fmt"
	"io"
)

// TenantQueries is what the queries of each tenant use, and their limits.
func (s *Store) TenantQueries() []TenantQueries { return s.gate.tenantQueries() }

// TenantQueries is that of Store.
func (r *Remote) TenantQueries() []TenantQueries { return r.gate.tenantQueries() }

// Hold reserves n bytes for an answer of a tenant, for as long as it is written, until release is called.
func (s *Store) Hold(tenant string, n int64) (release func(), err error) {
	return s.gate.budget.Hold(tenant, n)
}

// Hold is that of Store.
func (r *Remote) Hold(tenant string, n int64) (release func(), err error) {
	return r.gate.budget.Hold(tenant, n)
}

// Hold is that of the store, for this tenant whichever is given.
func (t *Tenant) Hold(_ string, n int64) (release func(), err error) { return t.store.Hold(t.name, n) }

// tenantQueryMetric is a metric of each tenant.
type tenantQueryMetric struct {
	name, kind, help string
	value            func(*TenantQueries) float64
}

var tenantQueryMetrics = []tenantQueryMetric{
	{"outsight_tenant_query_requests_total", "counter", "Queries of the tenant",
		func(t *TenantQueries) float64 { return float64(t.Queries) }},
	{"outsight_tenant_query_turned_away_total", "counter", "Queries that were turned away because too many waited",
		func(t *TenantQueries) float64 { return float64(t.TurnedAway) }},
	{"outsight_tenant_query_without_memory_total", "counter", "Queries and answers for which there was no memory",
		func(t *TenantQueries) float64 { return float64(t.WithoutMemory) }},
	{"outsight_tenant_query_running", "gauge", "Queries that run",
		func(t *TenantQueries) float64 { return float64(t.Running) }},
	{"outsight_tenant_query_running_limit", "gauge", "Queries that may run while other tenants want places",
		func(t *TenantQueries) float64 { return float64(t.MaxRunning) }},
	{"outsight_tenant_query_waiting", "gauge", "Queries that wait for a place",
		func(t *TenantQueries) float64 { return float64(t.Waiting) }},
	{"outsight_tenant_query_seconds_total", "counter", "Time that queries took",
		func(t *TenantQueries) float64 { return t.Seconds }},
	{"outsight_tenant_query_quota_used_seconds", "gauge", "Time of the minute's quota that is used",
		func(t *TenantQueries) float64 { return t.Used.Seconds() }},
	{"outsight_tenant_query_quota_seconds", "gauge",
		"Time that queries may take in a minute while other tenants want places",
		func(t *TenantQueries) float64 { return t.Quota.Seconds() }},
	{"outsight_tenant_query_memory_bytes", "gauge", "Bytes that queries and answers hold",
		func(t *TenantQueries) float64 { return float64(t.Bytes) }},
	{"outsight_tenant_query_memory_limit_bytes", "gauge", "Bytes that queries and answers may hold",
		func(t *TenantQueries) float64 { return float64(t.MaxBytes) }},
}

// WriteTenantQueries writes what tenants use as metrics in the text format of Prometheus.
func WriteTenantQueries(w io.Writer, all []TenantQueries) {
	for _, m := range tenantQueryMetrics {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for i := range all {
			fmt.Fprintf(w, "%s{tenant=%q} %v\n", m.name, all[i].Tenant, m.value(&all[i]))
		}
	}
}
