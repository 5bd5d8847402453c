// Command apps is the part of ours in the applications that bench measures the limit of: an HTTP server that asks
// PostgreSQL over a pool of connections, one that works and asks Redis, or one that writes to a disk.
package main
