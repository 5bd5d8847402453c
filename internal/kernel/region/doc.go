// Package region lets the kernel answer packets that ask for memory of array maps (internal/region/readwire): no process
// of this host runs for it.
package region
