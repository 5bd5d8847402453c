package api

import (
	"context"
	"net/http"

	"outsight/internal/graph"
)

// file is an answer that is no JSON.
type file struct {
	body []byte
	// header is what it has besides Cache-Control.
	header map[string]string
}

func (s *server) writeFile(w http.ResponseWriter, r *http.Request, f file) {
	release, err := s.hold(int64(len(f.body)))
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, "%s", err)
		return
	}
	defer release()
	for name, value := range f.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Cache-Control", "no-store")
	s.pace.write(w, r, f.body)
}

// picture answers with the map as an SVG image.
func (s *server) picture(ctx context.Context, r *http.Request) (any, error) {
	g, _, err := s.grouped(ctx, r, graph.Options{MaxEdges: s.MaxEdges, Brief: true}, graphColumns)
	if err != nil {
		return nil, err
	}
	return file{[]byte(graph.SVG(g)), map[string]string{
		"Content-Type": "image/svg+xml",
		// It brings its own style, and nothing else may be in it.
		"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
	}}, nil
}
