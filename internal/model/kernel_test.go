package model

import "testing"

func TestCompleteness(t *testing.T) {
	f := func(seen, unseen, ended, lost, want float64) {
		t.Helper()
		if got := Completeness(seen, unseen, ended, lost); got != want {
			t.Errorf("Completeness(%v, %v, %v, %v) = %v, want %v", seen, unseen, ended, lost, got, want)
		}
	}
	f(0, 0, 0, 0, 1)
	f(100, 0, 5, 0, 1)
	f(75, 25, 5, 0, 0.75)
	f(75, 25, 1, 1, 0.5)
	f(0, 10, 5, 0, 0)
}
