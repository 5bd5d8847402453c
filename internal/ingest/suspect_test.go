package ingest_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

// A message that ended the process three times is a dead letter at the fourth; the others are stored.
func TestSuspect(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, setup{idle: true})
	now := time.Now()
	for i := range 3 {
		if answer, _ := s.post(t, gaugeRequest(t, fmt.Sprint("g", i), now, 1), nil); answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
	}
	s.stop()
	// As three processes left it that began with the second message and never came back.
	if err := os.WriteFile(dir+"/queue/suspect", []byte("2 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s = start(t, dir, setup{})
	stats := s.drained(t)
	if got := s.value(t, `count({__name__=~"g."})`, now); got != "2" || s.value(t, "g1", now) != "" ||
		stats.Poison != 1 || stats.Queue.DeadLetters != 1 {
		t.Errorf("%s are stored, %+v", got, stats)
	}
}
