package demo

import "time"

// Status is a line that a service writes to its output: what it knows of itself. The launcher
// reads it from there, because a request over the network would add to what is being counted.
type Status struct {
	Role string `json:"role"`
	// Revision is that of the last Control that was carried out.
	Revision int `json:"revision"`
	// Calls has the counts per server called, by role; Callers those per client, by address.
	Calls   map[string]Counts `json:"calls,omitempty"`
	Callers map[string]Counts `json:"callers,omitempty"`
	// Load, Payment, Stalls and Orders are set by the service that they are about.
	Load    *LoadReport    `json:"load,omitempty"`
	Payment *PaymentReport `json:"payment,omitempty"`
	Stalls  *StallReport   `json:"stalls,omitempty"`
	// Orders is the number of orders that the worker has taken from the queue.
	Orders uint64 `json:"orders,omitempty"`
}

// control is what the launcher asks of a running service, by a file and SIGHUP.
type control struct {
	Revision int `json:"revision"`
	// Rate in requests per second, for the load generator.
	Rate float64 `json:"rate"`
	// Paused stops what a service does by itself; it answers requests all the same.
	Paused bool `json:"paused"`
	// CloseIdle closes the connections to other services once, now.
	CloseIdle bool `json:"close_idle"`
}

// PaymentReport is what the payment service knows of its work.
type PaymentReport struct {
	Payments uint64 `json:"payments"`
	// CPU time of the one thread that does the work.
	CPU time.Duration `json:"cpu_ns"`
	// Waiting is the number of payments in the queue for that thread.
	Waiting int `json:"waiting"`
}

// StallReport is when the catalogue stood still.
type StallReport struct {
	Total uint64 `json:"total"`
	// Stalls are the last ones, oldest first, at most maxStalls.
	Stalls []Stall `json:"stalls"`
}

// Stall is a time in which the catalogue answered nobody.
type Stall struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// LoadReport is what the load generator saw.
type LoadReport struct {
	// Rate that is asked for, in requests per second.
	Rate float64 `json:"rate"`
	// Sent = Completed + Errors + InFlight. Shed counts requests that were due when too many
	// were in flight already, and were not sent.
	Sent      uint64 `json:"sent"`
	Completed uint64 `json:"completed"`
	Errors    uint64 `json:"errors"`
	Shed      uint64 `json:"shed"`
	InFlight  int64  `json:"in_flight"`
	// LastError is one of Errors, in words.
	LastError string `json:"last_error,omitempty"`
	// Latency is from the first byte sent to the last byte received. Response is from the time
	// at which the request was due, so that it contains the wait for a connection too.
	Latency  LatencySummary `json:"latency"`
	Response LatencySummary `json:"response"`
	// Paths has the same for each kind of request.
	Paths map[string]PathReport `json:"paths"`
	// Counts are those of the connections to the front door.
	Counts Counts `json:"counts"`
}

// PathReport is what the load generator saw of one kind of request.
type PathReport struct {
	Sent      uint64         `json:"sent"`
	Completed uint64         `json:"completed"`
	Errors    uint64         `json:"errors"`
	Latency   LatencySummary `json:"latency"`
}

// LatencySummary holds percentiles of completed requests, within 0.1 % of the true ones.
type LatencySummary struct {
	Count uint64        `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P75   time.Duration `json:"p75_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}
