package graph

import (
	"encoding/json"
	"errors"
	"slices"
)

// NodesJSON and EdgesJSON are the lists of nodes and edges as JSON, the same as of encoding/json but for the order of
// fields. Of a large graph they take a fraction of the time: encoding/json looks at all that a MarshalJSON wrote once
// more, and uses one processor. The list is in parts that follow each other.
func (g *Graph) NodesJSON() (parts [][]byte, err error) { return listJSON(g.Nodes, appendNode) }

// EdgesJSON is like NodesJSON.
func (g *Graph) EdgesJSON() (parts [][]byte, err error) { return listJSON(g.Edges, appendEdge) }

// partJSON is how many nodes or edges are written at a time.
const partJSON = 64

func listJSON[T any](all []T, add func(b []byte, one T) ([]byte, error)) (parts [][]byte, err error) {
	parts = make([][]byte, (len(all)+partJSON-1)/partJSON)
	errs := make([]error, len(parts))
	parallelEach(len(parts), func(i int) {
		b := make([]byte, 0, 3<<10*partJSON)
		for k, one := range all[i*partJSON : min((i+1)*partJSON, len(all))] {
			if i+k > 0 {
				b = append(b, ',')
			}
			if b, errs[i] = add(b, one); errs[i] != nil {
				return
			}
		}
		parts[i] = b
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
	rest.ClientSide, rest.ServerSide = nil, nil
	b, err := appendRest(b, &rest)
	if e.ClientSide != nil {
		b, err = appendMember(b, "client_side", e.ClientSide, err)
	}
	if e.ServerSide != nil {
		b, err = appendMember(b, "server_side", e.ServerSide, err)
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
