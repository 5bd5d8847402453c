package api

import "outsight/internal/model"

// queryQuotas are what the queries of each tenant use, or of the tenant whose view this is. All of a limit is
// guaranteed: it holds only while other tenants wait.
func (s *server) queryQuotas() (all []quota) {
	if s.TenantQueries == nil {
		return nil
	}
	for _, t := range s.TenantQueries() {
		if s.Tenant != "" && s.Tenant != t.Tenant {
			continue
		}
		row := func(what string, used, limit int64, refused uint64) {
			all = append(all, quota{Tenant: t.Tenant, What: what, Used: used, Limit: limit, Guaranteed: limit, Refused: refused})
		}
		row(model.QuotaQueries, int64(t.Running), int64(t.MaxRunning), t.TurnedAway)
		row(model.QuotaQueryTime, t.Used.Milliseconds(), t.Quota.Milliseconds(), 0)
		row(model.QuotaQueryMemory, t.Bytes, t.MaxBytes, t.WithoutMemory)
	}
	return all
}
