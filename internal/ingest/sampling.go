package ingest

import _ "unsafe" // for go:linkname

// samplingFile is the file that package pse of nats-server reads each second from its initialisation on, in every process
// that links it, for how much CPU time a server takes. Nobody asks for that here; an agent of the same binary would wake up
// once a second more. Where the file cannot be read pse goes no further (periodic in server/pse/pse_linux.go).
//
//go:linkname samplingFile github.com/nats-io/nats-server/v2/server/pse.procStatFile
var samplingFile string

func init() { samplingFile = "" }
