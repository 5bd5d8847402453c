// Package access decides who may use the addresses of a process: by a token, by a client's certificate, or because only
// programs of the same host can reach them. Server and agent share it, so that one rule holds: an address that other
// hosts can reach needs authentication.
package access
