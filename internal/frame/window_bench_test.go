package frame

import "testing"

// BenchmarkWindow reads what edges gained in a window, out of frames that are told as changes of two key frames.
func BenchmarkWindow(b *testing.B) {
	h := newSampleHost(10, 200)
	h.step(60, 1)
	var all [4]*Frame
	var data [4][]byte
	for i, seconds := range []int{540, 30, 3570, 30} {
		all[i] = h.step(seconds, 0.7)
		data[i] = Encode(nil, all[i], all[i&^1])
	}
	histograms := []string{"latency", "first_byte", "rtt"}
	only := NewProjection(map[TableID][]string{Hosts: nil, Edges: append(histograms, "request_bytes", "transactions")})
	var memory Memory
	var sum Durations
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		var got [4]*Frame
		for i := range data {
			var err error
			if got[i], err = DecodeInto(&memory, data[i], got[i&^1], only); err != nil {
				b.Fatal(err)
			}
		}
		d := Since(Edges, got[1], got[3])
		addUp(d, 1)
		for _, name := range histograms {
			column := Histogram(Edges, name)
			for range 2 {
				sum.Reset()
				for row := range d.After.IDs {
					d.AddHistogram(&sum, column, row)
				}
			}
		}
		memory.Release()
	}
	if sum.Count == 0 {
		b.Fatal("nothing was gained")
	}
}
