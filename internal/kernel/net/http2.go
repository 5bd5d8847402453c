package net

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"outsight/internal/kernel/host"
)

var sweepStreams = newSweepWay("sweep_http2_streams", "iter/bpf_map_elem (HTTP/2)",
	"sweep_all_http2_streams", "syscall (HTTP/2)", "streams of HTTP/2 connections that have ended",
	"kernel 5.9 or later with BTF")

// streamReader gives up the streams that http2_streams.h leaves behind.
type streamReader struct {
	// ended are the connections whose streams are left; sweep ends those.
	ended *ebpf.Map
	sweep func() error
	// left counts what came into ended, and swept is what it was before the last sweep.
	left  *ebpf.Variable
	swept uint64
}

// prepareStreams sizes the maps of http2_streams.h.
func (p *Net) prepareStreams(spec *edgesSpecs) {
	spec.Http2Streams.MaxEntries = uint32(p.options.MaxStreams)
	spec.Http2Ended.MaxEntries = uint32(p.options.MaxStreams)
}

func (p *Net) openStreams(k *host.Kernel, spec *ebpf.CollectionSpec, objects *edgeObjects) error {
	r := &p.edges.streams
	r.ended, r.left = objects.Http2Ended, objects.Http2Left
	var err error
	r.sweep, err = p.openSweep(k, spec, objects.collection, sweepStreams, objects.Http2Streams)
	return err
}

// sweepStreams ends what is left of connections that have ended, if there are such.
func (r *streamReader) sweepStreams() error {
	if r.sweep == nil {
		return nil
	}
	var left uint64
	if err := r.left.Get(&left); err != nil {
		return fmt.Errorf("reading how many connections left streams: %w", err)
	}
	if left == r.swept {
		return nil
	}
	var ended []uint64
	var id, when uint64
	all := r.ended.Iterate()
	for all.Next(&id, &when) {
		ended = append(ended, id)
	}
	aborted := errors.Is(all.Err(), ebpf.ErrIterationAborted) // the others are there the next time
	if err := all.Err(); err != nil && !aborted {
		return fmt.Errorf("reading the connections that left streams: %w", err)
	}
	if len(ended) > 0 {
		if err := r.sweep(); err != nil {
			return fmt.Errorf("ending streams: %w", err)
		}
	}
	for _, id := range ended {
		if err := r.ended.Delete(id); err != nil {
			return fmt.Errorf("forgetting an ended connection: %w", err)
		}
	}
	if !aborted {
		r.swept = left
	}
	return nil
}
