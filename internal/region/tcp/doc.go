// Package tcp carries many reads of regions in one message over a TCP connection, whose messages are authenticated by a
// key that both ends have. docs/format/region.md has the bytes.
package tcp
