package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
)

// This host's clock jumps five years ahead and back. Nothing that was stored before goes away, and after the next start
// what comes is stored.
func TestClockJumpsAheadAndBack(t *testing.T) {
	const hours, years = 3, 5 * 365 * 24 * 3600
	for _, kill := range []bool{false, true} {
		for _, compacted := range []bool{false, true} {
			t.Run(fmt.Sprintf("killed %v, compacted %v", kill, compacted), func(t *testing.T) {
				var log strings.Builder
				now := at(hours * 3600)
				dir := t.TempDir()
				options := Options{Retention: 24 * time.Hour, OutOfOrder: 24 * time.Hour,
					Now: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				s := open(t, dir, options)
				fill(t, s, hours)
				before := len(s.db.Blocks())
				// Ahead.
				now = at(years + 4*3600)
				for i := range 4 * 60 {
					appendAll(t, s, counterAt(float64(years+60*i), 1, "future"))
				}
				if compacted {
					if err := s.db.Compact(t.Context()); err != nil {
						t.Fatal(err)
					}
					if n := len(s.db.Blocks()); n <= before {
						t.Errorf("%d blocks, %d before the jump", n, before)
					}
				}
				want(t, s, "count_over_time(c[1d])", hours*3600, fmt.Sprintf("%d:%d", hours*3600, hours*60))
				// And back.
				now = at(hours*3600 + 60)
				sample := counterAt(hours*3600+60, 7, "c")
				if err := s.Append(t.Context(), []model.Series{sample}); !errors.Is(err, ErrClock) ||
					!errors.Is(s.CanStore(), ErrClock) {
					t.Errorf("appending says %v, and of the room %v, want %v", err, s.CanStore(), ErrClock)
				}
				if s.Stats().Clock != 1 {
					t.Errorf("%+v", s.Stats())
				}
				if kill {
					dir = killed(t, dir)
				} else if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir, options)
				appendAll(t, s, sample)
				want(t, s, "count_over_time(c[1d])", hours*3600+60, fmt.Sprintf("%d:%d", hours*3600+60, hours*60+1))
				want(t, s, "count_over_time(future[1d])", years+4*3600)
				if kept, _ := os.ReadDir(filepath.Join(dir, "damaged")); len(kept) == 0 {
					t.Error("what is of the future was not kept")
				}
				if !strings.Contains(log.String(), "samples of the future") {
					t.Errorf("it is not said: %s", &log)
				}
			})
		}
	}
}

// A store that has samples of the future alone may be right, and the clock behind: it waits, whatever is started how
// often, until somebody who knows says that the clock is right. Then it goes on.
func TestOnlyTheFutureIsStored(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted %v", compacted), func(t *testing.T) {
			const ahead = 9 * 24 * 3600
			now := at(ahead + 3*3600)
			dir := t.TempDir()
			options := Options{OutOfOrder: 24 * time.Hour, Now: func() time.Time { return now }}
			s := open(t, dir, options)
			for i := range 3 * 60 {
				appendAll(t, s, counterAt(float64(ahead+60*i), 1, "future"))
			}
			if compacted {
				if err := s.db.Compact(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			now = at(0)
			again := func() {
				t.Helper()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir, options)
			}
			again()
			for range 2 {
				if err := s.Append(t.Context(), []model.Series{counterAt(0, 7, "c")}); !errors.Is(err, ErrClock) ||
					!errors.Is(s.CanStore(), ErrClock) {
					t.Errorf("appending says %v, and of the room %v, want %v", err, s.CanStore(), ErrClock)
				}
				want(t, s, "count_over_time(future[1d])", ahead+3*3600, fmt.Sprintf("%d:180", ahead+3*3600))
				again()
			}
			if err := s.SetFutureAside(); err != nil {
				t.Fatal(err)
			}
			again()
			appendAll(t, s, counterAt(0, 7, "c"))
			want(t, s, "c", 0, "__name__=c 0:7")
			want(t, s, "count_over_time(future[1d])", ahead+3*3600)
			if kept, _ := os.ReadDir(filepath.Join(dir, "damaged")); len(kept) == 0 || s.Stats().DamagedFiles == 0 {
				t.Errorf("what is of the future was not kept, or not counted: %+v", s.Stats())
			}
			// It was said once, of what was there then.
			now = at(-24 * 3600)
			again()
			if err := s.CanStore(); !errors.Is(err, ErrClock) {
				t.Errorf("a clock that is behind: %v", err)
			}
		})
	}
}

// A clock that is behind when the store opens takes nothing away: it waits until the clock is right.
func TestClockIsBehind(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Now: func() time.Time { return at(3 * 3600) }})
	fill(t, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, hours := range []float64{-24 * 365 * 50, -1, 0.5, 1.2} {
		now := at(hours * 3600)
		var log strings.Builder
		s := open(t, dir, Options{Now: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		sample := counterAt(3*3600, 7, "c")
		if err := s.Append(t.Context(), []model.Series{sample}); !errors.Is(err, ErrClock) {
			t.Errorf("%v hours: appending says %v, want %v", hours, err, ErrClock)
		}
		want(t, s, "count_over_time(c[1d])", 3*3600, fmt.Sprintf("%d:%d", 3*3600, 3*60))
		if !strings.Contains(log.String(), "clock is behind") {
			t.Errorf("%v hours: it is not said: %s", hours, &log)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, Options{Now: func() time.Time { return at(3 * 3600) }})
	appendAll(t, s, counterAt(3*3600, 7, "c"))
	want(t, s, "count_over_time(c[1d])", 3*3600, fmt.Sprintf("%d:%d", 3*3600, 3*60+1))
}

// The retention counts the time that there are samples of.
func TestRetentionCountsRecordedTime(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{Retention: 2 * time.Hour})
	fill(t, s, 6)
	s.db.DisableCompactions()
	oldest := time.UnixMilli(s.oldest())
	if kept := at(6 * 3600).Sub(oldest); kept < 2*time.Hour || kept > 4*time.Hour {
		t.Errorf("%v are kept, want 2h and what is not in a block yet", kept)
	}
}
