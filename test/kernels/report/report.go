// Package report is what a guest tells the host about one boot.
package report

import "outsight/internal/model"

// What the host tells the guest: variables of its environment, given on the kernel's command line.
const (
	// Run is a pattern of the kernel tests to be run instead of the usual ones.
	Run = "OUTSIGHT_RUN"
	// WithoutEdges is set for kernels that are known to count no edges. The kernel tests know it
	// by the same name.
	WithoutEdges = "OUTSIGHT_WITHOUT_EDGES"
	// FileSystems tells the kernel tests, by the same name, where file systems are mounted, each under its kind.
	FileSystems = "OUTSIGHT_FILE_SYSTEMS"
)

// RDMA is set for guests that read regions by RDMA, and do nothing else.
const RDMA = "OUTSIGHT_RDMA"

// Clock is set for guests that compare their clock with that of a network card, and do nothing else.
const Clock = "OUTSIGHT_CLOCK"

// Side is set for guests that are one of two hosts: ClientSide or ServerSide.
const (
	Side       = "OUTSIGHT_SIDE"
	ClientSide = "client"
	ServerSide = "server"
	// Serving is what the server's side prints when it is ready.
	Serving = "guest: serving"
)

// What each client asks for in a test of two hosts.
const (
	Connections = 12
	Requests    = 5
)

// FileSystemsDir is where a guest mounts them.
const FileSystemsDir = "/filesystems"

// Report is one boot.
type Report struct {
	// Release of the guest's kernel, as in "6.1.0-56-amd64".
	Release  string
	Features []model.Feature
	Checks   []Check
	// Frames are three of the agent's, encoded as key frames: before its containers did anything, when all was counted, and
	// when all was known of it.
	Frames [][]byte
}

// Check is one thing that was tried. Failure is empty where it went well.
type Check struct {
	Name    string
	Failure string
	// Note is a figure worth showing.
	Note string
}
