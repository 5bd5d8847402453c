package model

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
