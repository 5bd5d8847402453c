// Package cluster runs a small data cluster on several hosts that one machine has: data nodes that hold a partition each,
// workers that read them and pass rows to each other, and a driver that begins jobs. The nodes are processes in Docker
// containers. A host is a network namespace with a bridge and an uplink of a limited rate to a switch; a container is on
// the host to whose bridge its cable goes. It is for measurements and tests of placements.
package cluster
