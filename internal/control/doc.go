// Package control is the channel by which agents ask a server for their desired state: which sessions to hold, and
// whom their reflectors answer. The server decides that from the pairs of hosts that talk now; the decision is a pure
// function, Decide.
//
// An agent asks by Path with a Question and waits: the answer comes when its state is another one than the version that
// it has, or after a while. What it was told holds for a lease. An agent that cannot ask any more gives it up.
package control
