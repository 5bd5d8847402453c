package traffic

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Delay is a distribution of the time that a server takes.
type Delay struct {
	Name string
	draw func(*rand.Rand) time.Duration
}

// Delays are the distributions in which latencies come.
var Delays = []Delay{
	{"constant 2 ms", func(*rand.Rand) time.Duration { return 2 * time.Millisecond }},
	{"log-normal, median 2 ms, sigma 0.6", func(r *rand.Rand) time.Duration {
		return time.Duration(2e6 * math.Exp(0.6*r.NormFloat64()))
	}},
	{"bimodal, 90 % 1 ms and 10 % 20 ms", func(r *rand.Rand) time.Duration {
		if r.Float64() < 0.9 {
			return time.Millisecond
		}
		return 20 * time.Millisecond
	}},
	{"long tail, Pareto from 1 ms, alpha 1.5", func(r *rand.Rand) time.Duration {
		return min(time.Duration(1e6*math.Pow(1-r.Float64(), -1/1.5)), 900*time.Millisecond)
	}},
}

const (
	delayRequestBytes = 8
	delayReplyBytes   = 64
)

// DelayServer answers each request after the time that the request says.
type DelayServer struct {
	Address  netip.AddrPort
	listener net.Listener
	seed     atomic.Uint64
}

// StartDelayServer starts a server at a free port.
func StartDelayServer() (*DelayServer, error) {
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerLate(conn)
		}
	}()
	return &DelayServer{Address: addressOf(listener.Addr().String()), listener: listener}, nil
}

// Stop accepts no more connections; those that are open live on until their clients close them.
func (s *DelayServer) Stop() { s.listener.Close() }

func answerLate(conn net.Conn) {
	defer conn.Close()
	request, reply := make([]byte, delayRequestBytes), make([]byte, delayReplyBytes)
	for {
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		if delay := time.Duration(binary.BigEndian.Uint64(request)); delay > 0 {
			time.Sleep(delay)
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

// Client returns what opens connections whose requests take times of the distribution; the zero
// Delay is none.
func (s *DelayServer) Client(d Delay) func(context.Context) (Asker, error) {
	return func(ctx context.Context) (Asker, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", s.Address.String())
		if err != nil {
			return nil, err
		}
		// The same requests in each run: the seed is the number of the connection.
		return &delayAsker{Conn: conn, delay: d, random: rand.New(rand.NewPCG(s.seed.Add(1), 0))}, nil
	}
}

type delayAsker struct {
	net.Conn
	delay   Delay
	random  *rand.Rand
	request [delayRequestBytes]byte
	reply   [delayReplyBytes]byte
}

func (a *delayAsker) Ask() error {
	var delay time.Duration
	if a.delay.draw != nil {
		delay = a.delay.draw(a.random)
	}
	binary.BigEndian.PutUint64(a.request[:], uint64(delay))
	if _, err := a.Write(a.request[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(a, a.reply[:])
	return err
}
