package api

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"outsight/internal/fleet"
	"outsight/internal/graph"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// servicesAnswer is every node with how near it is to its limit and how it answers.
type servicesAnswer struct {
	From           time.Time          `json:"from"`
	To             time.Time          `json:"to"`
	CoveredSeconds float64            `json:"covered_seconds"`
	ErrorBound     float64            `json:"error_bound"`
	Hosts          []host             `json:"hosts"`
	Entries        []graph.Entry      `json:"entries"`
	ArrivalRate    float64            `json:"arrival_rate"`
	ArrivalQuery   string             `json:"arrival_query,omitempty"` // of ArrivalRate, with $window for a duration
	SaturationRate *float64           `json:"saturation_rate,omitempty"`
	Extrapolation  *float64           `json:"extrapolation,omitempty"`
	Bottleneck     string             `json:"bottleneck,omitempty"`
	BottleneckName string             `json:"bottleneck_name,omitempty"`
	Services       []graph.Service    `json:"services"`
	Columns        []serviceColumn    `json:"columns"`
	Cores          map[string]float64 `json:"cores"`
	Completeness   fleet.Completeness `json:"completeness"`
}

// serviceColumn describes a number of a service and the query for it. In Query, $usage and $served stand for the label
// matchers of the service's series, $entries for those of the edges at which requests come in, $parallel for how many
// CPUs it could use, $window for a duration.
type serviceColumn struct {
	Key     string `json:"key"`
	Title   string `json:"title"`
	Unit    string `json:"unit"`
	Formula string `json:"formula"`
	Query   string `json:"query,omitempty"`
	// Bounded means that the number is a quantile of a histogram, within the answer's error bound.
	Bounded bool `json:"bounded,omitempty"`
}

const (
	utilisationQuery = "sum(rate(" + otlp.ContainerCPUUsage + "{$usage}[$window])) / $parallel"
	servedQuery      = "sum(rate(" + otlp.EdgeTransactions + "{$served}[$window]))"
	entriesQuery     = "sum(rate(" + otlp.EdgeTransactions + "{$entries}[$window]))"
	httpProtocols    = `protocol=~"http|http2|grpc"`
)

func servedQuantile(q, name, more string) string {
	return "histogram_quantile(" + q + ", sum(rate(" + name + "{$served" + more + "}[$window])))"
}

// serviceColumns are in the order of the paper's table.
var serviceColumns = []serviceColumn{
	{"utilisation", "Utilisation", "ratio", "U = CPU time per second / min(cores, busy threads, quota)",
		utilisationQuery, false},
	{"arrival_rate", "Arrival rate", "/s", "λᵢ = requests per second that it serves", servedQuery, false},
	{"demand", "Demand", "s", "D = U / λ, where λ = Σ requests/s at the entries", utilisationQuery + " / " +
		entriesQuery, false},
	{"max_arrival_rate", "Max arrival rate", "/s", "λᵢ / U: what it could serve", servedQuery + " / (" +
		utilisationQuery + ")", false},
	{"power", "Power", "W", "joules per second, by the share of the cycles that it ran", "", false},
	{"threads", "Threads", "", "threads that exist, busy or not", "sum(" + otlp.ContainerThreads + "{$usage})", false},
	{"http_p50", "HTTP p50", "s", "half of the recognised HTTP/1, HTTP/2 and gRPC requests were answered within it",
		servedQuantile("0.5", otlp.EndpointDuration, ","+httpProtocols), true},
	{"http_p99", "HTTP p99", "s", "99 % of the recognised HTTP/1, HTTP/2 and gRPC requests were answered within it",
		servedQuantile("0.99", otlp.EndpointDuration, ","+httpProtocols), true},
	{"tcp_p50", "TCP p50", "s", "half of all transactions were answered within it, whatever their protocol",
		servedQuantile("0.5", otlp.EdgeTransactionDuration, ""), true},
	{"tcp_p99", "TCP p99", "s", "99 % of all transactions were answered within it, whatever their protocol",
		servedQuantile("0.99", otlp.EdgeTransactionDuration, ""), true},
	{"error_share", "Errors", "ratio", "(replies that say that the server failed + requests without a reply) / requests",
		"sum(rate(" + otlp.EndpointRequests + "{$served" + failedStatuses + "}[$window])) / " + servedQuery, false},
}

