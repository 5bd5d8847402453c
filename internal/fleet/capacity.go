package fleet

import (
	"time"

	"outsight/internal/frame"
)

// capacity is what a path carried, in bytes per second, and when that was.
type capacity struct {
	bytesPerSecond float64
	measured       time.Time
}

// capacities are those of paths between containers that were measured on request and are known at the end of a window, by
// the host, the IDs of a client's and a server's container there, and a key of model.ProbeNumbers.
func capacities(w *frame.Window) func(host, client, server, key string) (float64, bool) {
	const bytesPerSecond, measured = "outsight_path_capacity_bytes_per_second", "outsight_path_capacity_measured_timestamp_seconds"
	known := map[[3]string]capacity{} // by the host, from where and to where
	for i := range w.Hosts {
		h := &w.Hosts[i]
		if len(h.Spans) == 0 {
			continue
		}
		f := h.Spans[len(h.Spans)-1].After
		ends := func(labels []string) [3]string { return [3]string{h.Host, labels[2], labels[3]} }
		eachLabelled(f, metric(bytesPerSecond, "from"), func(row int, labels []string) {
			c := known[ends(labels)]
			c.bytesPerSecond = valueIn(f, bytesPerSecond, row)
			known[ends(labels)] = c
		})
		eachLabelled(f, metric(measured, "from"), func(row int, labels []string) {
			c := known[ends(labels)]
			c.measured = time.UnixMilli(int64(1e3 * valueIn(f, measured, row)))
			known[ends(labels)] = c
		})
	}
	return func(host, client, server, key string) (float64, bool) {
		there, isThere := known[[3]string{host, client, server}]
		back, isBack := known[[3]string{host, server, client}]
		switch key {
		case "capacity_there":
			return there.bytesPerSecond, isThere
		case "capacity_back":
			return back.bytesPerSecond, isBack
		case "capacity_age":
			at := there.measured
			if !isThere || isBack && back.measured.Before(at) {
				at = back.measured
			}
			return max(w.To.Sub(at).Seconds(), 0), isThere || isBack
		}
		return 0, false
	}
}
