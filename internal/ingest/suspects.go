package ingest

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"outsight/internal/queue"
)

// maxSuspectAttempts is how often the process may end while it works on one and the same message.
const maxSuspectAttempts = 3

// suspects notes in a file which messages a process works on that were there before it began. If it ends meanwhile, the
// next one works on each of them alone, and sets one aside during which several processes ended.
type suspects struct {
	// path is empty where nothing is noted.
	path   string
	logger *slog.Logger
	// first to last are the messages that an earlier process worked on when it ended, for the tries-th time.
	first, last, tries uint64
	noted              bool
}

func newSuspects(dir, name string, logger *slog.Logger) suspects {
	s := suspects{logger: logger}
	if dir == "" {
		return s
	}
	s.path = filepath.Join(dir, name)
	if text, err := os.ReadFile(s.path); err == nil {
		if n, _ := fmt.Sscanf(string(text), "%d %d %d", &s.first, &s.tries, &s.last); n < 3 {
			s.last = s.first
		}
		s.noted = true
	}
	return s
}

// has reports whether a message is one during which an earlier process ended: it has to be worked on alone.
func (s *suspects) has(d *queue.Delivery) bool {
	return s.path != "" && d.Recovered && s.tries > 0 && s.first <= d.Sequence && d.Sequence <= s.last
}

// begin notes that work on a message begins, and on those after it up to last with it. It fails where
// maxSuspectAttempts processes ended during work on this one alone.
func (s *suspects) begin(d *queue.Delivery, last uint64) error {
	if s.path == "" || !d.Recovered {
		return nil
	}
	tries := uint64(0)
	if s.has(d) && s.first == s.last {
		tries = s.tries
	}
	if tries >= maxSuspectAttempts {
		return fmt.Errorf("the server ended %d times while it worked on this message", tries)
	}
	s.noted = true
	if err := os.WriteFile(s.path, fmt.Appendf(nil, "%d %d %d\n", d.Sequence, tries+1, last), 0o600); err != nil {
		s.logger.Warn("cannot note which message is worked on", "error", err)
	}
	return nil
}

// end is for when the process has survived what it noted.
func (s *suspects) end() {
	if s.noted {
		os.Remove(s.path)
		s.noted = false
	}
}
