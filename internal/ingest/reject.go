package ingest

import (
	"fmt"
	"strings"
)

// Reason is why a data point was rejected. Other points of its request are accepted.
type Reason uint8

// The reasons.
const (
	Delta Reason = iota
	TooOld
	Future
	BadLabels
	BadName
	BadHistogram
	Refused
	NoRoom
	reasons
)

// String names r as metrics do.
func (r Reason) String() string {
	return [reasons]string{"delta", "too_old", "future", "labels", "name", "histogram", "store", "no_room"}[r]
}

// explanations are for the operator of the sender.
var explanations = [reasons]string{
	"of delta temporality: let the sender export cumulative ones",
	"too old or without a time",
	"ahead of this server's clock: set the sender's clock",
	"with too many labels or bytes of labels, labels twice, or names of labels that cannot be stored",
	"of metrics without a name or with one that cannot be stored",
	"of histograms that contradict themselves or have too many buckets",
	"that the store refused",
	"of new series for which there is no room: send fewer different labels, or have the quota raised",
}

// Rejections counts data points by reason.
type Rejections [reasons]uint64

// Total is the sum of all.
func (r *Rejections) Total() (n uint64) {
	for _, v := range r {
		n += v
	}
	return n
}

// String lists the reasons with their numbers; it is empty if nothing was rejected.
func (r *Rejections) String() string {
	var parts []string
	for reason, n := range r {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, explanations[reason]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "data points rejected: " + strings.Join(parts, "; ")
}
