// Package export sends what an agent sees to a server, as OTLP over HTTP.
//
// Each snapshot becomes one request, whose bytes and name never change again. It goes into a spool on the disk first
// and leaves it when the server has said that it has it. So a server that is away, or asks to be spared, costs nothing
// but room in the spool, and neither does an agent that is killed; what the server gets twice it knows by the name.
//
// The spool is bounded in bytes. Where it is full, the oldest batches go, and are counted.
package export
