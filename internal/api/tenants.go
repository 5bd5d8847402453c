package api

// tenantQueries is what the queries of a tenant use, of how much. Limits hold while other tenants want places.
type tenantQueries struct {
	// Tenant is empty for who reads everybody's.
	Tenant        string  `json:"tenant"`
	Running       int     `json:"running"`
	RunningLimit  int     `json:"running_limit"`
	Waiting       int     `json:"waiting"`
	Seconds       float64 `json:"quota_used_seconds"`
	SecondsLimit  float64 `json:"quota_seconds"`
	MemoryBytes   int64   `json:"memory_bytes"`
	MemoryLimit   int64   `json:"memory_limit_bytes"`
	TurnedAway    uint64  `json:"turned_away"`
	WithoutMemory uint64  `json:"without_memory"`
}

// tenantQueries are those of each tenant, or of the one whose view this is.
func (s *server) tenantQueries() []tenantQueries {
	list := []tenantQueries{}
	if s.TenantQueries == nil {
		return list
	}
	for _, t := range s.TenantQueries() {
		if s.Tenant != "" && s.Tenant != t.Tenant {
			continue
		}
		list = append(list, tenantQueries{
			Tenant: t.Tenant, Running: t.Running, RunningLimit: t.MaxRunning, Waiting: t.Waiting, Seconds: t.Used.Seconds(), SecondsLimit: t.Quota.Seconds(),
			MemoryBytes: t.Bytes, MemoryLimit: t.MaxBytes, TurnedAway: t.TurnedAway, WithoutMemory: t.WithoutMemory,
		})
	}
	return list
}
