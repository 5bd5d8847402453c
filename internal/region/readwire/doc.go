// Package readwire is how memory of a host is read by packets: requests and replies, and who asks. The layout is
// docs/format/region-read.md; the host's kernel answers (internal/kernel/region).
package readwire
