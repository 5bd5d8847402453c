package api

import (
	"context"
	"net/http"

	"outsight/internal/graph"
)

// picture is an answer that is an SVG image instead of JSON.
type picture string

func (s *server) picture(ctx context.Context, r *http.Request) (any, error) {
	g, _, err := s.grouped(ctx, r, s.MaxEdges)
	if err != nil {
		return nil, err
	}
	return picture(graph.SVG(g)), nil
}

func (s *server) writePicture(w http.ResponseWriter, r *http.Request, p picture) {
	release, err := s.hold(int64(len(p)))
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, "%s", err)
		return
	}
	defer release()
	h := w.Header()
	h.Set("Content-Type", "image/svg+xml")
	h.Set("Cache-Control", "no-store")
	// It brings its own style, and nothing else may be in it.
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	s.pace.write(w, r, []byte(p))
}
