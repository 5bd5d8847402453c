package pull

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"outsight/internal/model"
	"outsight/internal/region"
)

// reading is what the regions of a host said at one moment: sums since its agent began, of all that there was. So a later
// one has what an earlier one has, and one that is lost or comes twice changes nothing.
type reading struct {
	// From is the address that was read, Reader the server that did it: its Number is the order of its readings, Term that
	// of its lease (Lease.Term), 0 without a Group.
	From, Reader string
	// Cannot says that Reader cannot read the host. Nothing else than these, Term and Number is there.
	Cannot       bool
	Term, Number uint64
	// At is when the reading began by the reader's clock, By the transport.
	At time.Time
	By string
	// EpochNS is when the host's agent began to count, in ns since 1970 by the host's clock.
	EpochNS      uint64
	Host, BootID string
	CPUs         int
	Containers   []containerReading
	Groups       []groupReading
	Edges        []edgeReading
	// HasDisks says that Disks were read.
	HasDisks bool
	Disks    []model.KernelDisk
	// Endpoints are those of which something has been counted.
	Endpoints []endpointReading
	// HasApplications says that Applications were read, applications' own metrics, and ApplicationsWhy why they could not be.
	HasApplications bool
	ApplicationsWhy string
	Applications    []region.ApplicationFigure
}

type containerReading struct {
	Container model.Container
	Levels    levels
}

type groupReading struct {
	ID model.CgroupID
	// Container is an index of reading.Containers.
	Container int
	Counters  counters
}

type edgeReading struct {
	ID       edgeID
	Key      model.KernelEdgeKey
	Counters model.EdgeCounters
}

type endpointReading struct {
	// Number is that of its record, Edge its edge.
	Number   uint64
	Edge     edgeID
	Endpoint model.Endpoint
}

// edgeID is a record of an edge, as long as it is of one.
type edgeID struct{ Index, Generation uint32 }

// readingOf is a sample.
func readingOf(s *region.Sample) *reading {
	r := &reading{EpochNS: s.Control.EpochNS, Host: s.Control.Host, BootID: s.Control.BootID, CPUs: int(s.Control.CPUs),
		Containers: make([]containerReading, len(s.Containers)), Groups: make([]groupReading, len(s.Groups)),
		Edges: make([]edgeReading, len(s.Edges))}
	for i := range s.Containers {
		c, to := &s.Containers[i], &r.Containers[i]
		to.Container = model.Container{ID: c.ID, Name: c.Name, Image: c.Image, Runtime: c.Runtime, PodName: c.PodName,
			PodNamespace: c.PodNamespace, Workload: c.Workload, Addresses: c.Addresses, Started: c.Started}
		to.Levels.fill(c.Figures)
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		r.Groups[i].ID, r.Groups[i].Container = g.ID, g.Container
		r.Groups[i].Counters.fill(g.Figures)
	}
	for i := range s.Edges {
		e := &s.Edges[i]
		r.Edges[i].ID, r.Edges[i].Key = edgeID{e.Index, e.Generation}, e.Key
		fillEdge(&r.Edges[i].Counters, e.Key.Role, e.Figures)
	}
	r.HasDisks = s.HasDisks
	r.Disks = make([]model.KernelDisk, len(s.Disks))
	for i := range s.Disks {
		r.Disks[i] = diskOf(&s.Disks[i])
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if of := endpointOf(e); of.Transactions() > 0 { // else it was asked for, and not answered yet
			r.Endpoints = append(r.Endpoints, endpointReading{e.Number, edgeID{e.Edge, e.EdgeGeneration}, of})
		}
	}
	r.HasApplications, r.Applications = s.HasApplications, s.Applications
	if s.ApplicationsError != nil {
		r.ApplicationsWhy = s.ApplicationsError.Error()
	}
	return r
}

// Bounds of what other servers send.
const (
	maxReadingBytes = 64 << 20
	readingVersion  = 3
)

// readingCodec turns readings into messages and back. It is for one goroutine.
type readingCodec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

func newReadingCodec() (*readingCodec, error) {
	e, err1 := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	d, err2 := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxReadingBytes))
	return &readingCodec{e, d}, errors.Join(err1, err2)
}

func (c *readingCodec) encode(r *reading) ([]byte, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(r); err != nil {
		return nil, fmt.Errorf("encoding a reading of %s: %w", r.From, err)
	}
	return c.encoder.EncodeAll(b.Bytes(), []byte{readingVersion}), nil
}

// errReading is the error of a message that is no reading.
var errReading = errors.New("no reading")

func (c *readingCodec) decode(b []byte) (*reading, error) {
	if len(b) == 0 || b[0] != readingVersion {
		return nil, fmt.Errorf("%w: of another version than %d: run the same release on all servers", errReading,
			readingVersion)
	}
	plain, err := c.decoder.DecodeAll(b[1:], nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errReading, err)
	}
	var r reading
	if err := gob.NewDecoder(io.LimitReader(bytes.NewReader(plain), maxReadingBytes)).Decode(&r); err != nil {
		return nil, fmt.Errorf("%w: %w", errReading, err)
	}
	for i := range r.Groups {
		if at := r.Groups[i].Container; at < 0 || at >= len(r.Containers) {
			return nil, fmt.Errorf("%w: a control group of container %d of %d", errReading, at, len(r.Containers))
		}
	}
	for i := range r.Applications {
		if at := r.Applications[i].Container; at < 0 || at >= len(r.Containers) {
			return nil, fmt.Errorf("%w: an application's metric of container %d of %d", errReading, at, len(r.Containers))
		}
	}
	return &r, nil
}
