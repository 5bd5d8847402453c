package otlp

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"outsight/internal/frame"
	"outsight/internal/model"
)

// format is an exposition format: what a scraper asks for, what it gets, and how.
type format struct {
	// media type as in Accept, and a parameter that must be there and equal.
	media, parameter, value string
	contentType             string
	write                   func(io.Writer, *frame.Frame, []model.Series) error
}

// formats in order of our preference among those that a scraper likes equally.
var formats = []format{
	{"application/vnd.google.protobuf", "proto", "io.prometheus.client.MetricFamily",
		"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
		func(w io.Writer, f *frame.Frame, computed []model.Series) error {
			return writeProtobuf(w, f, computed...)
		}},
	{"application/openmetrics-text", "", "",
		"application/openmetrics-text; version=1.0.0; charset=utf-8",
		func(w io.Writer, f *frame.Frame, computed []model.Series) error {
			return WriteMetrics(w, f, true, computed...)
		}},
	{"text/plain", "", "",
		"text/plain; version=0.0.4; charset=utf-8",
		func(w io.Writer, f *frame.Frame, computed []model.Series) error {
			return WriteMetrics(w, f, false, computed...)
		}},
}

// Handler answers a scrape with the newest frame in the format that the request's Accept
// header likes best: protobuf (the only one with histograms of full resolution), OpenMetrics
// text, or Prometheus text, which is also the answer to everything else. While newest returns
// nil it answers 503. The answer is not compressed: that would cost the watched host more than
// the bytes do. The series that each of computed returns come after those of the frame: they are of
// model.ComputedMetrics, in order of their names.
func Handler(newest func() *frame.Frame, computed ...func() []model.Series) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "metrics can only be read", http.StatusMethodNotAllowed)
			return
		}
		s := newest()
		if s == nil {
			http.Error(w, "no counters have been read yet", http.StatusServiceUnavailable)
			return
		}
		f := negotiate(r.Header.Get("Accept"))
		w.Header().Set("Content-Type", f.contentType)
		if r.Method == http.MethodGet {
			var more []model.Series
			for _, of := range computed {
				more = append(more, of()...)
			}
			// The only error is that of a client that disconnected.
			_ = f.write(w, s, more)
		}
	})
}

// negotiate is the format that accept likes best.
func negotiate(accept string) format {
	best, bestQuality := formats[len(formats)-1], 0.0
	for _, f := range formats {
		if q := quality(accept, f); q > bestQuality {
			best, bestQuality = f, q
		}
	}
	return best
}

// quality is how much accept likes f, from 0 (not at all) to 1. Wildcards do not count: a
// browser that takes anything is to get text.
func quality(accept string, f format) float64 {
	best := 0.0
	for clause := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(clause, ";")
		if !strings.EqualFold(strings.TrimSpace(media), f.media) {
			continue
		}
		q, matches, readable := 1.0, f.parameter == "", true
		for p := range strings.SplitSeq(parameters, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			switch {
			case strings.EqualFold(name, "q"):
				if n, err := strconv.ParseFloat(value, 64); err == nil && n >= 0 && n <= 1 {
					q = n
				}
			case strings.EqualFold(name, "encoding") && !strings.EqualFold(value, "delimited"),
				strings.EqualFold(name, "version") && unsupportedVersion(f, value):
				readable = false
			case strings.EqualFold(name, f.parameter) && value == f.value:
				matches = true
			}
		}
		if matches && readable {
			best = max(best, q)
		}
	}
	return best
}

// unsupportedVersion reports whether f is requested in a version that it is not written in.
func unsupportedVersion(f format, version string) bool {
	switch f.media {
	case "application/openmetrics-text":
		return version != "1.0.0" && version != "0.0.1"
	case "text/plain":
		return version != "0.0.4"
	}
	return false
}
