package region

import "outsight/internal/model"

// EndpointFigures are those of the transactions of an edge that asked for the same thing and were answered alike.
type EndpointFigures struct {
	// Number distinguishes records, also those that follow each other at one index.
	Number uint64
	// Edge and EdgeGeneration are EdgeFigures.Index and Generation of its edge.
	Edge, EdgeGeneration uint32
	Key                  model.EndpointKey
	Figures              Figures
}

// Series of endpoints.
const (
	RequestsSeries = "outsight_endpoint_requests_total"
	AnsweredSeries = "outsight_endpoint_request_duration_seconds"
)

// endpoint is a record without its figures.
func (t *table) endpoint(b []byte) EndpointFigures {
	number := func(name string) uint64 { return t.keys.number(b, name) }
	return EndpointFigures{Number: t.parts.generation.number(b, 0), Edge: uint32(number("key.edge")),
		EdgeGeneration: uint32(number("edge_generation")),
		Key:            model.EndpointKeyOf(uint8(number("key.protocol")), uint8(number("key.status")), t.keys.text(b, "key.name"))}
}

// countTimed adds the transactions that were timed to those that were not, which the kernel counts apart.
func (e *EndpointFigures) countTimed() {
	requests, answered := e.Figures.Of(RequestsSeries), e.Figures.Of(AnsweredSeries)
	if requests != nil && answered != nil && answered.Histogram != nil {
		requests.Count += answered.Histogram.Count
	}
}
