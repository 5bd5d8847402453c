package parquet

import (
	"os"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
)

// TestFollow writes each hour of each host once, when it is over for that host.
func TestFollow(t *testing.T) {
	log, err := framelog.Open(t.TempDir(), framelog.Options{TidyEvery: -1, Now: func() time.Time { return start.Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	put := func(frames []*frame.Frame) {
		t.Helper()
		var batch []framelog.Encoded
		for _, f := range frames {
			batch = append(batch, framelog.Encoded{Header: f.Header, Data: frame.Encode(nil, f.AsKey(), nil)})
		}
		if err := log.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	// From 12:40 on: one host until 13:34, one that falls silent at 12:49.
	goes, stops := simulate("goes", 1, -1), simulate("stops", 2, -1)
	put(goes)
	put(stops[:10])
	dir, now := t.TempDir(), start.Add(30*time.Minute) // 13:10
	one := newFollower(log, dir, FollowOptions{Now: func() time.Time { return now }})
	noon := start.Truncate(time.Hour)
	written := func(f *follower, want map[string]int) {
		t.Helper()
		if err := f.once(t.Context()); err != nil {
			t.Fatal(err)
		}
		for host, hours := range want {
			for hour := range 3 {
				_, err := os.Stat(Path(dir, frame.Hosts, host, noon.Add(time.Duration(hour)*time.Hour)))
				if (err == nil) != (hour < hours) {
					t.Errorf("at %s: hour %d of %s: %v, want %d hours", now.Format(time.TimeOnly), hour, host, err, hours)
				}
			}
		}
	}
	written(one, map[string]int{"goes": 1, "stops": 0}) // one may send what is missing
	now = noon.Add(2 * time.Hour)                       // the hour of silence is over
	written(one, map[string]int{"goes": 1, "stops": 1})
	now = noon.Add(3 * time.Hour)
	written(one, map[string]int{"goes": 2, "stops": 1})

	// After a restart, what is there is not written again.
	path := Path(dir, frame.Hosts, "goes", noon)
	if err := os.WriteFile(path, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	written(newFollower(log, dir, FollowOptions{Now: func() time.Time { return now }}), map[string]int{"goes": 2, "stops": 1})
	if text, err := os.ReadFile(path); err != nil || string(text) != "as it was" {
		t.Errorf("an hour that was there was written again: %v", err)
	}
}
