package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

const (
	// connectTries bounds the connections that are timed, connectGap is between two.
	connectTries = 10
	connectGap   = 100 * time.Millisecond
	// burstTime bounds a burst.
	burstTime = 5 * time.Second
)

// dial connects from the place. The socket is made in its network namespace.
func (p *Place) dial(ctx context.Context, from netip.Addr, to netip.AddrPort, timeout time.Duration) (c net.Conn, err error) {
	dialer := net.Dialer{Timeout: timeout, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	dialer.SetMultipathTCP(false)
	err = p.inside(func() (err error) {
		c, err = dialer.DialContext(ctx, "tcp", to.String())
		return err
	})
	return c, err
}

// connect times connections to a port. One that is refused takes a round trip, too.
func (m *measurement) connect(ctx context.Context) {
	to := netip.AddrPortFrom(m.destination, m.o.TCPPort)
	result := Connect{Port: to.Port()}
	var trips []time.Duration
	tries := min(connectTries, max(int(m.o.Duration/connectGap), 1))
	for range tries {
		begun := time.Now()
		c, err := m.from.dial(ctx, m.source, to, m.o.Timeout)
		trip := time.Since(begun)
		if ctx.Err() != nil {
			break
		}
		switch {
		case err == nil:
			c.Close()
			result.Accepted++
			trips = append(trips, trip)
		case errors.Is(err, syscall.ECONNREFUSED):
			result.Refused++
			trips = append(trips, trip)
		default:
			result.Failed++
			result.Error = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(connectGap):
		}
	}
	result.RoundTrip = delaysOf(trips)
	m.result.Connect = &result
}

// capacity measures a burst in each direction, where that is asked for.
func (m *measurement) capacity(ctx context.Context) {
	if m.o.Capacity == 0 || ctx.Err() != nil {
		return
	}
	if !m.to.Here() {
		m.note("capacity", fmt.Errorf("%s is not on this host: a burst needs both ends", m.to.Name))
		return
	}
	for _, way := range []struct {
		what                string
		from, to            *Place
		source, destination netip.Addr
		result              **Capacity
	}{
		{"there", m.from, m.to, m.source, m.destination, &m.result.There},
		{"back", m.to, m.from, m.destination, m.source, &m.result.Back},
	} {
		m.mu.Lock()
		m.told = time.Time{} // is told in any case
		m.mu.Unlock()
		m.tell(Progress{Step: "capacity " + way.what})
		c, err := burst(ctx, way.from, way.to, way.source, way.destination, m.o.Capacity)
		if err != nil && ctx.Err() == nil {
			m.note("capacity "+way.what, err)
		} else {
			*way.result = c
		}
	}
}

// burst sends bytes from one place to another, both on this host.
func burst(ctx context.Context, from, to *Place, source, destination netip.Addr, bytes int64) (*Capacity, error) {
	l, err := to.listenTCP(netip.AddrPortFrom(destination, 0))
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", to.Name, err)
	}
	defer l.Close()
	deadline := time.Now().Add(burstTime)
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	if err := l.SetDeadline(deadline); err != nil {
		return nil, err
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	out, err := from.dial(ctx, source, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), burstTime)
	if err != nil {
		return nil, fmt.Errorf("connecting from %s to %s: %w", from.Name, to.Name, err)
	}
	defer out.Close()
	in, err := l.Accept()
	// Another might have connected first: only what this end sends counts.
	for err == nil && in.RemoteAddr().String() != out.LocalAddr().String() {
		in.Close()
		in, err = l.Accept()
	}
	if err != nil {
		return nil, fmt.Errorf("accepting at %s: %w", to.Name, err)
	}
	defer in.Close()
	stopBoth := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
	defer stopBoth()
	if err := errors.Join(in.SetDeadline(deadline), out.SetDeadline(deadline)); err != nil {
		return nil, err
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.CopyN(out, zeros{}, bytes) // what did not arrive is what counts
		_ = out.(*net.TCPConn).CloseWrite()
	}()
	c, err := take(in, bytes)
	out.Close()
	<-sent
	return c, err
}

// zeros has as many of them as are read.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// arrived is how many bytes had come when.
type arrived struct {
	bytes int64
	at    time.Time
}

// take reads a burst and says how fast its second half was.
func take(in io.Reader, bytes int64) (*Capacity, error) {
	b := make([]byte, 256<<10)
	var all []arrived
	total := int64(0)
	for total < bytes {
		n, err := in.Read(b)
		if n > 0 {
			total += int64(n)
			all = append(all, arrived{total, time.Now()})
		}
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return rate(all, bytes)
}

// rate is the speed of the second half of what arrived.
func rate(all []arrived, wanted int64) (*Capacity, error) {
	if len(all) == 0 {
		return nil, errors.New("nothing of the burst arrived")
	}
	first, last := all[0], all[len(all)-1]
	half := first
	for _, a := range all {
		if half = a; a.bytes >= last.bytes/2 {
			break
		}
	}
	c := &Capacity{Bytes: last.bytes, Wanted: wanted, Seconds: last.at.Sub(first.at).Seconds(), Measured: time.Now()}
	if took := last.at.Sub(half.at).Seconds(); took > 0 {
		c.BitsPerSecond = 8 * float64(last.bytes-half.bytes) / took
		return c, nil
	}
	return nil, fmt.Errorf("%d bytes arrived at once: too few to tell a rate", last.bytes)
}
