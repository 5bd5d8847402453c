// Package store keeps series and answers PromQL over them: an embedded Prometheus TSDB and its
// query engine, configured for a small share of the watched host. It is the only importer of
// Prometheus packages, and none of their types show in its interface.
//
// # Histograms
//
// A model.Histogram is stored as a Prometheus native histogram of schema model.Scale, without any
// change: the buckets have the same boundaries and indexes. Durations past
// model.OverflowThreshold are in bucket model.OverflowBucket, whose nominal upper bound, 71.4 s,
// is what PromQL's histogram_quantile says at most; read it as "69 s or more".
//
// # Beginnings and ends
//
// A counter that a source reports for the first time, with a start since that source's last
// batch, gets a sample of zero at that start, so that rate and increase see what was counted
// before the first report. A series that a source's next batch lacks ends there: it gets a
// staleness marker, so that queries do not carry its last value on.
//
// # Bounds
//
// The time and bytes kept, the series in memory, the samples, points and bytes of a query, the
// queries at a time and the queries that wait are bounded by Options; Stats counts what each
// bound refused.
package store
