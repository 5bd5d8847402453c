package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"outsight/internal/store"
)

// requestError is an invalid request; its text is shown to the client.
type requestError struct{ error }

func badRequest(format string, args ...any) error {
	return requestError{fmt.Errorf(format, args...)}
}

// errNoFlight says that there is no flight recorder to ask.
var errNoFlight = errors.New("this server has no flight recorder: the last minutes at full resolution are there where \"outsight up\" runs, with --flight above 0")

// json answers with what f returns, or {"error": "..."}.
func (s *server) json(f func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.Timeout)
		defer cancel()
		ctx, held := hold(ctx)
		defer held.release()
		answer, err := f(ctx, r)
		if err != nil {
			held.release()
		}
		var bad requestError
		switch {
		case errors.As(err, &bad):
			writeError(w, http.StatusBadRequest, "%s", bad)
		case errors.Is(err, errNoFlight), errors.Is(err, errNoLog):
			writeError(w, http.StatusNotFound, "%s", err)
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrTimeout), errors.Is(err, store.ErrCanceled):
			writeError(w, http.StatusServiceUnavailable, "no answer within %s; ask for a shorter window", s.Timeout)
		case errors.Is(err, store.ErrBusy):
			text := err.Error()
			if !strings.Contains(text, "try again") {
				text += "; try again later"
			}
			writeError(w, http.StatusServiceUnavailable, "%s", text)
		case errors.Is(err, store.ErrExecution):
			writeError(w, http.StatusUnprocessableEntity, "%s", err)
		case err != nil:
			s.Logger.Warn("answering a request", "path", r.URL.Path, "error", err)
			writeError(w, http.StatusInternalServerError, "%s", err)
		default:
			switch answer := answer.(type) {
			case file:
				held.release()
				s.writeFile(w, r, answer)
				return
			case cypher:
				s.writeCypher(w, answer)
				return
			}
			s.writeJSON(w, r, answer, held.release)
		}
	}
}

func writeError(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": fmt.Sprintf(format, args...)}) // who asked has gone
}

// encoder is an answer that writes its own JSON, in parts that follow each other and are good until release, which is
// never nil.
type encoder interface {
	encode() (parts [][]byte, release func(), err error)
}

// writeJSON calls encoded before it writes: the client may read slowly.
func (s *server) writeJSON(w http.ResponseWriter, r *http.Request, answer any, encoded func()) {
	body := jsonBody{server: s, w: w, r: r, encoded: encoded}
	if own, ok := answer.(encoder); ok {
		parts, release, err := own.encode()
		defer release()
		if err != nil {
			writeError(w, http.StatusInternalServerError, "writing the answer: %s", err)
			return
		}
		body.write(parts...)
		return
	}
	if err := json.NewEncoder(&body).Encode(answer); err != nil {
		writeError(w, http.StatusInternalServerError, "writing the answer: %s", err)
	}
}

// jsonBody writes an answer, all of which comes out of the encoder at once.
type jsonBody struct {
	server  *server
	w       http.ResponseWriter
	r       *http.Request
	encoded func()
}

// Write implements io.Writer.
func (b *jsonBody) Write(p []byte) (int, error) {
	b.write(p)
	return len(p), nil
}

// write writes an answer in parts that follow each other.
func (b *jsonBody) write(parts ...[]byte) {
	b.encoded()
	size := 0
	for _, part := range parts {
		size += cap(part)
	}
	release, err := b.server.hold(int64(size))
	if err != nil {
		writeError(b.w, http.StatusServiceUnavailable, "%s", err)
		return
	}
	defer release()
	b.w.Header().Set("Content-Type", "application/json")
	b.w.Header().Set("Cache-Control", "no-store")
	b.server.pace.write(b.w, b.r, parts...)
}

// hold reserves memory for an answer until release.
func (s *server) hold(n int64) (release func(), err error) {
	if s.Hold == nil {
		return func() {}, nil
	}
	return s.Hold(s.Tenant, n)
}

func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.TrimSpace(q) != "q=0"
		}
	}
	return false
}
