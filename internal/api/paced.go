package api

import (
	"compress/gzip"
	"io"
	"net/http"
	"time"
)

// pace is how fast an answer must be read: what is left of it is held in memory for as long as its reader takes.
type pace struct {
	// grace is the time that each answer has, and perSecond how many of its bytes each second more must take.
	grace     time.Duration
	perSecond int64
}

// usualPace leaves 30 s to a small answer and 7 minutes to one of 100 MB.
var usualPace = pace{30 * time.Second, 256 << 10}

const (
	// paceChunk is how much is written before the deadline is extended.
	paceChunk = 64 << 10
	// paceFrom is the size in bytes from which on an answer has a deadline. A smaller one fits into the connection's
	// buffer.
	paceFrom = 2 << 10
)

// write writes an answer in parts that make up a body of so many bytes, and breaks off where its reader is too slow.
func (p pace) write(w http.ResponseWriter, r *http.Request, parts ...[]byte) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	var body io.Writer = w
	w.Header().Set("Vary", "Accept-Encoding")
	if size >= 1<<10 && acceptsGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
		defer z.Close()
		body = z
	}
	if size < paceFrom {
		for _, part := range parts {
			_, _ = body.Write(part) // who asked may have gone
		}
		return
	}
	c := http.NewResponseController(w)
	deadline := time.Now().Add(p.grace)
	for _, part := range parts {
		for len(part) > 0 {
			chunk := part[:min(len(part), paceChunk)]
			part = part[len(chunk):]
			_ = c.SetWriteDeadline(deadline) // the errors are of writers that have none
			if _, err := body.Write(chunk); err != nil {
				return
			}
			deadline = deadline.Add(time.Duration(len(chunk)) * time.Second / time.Duration(p.perSecond))
		}
	}
	if z, ok := body.(*gzip.Writer); ok {
		_ = z.Close()
	}
	// The deadline is of this answer, not of the next one on the connection.
	if c.Flush() == nil {
		_ = c.SetWriteDeadline(time.Time{})
	}
}
