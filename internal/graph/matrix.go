package graph

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// Matrix is what clients and servers had to do with one another in a window: a row for each client, a column for each
// server, and a cell for the edges between the two. A row, a column and Total have the sums of their cells.
//
// The edges are those of FromFrames, each with the numbers of Edge.Best, or of one side if MatrixOptions.Side says so.
// Sums are of the frames' counters: those of counts are exact, and percentiles are of merged histograms. What is beyond
// the bound of rows or columns is summed in the last of them, so that no number is left out.
type Matrix struct {
	// From and To are the window that was asked for.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// CoveredSeconds is how much of the window was observed. Rates are over this time.
	CoveredSeconds float64 `json:"covered_seconds"`
	// ErrorBound is the greatest relative error of every quantile.
	ErrorBound float64 `json:"error_bound"`
	// By is what a row and a column stand for, Side whose numbers the cells have.
	By   Grouping `json:"by"`
	Side Of       `json:"side"`
	// Rows are clients, Columns servers, those with the most bytes first.
	Rows    []*MatrixEnd `json:"rows"`
	Columns []*MatrixEnd `json:"columns"`
	// Cells are those with an edge, in the order of rows, then of columns.
	Cells []*MatrixCell `json:"cells"`
	// Total is the sum of all cells.
	Total MatrixValues `json:"total"`
	// Unplaced says that there were connections that are in no edge, because the kernel's table had no room for one.
	Unplaced bool `json:"unplaced,omitempty"`
}

// MatrixEnd is a client or a server, or the sum of those that have no row or column of their own.
type MatrixEnd struct {
	// ID, Name, Kind and Host are the node's. Of a sum ID is empty, Kind is KindOther, and Others is of how many.
	ID     string `json:"id"`
	Name   string `json:"name"`
	Kind   Kind   `json:"kind"`
	Host   string `json:"host,omitempty"`
	Others int    `json:"others,omitempty"`
	// Sum is what all its cells have together.
	Sum MatrixValues `json:"sum"`
}

// KindOther is the kind of a row or column that is the sum of several.
const KindOther Kind = "other"

// MatrixCell is what a client asked of a server.
type MatrixCell struct {
	// Row and Column are indexes.
	Row    int `json:"row"`
	Column int `json:"column"`
	// Edges are the IDs of the edges that are summed, at most MaxCellEdges, those with the most bytes first; EdgeCount is
	// how many there are.
	Edges     []string `json:"edges"`
	EdgeCount int      `json:"edge_count"`
	// Numbers are the cell's.
	Numbers MatrixValues `json:"numbers"`
}

// MaxCellEdges bounds the edges that a cell names. Between two nodes there are two: of TCP and of UDP.
const MaxCellEdges = 4

// MaxMatrixEnds is the most rows, and the most columns, that commands and requests may ask for.
const MaxMatrixEnds = 100

// MatrixOptions say which matrix is made of a window.
type MatrixOptions struct {
	// By is what a row and a column stand for; empty for ByContainer.
	By Grouping
	// Side is OfBest, or empty, for what Edge.Best counted; OfClient or OfServer for one side of each edge.
	Side Of
	// Numbers are keys of MatrixNumbers; empty for all.
	Numbers []string
	// Rows and Columns are how many there are, besides those that sum the others; 0 for all.
	Rows, Columns int
	// Names know what Kubernetes called ends and containers; nil where there is none.
	Names Names
	// Between is what was measured from one host to another, by a key of model.ProbeNumbers, for ByHost; nil where that is not
	// known.
	Between func(from, to, key string) (v float64, ok bool)
	// Containers is what was measured between two containers, by their hosts and IDs and a key of model.ProbeNumbers, for
	// ByContainer; nil where that is not known.
	Containers func(clientHost, client, serverHost, server, key string) (v float64, ok bool)
}

// MatrixNumber is a number of a cell.
type MatrixNumber struct {
	model.Shown
	// Additive numbers add up: the sum of all cells is that of all edges. Others, like percentiles, do not.
	Additive bool
	// Probe are the groupings that alone have it, of what was measured between two hosts, or two containers; else none.
	Probe []Grouping

	// of is a number of a side, ends of both ends together; one of them is set, but for Probe.
	of   func(*Side) (v float64, ok bool)
	ends func(*Edge) (v float64, ok bool)
}

