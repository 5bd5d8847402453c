package ingest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"outsight/internal/model"
	"outsight/internal/quota"
)

// Quotas returns the limits of tenants and what they use: all of them for "", else those of one. Without tenants there
// are none.
func (i *Ingest) Quotas(tenant string) (list []model.Quota) {
	if !i.options.Tenants {
		return nil
	}
	uses := func(what string, all []quota.Usage) {
		for _, u := range all {
			if tenant == "" || u.Tenant == tenant {
				list = append(list, model.Quota{Tenant: u.Tenant, What: what, Used: u.Used, Limit: u.Limit,
					Guaranteed: u.Guaranteed, Refused: u.Refused})
			}
		}
	}
	if s, ok := i.store.(tenantAccounts); ok {
		series, labelBytes := s.Usages()
		uses(model.QuotaSeries, series)
		uses(model.QuotaLabelBytes, labelBytes)
	}
	uses(model.QuotaInFlight, i.inFlight.Usages())
	for name, r := range i.rates.All() {
		if (tenant == "" || name == tenant) && r.PerSecond > 0 {
			list = append(list, model.Quota{Tenant: name, What: model.QuotaSamples, Used: r.Recent, Limit: r.PerSecond,
				Guaranteed: r.PerSecond, Refused: r.Refused})
		}
	}
	slices.SortStableFunc(list, func(a, b model.Quota) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.What, b.What))
	})
	return list
}

// writeQuotas writes the metrics of tenants.
func (i *Ingest) writeQuotas(w io.Writer) error {
	if !i.options.Tenants {
		return nil
	}
	var b strings.Builder
	list := i.Quotas("")
	family := func(name, kind, help string, value func(q *model.Quota) any) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for n := range list {
			fmt.Fprintf(&b, "%s{tenant=%q,of=%q} %v\n", name, list[n].Tenant, list[n].What, value(&list[n]))
		}
	}
	family("outsight_tenant_used", "gauge", "What a tenant has of what is divided among tenants",
		func(q *model.Quota) any { return q.Used })
	family("outsight_tenant_limit", "gauge", "What a tenant could have of it in all at the moment",
		func(q *model.Quota) any { return q.Limit })
	family("outsight_tenant_guaranteed", "gauge", "What a tenant gets of it, whatever others take",
		func(q *model.Quota) any { return q.Guaranteed })
	family("outsight_tenant_refused_total", "counter", "Times that a tenant did not get more of it",
		func(q *model.Quota) any { return q.Refused })
	rates := i.rates.All()
	fmt.Fprintf(&b, "# HELP outsight_tenant_samples_total Data points that a tenant sent\n# TYPE outsight_tenant_samples_total counter\n")
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		fmt.Fprintf(&b, "outsight_tenant_samples_total{tenant=%q} %d\n", name, rates[name].Taken)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
