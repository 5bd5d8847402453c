package frame

import "outsight/internal/model"

// AddTo adds the durations to a histogram.
func (h *Durations) AddTo(to *model.Histogram) {
	more := model.Histogram{Count: h.Count, SumNS: h.SumNS, ZeroCount: h.Zero, OverflowCount: h.Overflow, Offset: h.First}
	for bucket := h.First; bucket <= h.Last; bucket++ {
		more.Buckets = append(more.Buckets, h.At(bucket))
	}
	to.Merge(&more)
}
