package shaped

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"outsight/bench/incast"
)

// Result of a real reading.
type Result struct {
	// Elapsed from the first request until all hosts were read.
	Elapsed time.Duration
	// Latency of hosts, from their first request to their last byte: median and the most.
	P50, Most time.Duration
	// Packets and Bytes passed the shaped queue, Drops did not.
	Packets int
	Bytes   int64
	Drops   int
	// Requests, Repeated ones included.
	Requests, Repeated int
}

// headerBytes of a packet of data, and of a request: host, fragment and attempt, and where it begins or how long it is.
const headerBytes = 16

// wireHeader is what the shaped queue counts of a packet besides its data: Ethernet, IPv4, UDP and ours.
const wireHeader = 14 + 20 + 8 + headerBytes

// Setup is the simulation of a reading over a link of rate and with a queue of so many bytes: one machine, whose link is
// the memory of this one. The thread takes what a system call does.
func Setup(rate incast.Rate, queue int, load incast.Load, p incast.Policy, timeout time.Duration) incast.Setup {
	return incast.Setup{
		Network: incast.Network{Link: rate, HostLink: 10 * incast.Gbit, Machines: 1, Delay: 20 * time.Microsecond,
			MTU: 1024, Header: wireHeader},
		Switch:     incast.Switch{Buffer: queue},
		Controller: incast.Controller{Each: 5 * time.Microsecond, Timeout: timeout},
		Load:       load, Policy: p,
	}
}

// Read does for real what a Setup of the function Setup says; of the policies it knows Unlimited and Credit. What was read
// is compared, byte for byte. It ends with ctx at the latest.
func Read(ctx context.Context, s incast.Setup) (r Result, err error) {
	if s.Policy.Flow != incast.Unlimited && s.Policy.Flow != incast.Credit {
		return r, fmt.Errorf("the policy %v is not read for real", s.Policy.Flow)
	}
	l, err := newLink(float64(s.Network.Link), s.Switch.Buffer)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	reading := &reading{Setup: s, hosts: make([]host, s.Load.Hosts)}
	if reading.conn, err = l.listen(0, controllerAddress); err != nil {
		return r, err
	}
	defer reading.conn.Close()
	var responders sync.WaitGroup
	defer responders.Wait()
	for i := range reading.hosts {
		c, err := l.listen(1, hostsAddress)
		if err != nil {
			return r, err
		}
		defer c.Close()
		reading.hosts[i].address = c.LocalAddr().(*net.UDPAddr).AddrPort()
		responders.Go(func() { respond(c, s.Network.MTU) })
	}
	if err := reading.run(ctx); err != nil {
		return r, err
	}
	c, err := l.count()
	if err != nil {
		return r, err
	}
	r = reading.result
	r.Packets, r.Bytes, r.Drops = c.Packets, c.Bytes, c.Drops
	return r, nil
}

// content is the byte of a host at an offset.
func content(host uint32, offset int) byte { return byte(host*31 + uint32(offset) + uint32(offset)>>8) }

// respond answers requests until its socket is closed.
func respond(c *net.UDPConn, mtu int) {
	request, reply := make([]byte, headerBytes), make([]byte, headerBytes+mtu)
	for {
		n, from, err := c.ReadFromUDPAddrPort(request)
		if err != nil {
			return
		}
		if n != headerBytes {
			continue
		}
		copy(reply, request[:12])
		of := binary.LittleEndian.Uint32(request)
		first := int(binary.LittleEndian.Uint32(request[4:]))
		length := int(binary.LittleEndian.Uint32(request[12:]))
		for at := 0; at < length; at += mtu {
			part := min(mtu, length-at)
			binary.LittleEndian.PutUint32(reply[12:], uint32(at))
			for i := range part {
				reply[headerBytes+i] = content(of, first+at+i)
			}
			// A full queue is no error of the socket: UDP does not tell.
			if _, err := c.WriteToUDPAddrPort(reply[:headerBytes+part], from); err != nil {
				return
			}
		}
	}
}

// host that is read.
type host struct {
	address        netip.AddrPort
	begun          time.Time
	next, inFlight int
	done           int
	fragments      map[uint32]*asked
}

// asked is a fragment on the way.
type asked struct {
	attempt uint32
	at      time.Time
	left    int
}

