package api

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"

	"outsight/internal/fleet"
	"outsight/internal/graph"
	"outsight/internal/model"
)

// defaultMatrixTop is how many rows and columns a matrix has besides those that sum the others, if the request does not
// say.
const defaultMatrixTop = 50

// matrixAnswer is the traffic matrix of a window.
type matrixAnswer struct {
	*graph.Matrix
	// Numbers are those that cells may have.
	Numbers      []matrixNumber     `json:"numbers"`
	Completeness fleet.Completeness `json:"completeness"`
}

// matrixNumber describes a number of a cell. Query is as that of number, for the series of the cell's edges.
type matrixNumber struct {
	number
	// Group is the heading under which the page has it.
	Group string `json:"group"`
	// Additive numbers of cells add up to those of rows, of columns and of all.
	Additive bool `json:"additive"`
}

// matrix answers GET /api/outsight/matrix: from, to and by as everywhere; numbers=bytes,p99,... (all), side=best,
// client_side or server_side (best), top=1 to 100 rows and columns (50), and format=json or csv (json).
func (s *server) matrix(ctx context.Context, r *http.Request) (any, error) {
	from, to, err := s.window(r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	format := query.Get("format")
	if format != "" && format != "json" && format != "csv" {
		return nil, badRequest("format=%q, want json or csv", format)
	}
	o, err := s.matrixOptions(r)
	if err != nil {
		return nil, err
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	with := withFleet
	if graph.MeasuredNumbers(o.Numbers, o.By) {
		with = withProbes
	}
	data, err := s.readOnly(ctx, from, to, nil, with(graph.ColumnsOfMatrix(o.Numbers)))
	if err != nil {
		return nil, err
	}
	if graph.MeasuredNumbers(o.Numbers, o.By) {
		probes := fleet.Probes(data.window)
		o.Between, o.Containers = fleet.Between(probes), fleet.BetweenContainers(data.window, probes)
	}
	m, err := graph.MatrixFromFrames(data.window, o)
	if err != nil {
		return nil, err
	}
	m.From, m.To = from, to
	if format == "csv" {
		var b bytes.Buffer
		err := m.WriteCSV(&b)
		return file{b.Bytes(), map[string]string{
			"Content-Type":        "text/csv; charset=utf-8; header=present",
			"Content-Disposition": `attachment; filename="outsight-matrix.csv"`,
		}}, err
	}
	answer := matrixAnswer{Matrix: m, Completeness: fleet.CompletenessOf(data.window, m.Unplaced)}
	numbers, err := graph.FindMatrixNumbers(o.Numbers, o.By)
	for _, n := range numbers {
		described := matrixNumber{number{n.Key, n.Title, n.Unit, n.PromQL}, n.Group, n.Additive}
		// Of containers these are other series, with other labels.
		if s.PromQL != PromQLFull || n.Group == model.GroupProbes && o.By != graph.ByHost {
			described.Query = ""
		}
		answer.Numbers = append(answer.Numbers, described)
	}
	return answer, err
}

// matrixOptions are those that a request asks for.
func (s *server) matrixOptions(r *http.Request) (o graph.MatrixOptions, err error) {
	query := r.URL.Query()
	o.Names = s.Names
	if o.By, err = graph.ParseGrouping(query.Get("by")); err != nil {
		return o, badRequest("%w", err)
	}
	if o.Side, err = graph.ParseMatrixSide(query.Get("side")); err != nil {
		return o, badRequest("%w", err)
	}
	if text := query.Get("numbers"); text != "" {
		o.Numbers = strings.Split(text, ",")
	}
	if _, err := graph.FindMatrixNumbers(o.Numbers, o.By); err != nil {
		return o, badRequest("%w", err)
	}
	top := defaultMatrixTop
	if text := query.Get("top"); text != "" {
		if top, err = strconv.Atoi(text); err != nil || top < 1 || top > graph.MaxMatrixEnds {
			return o, badRequest("top=%q, want 1 to %d", text, graph.MaxMatrixEnds)
		}
	}
	o.Rows, o.Columns = top, top
	return o, nil
}
