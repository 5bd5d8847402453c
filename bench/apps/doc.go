// Command apps is the part of ours in the applications that bench measures the limit of: an HTTP server that asks
// PostgreSQL over a pool of connections, one that works and asks Redis, one that writes to a disk, or one that asks another
// server so many times at once.
package main
