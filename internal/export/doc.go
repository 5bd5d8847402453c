// Package export sends what an agent sees to a server: frames to an Outsight server, or series as OTLP over HTTP to any
// other backend.
//
// Each frame becomes one request, a batch, whose bytes and name never change again. It is written to a spool on the
// disk first, and removed when the server has acknowledged it. So an unavailable server, or an agent that is killed,
// loses nothing as long as the spool has space; the server recognises a repeated batch by its name, and a repeated frame
// by its host, epoch and number.
//
// The spool is bounded in bytes. When it is full, the oldest batches are dropped and counted. With a key frame, those
// that are told as changes of it are of no use: they are dropped, too.
package export
