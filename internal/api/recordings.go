package api

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"outsight/internal/recorder"
)

// recordingsAnswer is what there is to look at tick by tick.
type recordingsAnswer struct {
	// Flight is what the flight recorder has, nil where there is none.
	Flight *flightSpan `json:"flight"`
	// Absent says why there is no flight recorder, and what to do.
	Absent string `json:"absent,omitempty"`
	// Anomalies are short saturations whose recordings are kept longer, oldest first; Dropped ones were evicted.
	// Problem is why some are in memory alone.
	Anomalies []storedAnomaly `json:"anomalies"`
	Dropped   uint64          `json:"dropped"`
	Problem   string          `json:"problem,omitempty"`
	// Directory has the files of those that have a File, empty where they are in memory alone.
	Directory string `json:"directory,omitempty"`
}

type flightSpan struct {
	From       *time.Time `json:"from"`
	To         *time.Time `json:"to"`
	IntervalMS float64    `json:"interval_ms"`
	// Bytes that are held, compressed.
	Bytes int `json:"bytes"`
}

type storedAnomaly struct {
	Number      uint64    `json:"number"`
	Kind        string    `json:"kind"`
	Container   string    `json:"container"`
	ContainerID string    `json:"container_id"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	WaitedMS    float64   `json:"waited_ms"`
	Text        string    `json:"text"`
	Effects     []string  `json:"effects"`
	// File is its name in the directory, Bytes its size.
	File  string `json:"file,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
}

// recordings answers GET /api/outsight/recordings.
func (s *server) recordings(context.Context, *http.Request) (any, error) {
	a := recordingsAnswer{Anomalies: []storedAnomaly{}}
	data, err := s.kept("")
	if err != nil {
		a.Absent = err.Error()
		return a, nil
	}
	a.Flight = &flightSpan{IntervalMS: float64(data.Interval) / 1e6}
	wall := func(ns uint64) *time.Time {
		t := data.Wall.Add(time.Duration(int64(ns - data.MonotonicNS))).UTC()
		return &t
	}
	if n := len(data.Blocks); n > 0 {
		a.Flight.From, a.Flight.To = wall(data.Blocks[0].FirstDueNS), wall(data.Blocks[n-1].LastNS)
	}
	for i := range data.Blocks {
		a.Flight.Bytes += len(data.Blocks[i].Data)
	}
	if s.Anomalies == nil {
		return a, nil
	}
	if kept := s.Anomalies(); kept != nil {
		a.Dropped, a.Problem, a.Directory = kept.Dropped, kept.Problem, s.AnomalyFiles
		for _, k := range kept.List {
			a.Anomalies = append(a.Anomalies, s.storedAnomaly(k))
		}
	}
	return a, nil
}

func (s *server) storedAnomaly(k recorder.KeptAnomaly) storedAnomaly {
	a := storedAnomaly{Number: k.Number, Kind: k.Resource, Container: k.Container, ContainerID: k.ID, From: k.From.UTC(),
		To:       k.To.UTC(),
		WaitedMS: k.WaitedMS, Text: k.Text, Effects: append([]string{}, k.Effects...)}
	if s.AnomalyFiles != "" {
		name := strconv.FormatUint(k.Number, 10) + ".json"
		// It is written when all that follows the anomaly is kept.
		if info, err := os.Stat(filepath.Join(s.AnomalyFiles, name)); err == nil {
			a.File, a.Bytes = name, info.Size()
		}
	}
	return a
}

// kept is what the flight recorder has of the last while or, with the number of an anomaly, around it.
func (s *server) kept(anomaly string) (*recorder.FlightData, error) {
	if anomaly != "" {
		number, err := strconv.ParseUint(anomaly, 10, 64)
		if err != nil {
			return nil, badRequest("anomaly=%q, want the number of one", anomaly)
		}
		if s.Anomaly != nil {
			if data := s.Anomaly(number); data != nil {
				return data, nil
			}
		}
		return nil, badRequest("there is no anomaly %d: it had to make room, or was never kept", number)
	}
	if s.Flight != nil {
		if data := s.Flight(2 * mostFlightWindow); data != nil {
			return data, nil
		}
	}
	return nil, errNoFlight
}
