// Package access decides who may talk to what a process listens on: by a token, by a certificate, or because
// nobody but programs of this host can reach it. The server and the agent share it, so that one rule holds for all
// addresses: an address that others can reach asks them who they are.
package access