// services answers GET /api/outsight/services, with the parameters of the graph.
func (s *server) services(ctx context.Context, r *http.Request) (any, error) {
	g, data, err := s.grouped(ctx, r, graph.Options{}, servicesColumns)
	if err != nil {
		return nil, err
	}
	cores := data.cores()
	a, list := g.Services(cores)
	answer := servicesAnswer{From: g.From, To: g.To, CoveredSeconds: g.CoveredSeconds, ErrorBound: g.ErrorBound,
		Hosts:   data.machines(),
		Entries: a.Entries, ArrivalRate: a.ArrivalRate, SaturationRate: a.SaturationRate,
		Extrapolation: a.Extrapolation, Bottleneck: a.Bottleneck,
		Services: list, Columns: slices.Clone(serviceColumns), ArrivalQuery: s.arrivalQuery(g, a.Entries), Cores: cores,
		Completeness: data.completeness(g)}
	if a.Bottleneck != "" {
		answer.BottleneckName = a.Resources[0].Name
	}
	entries := entriesMatch(g, a.Entries)
	for i := range answer.Columns {
		answer.Columns[i].Query = s.known(withEntries(answer.Columns[i].Query, entries))
	}
	return answer, nil
}

// known is a query whose series there are, else empty.
func (s *server) known(query string) string {
	if s.PromQL == PromQLOff || s.PromQL == PromQLContainers && strings.Contains(query, "outsight_e") {
		return "" // all series of edges and endpoints are called that
	}
	return query
}

// arrivalQuery is the rate of requests at the entries, empty if there are none.
func (s *server) arrivalQuery(g *graph.Graph, entries []graph.Entry) string {
	if len(entries) == 0 {
		return ""
	}
	return s.known(withEntries(entriesQuery, entriesMatch(g, entries)))
}

// withEntries is a query with the matchers of the edges at which requests come in; empty if they are too many for a
// query.
func withEntries(query, entries string) string {
	if !strings.Contains(query, "$entries") {
		return query
	}
	if query = strings.ReplaceAll(query, "$entries", entries); len(query) > store.MaxQueryBytes-queryReserve {
		return ""
	}
	return query
}

// queryReserve is for what the page puts into a query, in bytes.
const queryReserve = 4 << 10

// entriesMatch selects the edges at which requests come in, as the servers counted them. Clients
// outside are selected by what their ids look like.
func entriesMatch(g *graph.Graph, entries []graph.Entry) string {
	var servers, clients []string
	outside := false
	nodes := make(map[string]*graph.Node, len(g.Nodes))
	for _, n := range g.Nodes {
		nodes[n.ID] = n
	}
	id := func(node string) string {
		if n := nodes[node]; n != nil && n.SeriesID != "" {
			return regexp.QuoteMeta(n.SeriesID)
		}
		return ""
	}
	for _, e := range entries {
		servers = append(servers, id(e.Node))
		for _, c := range e.Clients {
			if n := nodes[c]; n != nil && n.Kind == graph.KindOutside {
				outside = true
			} else {
				clients = append(clients, id(c))
			}
		}
	}
	if outside {
		clients = append(clients, outsidePattern)
	}
	slices.Sort(clients)
	return otlp.LabelServerID + "=~" + strconv.Quote(strings.Join(servers, "|")) + "," +
		otlp.LabelClientID + "=~" + strconv.Quote(strings.Join(slices.Compact(clients), "|")) + `,` + otlp.LabelSide +
		`="server"`
}
