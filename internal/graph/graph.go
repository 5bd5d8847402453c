package graph

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"outsight/internal/model"
)

// Graph is a service map over one window of time.
type Graph struct {
	// From and To are the window that was asked for.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// CoveredSeconds is how much of the window was observed. Rates are over this time.
	CoveredSeconds float64 `json:"covered_seconds"`
	// ErrorBound is the greatest relative error of every quantile in the graph.
	ErrorBound float64 `json:"error_bound"`
	// Nodes in order of Name, Edges in order of client and server name.
	Nodes []*Node `json:"nodes"`
	Edges []*Edge `json:"edges"`
	// OmittedEdges is how many of the least busy edges Limit has left out.
	OmittedEdges int `json:"omitted_edges"`
	// HiddenEdges is how many edges HideBelow has left out, because that was asked for.
	HiddenEdges int `json:"hidden_edges,omitempty"`
	// Unplaced sums the connections that are in no edge, because the kernel's table had no room
	// for one: what their ends on the hosts sent (RequestBytes) and received (ResponseBytes).
	// Nil where there were none.
	Unplaced *Side `json:"unplaced,omitempty"`
	// UnmatchedShare is the share, 0 to 1, of all edges with an end that is in no known container.
	UnmatchedShare float64 `json:"unmatched_share"`
	// UnmatchedBytesShare is the share of all edges' bytes that went over these.
	UnmatchedBytesShare float64 `json:"unmatched_bytes_share"`
	// CountedShare is, for each host with traffic, the share of the bytes received there that
	// was seen and is in an edge.
	CountedShare map[string]float64 `json:"counted_share"`

	// bytes are those of all edges, whatever was left out later.
	bytes float64
}

// Kind says what a node stands for.
type Kind string

// The kinds of nodes.
const (
	KindContainer Kind = "container"
	KindService   Kind = "service"
	KindHost      Kind = "host"
	KindOutside   Kind = "outside"
	// A Grouping makes these.
	KindPod       Kind = "pod"
	KindProcess   Kind = "process"
	KindWorkload  Kind = "workload"
	KindNamespace Kind = "namespace"
	// KindClusterService is a Kubernetes service whose pods are not known.
	KindClusterService Kind = "cluster-service"
)

// Node is a container, a service, what runs in no container of a host, or one or more addresses outside.
type Node struct {
	// ID is the container's ID; an outside server's address; OutsideID or OutsideServersID for
	// a group of addresses. What runs in no container of host h is "host/h".
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	Host string `json:"host,omitempty"`
	// SeriesID is the node's id label in stored series, empty for a group of addresses.
	SeriesID     string `json:"series_id,omitempty"`
	Image        string `json:"image,omitempty"`
	Runtime      string `json:"runtime,omitempty"`
	PodName      string `json:"pod,omitempty"`
	PodNamespace string `json:"namespace,omitempty"`
	// Workload is what people deployed that the pod belongs to, WorkloadKind what that is.
	Workload     string `json:"workload,omitempty"`
	WorkloadKind string `json:"workload_kind,omitempty"`
	// Members are the id labels of a pod's containers.
	Members []string `json:"members,omitempty"`
	// Process is what the processes of the node run, for KindProcess.
	Process string `json:"process,omitempty"`
	// Addresses of an outside node, or by which others know a node, at most MaxAddresses of AddressCount.
	Addresses    []string `json:"addresses,omitempty"`
	AddressCount int      `json:"address_count,omitempty"`
	// StartedSeconds is the container's start in Unix seconds, nil where not known.
	StartedSeconds *float64 `json:"started,omitempty"`
	// Gone is true for a container that was seen in the window but no more at its end.
	Gone bool `json:"gone,omitempty"`
	// Usage is nil for an outside node.
	Usage *Usage `json:"usage,omitempty"`
	// Served sums the edges on which the node is the server, Called those on which it is the
	// client; each as the node itself counted it where it did. Nil where there is no such edge.
	Served *Side `json:"served,omitempty"`
	Called *Side `json:"called,omitempty"`

	// in is the container of a process, or what runs in no container of its host.
	in *Node
}

// Edge is a directed client-to-server relation, with the numbers of both of its ends. All
// services (ports) of one server are one edge, those over UDP another one.
type Edge struct {
	// ID is Client, '>' and Server, and "/udp" for UDP.
	ID string `json:"id"`
	// Client and Server are IDs of nodes.
	Client string `json:"client"`
	Server string `json:"server"`
	// Services are the server's addresses and ports, in order; Transport is "tcp" or "udp".
	Services  []string `json:"services"`
	Transport string   `json:"transport"`
	// ClientSide and ServerSide are what each end counted, nil for an end that did not count.
	ClientSide *Side `json:"client_side,omitempty"`
	ServerSide *Side `json:"server_side,omitempty"`
	// Paired is true where both ends counted the same connections; on two hosts, where both counted as
	// much between the same pods, to within 1 %.
	Paired bool `json:"paired"`
	// Confidence says how the least sure end was found: "exact" (the kernel saw both ends),
	// "listener", "address", or "none" for an end that is in no known container.
	Confidence string `json:"confidence"`
	// Via names a process on the host that passes connections on, like "docker-proxy".
	Via string `json:"via,omitempty"`
	// NetworkSeconds is the client's p50 less the server's: the time spent between the two.
	// Nil unless Paired, because the two would be about different transactions.
	NetworkSeconds *float64 `json:"network_seconds,omitempty"`
	// Split is where the time of its requests goes, nil where that is not known.
	Split *Split `json:"split,omitempty"`
	// Network is what its packets tell, nil where none were seen.
	Network *Network `json:"network,omitempty"`
	// Endpoints are what was asked for most, as the server counted it where it did; at most
	// MaxEndpoints. OmittedEndpoints is how many there are besides, OtherEndpoints their sum.
	Endpoints        []*Endpoint `json:"endpoints,omitempty"`
	OmittedEndpoints int         `json:"omitted_endpoints,omitempty"`
	OtherEndpoints   *Endpoint   `json:"other_endpoints,omitempty"`

	confidence model.Confidence
	settled    bool // an end of a part of it was settled by Kubernetes
	across     bool // its rows are of several hosts
}

// Best is the client's numbers where the client counted (it is who waits), else the server's.
func (e *Edge) Best() *Side {
	if e.ClientSide != nil {
		return e.ClientSide
	}
	return e.ServerSide
}

// Seconds is a duration that may lie past the end of a histogram: +Inf, which JSON shows as the
// string "+Inf", and of which is known only that it is model.OverflowThreshold or more. It is 0
// for a duration of at most model.ZeroThreshold.
type Seconds float64

// MarshalJSON writes a number, or "+Inf".
func (s Seconds) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(s), 1) {
		return []byte(`"+Inf"`), nil
	}
	if math.IsNaN(float64(s)) || math.IsInf(float64(s), -1) {
		return json.Marshal(float64(s)) // which is an error
	}
	return appendFloat(make([]byte, 0, 24), float64(s)), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	if string(b) == `"+Inf"` {
		*s = Seconds(math.Inf(1))
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	*s = Seconds(v)
	return err
}

// JSON is the graph as indented JSON, ending with a newline.
func JSON(g *Graph) ([]byte, error) {
	b, err := json.MarshalIndent(g, "", "  ")
	return append(b, '\n'), err
}

// Node finds a node by ID, nil where there is none.
func (g *Graph) Node(id string) *Node {
	for _, n := range g.Nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}