type reading struct {
	incast.Setup
	conn   *net.UDPConn
	hosts  []host
	done   int
	result Result
	took   []time.Duration
}

func (r *reading) run(ctx context.Context) error {
	begin := time.Now()
	for i := range r.hosts {
		if err := r.post(uint32(i)); err != nil {
			return err
		}
	}
	b := make([]byte, 64<<10)
	for look := time.Now(); r.done < len(r.hosts); {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%d of %d hosts were read: %w", r.done, len(r.hosts), err)
		}
		if time.Since(look) > r.Controller.Timeout/4 {
			look = time.Now()
			if err := r.repeat(); err != nil {
				return err
			}
		}
		if err := r.conn.SetReadDeadline(time.Now().Add(r.Controller.Timeout / 4)); err != nil {
			return err
		}
		n, err := r.conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		if err := r.take(b[:n]); err != nil {
			return err
		}
	}
	r.result.Elapsed = time.Since(begin)
	slices.Sort(r.took)
	r.result.P50, r.result.Most = r.took[len(r.took)/2], r.took[len(r.took)-1]
	return nil
}

// post asks a host for what the policy allows.
func (r *reading) post(of uint32) error {
	h := &r.hosts[of]
	if h.fragments == nil {
		h.fragments = map[uint32]*asked{}
		h.begun = time.Now()
	}
	for h.next < r.Load.Bytes {
		credit := max(r.Policy.Bytes/len(r.hosts), r.Load.Fragment)
		if r.Policy.Flow == incast.Credit && h.inFlight+r.Load.Fragment > credit {
			return nil
		}
		first := uint32(h.next)
		h.fragments[first] = &asked{}
		h.next += r.Load.Fragment
		h.inFlight += r.Load.Fragment
		if err := r.ask(of, first); err != nil {
			return err
		}
	}
	return nil
}

// ask sends the request of a fragment.
func (r *reading) ask(of, first uint32) error {
	h := &r.hosts[of]
	one := h.fragments[first]
	one.left = min(r.Load.Fragment, r.Load.Bytes-int(first))
	one.at = time.Now()
	b := binary.LittleEndian.AppendUint32(nil, of)
	b = binary.LittleEndian.AppendUint32(b, first)
	b = binary.LittleEndian.AppendUint32(b, one.attempt)
	b = binary.LittleEndian.AppendUint32(b, uint32(one.left))
	r.result.Requests++
	if _, err := r.conn.WriteToUDPAddrPort(b, h.address); err != nil {
		return fmt.Errorf("asking host %d: %w", of, err)
	}
	return nil
}

// repeat asks again for what is overdue.
func (r *reading) repeat() error {
	for of := range r.hosts {
		for first, one := range r.hosts[of].fragments {
			if time.Since(one.at) < r.Controller.Timeout {
				continue
			}
			one.attempt++
			r.result.Repeated++
			if err := r.ask(uint32(of), first); err != nil {
				return err
			}
		}
	}
	return nil
}

// take counts a packet of data.
func (r *reading) take(b []byte) error {
	if len(b) < headerBytes {
		return fmt.Errorf("a packet of %d bytes, want %d at least", len(b), headerBytes)
	}
	of, first := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if int(of) >= len(r.hosts) {
		return fmt.Errorf("a packet of host %d of %d", of, len(r.hosts))
	}
	h := &r.hosts[of]
	one := h.fragments[first]
	if one == nil || one.attempt != binary.LittleEndian.Uint32(b[8:]) {
		return nil // of an earlier attempt
	}
	at, data := int(first)+int(binary.LittleEndian.Uint32(b[12:])), b[headerBytes:]
	for i, got := range data {
		if want := content(of, at+i); got != want {
			return fmt.Errorf("host %d has %d at %d, want %d", of, got, at+i, want)
		}
	}
	if one.left -= len(data); one.left > 0 {
		return nil
	}
	delete(h.fragments, first)
	h.inFlight -= r.Load.Fragment
	if h.done += min(r.Load.Fragment, r.Load.Bytes-int(first)); h.done == r.Load.Bytes {
		r.done++
		r.took = append(r.took, time.Since(h.begun))
	}
	return r.post(of)
}
