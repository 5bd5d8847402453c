package traffic

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// streamsEach is how many calls share a gRPC connection at a time.
const streamsEach = 4

// GRPCServer serves gRPC's own health service.
type GRPCServer struct {
	Address string
	books   books
	server  *grpc.Server
}

// StartGRPC starts a server at a free port.
func StartGRPC() (*GRPCServer, error) {
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	s := &GRPCServer{Address: listener.Addr().String(), server: grpc.NewServer(grpc.ReadBufferSize(4096),
		grpc.WriteBufferSize(4096))}
	grpc_health_v1.RegisterHealthServer(s.server, health.NewServer())
	go s.server.Serve(&countedListener{listener, &s.books})
	return s, nil
}

// Stop closes all connections and waits for their handlers.
func (s *GRPCServer) Stop() { s.server.Stop() }

// GRPC makes unary calls, several at a time on each connection.
func GRPC(ctx context.Context, l Load) ([]Truth, error) {
	server, err := StartGRPC()
	if err != nil {
		return nil, err
	}
	var b books
	err = crowd(ctx, l, func(context.Context) (session, error) { return dialGRPC(&b, server.Address, l) })
	server.Stop()
	served := server.books.total()
	served.SentBytes, served.ReceivedBytes = served.ReceivedBytes, served.SentBytes
	return []Truth{{Service: addressOf(server.Address), Client: b.total(), Server: served}}, err
}

type grpcSession struct {
	books *books
	conn  *grpc.ClientConn
	load  Load
}

func dialGRPC(b *books, address string, l Load) (*grpcSession, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(4096), grpc.WithWriteBufferSize(4096),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return b.dial(ctx, address) }))
	return &grpcSession{b, conn, l}, err
}

// ask makes one call, or as many at a time as share a connection.
func (s *grpcSession) ask(ctx context.Context) error {
	streams := streamsEach
	if s.load.OneRequestEach {
		streams = 1
	}
	group, ctx := errgroup.WithContext(ctx)
	for range streams {
		group.Go(func() error {
			if _, err := grpc_health_v1.NewHealthClient(s.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
				return fmt.Errorf("calling %s: %w", s.conn.Target(), err)
			}
			s.books.requests.Add(1)
			return nil
		})
	}
	return group.Wait()
}

func (s *grpcSession) close() { s.conn.Close() }

// GRPCClient returns what opens connections that make one call after another.
func GRPCClient(server *GRPCServer) func(context.Context) (Asker, error) {
	return func(ctx context.Context) (Asker, error) {
		s, err := dialGRPC(&books{}, server.Address, Load{OneRequestEach: true})
		return &grpcAsker{s, ctx}, err
	}
}

type grpcAsker struct {
	session *grpcSession
	ctx     context.Context
}

func (a *grpcAsker) Ask() error   { return a.session.ask(a.ctx) }
func (a *grpcAsker) Close() error { return a.session.conn.Close() }