// MatrixNumbers are the numbers that cells may have: bytes both ways, then the registry's of edges in its order, then
// those of both ends together, then those of the measurements between hosts, and between containers.
var MatrixNumbers = func() []MatrixNumber {
	query := func(key string) string {
		i := slices.IndexFunc(sideNumbers, func(n sideNumber) bool { return n.Key == key })
		return sideNumbers[i].PromQL
	}
	rate := MatrixNumber{Additive: true, of: func(s *Side) (float64, bool) {
		if v := s.bytesPerSecond(); v != nil {
			return *v, true
		}
		return 0, false
	}}
	rate.Number = model.Number{Key: "bytes_per_second", Title: "Bytes both ways", Unit: "B/s", Group: model.GroupRequests}
	rate.PromQL = query("request_bytes_per_second") + " + " + query("response_bytes_per_second")
	whole := MatrixNumber{Additive: true, of: func(s *Side) (float64, bool) {
		return s.Of(RequestBytes) + s.Of(ResponseBytes), true
	}}
	whole.Number = model.Number{Key: "bytes", Title: "Bytes both ways in all", Unit: "B", Group: model.GroupRequests}
	whole.PromQL = query("request_bytes") + " + " + query("response_bytes")
	all := []MatrixNumber{rate, whole}
	for i := range sideNumbers {
		n := &sideNumbers[i]
		all = append(all, MatrixNumber{Shown: n.Shown, Additive: n.additive(), of: n.counted})
	}
	for i := range EndsNumbers {
		all = append(all, MatrixNumber{Shown: EndsNumbers[i].Shown, ends: EndsNumbers[i].of})
	}
	for _, n := range model.ProbeNumbers {
		by := []Grouping{ByHost, ByContainer}
		if n.Group == model.GroupCapacity {
			by = by[1:]
		}
		all = append(all, MatrixNumber{Shown: n, Probe: by})
	}
	return all
}()

// additive reports whether the number of several edges is the sum of theirs.
func (n *sideNumber) additive() bool {
	least := func(f Field) bool { return abouts[f].least }
	return n.open || n.Formula == model.Rate || len(n.fields) > 0 && !slices.ContainsFunc(n.fields, least)
}

// counted is the number of a side that has counters for it: what was not counted is no 0.
func (n *sideNumber) counted(s *Side) (v float64, ok bool) {
	v, ok = n.of(s)
	return v, ok && (len(n.fields) == 0 || slices.ContainsFunc(n.fields, s.has))
}

// ParseMatrixSide reads whose numbers a matrix has: "best", "client_side" or "server_side"; empty for OfBest.
func ParseMatrixSide(name string) (Of, error) {
	switch of := Of(name); of {
	case "":
		return OfBest, nil
	case OfBest, OfClient, OfServer:
		return of, nil
	}
	return "", fmt.Errorf("side is %q, want %s, %s or %s", name, OfBest, OfClient, OfServer)
}

// FindMatrixNumbers are those with these keys, in the order of the keys; for none all that a matrix by this may have.
func FindMatrixNumbers(keys []string, by Grouping) ([]*MatrixNumber, error) {
	var found []*MatrixNumber
	if len(keys) == 0 {
		for i := range MatrixNumbers {
			if n := &MatrixNumbers[i]; n.Probe == nil || n.measuredBy(by) {
				found = append(found, n)
			}
		}
	}
	for _, key := range keys {
		i := slices.IndexFunc(MatrixNumbers, func(n MatrixNumber) bool { return n.Key == key })
		if i < 0 {
			return nil, fmt.Errorf("there is no number %q of edges", key)
		}
		if !slices.Contains(found, &MatrixNumbers[i]) {
			found = append(found, &MatrixNumbers[i])
		}
	}
	return found, nil
}

// MeasuredNumbers reports whether a matrix by this has numbers, of those with these keys, that were measured between hosts
// or containers.
func MeasuredNumbers(keys []string, by Grouping) bool {
	found, err := FindMatrixNumbers(keys, by)
	return err == nil && slices.ContainsFunc(found, func(n *MatrixNumber) bool { return n.measuredBy(by) })
}

// measuredBy reports whether it is measured between two ends of a grouping.
func (n *MatrixNumber) measuredBy(by Grouping) bool {
	return slices.Contains(n.Probe, cmp.Or(by, ByContainer))
}

// MatrixValues are numbers of a cell or a sum, none where nothing was counted. Their JSON is an object by the numbers'
// keys, which has no number that is not there.
type MatrixValues struct {
	numbers []*MatrixNumber
	// values have NaN for what is not there.
	values []float64
}

