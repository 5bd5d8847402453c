package derive

import (
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// SeriesOf makes the series of one epoch of a host, with the label of a tenant where there is one: all of them, or those
// of containers and hosts.
func SeriesOf(tenant string, full bool) Series {
	o := otlp.SeriesOptions{WithoutEdges: !full}
	if tenant != "" {
		o.Labels = []model.Label{model.NewLabel(store.TenantLabel, tenant)}
	}
	return otlp.SparseSeries(o)
}
