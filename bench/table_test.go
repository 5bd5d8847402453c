package main

import "testing"

func TestQuartile(t *testing.T) {
	f := func(values []float64, which int, want float64) {
		t.Helper()
		if got := quartile(values, which); got != want {
			t.Errorf("quartile %d of %v is %v, want %v", which, values, got, want)
		}
	}
	f([]float64{7}, 2, 7)
	f([]float64{4, 1}, 2, 2.5)
	f([]float64{5, 1, 3}, 2, 3)
	f([]float64{5, 1, 4, 2, 3}, 1, 2)
	f([]float64{5, 1, 4, 2, 3}, 3, 4)
}

func TestVerdict(t *testing.T) {
	f := func(r row, want string) {
		t.Helper()
		if got := r.verdict(); got != want {
			t.Errorf("verdict of %+v is %q, want %q", r, got, want)
		}
	}
	f(row{value: 3}, "")
	f(row{value: 0.4, budget: 0.5}, "kept")
	f(row{value: 0.6, budget: 0.5}, "OVER")
	f(row{value: 0.6, budget: 1, low: 0.1, high: 0.9}, "kept")
	f(row{value: 0.6, budget: 1, low: 0.1, high: 1.2}, "undecided: too noisy")
	f(row{value: 3, budget: 1, low: 2, high: 4}, "OVER")
	f(row{value: -50, unit: "%", budget: 1, low: -90, high: -9}, "undecided: too noisy")
	f(row{value: -50, unit: "ms", budget: 1, low: -90, high: -9}, "kept")
}
