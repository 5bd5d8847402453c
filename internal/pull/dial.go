package pull

import (
	"context"
	"errors"
	"net"

	"outsight/internal/region"
	"outsight/internal/region/credit"
	"outsight/internal/region/rdma"
	"outsight/internal/region/readwire"
	"outsight/internal/region/tcp"
)

// The transports over the network.
const (
	// TransportAuto is TransportKernel where it answers, else TransportTCP.
	TransportAuto   = "auto"
	TransportKernel = "kernel"
	TransportTCP    = "tcp"
	TransportRDMA   = "rdma"
)

// Transports are all of them.
var Transports = []string{TransportAuto, TransportKernel, TransportTCP, TransportRDMA}

// DialOptions of Dial.
type DialOptions struct {
	// Transport is one of Transports.
	Transport string
	// Device is the RDMA device of this host; empty is the first with an active port.
	Device string
}

// packetWindow is how many packets of a host may be unanswered at a time.
const packetWindow = 16

// Dial connects to the regions at address, HOST:PORT, and says by which transport.
func Dial(ctx context.Context, address string, key region.Key, o DialOptions) (r credit.ReadCloser, by string, err error) {
	if o.Transport == TransportRDMA {
		r, err := rdma.Dial(ctx, address, key, rdma.Options{Device: o.Device})
		return r, TransportRDMA, err
	}
	if o.Transport != TransportTCP {
		r, err := dialKernel(ctx, address, key, o.Transport)
		if err == nil || o.Transport == TransportKernel {
			return r, TransportKernel, err
		}
	}
	r, err = tcp.Dial(ctx, address, key)
	return r, TransportTCP, err
}

// dialKernel is an error where no packet is answered.
func dialKernel(ctx context.Context, address string, secret region.Key, transport string) (credit.ReadCloser, error) {
	key, err := readwire.KeyOf(secret)
	if err != nil {
		return nil, err
	}
	o := readwire.Options{Window: packetWindow}
	if transport == TransportAuto {
		o.Attempts = 3 // in 140 ms
	}
	client, err := readwire.Dial(address, key, o)
	if err != nil {
		return nil, err
	}
	r := &kernelReader{packets: readwire.Reader{Client: client}, address: address, key: secret}
	var first [readwire.BlockBytes]byte
	if err := r.Read(ctx, region.ControlID, 0, first[:]); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return r, nil
}

// Reason is why a host could not be read, in a word.
type Reason string

// The reasons.
const (
	Deadline  Reason = "deadline"
	Refused   Reason = "refused"
	Gone      Reason = "gone"
	Version   Reason = "version"
	Otherwise Reason = "error"
)

// Reasons are all of them.
var Reasons = []Reason{Deadline, Refused, Gone, Version, Otherwise}

// ReasonOf is what kind of error a reading ended with.
func ReasonOf(err error) Reason {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Deadline
	case errors.Is(err, region.ErrRefused):
		return Refused
	case errors.Is(err, region.ErrGone):
		return Gone
	case errors.Is(err, region.ErrVersion):
		return Version
	}
	return Otherwise
}
