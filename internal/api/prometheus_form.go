package api

import (
	"math"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"outsight/internal/store"
)

// promForm reads the parameters of a request. The first fault stays in err.
type promForm struct {
	values url.Values
	err    error
}

func (f *promForm) fail(name string, format string, args ...any) {
	if f.err == nil {
		f.err = badRequest("invalid parameter %q: "+format, append([]any{name}, args...)...)
	}
}

func (f *promForm) text(name string) string {
	v := f.values.Get(name)
	if v == "" {
		f.fail(name, "it is missing")
	}
	return v
}

func (f *promForm) requiredTime(name string) time.Time {
	if f.values.Get(name) == "" {
		f.fail(name, "it is missing")
	}
	return f.time(name, time.Time{})
}

// time reads a time in seconds since the epoch or in RFC 3339.
func (f *promForm) time(name string, missing time.Time) time.Time {
	v := f.values.Get(name)
	if v == "" {
		return missing
	}
	t, ok := parsePromTime(v)
	if !ok {
		f.fail(name, "%q is neither seconds since 1970 nor a time like 2006-01-02T15:04:05Z", clip(v))
	}
	return t
}

// step reads a duration, which must be greater than 0.
func (f *promForm) step(name string) time.Duration {
	d, ok := parsePromDuration(f.values.Get(name))
	if !ok || d <= 0 {
		f.fail(name, "%q is not a duration greater than 0, like 15 (seconds) or 1m30s", clip(f.values.Get(name)))
	}
	return d
}

func (f *promForm) duration(name string) time.Duration {
	v := f.values.Get(name)
	if v == "" {
		return 0
	}
	d, ok := parsePromDuration(v)
	if !ok || d < 0 {
		f.fail(name, "%q is not a duration like 15 (seconds) or 1m30s", clip(v))
	}
	return d
}

// count reads a number, 0 where it is missing.
func (f *promForm) count(name string) int {
	v := f.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		f.fail(name, "%q is not a whole number from 0 on", clip(v))
	}
	return n
}

func (f *promForm) limits(e *store.Evaluation) {
	e.Timeout, e.Lookback, e.Limit = f.duration("timeout"), f.duration("lookback_delta"), f.count("limit")
}

func (f *promForm) matchers() []string {
	matchers := f.values["match[]"]
	if len(matchers) > maxMatchers {
		f.fail("match[]", "%d selectors: at most %d", len(matchers), maxMatchers)
	}
	return matchers
}

// clip shortens what a client sent for an error message.
func clip(v string) string {
	if len(v) > 100 {
		return v[:100] + "…"
	}
	return v
}

// Clients of the Prometheus API send these for "any time".
const (
	promMinTime = "-292273086-05-16T16:47:06Z"
	promMaxTime = "+292277025-08-18T07:12:54.999999999Z"
	promMaxOld  = "292277025-08-18T07:12:54.999999999Z"
)

// The range of times that milliseconds in an int64 can hold, in seconds.
const maxPromSeconds = math.MaxInt64 / 1000

func parsePromTime(v string) (time.Time, bool) {
	if seconds, err := strconv.ParseFloat(v, 64); err == nil {
		if !(math.Abs(seconds) < maxPromSeconds) {
			return time.Time{}, false
		}
		whole, fraction := math.Modf(seconds)
		// Milliseconds: what is finer is noise of the float.
		return time.Unix(int64(whole), int64(math.Round(fraction*1e3))*1e6).UTC(), true
	}
	switch v {
	case promMinTime, promMaxTime, promMaxOld:
		return time.Time{}, true
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	return t, err == nil
}

var promDuration = regexp.MustCompile(`^(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$`)

var promUnits = []time.Duration{
	365 * 24 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second, time.Millisecond,
}

// parsePromDuration reads seconds ("0.5") or a duration of PromQL ("1h30m").
func parsePromDuration(v string) (time.Duration, bool) {
	if seconds, err := strconv.ParseFloat(v, 64); err == nil {
		ns := seconds * 1e9
		return time.Duration(ns), math.Abs(ns) < math.MaxInt64
	}
	parts := promDuration.FindStringSubmatch(v)
	if v == "" || parts == nil {
		return 0, false
	}
	var sum time.Duration
	for i, digits := range parts[1:] {
		if digits == "" {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n > int64((math.MaxInt64-sum)/promUnits[i]) {
			return 0, false
		}
		sum += time.Duration(n) * promUnits[i]
	}
	return sum, true
}
