package api

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outsight/internal/graph"
	"outsight/internal/model"
	"outsight/internal/otlp"
)

// number describes one number of a node or an edge: its key in the JSON, and PromQL that tells nearly the same, empty
// where there are no such series. In Query, $match stands for label matchers and $window for a duration.
type number struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	// Unit is "cores", "s", "B", "B/s", "/s", "ratio" or "" for a plain count.
	Unit  string `json:"unit"`
	Query string `json:"query"`
}

// usageNumbers, sideNumbers and endpointNumbers are those of graph.Usage, graph.Side and graph.Endpoint that have a
// title, in the order in which the page shows them.
var (
	usageNumbers    = numbersOf(model.Numbers(model.ContainerRows, model.UsageGroups))
	sideNumbers     = numbersOf(model.Numbers(model.EdgeRows, model.SideGroups))
	endpointNumbers = numbersOf(model.Numbers(model.EndpointRows, model.SideGroups))
	endsNumbers     = numbersOf(model.EndsNumbers())
	probeNumbers    = numbersOf(model.ProbeNumbers)
)

var allNumbers = numbers{usageNumbers, sideNumbers, endpointNumbers, endsNumbers, probeNumbers}

// numbersWithoutQueries are the same where there are no series.
var numbersWithoutQueries = numbers{withoutQueries(usageNumbers), withoutQueries(sideNumbers),
	withoutQueries(endpointNumbers), withoutQueries(endsNumbers), withoutQueries(probeNumbers)}

func withoutQueries(all []number) []number {
	all = slices.Clone(all)
	for i := range all {
		all[i].Query = ""
	}
	return all
}

// numbersOf are numbers with the queries that there are.
func (s *server) numbersOf(shown []model.Shown) []number {
	if s.PromQL == PromQLOff {
		return withoutQueries(numbersOf(shown))
	}
	return numbersOf(shown)
}

func numbersOf(shown []model.Shown) (all []number) {
	for _, n := range shown {
		if n.Title != "" {
			all = append(all, number{n.Key, n.Title, n.Unit, n.PromQL})
		}
	}
	return all
}

// failedStatuses matches those of model.FailedStatuses.
var failedStatuses = `,status=~"` + strings.Join(model.FailedStatuses, "|") + `"`

// outsidePattern matches the id label of an end outside of the hosts: an address, or "others".
const outsidePattern = `([0-9]{1,3}[.]){3}[0-9]{1,3}|[0-9a-fA-F]*:.*|others`

// idMatch is what follows the name of an id label to select a node: ="..." or =~"...".
func idMatch(n *graph.Node) string {
	switch {
	case n.Kind == graph.KindHost && n.SeriesID == "":
		return "!~" + strconv.Quote(outsidePattern) + "," + otlp.LabelHost + "=" + strconv.Quote(n.Host)
	case n.Kind == graph.KindHost:
		return "=" + strconv.Quote(n.SeriesID) + "," + otlp.LabelHost + "=" + strconv.Quote(n.Host)
	case n.Kind == graph.KindPod:
		return anyOf(slices.Concat(n.Members, n.Addresses))
	case n.SeriesID != "" && len(n.Addresses) > 0 && n.Kind != graph.KindOutside:
		return anyOf(slices.Concat([]string{n.SeriesID}, n.Addresses))
	case n.SeriesID != "":
		return "=" + strconv.Quote(n.SeriesID)
	case n.AddressCount > len(n.Addresses):
		return "=~" + strconv.Quote(outsidePattern)
	}
	return anyOf(n.Addresses)
}

func anyOf(ids []string) string {
	quoted := make([]string, len(ids))
	for i, id := range ids {
		quoted[i] = regexp.QuoteMeta(id)
	}
	return "=~" + strconv.Quote(strings.Join(quoted, "|"))
}

// kubeMatch selects the series of a workload or namespace by labels whose names begin with prefix;
// it is empty for other nodes.
func kubeMatch(n *graph.Node, prefix string) string {
	switch n.Kind {
	case graph.KindNamespace:
		return prefix + otlp.LabelNamespace + "=" + strconv.Quote(n.PodNamespace)
	case graph.KindWorkload:
		return fmt.Sprintf("%s%s=%q,%[1]s%[4]s=%[5]q,%[1]s%[6]s=%[7]q", prefix, otlp.LabelNamespace, n.PodNamespace,
			otlp.LabelWorkload, n.Workload, otlp.LabelWorkloadKind, n.WorkloadKind)
	}
	return ""
}

func usageMatch(n *graph.Node) string { return cmp.Or(kubeMatch(n, ""), otlp.LabelID+idMatch(n)) }

// endMatch selects the edges of which a node is the client or the server. Where processes are distinguished, the node
// of a container has the ends without a known process.
func endMatch(n *graph.Node, by graph.Grouping, idLabel, processLabel string) string {
	match := kubeMatch(n, strings.TrimSuffix(idLabel, otlp.LabelID))
	if match == "" {
		match = idLabel + idMatch(n)
	}
	if by == graph.ByProcess && n.Kind != graph.KindOutside {
		match += "," + processLabel + "=" + strconv.Quote(n.Process)
	}
	return match
}

// servedMatch and calledMatch select a node's edges as its own end counted them; for an end
// outside, as the other end did.
func servedMatch(n *graph.Node, by graph.Grouping) string {
	side := "server"
	if n.Kind == graph.KindOutside {
		side = "client"
	}
	return fmt.Sprintf(`%s,%s=%q`, endMatch(n, by, otlp.LabelServerID, otlp.LabelServerProcess), otlp.LabelSide, side)
}

func calledMatch(n *graph.Node, by graph.Grouping) string {
	side := "client"
	if n.Kind == graph.KindOutside {
		side = "server"
	}
	return fmt.Sprintf(`%s,%s=%q`, endMatch(n, by, otlp.LabelClientID, otlp.LabelClientProcess), otlp.LabelSide, side)
}

// edgeMatch selects both sides of an edge. Series of before there was UDP have no transport.
func edgeMatch(client, server *graph.Node, transport string, by graph.Grouping) string {
	if transport == model.TCP.String() {
		transport += "|"
	}
	return fmt.Sprintf(`%s,%s,%s=~%q`, endMatch(client, by, otlp.LabelClientID, otlp.LabelClientProcess),
		endMatch(server, by, otlp.LabelServerID, otlp.LabelServerProcess), otlp.LabelTransport, transport)
}

// expand is a number's query with its parameters filled in.
func expand(query, match string, seconds float64) string {
	window := strconv.Itoa(max(2, int(seconds+0.5))) + "s"
	return strings.NewReplacer("$match", match, "$window", window).Replace(query)
}
