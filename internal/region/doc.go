// Package region is how a host's counters are read from outside its processes: the layout of the control region and the
// dictionary (docs/format/region.md), who writes them, and who reads them and the regions that they describe. What
// carries a read to the host is a Reader.
package region
