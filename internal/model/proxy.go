package model

// ProxyCounters are of a container's processes that receive requests and send them on over connections of their own: a
// reverse proxy, a gateway.
type ProxyCounters struct {
	// Requests that such processes received while they were timed.
	Requests uint64
	// Matched is how many of these were found again where they were sent on, and Alone how many of them by no name: no
	// other request was in the process.
	Matched, Alone uint64
	// Took is from a request's first byte received to its first byte sent on, of those that were matched.
	Took *Histogram
}

// Plus is the sum of two. It shares no histogram with either.
func (c *ProxyCounters) Plus(other *ProxyCounters) ProxyCounters {
	sum := ProxyCounters{Requests: c.Requests + other.Requests, Matched: c.Matched + other.Matched,
		Alone: c.Alone + other.Alone, Took: c.Took.Clone()}
	if sum.Took == nil {
		sum.Took = other.Took.Clone()
	} else if other.Took != nil {
		sum.Took.Merge(other.Took)
	}
	return sum
}

// KernelProxy is what the kernel counted of one kind of process that receives and sends requests.
type KernelProxy struct {
	Owner   CgroupID
	Process string
	// Instance distinguishes countings: in one, counters only grow.
	Instance uint64
	ProxyCounters
}

var ofProxy = in(func(s *ContainerSample) *ProxyCounters { return s.Proxy })

func proxyTook(s *ContainerSample) (*Histogram, bool) {
	if s.Proxy == nil {
		return nil, false
	}
	return s.Proxy.Took, true
}

var containerProxyRows = []Row[ContainerSample]{
	{Name: "container_proxy_duration_seconds", OTel: "container.proxy.duration", Unit: "s", Kind: HistogramSeries,
		Help: "Time from the first byte of a request that the container received to the first byte of it that it sent on",
		Columns: []Column[ContainerSample]{{Name: "proxy_took", Histogram: proxyTook, Shown: []Number{
			{Key: "proxy_p50", Title: "Time in the proxy p50", Unit: "s", Group: GroupNetwork, Formula: QuantileOf,
				Quantile: 0.5, Meaning: "Half of the requests that it sent on took less from being received to being sent on"},
			{Key: "proxy_p99", Title: "Time in the proxy p99", Unit: "s", Group: GroupNetwork, Formula: QuantileOf,
				Quantile: 0.99, Meaning: "99 % of the requests that it sent on took less from being received to being sent on"},
		}}}},
	{Name: "container_proxy_matched_requests_total", OTel: "container.proxy.matched_requests", Unit: "{request}",
		Kind: Counter,
		Help: "Requests that the container's proxies received and that were found again where they were sent on",
		Columns: []Column[ContainerSample]{{Name: "proxy_matched",
			Count: ofProxy(func(p *ProxyCounters) uint64 { return p.Matched }),
			Shown: []Number{{Key: "proxy_matched_share", Title: "Requests found again", Unit: "ratio", Group: GroupNetwork,
				Formula: Share, Of: []string{"proxy_matched", "proxy_requests"},
				Meaning: "Of the requests that its proxies received, how many were found where they were sent on: " +
					"of these are the times. The others were answered by the proxy, or could not be told apart"}}}}},
	{Name: "container_proxy_requests_total", OTel: "container.proxy.requests", Unit: "{request}", Kind: Counter,
		Graph: true,
		Help:  "Requests that the container's processes received which send requests on",
		Columns: []Column[ContainerSample]{{Name: "proxy_requests",
			Count: ofProxy(func(p *ProxyCounters) uint64 { return p.Requests })}}},
	{Name: "container_proxy_alone_requests_total", OTel: "container.proxy.alone_requests", Unit: "{request}",
		Kind: Counter,
		Help: "Of the requests that were found again, those that had another name, or none that could be read, and were " +
			"the only one in the process",
		Columns: []Column[ContainerSample]{{Name: "proxy_alone",
			Count: ofProxy(func(p *ProxyCounters) uint64 { return p.Alone }),
			Shown: []Number{{Key: "proxy_alone_share", Title: "Found by being the only one", Unit: "ratio",
				Group: GroupNetwork, Formula: Share, Of: []string{"proxy_alone", "proxy_matched"},
				Meaning: "Of the requests that were found again, how many had another name when they were sent on. In a " +
					"program that is no proxy, its first call of a service is taken for its request sent on"}}}}},
}
