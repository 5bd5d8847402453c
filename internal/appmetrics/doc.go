// Package appmetrics reads applications' own metrics: counters and gauges that a process keeps in a sealed memory file
// (docs/format/appmetrics.md), which the libraries below sdk/ make. The file is mapped read-only and read once a second;
// the process is neither asked nor stopped.
//
// A Collector is told of files by the kernel (Offer) and looks for those of older processes in /proc (Run). What the
// processes of one container count under the same name and labels is added up. A process that has ended stays in its
// container's counters with its last values. Nothing in a file is trusted: sizes, texts and numbers are checked, and all
// is bounded, each bound with a counter.
package appmetrics
