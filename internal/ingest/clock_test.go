package ingest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"outsight/internal/ingest"
	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// Senders whose clocks are years off, either way, are told what time it is here; nobody else's samples become too old
// by theirs.
func TestSendersClockJumps(t *testing.T) {
	s := start(t, t.TempDir(), setup{})
	now := time.Now()
	for _, years := range []int{-60, -5, 5, 60, 260} {
		answer, text := s.post(t, gaugeRequest(t, "jumping", now.AddDate(years, 0, 0), 1), nil)
		p := partial(t, answer, text)
		if p.GetRejectedDataPoints() != 1 || !strings.Contains(p.GetErrorMessage(), now.UTC().Format("2006-01-02T")) {
			t.Errorf("%d years: %v", years, p)
		}
	}
	// A counter that began years from now.
	series := []model.Series{{Name: "began_total", Kind: model.Counter, Time: now, Start: now.AddDate(5, 0, 0),
		Value: 1, Labels: []model.Label{{Name: "host", Value: "h"}}}}
	for n, at := range []time.Time{now, now.Add(time.Second)} {
		series[0].Time = at
		if answer, text := s.post(t, otlp.Encode(nil, series),
			header{otlp.BatchHeader: []string{"life/000000000001",
				"life/000000000002"}[n]}); answer.StatusCode != http.StatusOK {
			t.Fatalf("%s %q", answer.Status, text)
		}
	}
	if answer, text := s.post(t, gaugeRequest(t, "right", now, 7), nil); answer.StatusCode != http.StatusOK ||
		len(text) > 0 {
		t.Errorf("%s %q", answer.Status, text)
	}
	s.drained(t)
	if got := s.value(t, "right", now); got != "7" {
		t.Errorf("stored %q", got)
	}
	if newest := s.store.Stats().Newest; newest.After(now.Add(time.Minute)) {
		t.Errorf("the newest sample is of %v", newest)
	}
}

// While the store has samples of the future and takes none, senders are asked for their time: when most of them have
// had this server's for ten minutes, what is stored is wrong.
func TestSendersAgreeOnTheTime(t *testing.T) {
	now, uptime := time.Now(), time.Duration(0)
	wrong := 0
	s := start(t, t.TempDir(), setup{Options: ingest.Options{
		Now: func() time.Time { return now }, Uptime: func() time.Duration { return uptime },
		Room: func() error { return store.ErrClock }, FutureIsWrong: func() { wrong++ },
	}})
	life := 0
	trial := func(ahead ...time.Duration) {
		t.Helper()
		for range 13 {
			now, uptime = now.Add(time.Minute), uptime+time.Minute
			for sender, d := range ahead {
				life++
				batch := header{otlp.BatchHeader: fmt.Sprintf("sender%d/%012d", sender, life)}
				if answer, text := s.post(t, gaugeRequest(t, "g", now.Add(d), 1),
					batch); answer.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), "clock") {
					t.Fatalf("%s %q", answer.Status, text)
				}
			}
		}
	}
	year := 365 * 24 * time.Hour
	trial(year)
	trial(year, 0)
	trial(-3*time.Hour, -2*time.Hour) // what they have spooled
	if wrong != 0 {
		t.Error("the store is wrong, though senders do not agree with this server")
	}
	uptime += time.Hour
	now = now.Add(time.Hour)
	trial(year, 0, 0, 0)
	if wrong != 1 {
		t.Errorf("it was said %d times that the store is wrong, want once", wrong)
	}
}

// When the server's own clock jumps, senders of the time from before it go on, those of the time after it are told to
// come again, and the store keeps its time. A clock that goes on evenly is believed after ten minutes.
func TestServersClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{5 * 365 * 24 * time.Hour, -5 * 365 * 24 * time.Hour, 8 * time.Hour} {
		real := time.Now()
		wall, uptime := real, time.Duration(0)
		s := start(t, t.TempDir(), setup{Options: ingest.Options{Now: func() time.Time { return wall },
			Uptime: func() time.Duration { return uptime }}})
		pass := func(d time.Duration) { real, wall, uptime = real.Add(d), wall.Add(d), uptime+d }
		post := func(name string, at time.Time) int {
			t.Helper()
			answer, text := s.post(t, gaugeRequest(t, name, at, 1), nil)
			if len(text) > 0 && answer.StatusCode == http.StatusOK {
				return 0 // rejected
			}
			return answer.StatusCode
		}
		if got := post("before", real); got != http.StatusOK {
			t.Errorf("%v: %d", jump, got)
		}
		wall = wall.Add(jump)
		pass(time.Second)
		earlier, later := real, wall
		if jump < 0 {
			earlier, later = wall, real
		}
		if got := post("later", later); got != http.StatusTooManyRequests {
			t.Errorf("%v: the later time: %d", jump, got)
		}
		if jump > 0 {
			if got := post("earlier", earlier); got != http.StatusOK {
				t.Errorf("%v: the earlier time: %d", jump, got)
			}
		}
		// The clock is set right again: all is as it was.
		wall = wall.Add(-jump)
		pass(time.Second)
		if got := post("after", real); got != http.StatusOK {
			t.Errorf("%v: set right again: %d", jump, got)
		}
		s.drained(t)
		if newest := s.store.Stats().Newest; newest.Sub(real).Abs() > time.Minute {
			t.Errorf("%v: the newest sample is of %v, want %v", jump, newest, real)
		}
		// It jumps for good.
		wall = wall.Add(jump)
		pass(time.Second)
		if got := post("believed", wall); jump > 0 && got != http.StatusTooManyRequests {
			t.Errorf("%v: the clock is believed at once: %d", jump, got)
		}
		pass(10 * time.Minute)
		if got := post("believed", wall); got != http.StatusOK {
			t.Errorf("%v: the clock is not believed: %d", jump, got)
		}
	}
}
