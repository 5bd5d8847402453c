package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

var http2SweepHook = hook{"sweep_http2_streams", "iter/bpf_map_elem (HTTP/2)",
	"streams of HTTP/2 connections that have ended", false, "kernel 5.9 or later with BTF"}

// streamReader gives up the streams that http2_streams.h leaves behind.
type streamReader struct {
	// ended are the connections whose streams are left; sweep ends those.
	ended *ebpf.Map
	sweep *link.Iter
}

// prepareStreams sizes the maps of http2_streams.h.
func (p *Probes) prepareStreams(spec *ebpf.CollectionSpec) {
	spec.Maps["http2_streams"].MaxEntries = uint32(p.options.MaxStreams)
	spec.Maps["http2_ended"].MaxEntries = uint32(p.options.MaxStreams)
}

func (p *Probes) openStreams(k *kernel, spec *ebpf.CollectionSpec, maps *ebpf.Collection) error {
	r := &p.edges.streams
	r.ended = maps.Maps["http2_ended"]
	var err error
	r.sweep, err = p.openIterator(k, spec, maps, http2SweepHook, maps.Maps["http2_streams"])
	p.addFeature(http2SweepHook, err)
	return err
}

// sweepStreams ends what is left of connections that have ended, if there are such.
func (r *streamReader) sweepStreams() error {
	if r.sweep == nil {
		return nil
	}
	var ended []uint64
	var id, when uint64
	all := r.ended.Iterate()
	for all.Next(&id, &when) {
		ended = append(ended, id)
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("reading the connections that left streams: %w", err)
	}
	if len(ended) == 0 {
		return nil
	}
	if err := run(r.sweep); err != nil {
		return fmt.Errorf("ending streams: %w", err)
	}
	for _, id := range ended {
		if err := r.ended.Delete(id); err != nil {
			return fmt.Errorf("forgetting an ended connection: %w", err)
		}
	}
	return nil
}
