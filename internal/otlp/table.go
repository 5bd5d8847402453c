package otlp

import (
	"sync"

	"outsight/internal/model"
)

// Metric is one row of the registry of metrics.
type Metric = model.Metric

// Metrics are all metrics, in the order in which FromFrame returns their series. They are not to be changed.
var Metrics = sync.OnceValue(model.Metrics)

// seconds turns nanoseconds into seconds.
func seconds(ns uint64) float64 { return float64(ns) / 1e9 }
