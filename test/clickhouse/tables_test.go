package clickhouse

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/framelog/clickhouse"
)

// TestTables: columns that are missing are added, what has expired goes, and a frame without its key frame is rejected.
func TestTables(t *testing.T) {
	for _, of := range engines {
		t.Run(of.name, func(t *testing.T) {
			server := of.start(t)
			l := open(t, server.address+"outsight", clickhouse.Options{KeyWait: time.Millisecond})
			t.Run("retention", func(t *testing.T) { checkRetention(t, server, l) })
			t.Run("last frame", func(t *testing.T) { checkLast(t, server, l) })
			t.Run("columns", func(t *testing.T) {
				server.ask(t, "ALTER TABLE outsight.edges DROP COLUMN resets")
				server.ask(t, "ALTER TABLE outsight.edges DROP COLUMN latency_counts")
				newer := open(t, server.address+"outsight", clickhouse.Options{})
				all := record(time.Now().Truncate(time.Minute).Add(-10 * time.Minute))[:60]
				if err := newer.Append(t.Context(), all); err != nil {
					t.Fatal(err)
				}
				checkWindows(t, newer, files(t, all), framelog.Query{Tenant: tenant, Times: []time.Time{all[5].Time, all[50].Time}})
			})
			t.Run("no key frame", func(t *testing.T) {
				h := newHistory("c", 3, time.Now())
				h.restart(time.Now())
				now := time.Now().Truncate(time.Minute)
				h.encode("other", h.step(now))
				f := h.encode("other", h.step(now.Add(time.Second)))
				good := newHistory("d", 4, now)
				good.restart(now)
				err := l.Append(t.Context(), []framelog.Encoded{f, good.encode("other", good.step(now))})
				if !errors.Is(err, framelog.ErrRejected) || !errors.Is(err, frame.ErrNoKey) {
					t.Errorf("a frame without its key frame: %v", err)
				}
				hosts, err := l.Hosts(t.Context(), "other")
				if err != nil || len(hosts) != 1 || hosts[0].Name != "d" || l.Stats().KeyMissing != 1 {
					t.Errorf("hosts after it: %+v %v, stats %+v", hosts, err, l.Stats())
				}
			})
		})
	}
}

// checkRetention stores frames of three days ago, of two hours ago and of now: of the first key frames are left, of the
// second one in ten seconds.
func checkRetention(t *testing.T, server engine, l *clickhouse.Log) {
	now := time.Now()
	want := 0
	var all []framelog.Encoded
	for i, age := range []time.Duration{72 * time.Hour, 3 * time.Hour, 0} {
		start := now.Add(-age).Truncate(time.Hour)
		h := newHistory(fmt.Sprint("old-", i), uint64(i), start)
		h.restart(start)
		for second := 0; second < 120; second += 2 {
			f := h.step(start.Add(time.Duration(second) * time.Second))
			all = append(all, h.encode("retention", f))
			if i == 0 && f.IsKey() || i == 1 && second%10 == 0 || i == 2 {
				want++
			}
		}
	}
	for batch := range slices.Chunk(all, 60) {
		if err := l.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.RemoveExpired(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	server.ask(t, "OPTIMIZE TABLE outsight.frames FINAL") // TTL is applied when parts are merged
	if got := l.Stats().Frames; got != want {
		t.Errorf("%d frames are left of %d, want %d", got, len(all), want)
	}
}

// checkLast lets an agent begin anew: the last frame of its life before is kept as long as key frames are.
func checkLast(t *testing.T, server engine, l *clickhouse.Log) {
	start := time.Now().Truncate(time.Hour)
	h := newHistory("restarts", 9, start)
	var all []framelog.Encoded
	for second := range 30 {
		now := start.Add(time.Duration(second) * time.Second)
		if second%15 == 0 {
			h.restart(now)
		}
		all = append(all, h.encode("restarts", h.step(now)))
	}
	for batch := range slices.Chunk(all, 10) {
		if err := l.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	got := server.ask(t, "SELECT toString(groupUniqArray(frame)) FROM outsight.frames "+
		"WHERE tenant = 'restarts' AND class = 0 AND frame != key_frame FORMAT TSV")
	if strings.TrimSpace(got) != "[15]" {
		t.Errorf("frames %s are kept as key frames are, want [15]", got)
	}
	checkWindows(t, l, files(t, all), framelog.Query{Tenant: "restarts", Times: []time.Time{all[2].Time, all[25].Time}})
}
