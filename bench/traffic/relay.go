package traffic

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// relay passes connections on and counts them: the books of a client that keeps none.
type relay struct {
	books
	listener net.Listener
	passes   sync.WaitGroup
}

// stop waits until all connections have ended, so that the books are complete.
func (r *relay) stop() {
	r.listener.Close()
	r.passes.Wait()
}

func startRelay(ctx context.Context, to netip.AddrPort) (*relay, error) {
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.passes.Go(func() { r.pass(ctx, client, to) })
		}
	}()
	return r, nil
}

func (r *relay) pass(ctx context.Context, client net.Conn, to netip.AddrPort) {
	defer client.Close()
	server, err := r.dial(ctx, to.String())
	if err != nil {
		return // the client sees its connection closed
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		forward(client, server)
		client.(*net.TCPConn).CloseWrite()
	}()
	forward(server, client)
	server.(*countedConn).Conn.(*net.TCPConn).CloseWrite()
	<-ended
	server.Close()
}

// forward copies by read and write: io.Copy would let the kernel move the bytes by splice.
func forward(to, from net.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
