package api

import (
	"context"
	"net/http"
	"time"

	"outsight/internal/graph"
)

// cypher is an answer that is the map as statements for Neo4j, written as it is made.
type cypher struct{ *graph.Graph }

// cypherMap has all edges of a window: it is for a database, not for a page.
func (s *server) cypherMap(ctx context.Context, r *http.Request) (any, error) {
	g, _, err := s.grouped(ctx, r, graph.Options{}, graphColumns)
	if err != nil {
		return nil, err
	}
	return cypher{g}, nil
}

func (s *server) writeCypher(w http.ResponseWriter, c cypher) {
	w.Header().Set("Content-Type", "application/x-cypher-query")
	w.Header().Set("Cache-Control", "no-store")
	_ = graph.WriteCypher(&patientWriter{w, http.NewResponseController(w), s.pace.grace}, c.Graph) // who asked may have gone
}

// patientWriter gives the client some time for each part.
type patientWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	grace      time.Duration
}

// Write implements io.Writer.
func (w *patientWriter) Write(part []byte) (int, error) {
	_ = w.controller.SetWriteDeadline(time.Now().Add(w.grace)) // the errors are of writers that have none
	return w.ResponseWriter.Write(part)
}
