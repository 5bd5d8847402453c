package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"outsight/internal/model"
	"outsight/internal/recorder"
)

// Sixty anomalies of one container and resource are one line, and with --each sixty.
func TestAnomaliesAreOneLineWithACount(t *testing.T) {
	a := &recorder.Anomalies{}
	for i := range 60 {
		from := time.Unix(1_790_000_000+int64(i), 0)
		a.List = append(a.List, recorder.KeptAnomaly{Number: uint64(i + 1),
			Anomaly: model.Anomaly{Resource: "host-cpu", Container: "host", From: from,
				To: from.Add(time.Duration(100+i) * time.Millisecond), WaitedMS: 2, Text: "host: took 1.54 of 2 CPUs"}})
	}
	f := func(each bool, lines int, want ...string) {
		t.Helper()
		var b bytes.Buffer
		if err := writeAnomalies(&b, a, each, time.UTC); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(b.String(), "\n"); n != lines {
			t.Errorf("%d lines, want %d", n, lines)
		}
		for _, text := range want {
			if !strings.Contains(b.String(), text) {
				t.Errorf("%q is not in\n%s", text, b.String())
			}
		}
	}
	f(false, 3, "60     2026-09-21 14:13:20.000  2026-09-21 14:14:19.000  host       host-cpu  159 ms   120 ms",
		"--each lists")
	f(true, 61, "159 ms")
}
