// Package graph builds the service map: which containers run, what each uses, and who talks to whom, how much and how
// slowly. Its functions are pure.
//
// A window is of frames, two of each host and agent (frame.Window):
//
//	func FromFrames(w *frame.Window, o Options) *Graph
//	    the map. Options: By (Grouping), MaxEdges, Only (the ID of a node or an edge: nothing else is read).
//	func WaitsFromFrames(w *frame.Window) *Waits
//	    what containers waited for a CPU behind.
//	func (g *Graph) Number(id string, of Of, key string) (v float64, ok bool)
//	    a number of the registry, for a chart: the graph of Only in each of its windows. Usage, Side and Endpoint have
//	    the same by the key alone.
//	func Covered(w *frame.Window) time.Duration
//	    the greatest time between two frames of a host.
//
// How hosts and agents do is in package fleet:
//
//	func fleet.Hosts(w *frame.Window) []fleet.Host  // Graph.Host takes Name, Cores, Idle, Other, Steal
//	func fleet.StatusOf(w *frame.Window) fleet.Status                  // hosts, features, drops, programs
//	func fleet.CompletenessOf(w *frame.Window, unplaced bool) fleet.Completeness // unplaced: Graph.Unplaced != nil
//	func fleet.Losses(w *frame.Window) []fleet.Loss
//	var fleet.Numbers                                                  // the registry's of hosts, keys of Host.Numbers
//
// What ended and has no row of its own any more is in rows that sum it: see FromFrames. Its nodes have IDs that begin
// with "ended/". With more than one host in the window the ID of a systemd service is "/path@host".
package graph
