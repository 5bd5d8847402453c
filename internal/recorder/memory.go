package recorder

import (
	"slices"
	"time"

	"outsight/internal/csvy"
)

// InMemory makes recordings of FlightData that are no files, with the columns that an analysis of
// saturations reads.
type InMemory struct {
	// Rows is about how many each recording will have.
	Rows int
	// List has a recording of each start of a container.
	List []*csvy.Recording
}

var analysed = []string{csvy.Tick, csvy.DueNS, csvy.LatenessNS, csvy.CPUNS, csvy.RunQueueNS, csvy.SentBytes,
	csvy.ReceivedBytes,
	csvy.RequestsAsking, csvy.RequestsServing}

// Create is for Options.Create.
func (m *InMemory) Create(h csvy.Head) (Writer, error) {
	w := &memoryWriter{Recording: &csvy.Recording{Path: h.Name(), Format: csvy.CSVY, Head: h}}
	w.Head.Columns = nil
	for i, c := range h.Columns {
		if slices.Contains(analysed, c.Name) {
			w.from = append(w.from, i)
			w.Head.Columns, w.Values = append(w.Head.Columns, c), append(w.Values, make([]float64, 0, m.Rows))
		}
	}
	m.List = append(m.List, w.Recording)
	return w, nil
}

// memoryWriter makes one recording. from says which of the values of a row are kept.
type memoryWriter struct {
	*csvy.Recording
	from []int
}

func (w *memoryWriter) Row(at time.Time, values []float64) error {
	w.At = append(w.At, at.UnixNano())
	for i, from := range w.from {
		w.Values[i] = append(w.Values[i], values[from])
	}
	return nil
}

func (w *memoryWriter) Lost(uint64) error { return nil } // the numbers of the ticks tell
func (w *memoryWriter) Close() error      { return nil }
