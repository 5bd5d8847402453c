package model

import "time"

// Anomaly is a short time in which a resource of a container was at its limit and something
// waited because of it.
type Anomaly struct {
	// Resource is the kind of saturation, as in a report of recordings: "stall", "host-cpu" and the
	// like.
	Resource string
	// Container is its name, ID its ID.
	Container, ID string
	From, To      time.Time
	// WaitedMS is what waited: milliseconds of threads in run queues, and of requests beyond the
	// usual number.
	WaitedMS float64
	// Text says what was at its limit, Effects what waited, in order of time.
	Text    string
	Effects []string
}
