package region

import (
	"context"

	"outsight/internal/model"
)

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

// readEndpoints finds the endpoints that there are, at a thorough reading.
func (c *Collector) readEndpoints(ctx context.Context) (map[uint32]*EndpointFigures, map[uint32]Figures, records, error) {
	found, figures := map[uint32]*EndpointFigures{}, map[uint32]Figures{}
	if c.endpoints == nil || !c.thorough {
		return found, figures, records{}, nil
	}
	read, err := c.look(ctx, c.endpoints)
	if err != nil {
		return nil, nil, records{}, err
	}
	r := c.endpoints.region
	number, edge, generation := r.field(RoleGeneration, ""), r.field(RoleKey, "key.edge"), r.field(RoleKey, "edge_generation")
	protocol, status, name := r.field(RoleKey, "key.protocol"), r.field(RoleKey, "key.status"), r.field(RoleKey, "key.name")
	if number == nil || edge == nil || generation == nil || protocol == nil || status == nil || name == nil ||
		name.Type != TypeText {
		return found, figures, records{}, nil // endpoints of a kind that this program does not know
	}
	for _, index := range c.endpoints.used {
		b := read.of[index]
		e := &EndpointFigures{Number: number.number(b, 0), Edge: uint32(edge.number(b, 0)),
			EdgeGeneration: uint32(generation.number(b, 0)),
			Key: model.EndpointKeyOf(uint8(protocol.number(b, 0)), uint8(status.number(b, 0)),
				b[name.Offset:name.Offset+uint32(name.Count)])}
		if e.Number != 0 { // else not all of it is written yet
			found[index], figures[index] = e, Figures{}
		}
	}
	return found, figures, read, nil
}

// countTimed adds the transactions that were timed to those that were not, which the kernel counts apart.
func (e *EndpointFigures) countTimed() {
	requests, answered := e.Figures[RequestsSeries], e.Figures[AnsweredSeries]
	if requests != nil && answered != nil && answered.Histogram != nil {
		requests.Count += answered.Histogram.Count
	}
}
