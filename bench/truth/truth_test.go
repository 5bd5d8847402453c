package truth

import (
	"testing"
	"time"

	"outsight/bench/traffic"
	"outsight/internal/model"
)

func TestMisplaced(t *testing.T) {
	bucket := model.BucketOf(time.Millisecond)
	h := &model.Histogram{Count: 4, ZeroCount: 1, Offset: bucket, Buckets: []uint64{2, 1}}
	f := func(want uint64, durations ...time.Duration) {
		t.Helper()
		if got := misplaced(h, durations); got != want {
			t.Errorf("%v: %d are misplaced, want %d", durations, got, want)
		}
	}
	f(0, 500, time.Millisecond, time.Millisecond, 1030*time.Microsecond)
	f(1, 500, time.Millisecond, time.Millisecond)
	f(2, 500, time.Millisecond, 1030*time.Microsecond, 1030*time.Microsecond)
	f(1, 500, time.Millisecond, time.Millisecond, 1030*time.Microsecond, 2*model.OverflowThreshold)
}

func TestExactIsOneOfTheDurations(t *testing.T) {
	f := func(want time.Duration, level float64, durations ...time.Duration) {
		t.Helper()
		if got := Exact(durations, level); got != want {
			t.Errorf("quantile %v of %v is %v, want %v", level, durations, got, want)
		}
	}
	f(0, 0.5)
	f(2, 0.5, 1, 2, 3, 4)
	f(3, 0.51, 1, 2, 3, 4)
	f(4, 0.999, 1, 2, 3, 4)
	f(1, 0, 1, 2, 3, 4)
}

func TestDiffer(t *testing.T) {
	truth := traffic.Truth{Client: traffic.Total{Connections: 2, Requests: 10, SentBytes: 100, ReceivedBytes: 1000}}
	counted := Counts{Opened: 2, Closed: 2, Transactions: 10, SentBytes: 100, ReceivedBytes: 1000}
	if err := counted.Differ(truth, model.RoleClient); err != nil {
		t.Error(err)
	}
	counted.Transactions = 9
	if counted.Differ(truth, model.RoleClient) == nil {
		t.Error("a missing transaction is not noticed")
	}
	counted.Transactions = 10
	counted.ReceivedBytes++
	if counted.Differ(truth, model.RoleClient) == nil {
		t.Error("a byte too many is not noticed")
	}
}
