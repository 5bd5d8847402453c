package store

import (
	"testing"

	"outsight/internal/model"
)

// A key finds its series, also after another one has taken its place or the series has ended.
func TestKeys(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	keyed := func(seconds, v float64, key uint64, id string) model.Series {
		c := counterAt(seconds, v, "c", "id", id)
		c.Key = key
		return c
	}
	appendAll(t, s, keyed(0, 1, 1, "a"), keyed(0, 2, 2, "b"))
	appendAll(t, s, keyed(1, 3, 1, "a"), keyed(1, 4, 7, "b"))
	want(t, s, "c", 1, "__name__=c id=a 1:3", "__name__=c id=b 1:4")
	appendAll(t, s, keyed(2, 5, 7, "b"))
	want(t, s, "c", 2, "__name__=c id=b 2:5")
	appendAll(t, s, keyed(3, 6, 1, "a"), counterAt(3, 7, "c", "id", "b"))
	want(t, s, "c", 3, "__name__=c id=a 3:6", "__name__=c id=b 3:7")
	appendAll(t, s, keyed(4, 8, 1, "a"), keyed(4, 9, 7, "b"))
	want(t, s, "c", 4, "__name__=c id=a 4:8", "__name__=c id=b 4:9")
	if n := len(s.tracker.cache.keyed); n != 2 {
		t.Errorf("%d keys are kept, want 2", n)
	}
}
