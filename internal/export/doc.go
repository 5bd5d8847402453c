// Package export sends what an agent sees to a server, as OTLP over HTTP.
//
// Each snapshot becomes one request, a batch, whose bytes and name never change again. It is written to a spool on the
// disk first, and removed when the server has acknowledged it. So an unavailable server, or an agent that is killed,
// loses nothing as long as the spool has space; the server recognises a repeated batch by its name.
//
// The spool is bounded in bytes. When it is full, the oldest batches are dropped and counted.
package export
