// Package shaped reads from many UDP responders over a real link that the kernel shapes, to hold the simulation of
// bench/incast against: two network namespaces, a veth pair, and tbf with a bounded queue in the direction of the
// replies. It needs root, ip and tc.
package shaped
