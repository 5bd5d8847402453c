package graph

import (
	"slices"

	"outsight/internal/frame"
)

// Columns are the tables and columns of frames that FromFrames reads, for frame.NewProjection; nil is all of a table.
func Columns() map[frame.TableID][]string {
	return columnsWith(edgeHistograms[:], endpointColumns())
}

// AnalysisColumns are those for a graph of which only Analyse and CriticalPath are wanted: of the times of edges these
// read the latency alone, and no endpoints.
func AnalysisColumns() map[frame.TableID][]string { return columnsWith(edgeHistograms[:1], nil) }

// ServiceColumns are those for a graph of which only Services is wanted.
func ServiceColumns() map[frame.TableID][]string {
	return columnsWith(edgeHistograms[:1], endpointColumns())
}

// ColumnsOfMatrix are those for a matrix of these numbers alone, by their keys; none for all.
func ColumnsOfMatrix(numbers []string) map[frame.TableID][]string {
	var histograms []int
	for i := range MatrixNumbers {
		n := &MatrixNumbers[i]
		if len(numbers) > 0 && !slices.Contains(numbers, n.Key) || n.Probe != nil {
			continue
		}
		if n.ends != nil {
			return columnsWith(edgeHistograms[:], nil)
		}
		for _, column := range edgeHistograms {
			if slices.Contains(n.Of, frame.Schema[frame.Edges].Histograms[column].Name) && !slices.Contains(histograms, column) {
				histograms = append(histograms, column)
			}
		}
	}
	return columnsWith(histograms, nil)
}

func endpointColumns() []string {
	return []string{frame.Schema[frame.Endpoints].Columns[requestsColumn].Name,
		frame.Schema[frame.Endpoints].Histograms[endpointHistogram].Name}
}

// columnsWith has all columns of edges that are no histograms: which rows were added to one that sums them is found by
// what all counters gained.
func columnsWith(histograms []int, endpoints []string) map[frame.TableID][]string {
	containers, edges := []string{}, []string{}
	info := &frame.Schema[frame.Containers]
	for i := range info.Columns {
		if c := &info.Columns[i]; c.Kind == frame.Counter {
			containers = append(containers, c.Name)
		}
	}
	for i := range containerColumns {
		c := &containerColumns[i]
		if c.histogram {
			containers = append(containers, info.Histograms[c.column].Name)
		} else if name := info.Columns[c.column].Name; !slices.Contains(containers, name) {
			containers = append(containers, name)
		}
	}
	for i := range meanColumns {
		containers = append(containers, info.Columns[meanColumns[i].integral].Name, info.Columns[meanColumns[i].highest].Name)
	}
	info = &frame.Schema[frame.Edges]
	for i := range info.Columns {
		edges = append(edges, info.Columns[i].Name)
	}
	for _, i := range histograms {
		edges = append(edges, info.Histograms[i].Name)
	}
	all := map[frame.TableID][]string{frame.Containers: containers, frame.Edges: edges, frame.Addresses: nil,
		frame.Listeners: nil, frame.Translations: nil, frame.Connections: nil, frame.PacketSamples: nil}
	if endpoints != nil {
		all[frame.Endpoints] = endpoints
	}
	return all
}
