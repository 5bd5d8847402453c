package graph

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// The lists are those of encoding/json.
func TestListsAreJSON(t *testing.T) {
	f := func(g *Graph) {
		t.Helper()
		var want, got map[string]any
		meanwhile := 0
		nodes, edges, release, err := g.ListsJSON(func() { meanwhile++ })
		if err != nil || meanwhile != 1 {
			t.Fatal(meanwhile, err)
		}
		defer release()
		whole, err := json.Marshal(map[string]any{"nodes": g.Nodes, "edges": g.Edges})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(whole, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(`{"nodes":`+string(slices.Concat(nodes...))+`,"edges":`+string(slices.Concat(edges...))+"}"), &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%v\nwant\n%v", got, want)
		}
	}
	f(&Graph{Nodes: []*Node{}, Edges: []*Edge{}})
	for seed := range uint64(5) {
		prev, cur := randomPair(rand.New(rand.NewPCG(seed, 3)))
		g := fromFrames(prev, cur, ByContainer)
		f(g)
		for len(g.Nodes) > 0 && len(g.Nodes) < 3*partJSON {
			g.Nodes, g.Edges = append(g.Nodes, g.Nodes...), append(g.Edges, g.Edges...)
		}
		f(g)
	}
	bad := math.NaN()
	for _, g := range []*Graph{{Nodes: []*Node{{ID: "a", StartedSeconds: &bad}}}, {Edges: []*Edge{{ID: "a", NetworkSeconds: &bad}}}} {
		if _, _, _, err := g.ListsJSON(func() {}); err == nil {
			t.Error("what is no number is no error")
		}
	}
}

// TestEndpointsAreJSON writes endpoints of any text, and durations past the last bucket.
func TestEndpointsAreJSON(t *testing.T) {
	rate, past, short := 0.1, Seconds(math.Inf(1)), Seconds(2.5e-7)
	for _, e := range []*Endpoint{
		{Statuses: map[string]float64{}},
		{Protocol: "http", Name: "GET /ä?a=<b>&\"\\\n\x7f\xff", Requests: 3, Statuses: map[string]float64{"5xx": 1, "": 2},
			ErrorShare: 1.0 / 3, RequestsPerSecond: &rate, ErrorsPerSecond: &rate, P50: &short, P99: &past, Mean: &short},
		{Requests: 1 << 60, Statuses: map[string]float64{"2xx": 1e22}, ErrorShare: math.Copysign(0, -1)},
	} {
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		got, err := e.appendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal(want, &b)); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
		}
	}
	past = Seconds(math.NaN())
	if _, err := (&Endpoint{P50: &past}).appendJSON(nil); err == nil {
		t.Error("what is no number is no error")
	}
}

// fill sets all fields that encoding/json sees, and those of what they point to.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("ä <b>")
	case reflect.Int:
		v.SetInt(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.3)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, one := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(one)
		v.SetMapIndex(key, one)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	default:
		panic("no value for " + v.Type().String())
	}
}

// TestAllFieldsAreJSON: a node and an edge with all fields, and with none, have the JSON of encoding/json.
func TestAllFieldsAreJSON(t *testing.T) {
	var node, emptyNode Node
	var edge, emptyEdge Edge
	fill(reflect.ValueOf(&node).Elem())
	fill(reflect.ValueOf(&edge).Elem())
	g := &Graph{Nodes: []*Node{&node, &emptyNode}, Edges: []*Edge{&edge, &emptyEdge}}
	nodes, edges, release, err := g.ListsJSON(func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, of := range []struct {
		all   any
		parts [][]byte
	}{{g.Nodes, nodes}, {g.Edges, edges}} {
		want, err := json.Marshal(of.all)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Concat(of.parts...)
		var a, b any
		if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal(want, &b)); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
		}
	}
}