// set takes the numbers of a side, where it is not nil, and of both ends. tcp says that there is an edge of TCP, probe what
// was measured between hosts.
func (v MatrixValues) set(s *Side, ends *Edge, tcp bool, probe func(key string) (float64, bool)) MatrixValues {
	v.values = make([]float64, len(v.numbers))
	for i, n := range v.numbers {
		value, ok := 0.0, false
		switch {
		case n.Probe != nil:
			value, ok = probe(n.Key)
		case n.ends != nil:
			value, ok = n.ends(ends)
		case s != nil:
			value, ok = n.of(s)
			ok = ok && (tcp || !n.TCP || value != 0)
		}
		if !ok {
			value = math.NaN()
		}
		v.values[i] = value
	}
	return v
}

// Number is a number by its key. ok is false where there is none.
func (v MatrixValues) Number(key string) (value float64, ok bool) {
	for i, n := range v.numbers {
		if n.Key == key && i < len(v.values) && !math.IsNaN(v.values[i]) {
			return v.values[i], true
		}
	}
	return 0, false
}

// MarshalJSON writes the numbers that there are.
func (v MatrixValues) MarshalJSON() (b []byte, err error) {
	b = append(b, '{')
	for i, value := range v.values {
		if !math.IsNaN(value) && err == nil {
			b, err = appendNumber(b, &v.numbers[i].Shown, value)
		}
	}
	return append(b, '}'), err
}

// MatrixFromFrames is the matrix of a window. It fails where a number is not known.
func MatrixFromFrames(w *frame.Window, o MatrixOptions) (*Matrix, error) {
	numbers, err := FindMatrixNumbers(o.Numbers, o.By)
	if err != nil {
		return nil, err
	}
	m := readFrameMap(w, Options{By: o.By, Names: o.Names}, func(*frameMap) {})
	defer m.release()
	parallelEach(len(m.parts), func(i int) { m.addUp(i, edgeHistograms[1:], func(*mapRow) bool { return true }) })
	return m.matrix(o, numbers), nil
}

// matrix sums the rows of frames by cell, by row, by column, and in all.
func (m *frameMap) matrix(o MatrixOptions, numbers []*MatrixNumber) *Matrix {
	x := &Matrix{From: m.window.From, To: m.window.To, CoveredSeconds: m.covered, ErrorBound: model.RelativeError,
		By: cmp.Or(o.By, ByContainer), Side: cmp.Or(o.Side, OfBest), Cells: []*MatrixCell{},
		Unplaced: slices.ContainsFunc(m.rows, func(r mapRow) bool { return r.side == model.RoleUnknown })}
	of := MatrixValues{numbers: numbers}
	x.Total = of
	var rowOf, columnOf []int
	x.Rows, rowOf = m.matrixEnds(o.Rows, func(r *mapRelation) int32 { return r.client })
	x.Columns, columnOf = m.matrixEnds(o.Columns, func(r *mapRelation) int32 { return r.server })
	cellOf := m.matrixCells(x, rowOf, columnOf)
	var paired []pairedAs
	if slices.ContainsFunc(numbers, func(n *MatrixNumber) bool { return n.ends != nil }) {
		paired = m.pairedRelations()
	}
	sum := func(things int, thing func(relation int32) int, probe func(i int, key string) (float64, bool),
		each func(i int, v MatrixValues)) {
		rows := listsOf(things, func(f func(thing, row int32)) {
			for i := range m.rows {
				if r := m.rows[i].relation; r >= 0 {
					f(int32(thing(r)), int32(i))
				}
			}
		})
		parallelEach(things, func(i int) {
			all := rows.of(int32(i))
			if len(all) == 0 {
				return
			}
			var ends *Edge
			if paired != nil {
				ends = m.endsOf(all, paired)
			}
			side := m.sideOf(slices.DeleteFunc(slices.Clone(all), func(row int32) bool { return !m.counts(row, x.Side) }))
			if side != nil || ends != nil {
				tcp := slices.ContainsFunc(all, func(row int32) bool { return m.rows[row].transport == model.TCP })
				each(i, of.set(side, ends, tcp, func(key string) (float64, bool) { return probe(i, key) }))
			}
		})
	}
	ofNone := func(int, string) (float64, bool) { return 0, false }
	sum(len(x.Cells), func(relation int32) int { return int(cellOf[relation]) },
		func(i int, key string) (float64, bool) {
			return o.between(x.Rows[x.Cells[i].Row], x.Columns[x.Cells[i].Column], key)
		}, func(i int, v MatrixValues) { x.Cells[i].Numbers = v })
	sum(len(x.Rows), func(relation int32) int { return rowOf[m.relations[relation].client] }, ofNone,
		func(i int, v MatrixValues) { x.Rows[i].Sum = v })
	sum(len(x.Columns), func(relation int32) int { return columnOf[m.relations[relation].server] }, ofNone,
		func(i int, v MatrixValues) { x.Columns[i].Sum = v })
	sum(1, func(int32) int { return 0 }, ofNone, func(_ int, v MatrixValues) { x.Total = v })
	return x
}

