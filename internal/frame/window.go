package frame

import "time"

// Span is a part of a window in which one agent watched a host: what it counted there is After less Before.
type Span struct {
	// Before is nil where the epoch began in the window and another one of the host goes before in it: kernel programs
	// counted from 0 then, and columns with ColumnInfo.File go on from what the span before ended with, for containers
	// with the same ID.
	Before, After *Frame
}

// HostSpans are what happened on one host in a window: an epoch after the other. Where the host's first epoch begins in
// the window, Before of its span is the first frame of that epoch.
type HostSpans struct {
	Host  string
	Spans []Span
}

// Window is what happened on several hosts between two moments. The frames are the newest ones that are no later than
// these: the time that is covered is that between frames.
type Window struct {
	From, To time.Time
	// Hosts in order of their names.
	Hosts []HostSpans
}
