package api

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Bounds of a window.
const (
	minWindow   = time.Second
	maxWindow   = 31 * 24 * time.Hour
	maxQuery    = 2048 // bytes of a request's query string
	defaultFrom = 5 * time.Minute
)

// window is the time that a request asks for: from (default: 5 minutes before to) and to
// (default: now), in whole milliseconds.
func (s *server) window(r *http.Request) (from, to time.Time, err error) {
	return s.windowOf(r, windowBounds{defaultFrom, minWindow, maxWindow, maxQuery})
}

// windowBounds are how long a window is where the request has no start, the least and the greatest length, and how many
// bytes the query string may have.
type windowBounds struct {
	length, least, most time.Duration
	query               int
}

// windowOf is a window of other bounds.
func (s *server) windowOf(r *http.Request, of windowBounds) (from, to time.Time, err error) {
	if len(r.URL.RawQuery) > of.query {
		return from, to, badRequest("the query string has %d bytes, at most %d are read", len(r.URL.RawQuery), of.query)
	}
	now := s.Now()
	query := r.URL.Query()
	to, from = now, time.Time{}
	if text := query.Get("to"); text != "" {
		if to, err = parseTime(text, now); err != nil {
			return from, to, badRequest("to=%q: %w", text, err)
		}
	}
	from = to.Add(-of.length)
	if text := query.Get("from"); text != "" {
		if from, err = parseTime(text, now); err != nil {
			return from, to, badRequest("from=%q: %w", text, err)
		}
	}
	from, to = from.Truncate(time.Millisecond), to.Truncate(time.Millisecond)
	switch d := to.Sub(from); {
	case d < of.least:
		return from, to, badRequest("the window from %s to %s is %s; at least %s is needed", from.Format(time.RFC3339),
			to.Format(time.RFC3339), d, of.least)
	case d > of.most:
		return from, to, badRequest("the window is %s; at most %s is possible", d, of.most)
	case to.After(now.Add(time.Minute)):
		return from, to, badRequest("to=%s lies in the future", to.Format(time.RFC3339))
	}
	return from, to, nil
}

// parseTime reads "now", "now-5m", "now-2d", Unix seconds, or RFC 3339.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "now" {
		return now, nil
	}
	if ago, ok := strings.CutPrefix(text, "now-"); ok {
		d, err := parseDuration(ago)
		return now.Add(-d), err
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return inRange(t)
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || math.Abs(seconds) > 1e11 {
		return time.Time{}, badRequest(`want "now", "now-5m", Unix seconds or RFC 3339`)
	}
	return inRange(time.UnixMilli(int64(math.Round(seconds * 1e3))))
}

// inRange refuses times outside of those that a difference in a time.Duration can hold.
func inRange(t time.Time) (time.Time, error) {
	if t.Year() < 1970 || t.Year() > 2200 {
		return t, badRequest("the year %d is out of range", t.Year())
	}
	return t, nil
}

func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 8)
		if err != nil {
			return 0, badRequest("%q is no number of days", days)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > 366*24*time.Hour {
		return 0, badRequest(`%q is no duration such as "5m", "6h" or "2d"`, text)
	}
	return d, nil
}
