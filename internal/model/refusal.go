package model

import (
	"time"
)

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

// What a Quota is of.
const (
	QuotaSeries     = "series"
	QuotaLabelBytes = "label_bytes"
	QuotaInFlight   = "in_flight_bytes"
	QuotaSamples    = "samples_per_second"
	// Of queries: those that run, the milliseconds that they took of the minute's, and the bytes that they and their
	// answers hold.
	QuotaQueries     = "queries_running"
	QuotaQueryTime   = "query_milliseconds_per_minute"
	QuotaQueryMemory = "query_memory_bytes"
)

// Quota is what a tenant has of something that a server divides among its tenants.
type Quota struct {
	Tenant, What string
	// Used of Limit, which is what it could have in all at the moment; Guaranteed it gets whatever others take.
	Used, Limit, Guaranteed int64
	// Refused counts what it did not get, since the server began.
	Refused uint64
}
