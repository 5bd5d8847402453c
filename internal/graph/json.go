package graph

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
)

// NodesJSON and EdgesJSON are the lists of nodes and edges as JSON, the same as of encoding/json but for the order of
// fields. Of a large graph they take a fraction of the time: encoding/json looks at all that a MarshalJSON wrote once
// more, and uses one processor. The list is in parts that follow each other.
func (g *Graph) NodesJSON() (parts [][]byte, err error) { return listJSON(g.Nodes, appendNode) }

// EdgesJSON is like NodesJSON.
func (g *Graph) EdgesJSON() (parts [][]byte, err error) { return listJSON(g.Edges, appendEdge) }

// partJSON is how many nodes or edges are written at a time.
const partJSON = 64

// jsonBuffers have a part while it is written.
var jsonBuffers = sync.Pool{New: func() any { return new([]byte) }}

func listJSON[T any](all []T, add func(b []byte, one T) ([]byte, error)) (parts [][]byte, err error) {
	parts = make([][]byte, (len(all)+partJSON-1)/partJSON)
	errs := make([]error, len(parts))
	parallelEach(len(parts), func(i int) {
		buffer := jsonBuffers.Get().(*[]byte)
		defer jsonBuffers.Put(buffer)
		b := (*buffer)[:0]
		for k, one := range all[i*partJSON : min((i+1)*partJSON, len(all))] {
			if i+k > 0 {
				b = append(b, ',')
			}
			if b, errs[i] = add(b, one); errs[i] != nil {
				return
			}
		}
		parts[i], *buffer = slices.Clone(b), b
	})
	return slices.Concat([][]byte{{'['}}, parts, [][]byte{{']'}}), errors.Join(errs...)
}

// appended is something that appends its JSON.
type appended interface {
	appendJSON(b []byte) ([]byte, error)
}

func appendNode(b []byte, n *Node) ([]byte, error) {
	rest := *n
	rest.Usage, rest.Served, rest.Called = nil, nil, nil
	b, err := appendRest(b, &rest)
	if n.Usage != nil {
		b, err = appendMember(b, "usage", n.Usage, err)
	}
	if n.Served != nil {
		b, err = appendMember(b, "served", n.Served, err)
	}
	if n.Called != nil {
		b, err = appendMember(b, "called", n.Called, err)
	}
	return append(b, '}'), err
}

func appendEdge(b []byte, e *Edge) ([]byte, error) {
	rest := *e
	rest.ClientSide, rest.ServerSide, rest.Endpoints, rest.OtherEndpoints = nil, nil, nil, nil
	b, err := appendRest(b, &rest)
	if e.ClientSide != nil {
		b, err = appendMember(b, "client_side", e.ClientSide, err)
	}
	if e.ServerSide != nil {
		b, err = appendMember(b, "server_side", e.ServerSide, err)
	}
	if len(e.Endpoints) > 0 {
		b, err = appendMember(b, "endpoints", endpointList(e.Endpoints), err)
	}
	if e.OtherEndpoints != nil {
		b, err = appendMember(b, "other_endpoints", e.OtherEndpoints, err)
	}
	return append(b, '}'), err
}

type endpointList []*Endpoint

func (all endpointList) appendJSON(b []byte) (_ []byte, err error) {
	b = append(b, '[')
	for i, e := range all {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = e.appendJSON(b); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// appendJSON appends what encoding/json makes of it.
func (e *Endpoint) appendJSON(b []byte) (_ []byte, err error) {
	number := func(key string, v float64, unit string) {
		var failed error
		b, failed = appendValue(append(b, key...), key, unit, v)
		err = errors.Join(err, failed)
	}
	b = append(b, `{"protocol":`...)
	b = append(appendText(b, e.Protocol), `,"name":`...)
	b = appendText(b, e.Name)
	number(`,"requests":`, e.Requests, "")
	b = append(b, `,"statuses":{`...)
	for i, status := range slices.Sorted(maps.Keys(e.Statuses)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, status)
		number(":", e.Statuses[status], "")
	}
	b = append(b, '}')
	number(`,"error_share":`, e.ErrorShare, "")
	for _, of := range []struct {
		key, unit string
		v         *float64
	}{{`,"requests_per_second":`, "/s", e.RequestsPerSecond}, {`,"errors_per_second":`, "/s", e.ErrorsPerSecond},
		{`,"p50":`, "s", (*float64)(e.P50)}, {`,"p99":`, "s", (*float64)(e.P99)}, {`,"mean":`, "s", (*float64)(e.Mean)}} {
		if of.v != nil {
			number(of.key, *of.v, of.unit)
		}
	}
	return append(b, '}'), err
}

// appendRest appends an object without its end. All objects here have a member.
func appendRest(b []byte, rest any) ([]byte, error) {
	text, err := json.Marshal(rest)
	if err != nil {
		return b, err
	}
	return append(b, text[:len(text)-1]...), nil
}

func appendMember(b []byte, key string, of appended, err error) ([]byte, error) {
	if err != nil {
		return b, err
	}
	b = append(append(append(b, ',', '"'), key...), '"', ':')
	return of.appendJSON(b)
}

// appendText appends a text as encoding/json does.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) // of a text there is no error
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