// between is what was measured between two hosts, or two containers.
func (o *MatrixOptions) between(client, server *MatrixEnd, key string) (float64, bool) {
	if client.Host == "" || server.Host == "" {
		return 0, false
	}
	switch by := cmp.Or(o.By, ByContainer); {
	case by == ByContainer && o.Containers != nil:
		return o.Containers(client.Host, client.containerID(), server.Host, server.containerID(), key)
	case by == ByHost && o.Between != nil && client.Host != server.Host:
		return o.Between(client.Host, server.Host, key)
	}
	return 0, false
}

// containerID is the container's own, of an end that is one.
func (e *MatrixEnd) containerID() string {
	if e.Kind == KindHost {
		return model.HostContainerID
	}
	return strings.TrimSuffix(e.ID, "@"+e.Host)
}

// counts reports whether the numbers of a row are those of its relation.
func (m *frameMap) counts(row int32, side Of) bool {
	wanted := side == OfServer
	if side == OfBest {
		wanted = m.relations[m.rows[row].relation].clients == 0
	}
	return (m.rows[row].side == model.RoleServer) == wanted
}

// matrixEnds are the ends of all relations with the most bytes, and which of them each node is; those without one of
// their own are the last.
func (m *frameMap) matrixEnds(most int, end func(r *mapRelation) int32) (ends []*MatrixEnd, of []int) {
	bytes, there := make([]float64, len(m.nodes)), make([]bool, len(m.nodes))
	var nodes []int32
	for i := range m.relations {
		node := end(&m.relations[i])
		if !there[node] {
			there[node] = true
			nodes = append(nodes, node)
		}
		bytes[node] += m.relations[i].best()
	}
	slices.SortFunc(nodes, func(i, k int32) int {
		a, b := m.nodes[i], m.nodes[k]
		return cmp.Or(cmp.Compare(bytes[k], bytes[i]), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	ends, of = []*MatrixEnd{}, make([]int, len(m.nodes))
	if most <= 0 || len(nodes) <= most+1 { // a sum of one would take as much room
		most = len(nodes)
	}
	for i, node := range nodes {
		of[node] = min(i, most)
		if n := m.nodes[node]; i < most {
			ends = append(ends, &MatrixEnd{ID: n.ID, Name: n.Name, Kind: n.Kind, Host: n.Host})
		}
	}
	if others := len(nodes) - most; others > 0 {
		ends = append(ends, &MatrixEnd{Name: fmt.Sprintf("%d others", others), Kind: KindOther, Others: others})
	}
	return ends, of
}

// matrixCells makes the cells, without their numbers, and says which of them each relation is in.
func (m *frameMap) matrixCells(x *Matrix, rowOf, columnOf []int) (cellOf []int32) {
	byPlace := map[[2]int]*MatrixCell{}
	order := make([]int32, len(m.relations))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		if c := cmp.Compare(m.relations[b].best(), m.relations[a].best()); c != 0 {
			return c
		}
		return cmp.Compare(m.edgeID(&m.relations[a]), m.edgeID(&m.relations[b]))
	})
	place := func(r *mapRelation) [2]int { return [2]int{rowOf[r.client], columnOf[r.server]} }
	for _, i := range order {
		r := &m.relations[i]
		at := place(r)
		c := byPlace[at]
		if c == nil {
			c = &MatrixCell{Row: at[0], Column: at[1]}
			byPlace[at] = c
			x.Cells = append(x.Cells, c)
		}
		if c.EdgeCount++; c.EdgeCount <= MaxCellEdges {
			c.Edges = append(c.Edges, m.edgeID(r))
		}
	}
	slices.SortFunc(x.Cells, func(a, b *MatrixCell) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.Column, b.Column))
	})
	index := make(map[[2]int]int32, len(x.Cells))
	for i, c := range x.Cells {
		index[[2]int{c.Row, c.Column}] = int32(i)
	}
	cellOf = make([]int32, len(m.relations))
	for i := range m.relations {
		cellOf[i] = index[place(&m.relations[i])]
	}
	return cellOf
}
