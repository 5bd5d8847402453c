package clickhouse

import (
	"encoding/binary"
	"slices"

	"outsight/internal/frame"
	"outsight/internal/framelog"
)

// batchRows are the rows of a batch in RowBinary.
type batchRows struct {
	tables  [frame.NumTables][]byte
	header  []byte
	headers []*framelog.Encoded
}

// add adds what is to be stored of a frame.
func (b *batchRows) add(e *framelog.Encoded, f, key *frame.Frame, class uint8) {
	prefix := appendText(appendText(nil, e.Tenant), e.Host)
	prefix = appendUint64(appendUint64(prefix, e.Epoch), e.Number)
	at := uint32(e.Time.Unix())
	w := rowWriter{prefix: prefix, at: at, class: class, f: f}
	for t := range frame.NumTables {
		w.table, w.to = t, b.tables[t]
		if f == key {
			for row := range f.Tables[t].IDs {
				w.write(row)
			}
		} else {
			w.writeChanges(key)
		}
		b.tables[t] = w.to
	}
	h := append(b.header, prefix...)
	h = appendUint64(appendUint64(h, e.Key), e.Boot)
	h = appendUint64(appendUint64(h, uint64(e.Time.UnixNano())), uint64(max(e.ClockError, 0)))
	h = append(appendUint32(h, at), class)
	data := ""
	if f == key {
		data = string(e.Data)
	}
	b.header, b.headers = appendText(h, data), append(b.headers, e)
}

// rowWriter writes rows of a table of a frame.
type rowWriter struct {
	to     []byte
	prefix []byte // tenant, host, epoch and number of the frame
	at     uint32
	class  uint8
	f      *frame.Frame
	table  frame.TableID
}

// writeChanges writes the rows that are other than in the key frame, and which of its rows are not there any more.
func (w *rowWriter) writeChanges(key *frame.Frame) {
	ids, before := w.f.Tables[w.table].IDs, key.Tables[w.table].IDs
	for i, j := 0, 0; i < len(ids) || j < len(before); {
		switch {
		case i == len(ids) || j < len(before) && before[j] < ids[i]:
			w.writeRemoved(before[j])
			j++
		case j == len(before) || ids[i] < before[j]:
			w.write(i)
			i++
		default:
			if !w.same(key, i, j) {
				w.write(i)
			}
			i, j = i+1, j+1
		}
	}
}

// same reports whether row i is as row j of the key frame.
func (w *rowWriter) same(key *frame.Frame, i, j int) bool {
	of, was, info := &w.f.Tables[w.table], &key.Tables[w.table], &frame.Schema[w.table]
	for a := range info.Attributes {
		x, y := of.Attributes[a][i], was.Attributes[a][j]
		if info.Attributes[a].Kind == frame.Text {
			if w.f.Strings[x] != key.Strings[y] {
				return false
			}
		} else if x != y {
			return false
		}
	}
	for c := range of.Columns {
		x, ok := of.Columns[c].At(i)
		y, okBefore := was.Columns[c].At(j)
		if x != y || ok != okBefore {
			return false
		}
	}
	for h := range of.Histograms {
		if !sameHistogram(&of.Histograms[h], i, &was.Histograms[h], j) {
			return false
		}
	}
	return true
}

func sameHistogram(x *frame.Histograms, i int, y *frame.Histograms, j int) bool {
	sumX, zeroX, overX := parts(x, i)
	sumY, zeroY, overY := parts(y, j)
	indexX, countX := x.Buckets(i)
	indexY, countY := y.Buckets(j)
	return sumX == sumY && zeroX == zeroY && overX == overY && slices.Equal(indexX, indexY) && slices.Equal(countX, countY)
}

// parts are what a histogram has beside its buckets.
func parts(h *frame.Histograms, row int) (sumNS, zero, overflow uint64) {
	if len(h.End) == 0 {
		return 0, 0, 0
	}
	return h.SumNS[row], h.Zero[row], h.Overflow[row]
}

func (w *rowWriter) begin(id uint32, removed uint8) {
	w.to = append(w.to, w.prefix...)
	w.to = appendUint32(appendUint32(w.to, id), w.at)
	w.to = append(w.to, w.class, removed)
}

func (w *rowWriter) writeRemoved(id uint32) {
	w.begin(id, 1)
	for _, c := range columnsOf(w.table)[len(key):] {
		switch c.kind {
		case kindUint64:
			w.to = appendUint64(w.to, 0)
		case kindNullable, kindFloat:
			w.to = append(w.to, 1)
		default: // the length of a text or an array
			w.to = append(w.to, 0)
		}
	}
}

func (w *rowWriter) write(row int) {
	of, info := &w.f.Tables[w.table], &frame.Schema[w.table]
	w.begin(of.IDs[row], 0)
	for a := range info.Attributes {
		if v := of.Attributes[a][row]; info.Attributes[a].Kind == frame.Text {
			w.to = appendText(w.to, w.f.Strings[v])
		} else {
			w.to = appendUint64(w.to, v)
		}
	}
	for c := range info.Columns {
		n, ok := of.Columns[c].At(row)
		w.to = appendNullable(w.to, n, ok)
	}
	for h := range info.Histograms {
		w.writeHistogram(&of.Histograms[h], row)
	}
}

func (w *rowWriter) writeHistogram(h *frame.Histograms, row int) {
	sumNS, zero, overflow := parts(h, row)
	w.to = appendUint64(appendUint64(appendUint64(w.to, sumNS), zero), overflow)
	index, count := h.Buckets(row)
	w.to = binary.AppendUvarint(w.to, uint64(len(index)))
	for _, bucket := range index {
		w.to = appendUint32(w.to, uint32(bucket))
	}
	w.to = binary.AppendUvarint(w.to, uint64(len(count)))
	for _, n := range count {
		w.to = appendUint64(w.to, n)
	}
}
