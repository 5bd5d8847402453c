package graph

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"outsight/internal/frame"
)

// readOnly is a window of which only some columns were decoded.
func readOnly(t *testing.T, w *frame.Window, columns map[frame.TableID][]string) *frame.Window {
	t.Helper()
	decoded := func(f *frame.Frame) *frame.Frame {
		one, err := frame.DecodeOnly(frame.Encode(nil, f.AsKey(), nil), nil, frame.NewProjection(columns))
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	part := &frame.Window{From: w.From, To: w.To}
	for _, h := range w.Hosts {
		spans := make([]frame.Span, len(h.Spans))
		for i, s := range h.Spans {
			spans[i] = frame.Span{Before: decoded(s.Before), After: decoded(s.After)}
		}
		part.Hosts = append(part.Hosts, frame.HostSpans{Host: h.Host, Spans: spans})
	}
	return part
}

// What is answered of the columns that are read for it is what is answered of all of them.
func TestColumnsThatAreReadAreEnough(t *testing.T) {
	for seed := range uint64(5) {
		w := windowOfPair(randomPair(rand.New(rand.NewPCG(seed, 9))))
		same := func(what string, columns map[frame.TableID][]string, answer func(w *frame.Window) any) {
			t.Helper()
			want, err := json.Marshal(answer(w))
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(answer(readOnly(t, w, columns)))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
			}
		}
		same("the map", Columns(), func(w *frame.Window) any { return FromFrames(w, Options{}) })
		same("the path", AnalysisColumns(), func(w *frame.Window) any {
			g := FromFrames(w, Options{})
			a := g.Analyse(map[string]float64{"vm": 4})
			return []any{a, g.CriticalPath(Mean, a.Entries, nil), g.CriticalPath(P99, a.Entries, nil)}
		})
		same("services", ServiceColumns(), func(w *frame.Window) any {
			a, services := FromFrames(w, Options{}).Services(map[string]float64{"vm": 4})
			return []any{a, services}
		})
		for i := range MatrixNumbers {
			numbers := []string{MatrixNumbers[i].Key}
			same(numbers[0], ColumnsOfMatrix(numbers), func(w *frame.Window) any {
				return matrixOf(t, w, MatrixOptions{Numbers: numbers})
			})
		}
		same("the matrix", ColumnsOfMatrix(nil), func(w *frame.Window) any { return matrixOf(t, w, MatrixOptions{}) })
	}
}
