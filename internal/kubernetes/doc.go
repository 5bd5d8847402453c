// Package kubernetes knows the pods, services and nodes of a cluster from its API server, by plain
// list and watch requests, and puts their names to series.
//
// What is read is held as small tables of what naming needs. The rights that it takes: list and
// watch pods, services, nodes and endpointslices, get replicasets and jobs. An agent, which names
// the containers of its own node, lists and watches the pods of this node alone. What may not be
// read is said (Features), and the rest goes on.
//
// A name is never a guess: what several pods could be stays what it was.
package kubernetes
