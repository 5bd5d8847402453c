package model

import "strings"

// EndpointRows are the metrics of an endpoint, whose labels are those of its edge, and protocol, endpoint and status.
var EndpointRows = []Row[Endpoint]{
	{Name: "outsight_endpoint_requests_total", OTel: "outsight.endpoint.requests", Unit: "{request}", Kind: Counter,
		Help: "Requests by protocol, endpoint and the status of their reply, where they were recognised",
		Columns: []Column[Endpoint]{{Name: "requests",
			Count: func(e *Endpoint) (uint64, bool) { return e.Transactions(), true }, Shown: []Number{
				{Key: "requests_per_second", Title: "Requests", Unit: "/s", Group: GroupRequests, Formula: Rate},
				{Key: "errors_per_second", Title: "Errors", Unit: "/s", Group: GroupRequests, Formula: Derived,
					Query: "sum(rate(" +
						`outsight_endpoint_requests_total{$match,status=~"` + strings.Join(FailedStatuses, "|") + `"}[$window]))`}}}}},
	{Name: "outsight_endpoint_request_duration_seconds", OTel: "outsight.endpoint.request.duration", Unit: "s",
		Kind: HistogramSeries,
		Help: "Time of a request and its reply by protocol, endpoint and the status of the reply",
		Columns: []Column[Endpoint]{{Name: "latency",
			Histogram: func(e *Endpoint) (*Histogram, bool) { return e.Latency, true },
			Shown: []Number{
				{Key: "p50", Title: "p50", Unit: "s", Group: GroupLatency, Formula: QuantileOf, Quantile: 0.5},
				{Key: "p99", Title: "p99", Unit: "s", Group: GroupLatency, Formula: QuantileOf, Quantile: 0.99}}}}},
}
