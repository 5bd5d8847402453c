package graph

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
)

// ListsJSON are the lists of nodes and edges as JSON, the same as of encoding/json but for the order of fields. Of a
// large graph they take a fraction of the time: encoding/json looks at all that a MarshalJSON wrote once more, and uses
// one processor. A list is in parts that follow each other, which are good until release. first is called meanwhile.
func (g *Graph) ListsJSON(first func()) (nodes, edges [][]byte, release func(), err error) {
	n, e := newListJSON(g.Nodes, appendNode), newListJSON(g.Edges, appendEdge)
	parallelInTurn(first, each{len(n.parts), n.write}, each{len(e.parts), e.write})
	release = func() {
		n.release()
		e.release()
	}
	return n.whole(), e.whole(), release, errors.Join(errors.Join(n.errs...), errors.Join(e.errs...))
}

// partJSON is how many nodes or edges are written at a time.
const partJSON = 64

// jsonBuffers have a part until it is released.
var jsonBuffers = sync.Pool{New: func() any { return new([]byte) }}

// listJSON is a list that is being written.
type listJSON[T any] struct {
	all   []T
	add   func(b []byte, one T) ([]byte, error)
	parts []*[]byte
	errs  []error
}

func newListJSON[T any](all []T, add func(b []byte, one T) ([]byte, error)) *listJSON[T] {
	n := (len(all) + partJSON - 1) / partJSON
	return &listJSON[T]{all: all, add: add, parts: make([]*[]byte, n), errs: make([]error, n)}
}

// write writes a part.
func (l *listJSON[T]) write(i int) {
	part := jsonBuffers.Get().(*[]byte)
	b := (*part)[:0]
	for k, one := range l.all[i*partJSON : min((i+1)*partJSON, len(l.all))] {
		if i+k > 0 {
			b = append(b, ',')
		}
		if b, l.errs[i] = l.add(b, one); l.errs[i] != nil {
			break
		}
	}
	*part, l.parts[i] = b, part
}

func (l *listJSON[T]) whole() (parts [][]byte) {
	parts = append(parts, []byte{'['})
	for _, part := range l.parts {
		parts = append(parts, *part)
	}
	return append(parts, []byte{']'})
}

func (l *listJSON[T]) release() {
	for _, part := range l.parts {
		jsonBuffers.Put(part)
	}
}

// appended is something that appends its JSON.
type appended interface {
	appendJSON(b []byte) ([]byte, error)
}

// object is an object of JSON that is being appended. What is empty is left out, as encoding/json does with omitempty.
type object struct {
	b   []byte
	err error
}

// key appends the key of a member.
func (o *object) key(key string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), key...), '"', ':')
}

// must appends a text that may be empty.
func (o *object) must(key, text string) {
	o.key(key)
	o.b = appendText(o.b, text)
}

func (o *object) text(key, text string) {
	if text != "" {
		o.must(key, text)
	}
}

func (o *object) texts(key string, all []string) {
	o.key(key)
	if all == nil {
		o.b = append(o.b, "null"...)
		return
	}
	o.b = append(o.b, '[')
	for i, text := range all {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendText(o.b, text)
	}
	o.b = append(o.b, ']')
}

func (o *object) count(key string, n int) {
	if n != 0 {
		o.key(key)
		o.b = strconv.AppendInt(o.b, int64(n), 10)
	}
}

func (o *object) is(key string, v bool) {
	o.key(key)
	o.b = strconv.AppendBool(o.b, v)
}

func (o *object) number(key string, v *float64) {
	if v != nil && o.err == nil {
		o.key(key)
		o.b, o.err = appendValue(o.b, key, "", *v)
	}
}

func (o *object) member(key string, of appended) {
	if o.err == nil {
		o.key(key)
		o.b, o.err = of.appendJSON(o.b)
	}
}

// other appends what few have, by encoding/json.
func (o *object) other(key string, of any) {
	text, err := json.Marshal(of)
	if o.err = errors.Join(o.err, err); err == nil {
		o.key(key)
		o.b = append(o.b, text...)
	}
}

func (o *object) end() ([]byte, error) { return append(o.b, '}'), o.err }

// appendNode appends all fields of a node.
func appendNode(b []byte, n *Node) ([]byte, error) {
	o := object{b: append(b, '{')}
	o.must("id", n.ID)
	o.must("name", n.Name)
	o.must("kind", string(n.Kind))
	o.text("host", n.Host)
	o.text("series_id", n.SeriesID)
	o.text("image", n.Image)
	o.text("runtime", n.Runtime)
	o.text("pod", n.PodName)
	o.text("namespace", n.PodNamespace)
	o.text("workload", n.Workload)
	o.text("workload_kind", n.WorkloadKind)
	if len(n.Members) > 0 {
		o.texts("members", n.Members)
	}
	o.text("process", n.Process)
	if len(n.Addresses) > 0 {
		o.texts("addresses", n.Addresses)
	}
	o.count("address_count", n.AddressCount)
	o.number("started", n.StartedSeconds)
	if n.Gone {
		o.is("gone", true)
	}
	if n.Usage != nil {
		o.member("usage", n.Usage)
	}
	if n.Served != nil {
		o.member("served", n.Served)
	}
	if n.Called != nil {
		o.member("called", n.Called)
	}
	return o.end()
}

// appendEdge appends all fields of an edge.
func appendEdge(b []byte, e *Edge) ([]byte, error) {
	o := object{b: append(b, '{')}
	o.must("id", e.ID)
	o.must("client", e.Client)
	o.must("server", e.Server)
	o.texts("services", e.Services)
	o.must("transport", e.Transport)
	if e.ClientSide != nil {
		o.member("client_side", e.ClientSide)
	}
	if e.ServerSide != nil {
		o.member("server_side", e.ServerSide)
	}
	o.is("paired", e.Paired)
	o.must("confidence", e.Confidence)
	o.text("via", e.Via)
	o.number("network_seconds", e.NetworkSeconds)
	if e.Split != nil {
		o.other("split", e.Split)
	}
	if e.Network != nil {
		o.other("network", e.Network)
	}
	if len(e.Endpoints) > 0 {
		o.member("endpoints", endpointList(e.Endpoints))
	}
	o.count("omitted_endpoints", e.OmittedEndpoints)
	if e.OtherEndpoints != nil {
		o.member("other_endpoints", e.OtherEndpoints)
	}
	return o.end()
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
