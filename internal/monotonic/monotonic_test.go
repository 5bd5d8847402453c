package monotonic

import (
	"testing"
	"time"
)

func TestWall(t *testing.T) {
	before := time.Now()
	ns := Now()
	after := time.Now()
	// Each conversion may be wrong by half of what its shortest reading took.
	const reading = time.Millisecond
	if at := Wall(ns); at.Before(before.Add(-reading)) || at.After(after.Add(reading)) {
		t.Errorf("%v, want a time from %v to %v", at, before, after)
	}
}
