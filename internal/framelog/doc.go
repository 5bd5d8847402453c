// Package framelog keeps the frames of many hosts: the source of truth of a server. Any two moments of it make a
// window.
//
// What Append has returned for is on the disk. A history becomes coarser with age by leaving frames out, which keeps
// every count exact.
package framelog
