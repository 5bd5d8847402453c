// Command apps is the part of ours in the applications that bench measures the limit of: an HTTP server that asks
// PostgreSQL over a pool of connections, or one that works and asks Redis.
package main
