// Package frame holds what one host saw at one instant: entities, with numbers that stay what they are for as long as
// the agent runs, and for each of them a row of cumulative counters.
//
// Counters only grow, and no row vanishes with what it counted: a row that has ended stays for Linger, and is then added
// to a row that sums what is gone of its kind (attribute "sum"). So what happened in a window is the difference of two
// frames, whatever lies between them, and a history is made coarser by leaving frames out.
//
// The columns of a table are those of the registry of metrics (internal/model). docs/format/frame.md is the page of the
// encoded form.
package frame
