// Package probe measures the network between two places: one-way delay, jitter, loss, reordering and duplicates by STAMP
// (internal/stamp), the path by traceroute, capacity by a bounded TCP burst, and towards an address where no reflector
// answers, ICMP echo and the time to connect.
//
// A place is a container of this host or an address. Sockets of a container are made inside its network namespace: a
// thread enters it, makes the socket and comes back. No process, no interface and no address appears there, and the
// namespace is not kept alive: when the container ends, the measurement does, with ErrEnded.
//
// Everything is bounded: Options says in time, packets and bytes.
package probe
