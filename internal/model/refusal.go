package model

import "time"

// What a Refusal is of.
const (
	// RefusedRequests are requests of senders of which nothing was taken, RefusedPoints are data points in requests that
	// were taken otherwise, RefusedReaders are requests for the page's data.
	RefusedRequests = "requests"
	RefusedPoints   = "points"
	RefusedReaders  = "readers"
)

// Refusal is what a server refused for one reason since it began.
type Refusal struct {
	// What is RefusedRequests, RefusedPoints or RefusedReaders; Reason is as metrics name it ("unauthorized").
	What, Reason string
	Count        uint64
	// Last is when the last of them was refused, From the address that it came from, empty where that is not known,
	// Said the answer to the sender.
	Last       time.Time
	From, Said string
}
