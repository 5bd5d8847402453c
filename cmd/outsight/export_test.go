package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outsight/internal/frame"
	"outsight/internal/framelog"
	"outsight/internal/framelog/parquet"
	"outsight/internal/model"
)

// TestExport writes the frames of a data directory as Parquet files, by the command line.
func TestExport(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	log, err := framelog.Open(filepath.Join(data, framesDirectory), framelog.Options{TidyEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now().Truncate(time.Hour).Add(-2 * time.Hour)
	b := frame.NewBuilder(start)
	for minute := range 90 {
		f := b.Build(&model.Snapshot{Time: start.Add(time.Duration(minute) * time.Minute), Host: model.Host{Name: "host/1"}})
		err := log.Append(context.Background(), []framelog.Encoded{{Header: f.Header, Data: frame.Encode(nil, f, nil)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	command := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if got := run(append([]string{"export"}, args...), &stdout, &stderr); got != want {
			t.Fatalf("export %v: code %d, want %d: %s", args, got, want, stderr.String())
		}
		return stdout.String() + stderr.String()
	}
	if said := command(1, "--data", data, "--parquet", out); !strings.Contains(said, "start it with --parquet "+out) {
		t.Errorf("in use: %s", said)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	command(2, "--data", data)
	command(2, "--data", data, "--parquet", out, "--from", "yesterday")
	command(2, "--data", data, "--parquet", out, "--from", "1h", "--to", "2h")
	command(1, "--data", out, "--parquet", out)
	if said := command(0, "--data", data, "--parquet", out); !strings.Contains(said, "90 frames") {
		t.Errorf("all: %s", said)
	}
	for hour := range 2 {
		path := parquet.Path(out, frame.Hosts, "host/1", start.Add(time.Duration(hour)*time.Hour))
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	said := command(0, "--data", data, "--parquet", out, "--from", start.Add(10*time.Minute).Format(time.RFC3339), "--to",
		start.Add(20*time.Minute).Format(time.RFC3339))
	if !strings.Contains(said, "10 frames") {
		t.Errorf("ten minutes: %s", said)
	}
}
